"""Findings as rows: the worst first, nothing wider than the panel, the keys where the cursor is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.ui_backend import DATA_WAIT, OUT_OF_MEMORY
from tuner_tui.advice.expected_memory import ExpectedPeak
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.finding_rows import (
    KEYS,
    LOOK_KEYS,
    RETRY_KEYS,
    SLOW_KEYS,
    STACK_KEYS,
    choices,
    finding_rows,
    good_rows,
)

HINT = Finding("tf32-off", "hint", "TF32 is off", (), "possible")


def texts(*findings: Finding, selected: int = 0, width: int = 120) -> list[str]:
    return [plain_text(row).rstrip() for row, _ in finding_rows(findings, selected, width)]


def test_the_worst_stands_first_and_doubt_is_said() -> None:
    heads = [row for row in texts(HINT, DATA_WAIT, OUT_OF_MEMORY) if row[0] in "●○"]
    assert [row[:11] for row in heads] == ["● The GPU r", "● The GPU w", "○ TF32 is o"]
    assert "(certain)" not in heads[0]
    assert "(likely)" in heads[1]
    assert choices((HINT, DATA_WAIT, OUT_OF_MEMORY))[-1].finding is HINT


def test_keys_stand_at_the_choice_under_the_cursor_only() -> None:
    rows = finding_rows((DATA_WAIT,), 0, 120)
    assert [choice for row, choice in rows if KEYS in plain_text(row)] == [0]
    outside = texts(DATA_WAIT, selected=1)[2]
    assert outside.endswith(LOOK_KEYS)
    assert KEYS not in outside, "a remedy outside the settings can only be looked at"
    assert choices((HINT,))[0].remedy is None
    assert texts(HINT, width=80)[0].endswith(LOOK_KEYS)


def test_the_key_that_explains_a_slow_run_stands_at_its_finding_while_it_runs() -> None:
    waits = replace(DATA_WAIT, lost_share=0.31)
    slow, stalled = replace(waits, cause="padding"), replace(DATA_WAIT, cause="stalled")
    for finding, keys in ((slow, SLOW_KEYS), (waits, STACK_KEYS), (stalled, STACK_KEYS), (DATA_WAIT, "")):
        for running in (True, False):
            rows = [plain_text(row) for row, _ in finding_rows((finding,), 0, 120, running=running)]
            assert sum(row.endswith(KEYS + keys * running) for row in rows) == 1


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), min_size=1, max_size=80)
remedies = st.builds(Remedy, words, words, st.just({"seed": 1}), words, words)
findings = st.builds(
    Finding, words | st.just("gpu-oom"), st.sampled_from(["failed", "warning", "hint"]), words,
    st.lists(words, max_size=3).map(tuple),
    st.just("likely"), st.none(), st.lists(remedies, max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(findings, max_size=3), st.integers(0, 5), st.integers(30, 160))
def test_no_row_is_wider_than_the_panel(shown_findings: list[Finding], selected: int, width: int) -> None:
    assert all(line_width(row) <= width for row, _ in finding_rows(shown_findings, selected, width))


def test_what_is_too_long_is_folded_and_nothing_of_it_is_lost() -> None:
    advice = "Install PyTorch with CUDA: pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
    failed = Finding(
        "misfit", "failed", "word " * 30, ("torch prints None",), "certain", remedies=(Remedy(advice, ""),)
    )
    shown = " ".join(texts(failed, width=60)).split()
    assert shown.count("word") == 30
    assert [word for word in advice.split() if word not in shown] == []
    only_advice = texts(replace(failed, severity="warning", sentence="PyTorch here is CPU-only."), width=60)
    assert only_advice == ["● PyTorch here is CPU-only.", only_advice[1]]
    assert only_advice[1].endswith("[w]hy")
    assert "…" in only_advice[1]
    assert [plain_text(row) for row in good_rows("All is well.\nReally.", 20)] == ["✓ All is well.", "  Really."]


def test_the_selected_remedy_shows_its_peak_and_effective_batch_in_full() -> None:
    peak = ExpectedPeak(18 * 2**30, 17 * 2**30, 19 * 2**30, 24 * 2**30, "by what r007 measured")
    smaller = Remedy(
        "micro batch 16 → 8", "", {"per_device_train_batch_size": 8}, "activation memory × 0.50", peak=peak
    )
    shrinks = replace(smaller, batch_note="effective batch 64 → 32")
    finding = Finding("gpu-oom", "failed", "The GPU ran out of memory", (), "certain", remedies=(shrinks, smaller))
    shown = " ".join(row.strip() for row in texts(finding, width=80))
    assert any(RETRY_KEYS in row for row in texts(finding))
    head = next(row for row in texts(finding, width=80) if "[enter]" in row)
    assert "effective batch 64 → 32" in head, "it stands in the line in which one presses enter"
    for part in ("activation memory × 0.50; peak 18.0 GiB of", "24.0 GiB (17.0 GiB to 19.0"):
        assert part in shown
    faster = replace(smaller, title="checkpointing on", peak=None, effect="about 40 % less; slower", speed=(0.8, 0.87))
    error = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB "
    full = texts(replace(finding, evidence=(f"{error}is free.",), remedies=(shrinks, faster)), selected=1)
    assert full[0].startswith("● The GPU ran out of memory   2.0 GiB requested, 1.0 of 24.0 GiB free")
    assert "micro batch 16 → 8; effective batch 64 → 32" in full[1]
    assert any(row.strip().startswith("▸ checkpointing on") and row.endswith(RETRY_KEYS) for row in full)
    outside = replace(finding, remedies=(shrinks, Remedy("end the other programs", "")))
    assert any(row.endswith(LOOK_KEYS) for row in texts(outside, selected=1))
    live = replace(finding, severity="warning")
    assert RETRY_KEYS not in " ".join(texts(live)), "only a run that has ended is started again"

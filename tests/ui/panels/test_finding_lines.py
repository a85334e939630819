"""Findings as lines: the worst first, nothing wider than the panel, the keys where the cursor is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.fakes.ui_backend import DATA_WAIT, OUT_OF_MEMORY
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.ui.panels.troubleshooting import KEYS, LOOK_KEYS, FindingLine, choices, finding_lines
from tuner_tui.view.cells import shorten

HINT = Finding("tf32-off", "hint", "TF32 is off", (), "possible")


def text(line: FindingLine) -> str:
    return "".join(part for part, _ in line.spans)


def test_the_worst_stands_first() -> None:
    lines = finding_lines((HINT, DATA_WAIT, OUT_OF_MEMORY), 0, 120)
    heads = [text(line) for line in lines if text(line)[0] in "●○"]
    assert [head[2:8] for head in heads] == ["The GP", "The GP", "TF32 i"]
    assert "out of memory" in heads[0]
    assert choices((HINT, DATA_WAIT, OUT_OF_MEMORY))[-1].finding is HINT


def test_keys_stand_at_the_remedy_under_the_cursor_only() -> None:
    lines = finding_lines((DATA_WAIT,), 0, 120)
    assert [line.choice for line in lines if KEYS in text(line)] == [0]


def test_a_remedy_outside_the_settings_can_only_be_looked_at() -> None:
    lines = [text(line) for line in finding_lines((DATA_WAIT,), 1, 120) if line.choice == 1]
    assert LOOK_KEYS in lines[0]
    assert KEYS not in lines[0]


def test_a_finding_without_remedy_can_be_chosen_itself() -> None:
    (choice,) = choices((HINT,))
    assert choice.remedy is None
    assert LOOK_KEYS in text(finding_lines((HINT,), 0, 80)[0])


def test_doubt_is_said() -> None:
    assert "(likely)" in text(finding_lines((DATA_WAIT,), 0, 120)[0])
    assert "(certain)" not in text(finding_lines((OUT_OF_MEMORY,), 0, 120)[0])


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), min_size=1, max_size=80)
remedies = st.builds(Remedy, words, words, st.just({"seed": 1}), words, words)
findings = st.builds(
    Finding, words, st.sampled_from(["failed", "warning", "hint"]), words, st.lists(words, max_size=3).map(tuple),
    st.just("likely"), st.none(), st.lists(remedies, max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(findings, max_size=3).map(tuple), st.integers(0, 5), st.integers(30, 160))
def test_no_line_is_wider_than_the_panel(found: tuple[Finding, ...], selected: int, width: int) -> None:
    for line in finding_lines(found, selected, width):
        assert cell_len(text(line)) <= width


@given(words, st.integers(0, 40))
def test_cut_fits(word: str, width: int) -> None:
    assert cell_len(shorten(word, width)) <= width


def test_what_is_too_long_is_folded_and_nothing_of_it_is_lost() -> None:
    advice = "Install a CUDA build there: pip install torch --index-url https://download.pytorch.org/whl/cu130"
    finding = Finding("misfit", "warning", "word " * 30, (), "certain", remedies=(Remedy(advice, ""),))
    lines = finding_lines((finding,), 0, 60)
    text = " ".join("".join(part for part, _ in line.spans) for line in lines).split()
    assert text.count("word") == 30
    assert [word for word in advice.split() if word not in text] == []
    assert all(sum(map(len, (part for part, _ in line.spans))) <= 60 for line in lines)

"""A tuning in plain lines."""

from __future__ import annotations

from msgspec.structs import replace

from tests.fakes.tuning_views import at_its_end, under_way
from tuner_tui.cli.commands.tune import entry_lines
from tuner_tui.tuning.trial import SkippedChange, TuningConclusion
from tuner_tui.tuning.trial_log import (
    LogEntry,
    TrialCompleted,
    TuningEnded,
    TuningStarted,
    TuningView,
    decode_entry,
    encode_entry,
)


def lines(entry: LogEntry, view: TuningView) -> list[str]:
    return list(entry_lines(entry, view, 100))


def test_the_memory_and_a_busy_machine_are_said_at_the_start() -> None:
    view = replace(under_way(), capacity_bytes=2**31, limit_bytes=2**30)
    assert lines(TuningStarted(t=1.0, busy="others used 52 % of the CPU"), view) == [
        "memory  1.00 GiB of 2.00 GiB may be used",
        "busy    Others used 52 % of the CPU; trials continue, but no result is confirmed or saved meanwhile.",
    ]


def test_a_trial_says_what_it_changes_why_and_what_came_of_it() -> None:
    view = under_way()
    trial, why = lines(view.running[0], view)
    assert trial == "▸ trial 8 · compile off → on · 4 min to 7 min left"
    assert why.startswith("why     at most 11 % faster")
    printed = [lines(TrialCompleted(t=1.0, tried=completed), view)[0] for completed in view.tried]
    assert printed[3:] == [
        "4  micro batch 8 → 32, accumulation 4 → 1  ━━━━╸───  30.1k tokens/s  65.2 GiB  41 % faster than now",
        "5  micro batch 8 → 40, accumulation 4      ────────               –         –  ✗ out of memory",
        "6  precision fp32 → bf16                   ━━━━━━━━  52.6k tokens/s  44.0 GiB  ✓ best so far",
        "7  attention auto → flash_attention_2      ────────               –         –  ! not applied",
    ]


def test_what_a_figure_leaves_out_is_said_once() -> None:
    view = under_way()
    first, *others = (
        replace(tried, measurement=replace(tried.measurement, sentence="no evaluation")) for tried in view.tried[:3]
    )
    view = replace(view, tried=(first, *others))
    printed = [line for tried in view.tried for line in lines(TrialCompleted(t=1.0, tried=tried), view)]
    assert [line.strip() for line in printed].count("(no evaluation)") == 1


def test_the_end_says_the_result_without_the_keys_of_the_screen() -> None:
    view = replace(at_its_end(), trouble="Room moved.")
    printed = lines(TuningEnded(t=2.0, status="finished"), view)
    assert printed[0].startswith("2.7× faster: micro batch 8 → 32, accumulation 4 → 1")
    assert f"saved   {view.preset}" in printed
    assert "note    Room moved." in printed
    assert not any(line.startswith("next") for line in printed)


def test_what_was_not_tried_is_grouped_by_reasons() -> None:
    alike = [SkippedChange(knob="precision", value=value, reason="no kernels") for value in ("bf16", "fp16")]
    other = SkippedChange(knob="torch_compile", value="on", reason="no compiler")
    printed = lines(TuningEnded(t=2.0, status="finished"), replace(at_its_end(), skipped=(other, *alike)))
    text = "\n".join(printed[printed.index("Not tried") :])
    assert "precision bf16, precision fp16\n  no kernels" in text
    assert "no compiler" in text


def test_load_that_kept_it_from_judging_survives_in_the_log_and_is_said() -> None:
    start = at_its_end().tried[0].trial.settings
    sentence = "1.50× the start was measured but not confirmed: the machine was busy (python spin.py)."
    verdict = TuningConclusion(winner=start, sentence=sentence, disturbed=True)
    ended = decode_entry(encode_entry(TuningEnded(t=0.0, status="finished", verdict=verdict)))
    assert isinstance(ended, TuningEnded)
    assert ended.verdict is not None
    assert ended.verdict.disturbed
    shown = " ".join(lines(ended, replace(at_its_end(), verdict=ended.verdict, preset=None)))
    assert "the machine was busy (python spin.py)" in " ".join(shown.split())

"""Tuning on the screen: starting one after a yes, what is seen of it, ending it, and taking the winner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from tests.fakes.live_run import START_S
from tests.fakes.memory_outlooks import estimated
from tests.fakes.tuning_views import (
    COMPILED,
    EIGHTH,
    GIB,
    HALF,
    LARGE,
    START,
    FakeTunings,
    aborted,
    at_its_end,
    measured,
    trial,
    under_way,
)
from tests.fakes.ui_backend import FakeBox, FakeEstimates, busy_box, opened
from tests.ui.pilots import (
    ScreenPilot,
    app_of,
    notes,
    on_screen,
    press_to,
    press_until,
    screen_text,
    settled,
    until,
    value,
)
from tuner_tui.advice.estimate import MemoryOutlook
from tuner_tui.settings.model import OriginKind
from tuner_tui.tuning.trial import CompletedTrial, Measurement, WholeJob
from tuner_tui.tuning.trial_log import TrialStarted, TuningView
from tuner_tui.ui.records import TrialPlacement
from tuner_tui.ui.screens.tune import INVALID_MINUTES, TuneScreen, parse_minutes
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.number_format import gain
from tuner_tui.view.tuning_rows import LiveTrial, applicable_winner, race_rows, skipped_rows, tuning_rows

Compare = Callable[..., bool]


def box_with(*views: TuningView) -> FakeBox:
    return FakeBox(tuner=FakeTunings({f"t{3 - n:03d}": view for n, view in enumerate(views)}))


def shown(pilot: ScreenPilot) -> TuningView | None:
    screen = pilot.app.screen
    return screen.snapshot.view if isinstance(screen, TuneScreen) and screen.snapshot is not None else None


def lines(view: TuningView | None, width: int = 116, **live: LiveTrial) -> list[str]:
    return [plain_text(row).rstrip() for row in race_rows(view, live, width)]


async def test_o_shows_the_newest_tuning_and_escape_leaves_it() -> None:
    async with on_screen(box_with(under_way(), at_its_end())) as pilot:
        await press_until(pilot, lambda: shown(pilot) == under_way(id="t003"), "o")
        await until(pilot, lambda: "at most 11 % faster" in screen_text(pilot.app))
        assert "Tuning t003 · llama-1b-sft · running for " in screen_text(pilot.app)
        await press_until(pilot, lambda: pilot.app.screen is app_of(pilot).main, "escape")


async def test_a_screen_that_is_opened_while_a_tuning_runs_shows_it() -> None:
    box = box_with(under_way())
    backend = box.backend(tuning_to_open=lambda: Path("/tunings/t003"))
    async with on_screen(box, backend=backend) as pilot:
        await until(pilot, lambda: shown(pilot) == under_way(id="t003"))
        await press_until(pilot, lambda: pilot.app.screen is app_of(pilot).main, "escape")


def test_trials_on_several_gpus_are_shown_with_their_gpus() -> None:
    first = replace(EIGHTH.trial, gpu="GPU-11111111-2222-3333-4444-55555566a1b2")
    second = replace(first, number=9, settings=START, gpu="GPU-11111111-2222-3333-4444-55555577c3d4")
    running = structs.replace(EIGHTH, trial=first), TrialStarted(t=START_S - 20, trial=second, run="r039")
    view = under_way(running=running)
    assert [line.split("▸ ")[1] for line in lines(view, 140)[-2:]] == [
        "running on GPU …66a1b2",
        "running on GPU …77c3d4",
    ]


async def test_the_first_tuning_starts_once_what_it_does_and_its_minutes_are_agreed_to() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press_to(pilot, "Tune", "o")
        assert "short real runs" in screen_text(pilot.app)
        await pilot.press(*["backspace"] * 3, "enter")
        await until(pilot, lambda: INVALID_MINUTES in screen_text(pilot.app))
        await press_until(pilot, lambda: shown(pilot) == under_way(id="t004"), "1", "5", "x", "enter")
        assert (box.tuner.asked, box.tuner.minutes) == ([("start", "llama-1b-sft")], [15.0])


@pytest.mark.parametrize(("batch", "words"), [(16, ""), (24, "may not fit"), (40, "too large")])
async def test_a_model_that_may_not_fit_is_named_before_it_is_tuned(batch: int, words: str) -> None:
    outlook = MemoryOutlook(estimated(batch))
    box = FakeBox()
    async with on_screen(box, backend=box.backend(estimates=FakeEstimates(quick=lambda _: outlook))) as pilot:
        await until(pilot, lambda: app_of(pilot).main.outlook is outlook)
        await press_to(pilot, "Tune", "o")
        assert ("By the estimate peak memory" in screen_text(pilot.app)) is bool(words)
        assert f", {words}." * bool(words) in screen_text(pilot.app)


async def test_too_few_minutes_are_refused() -> None:
    box = FakeBox(tuner=FakeTunings(least_minutes=7.0))
    async with on_screen(box) as pilot:
        await press_to(pilot, "Tune", "o")
        await pilot.press("backspace", "3", "enter")
        await until(pilot, lambda: "It needs at least 7 min." in screen_text(pilot.app))
        await press_until(pilot, lambda: shown(pilot) == under_way(id="t004"), "backspace", "8", "enter")
        assert (box.tuner.minutes, box.tuner.placed) == ([8.0], ["sequential"])


@pytest.mark.parametrize(
    ("steps", "text", "placement"), [(1, "one on each of 4 free GPUs", "gpus"), (2, "on the Ray cluster", "ray")]
)
async def test_trials_may_run_in_parallel_where_there_is_room(steps: int, text: str, placement: TrialPlacement) -> None:
    offered: dict[TrialPlacement, str] = {"sequential": "one after another", "gpus": "one on each of 4 free GPUs"}
    offered["ray"] = "on the Ray cluster"
    box = FakeBox(tuner=FakeTunings(placements=offered))
    async with on_screen(box) as pilot:
        await press_to(pilot, "Tune", "o")
        assert "one after another" in screen_text(pilot.app)
        await press_until(pilot, lambda: text in screen_text(pilot.app), "tab", *["right"] * steps)
        await press_until(pilot, lambda: shown(pilot) == under_way(id="t004"), "enter")
        on = ("GPU-a",) if placement == "gpus" else ()
        assert (box.tuner.placed, box.tuner.gpus) == ([placement], [on])


@pytest.mark.parametrize(("typed", "minutes"), [("9", 9.0), ("2.5", 2.5), ("", None), (".", None), ("0", None)])
def test_minutes_are_a_number_above_nothing(typed: str, minutes: float | None) -> None:
    assert parse_minutes(typed) == minutes


async def test_the_main_screen_shows_a_tuning_until_its_result_was_looked_at() -> None:
    box = box_with(under_way())
    box.tuner.seen = under_way()
    async with on_screen(box) as pilot:
        main = app_of(pilot).main
        await until(pilot, lambda: main.tuning_sign == "t003 tuning, trial 8")
        await until(pilot, lambda: screen_text(pilot.app).splitlines()[-1].startswith(" o t003 tuning, trial 8 "))
        assert "t003 is tuning llama-1b-sft (trial 8, 4 min to 7 min left). o shows it." in screen_text(pilot.app)
        app_of(pilot).session._tuning.show_status(at_its_end())
        await until(pilot, lambda: main.tuning_sign == "t003 finished")
        assert "o shows it" in notes(pilot)
        await press_until(pilot, lambda: shown(pilot) is not None, "o")
        assert main.tuning_sign == ""
        await press_until(pilot, lambda: " o Tune " in screen_text(pilot.app).splitlines()[-1], "escape")


@pytest.mark.parametrize(
    ("box", "why"),
    [
        (busy_box(), "already training"),
        (FakeBox(opened=opened(dataloader_prefetch_factor=4)), "worker"),
    ],
    ids=["beside a training", "with wrong settings"],
)
async def test_nothing_is_tuned(box: FakeBox, why: str) -> None:
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: why in notes(pilot), "o")
        assert not box.tuner.asked


async def test_a_tuning_under_way_is_ended_after_a_yes() -> None:
    box = box_with(under_way())
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: shown(pilot) is not None, "o")
        await press_until(pilot, lambda: "is running" in notes(pilot), "t")
        await press_to(pilot, "Stop the tuning", "x")
        await press_until(pilot, lambda: box.tuner.asked == [("abort", "t003")], "y")


async def test_one_that_was_ended_early_goes_on() -> None:
    box = box_with(aborted())
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: "R resumes it" in screen_text(pilot.app), "o")
        await press_to(pilot, "Resume t003", "R")
        await press_until(pilot, lambda: shown(pilot) == under_way(id="t003"), "enter")
        assert (box.tuner.asked, box.tuner.minutes) == ([("resume", "t003")], [9.0])


async def test_one_whose_time_was_short_goes_on_too_and_one_at_its_end_does_not() -> None:
    short = at_its_end(trouble="Time was short: the next trial and its comparison need 45 min.", needed_minutes=45)
    box = box_with(at_its_end(), short)
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: shown(pilot) is not None, "o")
        await press_until(pilot, lambda: "nothing to resume" in notes(pilot), "R")
        await press_to(pilot, "Tunings", "r")
        await press_until(pilot, lambda: "need 45 min. R resumes it" in screen_text(pilot.app), "down", "enter")
        await press_to(pilot, "Resume t002", "R")
        await press_until(pilot, lambda: shown(pilot) == under_way(id="t002"), "enter")
        assert box.tuner.minutes == [45.0], "what it is known to need"


async def test_the_winner_is_taken_after_its_changes_were_shown() -> None:
    async with on_screen(box_with(at_its_end())) as pilot:
        await press_until(pilot, lambda: shown(pilot) is not None, "o")
        await press_to(pilot, "The winner of t003", "a")
        assert value(pilot, "torch_compile") is False
        await press_until(pilot, lambda: value(pilot, "torch_compile") is True, "enter")
        editing = app_of(pilot).session.state.editing
        assert editing is not None
        assert editing.current.settings == COMPILED
        assert editing.current.origin("torch_compile").kind is OriginKind.TUNED
        await press_until(pilot, lambda: pilot.app.screen is app_of(pilot).main, "escape")
        await press_until(pilot, lambda: value(pilot, "torch_compile") is False, "u")


async def test_a_training_beside_a_tuning_is_asked_about() -> None:
    box = box_with(under_way())
    async with on_screen(box) as pilot:
        await press_to(pilot, "Train", "t")
        assert "t003 is tuning" in screen_text(pilot.app)
        await press_to(pilot, "", "n")
        assert not box.launched
        await press_to(pilot, "Train", "t")
        await press_until(pilot, lambda: len(box.launched) == 1, "y")


async def test_on_a_small_terminal_the_panels_take_turns() -> None:
    async with on_screen(box_with(under_way()), size=(80, 24)) as pilot:
        await press_until(pilot, lambda: "current settings again" in screen_text(pilot.app), "o")
        await press_until(pilot, lambda: "bitsandbytes is not installed" in screen_text(pilot.app), "2")
        await press_until(pilot, lambda: "current settings again" in screen_text(pilot.app), "tab")


def test_a_lane_shows_what_changes_the_speed_as_a_bar_the_memory_and_the_state() -> None:
    lanes = lines(under_way(), 140, r038=LiveTrial(step=12, tokens_s=26_300.0))
    number, changes, bar, speed, memory, state = (
        lanes[2].split(maxsplit=1)[0],
        *lanes[2].split("  ")[1:2],
        *[part.strip() for part in lanes[2].split("  ")[2:] if part.strip()],
    )
    assert (number, changes) == ("3", "micro batch 8 → 16, accumulation 4 → 2")
    # 26,900 of the fastest 52,600 tokens/s: a little more than half of the bar.
    assert 0.49 < (bar.count("━") + bar.count("╸") / 2) / len(bar) < 0.53
    assert (speed, memory, state) == ("26.9k tokens/s", "37.9 GiB", "26 % faster than now")
    assert lanes[0].split("  ")[1] == "current settings"
    assert lanes[4].split()[-6:] == ["–", "–", "✗", "out", "of", "memory"]
    assert lanes[5].endswith("✓ best so far")
    assert lanes[6].endswith("! not applied: attn_implementation")
    assert lanes[7].endswith("▸ running, step 12")
    assert "26.3k tokens/s" in lanes[7]
    assert lines(under_way(), 140)[7].count("━") == 0, "no speed, no bar"


def test_what_is_changed_on_top_of_another_trial_names_it() -> None:
    """Else a speed that is mostly that of the larger batch would be taken for that of the last change."""
    start, *_, fourth = under_way().tried[:4]
    half = trial(5, "knob", HALF, "fp32 takes the slow path", "precision", base=LARGE)
    shown = lines(under_way(tried=(start, fourth, CompletedTrial(half, measured(52_600, 44.0))), running=()), 120)
    assert "4 + precision fp32 → bf16" in shown[2]
    assert " + " not in shown[0] + shown[1]


def test_narrow_lanes_have_no_bar_but_all_else() -> None:
    lanes = lines(under_way(), 70)
    assert not any("━" in text for text in lanes)
    assert all(part in lanes[5] for part in ("6", "precision", "52.6k tokens/s", "44.0 GiB", "✓ best so far"))


def test_at_80_columns_every_lane_is_shown_whole_below_a_heading_with_the_units() -> None:
    heading, *lanes = [plain_text(row).rstrip() for row in race_rows(under_way(), {}, 76, 12)]
    assert heading.split() == ["tokens/s", "GiB"]
    assert lanes[2].split("  ")[-1] == "26 % faster"
    assert not any("…" in lane for lane in lanes)


def test_below_the_lanes_stand_what_was_tried_and_the_speed_of_each_trial() -> None:
    rows = [plain_text(row).rstrip() for row in race_rows(under_way(), {}, 116, 30)]
    at = next(number for number, row in enumerate(rows) if row.startswith("Fastest so far"))
    assert "tokens/s of each trial" in rows[at]
    assert [row[:26].strip() for row in rows[at + 1 : at + 5]] == [
        "micro batch   8 → 32", "accumulation  4 → 1", "precision     fp32 → bf16", "attention     auto",
    ]  # fmt: skip
    assert all(len(row) <= 116 for row in rows)
    assert rows[-1].split()[-1] == "10", "the trials stand below the whole axis"
    assert len(race_rows(under_way(), {}, 116, 14)) == 9, "too little room"
    ended = [plain_text(row) for row in race_rows(at_its_end(), {}, 116, 34)]
    assert any(row.startswith("compile       off → on") for row in ended)
    assert len(race_rows(under_way(tried=()), {}, 116, 34)) == 2


def test_how_many_pairs_were_compared_stands_at_the_best_so_far() -> None:
    view = under_way(tried=at_its_end().tried)
    assert "compared in 1 pair so far" in " ".join(plain_text(row) for row in tuning_rows(view, START_S, 150))
    assert "not confirmed yet" in " ".join(plain_text(row) for row in tuning_rows(under_way(), START_S, 150))


def test_why_a_trial_failed_stands_whole_below_its_lane() -> None:
    reason = "The loader's worker 3 ended without a message. " * 3
    first, second, *_ = under_way().tried
    failed = replace(
        second, measurement=Measurement(outcome="failed", seconds=9.0, run_id="r031", sentence=reason.strip())
    )
    rows = [plain_text(row).strip() for row in race_rows(under_way(tried=(first, failed), running=()), {}, 76, 12)]
    assert rows[2].endswith("! failed")
    assert " ".join(rows[3:]) == reason.strip()


def test_no_lane_is_faster_where_the_head_says_that_nothing_is() -> None:
    start, _, third, *_ = under_way().tried
    slow = start.measurement
    runs = [replace(slow, tokens_s=rate) for rate in (10_000.0, 16_000.0)]
    tried = [replace(start, measurement=run) for run in runs]  # the same settings: their difference is noise
    faster = replace(third, measurement=replace(slow, tokens_s=15_500.0))
    view = under_way(tried=(*tried, faster), running=())
    assert "Nothing is faster than the current settings so far by more than the noise of" in plain_text(
        tuning_rows(view, START_S, 140)[0]
    )
    assert "within noise: " in lines(view, 140)[2]


def test_a_repetition_that_says_nothing_of_the_noise_says_so() -> None:
    start = under_way().tried[0]
    repeated = replace(start.trial, purpose="noise")
    tried = [
        replace(start, trial=trial, measurement=replace(start.measurement, tokens_s=rate))
        for trial, rate in ((start.trial, 20_300.0), (repeated, 13_600.0), (repeated, 20_500.0))
    ]
    lanes = lines(under_way(tried=tuple(tried), running=()))
    assert ["disturbed, not counted" in lane for lane in lanes[:3]] == [False, True, False]


def test_the_start_and_the_winner_are_named_where_they_are_run_again() -> None:
    lanes = lines(at_its_end())
    assert "current settings again" in lanes[8]
    assert "winner again" in lanes[9]
    assert [number for number, lane in enumerate(lanes) if lane.endswith("✓ winner")] == [7], "not its repetitions"


def test_a_trial_beyond_the_limit_is_not_the_best() -> None:
    shown_rows = lines(under_way(limit_bytes=30 * GIB))
    assert shown_rows[3].endswith("! too little memory left")
    assert shown_rows[0].endswith("GiB  mean of 2 runs"), "a figure that changes with a repetition says so"


def test_samples_are_compared_where_no_tokens_were_counted() -> None:
    first = under_way().tried[0]
    bare = replace(first, measurement=replace(first.measurement, tokens_s=None))
    assert "89.2 samples/s" in lines(under_way(tried=(bare,), running=()))[0]


def test_the_head_says_the_best_so_far_what_is_tried_why_and_how_long_it_may_take() -> None:
    shown_rows = [plain_text(row) for row in tuning_rows(under_way(), START_S, 116)]
    assert shown_rows[0] == (
        "2.5× faster so far: micro batch 8 → 32, accumulation 4 → 1, precision fp32 → bf16   not confirmed yet"
    )
    tried = tuple(replace(each, measurement=replace(each.measurement, overhead_s=20.0)) for each in under_way().tried)
    of_job = under_way(tried=tried, whole_job=WholeJob(steps=100, samples=6400.0, tokens=320_000.0))
    first = plain_text(tuning_rows(of_job, START_S, 116)[0])
    assert first.startswith("34 % faster over the whole job so far: "), "which the result is about, too"
    assert shown_rows[1] == "▸ trial 8 · compile off → on · 43 s · 4 min to 7 min left"
    assert shown_rows[2].startswith("why     at most 11 % faster: kernels")


def test_what_makes_the_machine_busy_is_said_and_the_whole_job_is_timed() -> None:
    view = under_way(busy="other processes used 52 % of the CPU at the start: python spin.py 2.0 cores")
    shown_rows = " ".join(plain_text(row).strip() for row in tuning_rows(view, START_S, 116))
    assert "busy    other processes used 52 % of the CPU at the start: python spin.py 2.0 cores" in shown_rows
    assert "no result is confirmed or saved" in shown_rows
    verdict = at_its_end().verdict
    assert verdict is not None
    whole = replace(verdict, job_steps=400, start_job_s=41.1, best_job_s=35.2)
    shown_rows = " ".join(plain_text(row) for row in tuning_rows(at_its_end(verdict=whole), None, 116))
    assert "· all 400 steps 41 s → 35 s" in shown_rows


def test_only_the_result_of_a_tuning_is_bold() -> None:
    verdict = at_its_end().verdict
    assert verdict is not None
    kept = replace(
        verdict, winner=START, ratio=None, sentence="Nothing is faster. The machine was busy: spin 2.0 cores."
    )
    rows = tuning_rows(at_its_end(verdict=kept), None, 116)
    assert [(span.text, span.style) for span in (rows[0][0], rows[1][0])] == [
        ("Nothing is faster.", "strong"),
        ("The machine was busy: spin 2.0 cores.", ""),
    ]


def test_the_result_is_one_sentence_first_and_no_reason_stands_twice() -> None:
    verdict = at_its_end().verdict
    assert verdict is not None
    view = at_its_end(verdict=replace(verdict, pairs=5))
    shown_rows = [plain_text(row) for row in tuning_rows(view, None, 150)]
    assert shown_rows[0] == (
        "2.7× faster: micro batch 8 → 32, accumulation 4 → 1, precision fp32 → bf16, compile off → on"
        "   confirmed by 5 alternating pairs, ± 2 %"
    )
    assert verdict.sentence not in " ".join(shown_rows)
    assert any("llama-1b-sft-tuned" in row for row in shown_rows)
    assert shown_rows[-1].startswith("next    a shows")
    narrow = [plain_text(row) for row in tuning_rows(view, None, 60)]
    assert narrow[0].startswith("2.7× faster: micro batch")
    assert "confirmed by 5 alternating pairs, ± 2 %" in narrow


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.8, "1.8× faster"), (12.34, "12.3× faster"), (1.07, "7 % faster"), (0.95, "5 % slower")]
)
def test_a_gain_is_a_factor_or_a_share(ratio: float, text: str) -> None:
    assert gain(ratio) == text


@pytest.mark.parametrize("status", ["aborted", "killed", "failed"])
def test_a_tuning_that_ended_early_says_so(status: str) -> None:
    view = under_way(status=status, running=(), trouble="The disk is full.")
    shown_rows = [plain_text(row) for row in tuning_rows(view, None, 116)]
    assert shown_rows[0].startswith("2.5× faster so far")
    assert shown_rows[1][:1] in "!✗"
    assert shown_rows[2] == "trouble The disk is full."


def test_a_tuning_without_a_trial_is_drawn_as_well() -> None:
    view = under_way(tried=(), running=(), skipped=())
    assert lines(view) == ["No trial yet."]
    assert plain_text(tuning_rows(view, None, 80)[0]).startswith("The next trial")
    assert plain_text(skipped_rows(view, 40)[0]) == "Nothing yet."


@given(st.integers(20, 200), st.sampled_from([under_way(), at_its_end(), aborted()]))
def test_nothing_outgrows_its_place(width: int, view: TuningView) -> None:
    for row in (*race_rows(view, {}, max(width, 60)), *skipped_rows(view, width)):
        assert line_width(row) <= max(width, 60)


def test_where_the_start_stays_there_is_nothing_to_take() -> None:
    verdict = at_its_end().verdict
    assert verdict is not None
    kept = at_its_end(verdict=replace(verdict, winner=START))
    assert [line for line in lines(kept) if "current settings kept" in line]
    shown_rows = "\n".join(plain_text(row) for row in tuning_rows(kept, None, 100))
    assert "applies it" not in shown_rows


def test_a_gain_that_was_measured_before_the_end_can_be_taken() -> None:
    shown_rows = "\n".join(plain_text(row) for row in tuning_rows(aborted(), None, 100))
    assert "a shows what it would change and applies it" in shown_rows
    winner = applicable_winner(aborted())
    assert winner is not None
    assert winner.winner == HALF
    assert applicable_winner(under_way()) is None


def test_it_looks(snap_compare: Compare) -> None:
    box = box_with(under_way())

    async def before(pilot: ScreenPilot) -> None:
        await until(pilot, settled(pilot, box))
        await press_until(pilot, lambda: shown(pilot) is not None, "o")
        await until(pilot, lambda: "current settings again" in screen_text(pilot.app))

    assert snap_compare(box.app(), terminal_size=(120, 40), run_before=before)


async def test_the_winner_of_another_training_is_said_to_be_that() -> None:
    box = box_with(at_its_end(title="gpt2-sft"))
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: shown(pilot) is not None, "o")
        box.tuner.same_job = False  # as of one that is picked from the list
        await press_to(pilot, "The winner of t003", "a")
        await until(pilot, lambda: "to a different training than" in screen_text(pilot.app))


async def test_an_old_tuning_of_another_training_is_not_opened_in_its_place() -> None:
    box = box_with(at_its_end())
    box.tuner.same_job = False
    async with on_screen(box) as pilot:
        await press_to(pilot, "Tune", "o")
        assert shown(pilot) is None

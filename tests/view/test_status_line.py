"""The status line: what runs, how far it is, how it ended, at any width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.live_run import START_S, finished, running
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.view.cells import is_narrow, line_width, plain_text
from tuner_tui.view.status_line import StatusScene, progress_bar, status_line

GIB = 1024**3


def scene(state: RunState | None, **changes: object) -> StatusScene:
    return StatusScene(name="r007", trains="demo", state=state, now_s=START_S)._replace(**changes)  # type: ignore[arg-type]


def text(shown: StatusScene, width: int = 120) -> str:
    return plain_text(status_line(shown, width)).rstrip()


def test_a_run_that_trains_shows_its_progress() -> None:
    shown = text(scene(running(START_S)))
    assert shown.startswith("● r007  demo  training ━")
    assert all(part in shown for part in (" 14 %", "step 1,240/9,000", " left ", "loss 1.8404"))
    # A row with a character that is not known to be one cell wide is written whole each second.
    assert is_narrow(shown)
    narrow = text(scene(running(START_S)), 60)
    assert all(part in narrow for part in ("training", "14 %", " left"))
    assert "steps/s" not in narrow


@given(st.integers(1, 240), st.sampled_from(["training", "saving", "starting"]), st.sampled_from([1, 7, 9000]))
def test_every_width_is_filled_exactly(width: int, phase: str, step: int) -> None:
    for state in (running(START_S, phase=phase, step=step), RunState(step=step), finished("failed", "It raised.")):
        assert line_width(status_line(scene(state), width)) == width


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (StatusScene("No run yet · t trains the demo"), "No run yet · t trains the demo"),
        (scene(None), "● r007  reading the run …"),
        (scene(running(START_S), waits="Slurm job 12 waits."), "● r007 waiting  Slurm job 12 waits."),
        (scene(running(START_S), lost="The supervisor ended."), "✗ r007 lost  The supervisor ended."),
    ],
)
def test_what_is_not_a_running_training_is_a_sentence(shown: StatusScene, words: str) -> None:
    assert text(shown) == words


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("starting", "starting 6 min 40 s"), ("saving", "saving a checkpoint"), ("skipping", "skipping batches"),
        ("evaluating", "evaluating"),
    ],
)  # fmt: skip
def test_phases_are_words_with_their_duration(phase: str, words: str) -> None:
    assert words in text(scene(running(START_S, phase=phase)), 160)


def test_a_stall_is_red_with_its_age_and_without_a_time_left() -> None:
    stalled = running(START_S, last_step_t=START_S - 95, phase_since_t=START_S - 400)
    shown = status_line(scene(stalled), 120)
    assert "! r007" in plain_text(shown)
    assert any("stalled: no step for 1 min 35 s" in span.text and span.style == "bad" for span in shown)
    assert " left" not in plain_text(shown)
    assert "! stop requested" in text(scene(running(START_S, stop_requested="stop")))


def test_the_end_of_a_run_is_its_outcome() -> None:
    out = finished("out-of-memory", "Out of memory while training at step 12: [enforce fail].")
    assert text(scene(out)) == "✗ Out of memory   r007 demo"
    assert text(scene(finished("completed", "Completed."))) == "✓ Completed   r007 demo"


def test_after_another_command_the_key_that_trains_it_stands_at_the_end_of_the_run() -> None:
    ended = scene(finished("completed", "Completed."))._replace(now_s=START_S + 9999, next="t: train python wait.py")
    assert text(ended).startswith("✓ Completed   r007 demo   t: train python wait.py")
    narrow = plain_text(status_line(ended, 40))
    assert "train" not in narrow
    assert " ago" in narrow


def test_steps_of_an_unknown_whole_have_no_dash() -> None:
    assert "step 301" in text(scene(replace(running(START_S), step=301, total_steps=None)))


@pytest.mark.parametrize(("done", "filled"), [(None, 0), (0.0, 0), (0.5, 10), (1.0, 20), (1.7, 20)])
def test_the_bar_shows_the_part_that_is_done(done: float | None, filled: int) -> None:
    shown = plain_text(progress_bar(done, 20, "good"))
    assert len(shown) == 20
    assert shown.count("━") == filled


def test_a_start_is_named_by_its_phase_not_by_the_whole() -> None:
    began = ((START_S - 20, "importing"), (START_S - 14, "loading-model"))
    alone = scene(RunState(phase="starting", startup=began[:1]))
    assert "r007  demo  before torch is loaded 20 s" in text(alone), "the command may never import it"
    assert "r007  demo  loading the model 14 s" in text(scene(RunState(phase="loading-model", startup=began)))
    loop = (*began, (START_S - 3, "training"))
    assert "first step 3 s" in text(scene(RunState(phase="training", startup=loop, phase_since_t=START_S - 3)))


def test_a_run_that_completed_with_a_loss_that_is_no_number_says_so() -> None:
    state = replace(finished("completed", "Completed."), loss=float("nan"), not_finite_since=41)
    shown = status_line(scene(state), 100)
    assert (shown[0].text.strip(), shown[0].style) == ("! Completed, loss nan since step 41", "warn")
    running_too = replace(state, finished=None, phase="training")
    assert "loss nan since step 41" in text(scene(running_too))


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_a_run_that_trains_elsewhere_is_named_with_its_key(width: int) -> None:
    shown = status_line(scene(finished("completed", "Completed."), elsewhere="r008 python sft.py: training"), width)
    assert line_width(shown) == width
    assert "r008" in plain_text(shown)
    assert "r: open it" in plain_text(shown) or width < 60
    assert "✓ Completed" in plain_text(shown)
    assert ("r007 demo" in plain_text(shown)) == (width >= 60)


def test_without_a_planned_end_the_bar_is_that_of_the_epoch() -> None:
    rank = running(START_S).ranks[0]
    assert rank.latest is not None
    rank = replace(rank, latest=replace(rank.latest, epoch_batch=147, epoch_batches=1250))
    shown = text(scene(replace(running(START_S), total_steps=None, ranks={0: rank})))
    assert "12 % of the epoch" in shown
    assert "━" in shown
    assert "left" not in shown


def test_a_line_of_80_cells_has_the_step_rather_than_the_speed_which_stands_below_the_loss() -> None:
    shown = plain_text(status_line(scene(running(START_S))._replace(trains=""), 80))
    assert "step 1,240/9,000" in shown
    assert "left" in shown
    assert "loss 1.84" in shown

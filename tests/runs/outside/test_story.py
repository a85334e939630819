"""News to events: bars that begin anew, evaluations between, epochs around."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.runs.events import Evaluated, Event, Metrics, Steps
from tuner_tui.runs.fold import fold_all
from tuner_tui.runs.outside.lines import bars_and_lines
from tuner_tui.runs.outside.story import Story
from tuner_tui.runs.state import RunState


def told(*pieces: str) -> tuple[RunState, list[Event]]:
    """The state after the pieces, each of which came a second later than the one before."""
    story = Story()
    events = [event for t, piece in enumerate(pieces) for event in story.events(list(bars_and_lines(piece)), 100.0 + t)]
    return fold_all(RunState(), events), events


def bar(done: int, total: int, elapsed_s: int = 0, name: str = "") -> str:
    return f"{name}{100 * done // total:3d}%|##   | {done}/{total} [00:{elapsed_s:02d}<00:09, 1.0it/s]"


def of(events: Sequence[Event], kind: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


def test_a_trainers_bar_and_its_dictionaries() -> None:
    state, events = told(
        bar(0, 50), bar(10, 50, 5), bar(20, 50, 10), "{'loss': '0.5', 'learning_rate': '1e-05', 'epoch': '1'}"
    )
    assert (state.step, state.total_steps, state.loss, state.source, state.phase) == (
        20,
        50,
        0.5,
        "progress bar",
        "training",
    )
    assert state.rates.step_time_s == 0.5
    assert [event.step for event in events if isinstance(event, Metrics)] == [20]
    assert not state.takes_orders


def test_an_evaluation_between_is_no_step() -> None:
    state, events = told(bar(10, 50, 5), bar(1, 4), bar(4, 4, 2), "{'eval_loss': '0.5', 'epoch': '1'}")
    assert (state.step, state.total_steps, state.phase) == (10, 50, "evaluating")
    assert [event.step for event in events if isinstance(event, Evaluated)] == [10]
    state, _ = told(bar(10, 50, 5), bar(1, 4), bar(11, 50, 8))
    assert (state.step, state.phase) == (11, "training")


def test_epochs_that_begin_anew_add_up() -> None:
    state, _ = told(bar(10, 10, 20), bar(0, 10), bar(5, 10, 10))
    assert (state.step, state.total_steps) == (15, 20)
    latest = state.ranks[0].latest
    assert latest is not None
    assert latest.train_s == 30.0
    state, _ = told(bar(10, 10, 20, "Epoch 1/3: "), bar(5, 10, 10, "Epoch 2/3: "))
    assert (state.step, state.total_steps) == (15, 30)


def test_a_bar_of_epochs_around_bars_of_steps() -> None:
    state, _ = told(bar(0, 3), bar(1, 200, 1), bar(2, 200, 2), bar(1, 3, 9), bar(7, 200, 7))
    assert (state.step, state.total_steps) == (7, 600)


def test_lines_with_a_step_take_their_time_from_the_clock() -> None:
    state, events = told("iter 0: loss 4.0", "iter 10: loss 3.5", "iter 20: loss 3.0")
    assert (state.step, state.total_steps, state.loss) == (20, None, 3.0)
    assert state.rates.step_time_s == 0.1
    assert len(of(events, Steps)) == 3


def test_nothing_told_is_nothing() -> None:
    assert told("hello", "Map: 50%|## | 1/2 [00:01<00:01, 1.0 examples/s]") == (RunState(), [])

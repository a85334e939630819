"""Loss and metrics of an observed plain loop, read from its output."""

from __future__ import annotations

import time
from pathlib import Path

from tuner_tui.core.clock import ClockReading
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import BACKWARD, Evaluated, Event, Metrics, Plan, Steps
from tuner_tui.runs.supervise.printed_metrics import PrintedMetrics


def at(second: float) -> ClockReading:
    return ClockReading(wall_s=1000.0 + second, monotonic_s=second)


def stepped(step: int) -> RunState:
    return fold_all(RunState(), [Steps(t=0.0, rank=0, step=step, own_steps=step)])


def losses(events: list[Event]) -> list[tuple[int, float | None]]:
    return [(event.step, event.loss) for event in events if isinstance(event, Metrics)]


def test_losses_are_spread_over_the_steps_since_the_last_look(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    printed = PrintedMetrics(log)
    log.write_text("loading\nloss: 4.0\n")
    assert printed.events(RunState(), at(0), over=False) == []
    assert losses(printed.events(stepped(1), at(1), over=False)) == [(1, 4.0)]
    log.write_text("loading\nloss: 4.0\nloss: 3.0\nloss: 2.0\nloss: 1.")
    assert losses(printed.events(stepped(21), at(2), over=False)) == [(11, 3.0), (21, 2.0)]
    assert losses(printed.events(stepped(22), at(2.5), over=False)) == []
    with log.open("a") as file:
        file.write("0")
    assert losses(printed.events(stepped(23), at(2.6), over=True)) == [(23, 1.0)]


def test_an_evaluation_that_prints_many_lines_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    printed = PrintedMetrics(log)
    log.write_text("Test: [0/2] Loss 3.0 Acc@1 1.0\nTest: [1/2] Loss 2.0 Acc@1 2.0\n")
    assert printed.events(stepped(10), at(0), over=False) == []
    with log.open("a") as file:
        file.write(" * Acc@1 50.0\n")
    assert printed.events(stepped(10), at(1), over=False) == []
    [event] = printed.events(stepped(10), at(2), over=False)
    assert isinstance(event, Evaluated)
    assert (event.step, event.metrics) == (10, {"eval_loss": 2.0, "eval_acc@1": 50.0})


def test_nothing_is_read_where_a_trainer_reports(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("{'loss': 0.5, 'epoch': 1.0}\n")
    state = fold_all(stepped(5), [Plan(t=0.0, rank=0, total_steps=10, obeys=True)])
    assert PrintedMetrics(log).events(state, at(0), over=True) == []


def test_a_printed_loss_is_not_mixed_with_that_of_backward() -> None:
    first = Metrics(t=1.0, rank=0, source=BACKWARD, step=1, loss=9.0)
    printed = Metrics(t=2.0, source="log lines", step=2, loss=0.5, learning_rate=0.1)
    later = Metrics(t=3.0, rank=0, source=BACKWARD, step=3, loss=8.0)
    assert fold_all(RunState(), [first]).loss == 9.0
    state = fold_all(RunState(), [first, printed, later])
    assert (state.loss, state.loss_source, state.learning_rate) == (0.5, "log lines", 0.1)


def test_much_output_costs_little(tmp_path: Path) -> None:
    """A look at 50 MB takes the time of its last 16 KiB, of which twelve lines are parsed."""
    log = tmp_path / "output.log"
    line = "Train Epoch: 1 [640/6000 (11%)]\tLoss: 0.713240\n"
    log.write_text(line * (50_000_000 // len(line)))
    printed = PrintedMetrics(log)
    began = time.thread_time()
    found = printed.events(stepped(1000), at(0), over=False)
    assert time.thread_time() - began < 0.1
    assert 6 <= len(found) <= 7

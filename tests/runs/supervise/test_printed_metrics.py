"""Loss and metrics of an observed plain loop, read from its output."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.core.clock import ClockReading
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import BACKWARD, Evaluated, Event, Metrics, Phase, Plan, Steps, trust
from tuner_tui.runs.log_parsing.log_follower import PrintedMetrics, planned_steps
from tuner_tui.runs.log_parsing.progress_lines import parse_line
from tuner_tui.runs.read.reader import RunReader


def at(second: float) -> ClockReading:
    return ClockReading(wall_s=1000.0 + second, monotonic_s=second)


def stepped(step: int) -> RunState:
    return fold_all(RunState(), [Steps(t=0.0, rank=0, step=step, own_steps=step)])


def printed(tmp_path: Path, text: str, state: RunState, over: bool = True) -> list[Event]:
    """The events of a log with this text, read once."""
    (tmp_path / "output.log").write_text(text)
    return PrintedMetrics(tmp_path / "output.log").events(state, at(1), over=over)


def evaluations(events: list[Event]) -> list[tuple[int, Mapping[str, float]]]:
    return [(event.step, event.metrics) for event in events if isinstance(event, Evaluated)]


def losses(events: list[Event]) -> list[tuple[int, float | None]]:
    return [(event.step, event.loss) for event in events if isinstance(event, Metrics)]


def test_losses_are_spread_over_the_steps_since_the_last_look(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    log.write_text("loading\nloss: 4.0\n")
    assert reader.events(RunState(), at(0), over=False) == []
    assert losses(reader.events(stepped(1), at(1), over=False)) == [(1, 4.0)]
    log.write_text("loading\nloss: 4.0\nloss: 3.0\nloss: 2.0\nloss: 1.")
    assert losses(reader.events(stepped(21), at(2), over=False)) == [(11, 3.0), (21, 2.0)]
    assert losses(reader.events(stepped(22), at(2.5), over=False)) == []
    with log.open("a") as file:
        file.write("0")
    assert losses(reader.events(stepped(23), at(2.6), over=True)) == [(23, 1.0)]


def test_an_evaluation_that_prints_many_lines_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    log.write_text("Test: [0/2] Loss 3.0 Acc@1 1.0\nTest: [1/2] Loss 2.0 Acc@1 2.0\n")
    assert reader.events(stepped(10), at(0), over=False) == []
    with log.open("a") as file:
        file.write(" * Acc@1 50.0\n")
    assert reader.events(stepped(10), at(1), over=False) == []
    assert reader.events(stepped(10), at(2), over=False) == []  # the counters may follow
    [event] = reader.events(stepped(10), at(3), over=False)
    assert isinstance(event, Evaluated)
    assert (event.step, event.metrics) == (10, {"eval_loss": 2.0, "eval_acc@1": 50.0})


def test_a_label_on_a_line_of_its_own_belongs_to_the_next_line(tmp_path: Path) -> None:
    text = "loss: 2.0  [   64/60000]\nTest Error: \n Accuracy: 10.0%, Avg loss: 3.0 \n\n"
    events = printed(tmp_path, text, stepped(10))
    assert losses(events) == [(5, 2.0)]
    assert evaluations(events) == [(10, {"eval_loss": 3.0, "eval_accuracy": 10.0})]


def test_nothing_is_read_where_a_trainer_reports(tmp_path: Path) -> None:
    state = fold_all(stepped(5), [Plan(t=0.0, rank=0, total_steps=10, obeys=True)])
    assert printed(tmp_path, "{'loss': 0.5, 'epoch': 1.0}\n", state) == []


def test_a_printed_loss_is_not_mixed_with_that_of_backward() -> None:
    first = Metrics(t=1.0, rank=0, source=BACKWARD, step=1, loss=9.0)
    printed = Metrics(t=2.0, source="log lines", step=2, loss=0.5, learning_rate=0.1)
    later = Metrics(t=3.0, rank=0, source=BACKWARD, step=3, loss=8.0)
    assert fold_all(RunState(), [first]).loss == 9.0
    state = fold_all(RunState(), [first, printed, later])
    assert (state.loss, state.loss_trust, state.learning_rate) == (0.5, trust("log lines"), 0.1)


def test_much_output_costs_little(tmp_path: Path) -> None:
    """A look at 50 MB takes the time of its last 4 KiB, of which twelve lines are parsed."""
    log = tmp_path / "output.log"
    line = "Train Epoch: 1 [640/6000 (11%)]\tLoss: 0.713240\n"
    log.write_text(line * (50_000_000 // len(line)))
    reader = PrintedMetrics(log)
    began = time.thread_time()
    found = reader.events(stepped(1000), at(0), over=False)
    assert time.thread_time() - began < 0.1
    assert 6 <= len(found) <= 7


LOADER = {"epoch_batch": 5, "epoch_batches": 94, "epochs_started": 3}


@pytest.mark.parametrize(
    ("line", "counters", "total"),
    [
        ("Epoch 3/10", LOADER, 940),
        ("Epoch [3/10], Loss: 0.5", LOADER | {"micro_steps": 800}, 240),  # 94 batches are 24 steps of 4
        ("Epoch [1/5], Step [100/600], Loss: 2.1", {}, 3000),
        ("[0/25][10/100] Loss_D: 1.2312 Loss_G: 3.4123", {}, 2500),
        ("Epoch: [2][11/15]  Loss 2.3", {"epoch_batches": 15, "epoch_batch": 11}, None),
        ("iter 200/5000 loss 2.3", {}, 5000),
        ("iter 40/5000 loss 2.3", {}, None),  # it counts something else
        ("batch 200/5000 loss 2.3", {}, None),  # of an epoch, and nothing says how many there are
        ("Epoch 200/300, loss 1.0", {}, 300),  # a step each
        ("Accuracy: 150/200 (75%)", LOADER, None),
    ],
)
def test_the_length_of_the_training_by_a_printed_position(
    line: str, counters: dict[str, int], total: int | None
) -> None:
    steps = [Steps(t=float(step), rank=0, step=step, own_steps=step, **counters) for step in (150, 200)]  # type: ignore[arg-type]
    assert planned_steps(parse_line(line), fold_all(RunState(), steps), 150) == total


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("Epoch: 0200 loss_train: 1.85", 300),  # a step each
        ("| epoch 1 |   20/   90 batches | loss 5.0", 27_000),
        ("epoch 2 loss 0.5", None),
    ],
)
def test_a_line_without_the_number_of_epochs_is_of_those_that_the_script_plans(line: str, total: int | None) -> None:
    steps = [Steps(t=float(step), rank=0, step=step, own_steps=step) for step in (150, 200)]
    state = fold_all(RunState(), [Plan(t=0.0, rank=0, epochs=300, guessed=True), *steps])
    assert state.total_steps is None
    assert planned_steps(parse_line(line), state, 150) == total


def test_a_printed_position_gives_the_time_left_unless_the_length_is_known(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("Epoch 1/4\n----------\ntrain Loss: 0.5\nAccuracy: 3/4\n")
    state = fold_all(RunState(), [Steps(t=0.0, rank=0, step=3, own_steps=3, epoch_batch=3, epoch_batches=10)])
    [plan] = [event for event in PrintedMetrics(log).events(state, at(1), over=False) if isinstance(event, Plan)]
    assert (plan.total_steps, plan.guessed, plan.source) == (40, True, "log lines")
    known = fold_all(state, [Plan(t=0.0, rank=0, total_steps=50)])
    assert not [event for event in PrintedMetrics(log).events(known, at(1), over=False) if isinstance(event, Plan)]


def evaluated(step: int, *steps: int) -> Steps:
    return Steps(t=float(step), rank=0, step=step, own_steps=step, evaluated_steps=steps)


def test_evaluations_have_their_steps_although_the_counters_are_late(tmp_path: Path) -> None:
    """Several in a second, of which few are shown as a phase."""
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    reader.events(stepped(1), at(0), over=False)
    lines = [f"Epoch {number}: val loss {number}.0\n" for number in range(1, 9)]
    shown = Phase(t=0.0, rank=0, phase="evaluating", step=10)
    training = Phase(t=0.0, rank=0, phase="training", step=10)
    state = fold_all(RunState(), [evaluated(12), shown, training])
    log.write_text("".join(lines[:3]))
    found = reader.events(state, at(1), over=False)
    state = fold_all(state, [replace(shown, step=40), evaluated(44, 10, 20, 30, 40), replace(training, step=40)])
    log.write_text("".join(lines[:5]))
    found += reader.events(state, at(2), over=False)
    state = fold_all(state, [evaluated(79, 50, 60, 70), replace(shown, step=80)])  # the newest has begun
    log.write_text("".join(lines[:7]))
    found += reader.events(state, at(3), over=False)
    log.write_text("".join(lines))
    found += reader.events(state, at(4), over=True)
    values = [(e.step, e.metrics["eval_loss"]) for e in found if isinstance(e, Evaluated)]
    assert values == [(10 * number, float(number)) for number in range(1, 9)]


def test_a_printed_evaluation_is_of_the_step_at_which_its_phase_began(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("loss: 4.0\nval loss: 3.0\nloss: 2.0\nloss: 1.0\n")
    state = fold_all(stepped(20), [Phase(t=0.0, rank=0, phase="evaluating", step=10)])
    [evaluated] = [e for e in PrintedMetrics(log).events(state, at(1), over=True) if isinstance(e, Evaluated)]
    assert evaluated.step == 10
    log.write_text("epoch 0: {'accuracy': 0.5}\nepoch 1: {'accuracy': 0.6}\nepoch 2: {'accuracy': 0.7}\n")
    state = fold_all(stepped(20), [Phase(t=0.0, rank=0, phase="evaluating", step=step) for step in (6, 12, 18)])
    found = PrintedMetrics(log).events(state, at(1), over=False) + PrintedMetrics(log).events(state, at(2), over=True)
    assert [event.step for event in found if isinstance(event, Evaluated)][:2] == [6, 12]
    assert [event.step for event in found if isinstance(event, Evaluated)][-1] == 18


def test_an_evaluation_whose_line_has_its_step_is_of_that_step(tmp_path: Path) -> None:
    """nanoGPT evaluates before its first step, which no counter says: the later ones are not shifted by it."""
    lines = (f"step {step}: train loss {3 - step / 100:.2f}, val loss {3 - step / 50:.2f}\n" for step in (0, 20, 40))
    state = fold_all(stepped(41), [Phase(t=0.0, rank=0, phase="evaluating", step=step) for step in (20, 40)])
    events = printed(tmp_path, "".join(lines), state)
    assert evaluations(events) == [(0, {"eval_loss": 3.0}), (20, {"eval_loss": 2.6}), (40, {"eval_loss": 2.2})]


def test_the_next_line_of_an_evaluation_is_of_the_same_step(tmp_path: Path) -> None:
    """makemore prints the step and both losses, and then that the loss is the best so far."""
    text = "step 500 train loss: 2.6 test loss: 2.7\ntest loss 2.7 is the best so far\nstep 510 | loss 2.5\n"
    state = fold_all(stepped(515), [Phase(t=0.0, rank=0, phase="evaluating", step=501)])
    assert evaluations(printed(tmp_path, text, state, over=False)) == [(501, {"eval_loss": 2.7})]


def test_the_number_of_steps_of_an_epoch_is_no_step(tmp_path: Path) -> None:
    """Time-Series-Library prints it with the losses of every epoch."""
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    lines = [f"Epoch: {n}, Steps: 75 | Train Loss: {9 - n}.0 Vali Loss: {8 - n}.0\n" for n in (1, 2, 3, 4)]
    log.write_text("".join(lines[:2]))
    seen = [Phase(t=0.0, rank=0, phase="evaluating", step=75 * n) for n in (1, 2, 3, 4)]
    found = reader.events(fold_all(stepped(160), seen[:2]), at(1), over=False)
    log.write_text("".join(lines[:3]))
    found += reader.events(fold_all(stepped(240), seen[:3]), at(2), over=False)
    log.write_text("".join(lines))
    found += reader.events(fold_all(stepped(300), seen), at(3), over=True)
    assert evaluations(found) == [(75 * n, {"eval_loss": 8.0 - n}) for n in (1, 2, 3, 4)]


def test_the_last_result_printed_again_with_each_loss_is_no_evaluation(tmp_path: Path) -> None:
    """LitGPT does so. A result that is equal to the last one is new where the observer saw an evaluation."""
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    seen = [Phase(t=0.0, rank=0, phase="evaluating", step=step) for step in (10, 20)]
    text = (
        "iter 40: val loss 6.4907, val time: 13 ms\niter 44 step 11 | loss train: 6.5, val: 6.491 | iter time: 5 ms\n"
    )
    log.write_text(text)
    found = reader.events(fold_all(stepped(11), seen[:1]), at(1), over=False)
    text += "iter 48 step 12 | loss train: 6.3, val: 6.491 | iter time: 5 ms\n"
    log.write_text(text)
    found += reader.events(fold_all(stepped(12), seen[:1]), at(2), over=False)
    log.write_text(text + "loss train: 6.2, val: 6.491\n")
    found += reader.events(fold_all(stepped(21), seen), at(3), over=True)
    assert evaluations(found) == [(10, {"eval_loss": 6.4907}), (20, {"eval_val": 6.491})]


def test_what_an_evaluation_prints_without_saying_so(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    training, evaluation = "step 9 loss 4.0\n", "Total loss 2.0 accuracy: 0.5\n"
    log.write_text(training + evaluation + "step 11 loss 3.0\n")
    begins, ends = len(training), len(training) + len(evaluation)
    phases = [
        Phase(t=1.0, rank=0, phase="evaluating", step=10, output=begins),
        Phase(t=2.0, rank=0, phase="training", step=10, output=ends),
    ]
    events = reader.events(fold_all(stepped(11), phases), at(1), over=True)
    assert [event.loss for event in events if isinstance(event, Metrics)] == [4.0, 3.0]
    [event] = [event for event in events if isinstance(event, Evaluated)]
    assert (event.step, event.metrics) == (10, {"eval_loss": 2.0, "eval_accuracy": 0.5})


def test_an_evaluation_that_goes_on_or_whose_end_is_unknown(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("loss 4.0\nloss 2.0\n")
    began = fold_all(stepped(10), [Phase(t=1.0, rank=0, phase="evaluating", step=10, output=9)])
    assert losses(PrintedMetrics(log).events(began, at(1), over=True)) == [(5, 4.0)]
    ended = fold_all(began, [Phase(t=2.0, rank=0, phase="training", step=10)])
    assert losses(PrintedMetrics(log).events(ended, at(1), over=True)) == [(5, 4.0), (10, 2.0)]


def test_the_last_loss_is_read_although_other_figures_follow(tmp_path: Path) -> None:
    text = "".join(f"epoch: {number}, loss = {number}.0\n" for number in range(10)) + "accuracy: 0.9\n"
    assert losses(printed(tmp_path, text, stepped(100)))[-1][1] == 9.0


def test_the_result_of_an_evaluation_may_come_before_that_of_each_class(tmp_path: Path) -> None:
    classes = "".join(f"Accuracy of class{number}: {number}.0 %\n" for number in range(10))
    began = fold_all(stepped(10), [Phase(t=1.0, rank=0, phase="evaluating", step=10, output=0)])
    events = printed(tmp_path, "Accuracy of the network: 50.0 %\n" + classes, began)
    assert evaluations(events) == [(10, {"eval_accuracy": 50.0})]


EVALUATES_BETWEEN = """
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 31):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).pow(2).mean().backward()
        optimizer.step()
        if step % 10 == 0:
            print("step", step, "loss", float(step))
            with torch.no_grad():
                model(torch.ones(2, 4))
                print("total loss", 100.0 + step)
"""


@pytest.mark.full
@pytest.mark.train
def test_losses_of_training_and_evaluation_with_the_same_name(box: Sandbox) -> None:
    folder = box.launch(EVALUATES_BETWEEN)
    assert wait_ended(folder).outcome == "completed", folder.output_log.read_text()
    state = RunReader(folder).poll().state
    assert state.loss == 30.0
    assert [(event.step, event.metrics) for event in state.evaluations][-1] == (30, {"eval_loss": 130.0})

"""What printed progress becomes: the metrics of an observed loop, and all events of a training without observer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.core.clock import ClockReading
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import BACKWARD, Evaluated, Event, Metrics, Phase, Plan, Steps, trust
from tuner_tui.runs.log_parsing.log_follower import LogEventBuilder, LogOnlyFollower, PrintedMetrics, planned_steps
from tuner_tui.runs.log_parsing.progress_lines import parse_line, parse_output
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.settings.job import CommandJob


def say(tmp_path: Path, text: str) -> None:
    with (tmp_path / "output.log").open("a") as file:
        file.write(text)


def write_end(log: Path, end: bytes) -> None:
    """A log of one terabyte, of which only the end was written."""
    with log.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, 2)
        file.write(end)


def at(second: float) -> ClockReading:
    return ClockReading(wall_s=1000.0 + second, monotonic_s=second)


def stepped(step: int) -> RunState:
    return fold_all(RunState(), [Steps(t=0.0, rank=0, step=step, own_steps=step)])


def evaluations(events: list[Event]) -> list[tuple[int, Mapping[str, float]]]:
    return [(event.step, event.metrics) for event in events if isinstance(event, Evaluated)]


def losses(events: list[Event]) -> list[tuple[int, float | None]]:
    return [(event.step, event.loss) for event in events if isinstance(event, Metrics)]


def printed(step: int, *until: tuple[int, int]) -> RunState:
    """The state at a step; `until`: steps after which something was printed, and the output before the next one."""
    return fold_all(RunState(), [Steps(t=1.0, rank=0, step=step, own_steps=step, printed=until)])


def after(step: int, *lines: tuple[int, str]) -> tuple[str, RunState]:
    """Lines, each printed after a step, and the state at a later step."""
    ends = accumulate(len(line) for _, line in lines)
    text = "".join(line for _, line in lines)
    return text, printed(step, *((after, end) for (after, _), end in zip(lines, ends, strict=True)))


def evaluating(step: int, output: int | None = None, ended: int | None = None) -> RunState:
    """The state at a step, after which an evaluation began with so much output."""
    phases: list[Event] = [Phase(t=1.0, rank=0, phase="evaluating", step=step, output=output)]
    if ended is not None:
        phases.append(Phase(t=2.0, rank=0, phase="training", step=step, output=ended or None))
    return fold_all(stepped(step), phases)


EVALUATION = [
    Phase(t=1.0, rank=0, phase="evaluating", step=10, output=16),
    Phase(t=2.0, rank=0, phase="training", step=10, output=45),
]


@pytest.mark.parametrize(
    ("text", "state", "trained", "metrics"),
    [
        # a label on a line of its own belongs to the next line
        (
            "loss: 2.0  [   64/60000]\nTest Error: \n Accuracy: 10.0%, Avg loss: 3.0 \n\n",
            stepped(10),
            [(10, 2.0)],
            [(10, {"eval_loss": 3.0, "eval_accuracy": 10.0})],
        ),
        # also where it is known from where to where an evaluation printed: its mean is none of the training
        *(
            (
                "loss: 2.0  [   64/60000]\nTest Error: \n Accuracy: 10.0%, Avg loss: 3.0 \n\n",
                fold_all(
                    printed(11, (10, 75)),
                    [
                        Phase(t=1.0, rank=0, phase="evaluating", step=10, output=began),
                        Phase(t=2.0, rank=0, phase="training", step=10, output=25, output_until=75),
                    ],
                ),
                [(10, 2.0)],
                [(10, {"eval_loss": 3.0, "eval_accuracy": 10.0})],
            )
            for began in (None, 25)
        ),
        # a Trainer reports
        ("{'loss': 0.5, 'epoch': 1.0}\n", fold_all(stepped(5), [Plan(t=0.0, rank=0, obeys=True)]), [], []),
        # an evaluation is of the step after which it was printed
        (
            *after(20, (10, "loss: 4.0\n"), (10, "val loss: 3.0\n"), (20, "loss: 2.0\n")),
            [(10, 4.0), (20, 2.0)],
            [(10, {"eval_loss": 3.0})],
        ),
        # a summary of all epochs at the end, as timm prints
        ('loss: 4.0\n[{"epoch": 0,\n "validation": {\n  "loss": 1.2,\n  "top1": 50.0\n }\n}]\n', stepped(20), None, []),
        # nanoGPT evaluates before its first step, which no counter says: the later ones are not shifted by it
        (
            *after(41, *((n, f"step {n}: train loss 3.0, val loss {3 - n / 50:.1f}\n") for n in (0, 20, 40))),
            None,
            [(0, {"eval_loss": 3.0}), (20, {"eval_loss": 2.6}), (40, {"eval_loss": 2.2})],
        ),
        # a loss of the training beside that of an evaluation is none of the series, where others are printed alone
        (
            *after(
                11,
                (0, "step 0: train loss 5.0, val loss 5.0\n"),
                (2, "iter 1: loss 4.0\n"),
                (9, "Avg. loss 3.5\n"),
                (10, "step 10: train loss 3.0, val loss 3.1\n"),
            ),
            [(1, 5.0), (1, 4.0)],
            [(0, {"eval_loss": 5.0}), (10, {"eval_loss": 3.1})],
        ),
        # makemore prints the step and both losses, and then that the loss is the best so far
        (
            *after(
                515,
                (501, "step 500 train loss: 2.6 test loss: 2.7\ntest loss 2.7 is the best so far\n"),
                (511, "step 510 | loss 2.5\n"),
            ),
            [(500, 2.6), (510, 2.5)],
            [(501, {"eval_loss": 2.7})],
        ),
        # what an evaluation prints without saying so, by where it began and ended in the output
        (
            "step 9 loss 4.0\nTotal loss 2.0 accuracy: 0.5\nstep 11 loss 3.0\n",
            fold_all(printed(11, (9, 16), (10, 45)), EVALUATION),
            [(9, 4.0), (11, 3.0)],
            [(10, {"eval_loss": 2.0, "eval_accuracy": 0.5})],
        ),
        # metrics that are printed after it, before the training goes on; a loss there may be of the epoch before it
        (
            "loss 4.0\nAvg. PSNR: 21.5 dB\nloss 3.0\nPSNR: 9.0\n",
            fold_all(
                printed(11, (10, 37)),
                [
                    Phase(t=1.0, rank=0, phase="evaluating", step=10),
                    Phase(t=2.0, rank=0, phase="training", step=10, output=9, output_until=37),
                ],
            ),
            [(10, 4.0), (10, 3.0)],
            [(10, {"eval_psnr": 21.5})],
        ),
        # behind a bar of Keras that has not ended its line
        (
            "23/23 loss: 0.0114\b\b\b\rPSNR: 21.5 dB\n",
            fold_all(
                stepped(10),
                [
                    Phase(t=1.0, rank=0, phase="evaluating", step=10),
                    Phase(t=2.0, rank=0, phase="training", step=10, output=18, output_until=36),
                ],
            ),
            [(10, 0.0114)],
            [(10, {"eval_psnr": 21.5})],
        ),
        # an evaluation that goes on, and one whose end is unknown
        ("loss 4.0\nloss 2.0\n", evaluating(10, output=9), [(10, 4.0)], [(10, {"eval_loss": 2.0})]),
        ("loss 4.0\nloss 2.0\n", evaluating(10, output=9, ended=0), [(10, 4.0), (10, 2.0)], []),
        # after a training that validates, a test is another series, and is not the last validation
        (
            "loss_val: 3.0 acc_val: 0.5\nTest set results: loss= 2.0 accuracy= 0.9\n",
            evaluating(10),
            [],
            [(10, {"eval_loss": 3.0, "eval_acc": 0.5, "test_loss": 2.0, "test_accuracy": 0.9})],
        ),
        # a program prints right behind a bar that has not ended its line
        (
            "100%|█████| 84/84 [00:23<00:00, 3.6it/s]epoch 3: {'accuracy': 0.5, 'eval_loss': 2.5}\n",
            evaluating(10),
            [],
            [(10, {"eval_accuracy": 0.5, "eval_loss": 2.5})],
        ),
        # of many lines the last loss is read although other figures follow
        ("".join(f"loss = {n}.0\n" for n in range(10)) + "accuracy: 0.9\n", stepped(10), (10, 9.0), []),
        # the program fails in the evaluation that it has printed
        (
            "-----\n" * 3
            + "valid loss 8.5\n"
            + "  File main.py, line 3, in load\n    load(file)\n" * 9
            + "ValueError: 2 of 3\n",
            evaluating(10, output=0),
            [],
            [(10, {"eval_loss": 8.5})],
        ),
        # the result may come before that of each class
        (
            "Accuracy of the network: 50.0 %\n" + "".join(f"Accuracy of class{n}: {n}.0 %\n" for n in range(10)),
            evaluating(10, output=0),
            [],
            [(10, {"eval_accuracy": 50.0})],
        ),
    ],
)
def test_what_one_look_finds(
    tmp_path: Path, text: str, state: RunState, trained: Any, metrics: list[tuple[int, Mapping[str, float]]]
) -> None:
    """`trained`: the losses with their steps, only the last one, or None."""
    (tmp_path / "output.log").write_text(text)
    events = PrintedMetrics(tmp_path / "output.log").events(state, at(1), over=True)
    assert evaluations(events) == metrics
    if trained is not None:
        assert trained == (losses(events)[-1] if isinstance(trained, tuple) else losses(events))


EPOCHS = [f"Epoch: {n}, Steps: 75 | Train Loss: {9 - n}.0 Vali Loss: {8 - n}.0\n" for n in (1, 2, 3, 4)]
REPEATED = [
    "iter 40: val loss 6.4907, val time: 13 ms\niter 44 step 11 | loss train: 6.5, val: 6.491 | iter time: 5 ms\n",
    "iter 48 step 12 | loss train: 6.3, val: 6.491 | iter time: 5 ms\n",
    "loss train: 6.2, val: 6.491\n",
]
SECOND = [f"Epoch {number}: val loss {number}.0\n" for number in range(1, 4)]


EVALUATED = Evaluated(t=1.0, rank=0, step=20, seconds=0.5)


@pytest.mark.parametrize(
    ("looks", "metrics"),
    [
        # the lines of one evaluation are added up, and the counters may follow
        (
            [
                ("Test: [0/2] Loss 3.0 Acc@1 1.0\nTest: [1/2] Loss 2.0 Acc@1 2.0\n", stepped(10)),
                (" * Acc@1 50.0\n", stepped(10)), ("", stepped(10)), ("", stepped(10)),
            ],
            [(10, {"eval_loss": 2.0, "eval_acc@1": 50.0})],
        ),
        # Time-Series-Library prints the number of steps of an epoch with its losses
        (
            [
                (EPOCHS[0] + EPOCHS[1], printed(160, (75, 53), (150, 106))),
                (EPOCHS[2], printed(240, (75, 53), (150, 106), (225, 159))),
                (EPOCHS[3], printed(300, (150, 106), (225, 159))),
            ],
            [(75 * n, {"eval_loss": 8.0 - n}) for n in (1, 2, 3, 4)],
        ),
        # LitGPT prints the last result again with each loss; it is new where the observer saw an evaluation
        (
            [
                (REPEATED[0], printed(12, (10, 42), (11, 106))), (REPEATED[1], printed(13, (11, 106), (12, 170))),
                (REPEATED[2], fold_all(printed(21, (12, 170), (20, 198)), [EVALUATED])),
            ],
            [(10, {"eval_loss": 6.4907}), (20, {"eval_val": 6.491})],
        ),
        # each belongs to the step that was made before it, not to the newest one
        (
            [
                ("".join(SECOND[:2]), printed(24, (10, 22), (20, 44))),
                ("late\n" + SECOND[2], printed(40, (10, 22), (20, 44))),
                ("", printed(41, (10, 22), (20, 44), (40, 71))),
            ],
            [(10, {"eval_loss": 1.0}), (20, {"eval_loss": 2.0}), (40, {"eval_loss": 3.0})],
        ),
        # no step follows the evaluation that ends the training
        (
            [(SECOND[0], printed(12, (10, 22))), ("".join(SECOND[1:3]), printed(30, (10, 22), (20, 44)))],
            [(10 * number, {"eval_loss": float(number)}) for number in (1, 2, 3)],
        ),
    ],
)  # fmt: skip
def test_what_several_looks_find(
    tmp_path: Path, looks: list[tuple[str, RunState]], metrics: list[tuple[int, Mapping[str, float]]]
) -> None:
    reader, events = PrintedMetrics(tmp_path / "output.log"), list[Event]()
    for second, (text, state) in enumerate(looks):
        say(tmp_path, text)
        events += reader.events(state, at(second), over=second == len(looks) - 1)
    assert evaluations(events) == metrics


def test_losses_that_no_counter_covers_are_of_the_newest_step(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    reader = PrintedMetrics(log)
    log.write_text("loading\nloss: 4.0\n")
    assert reader.events(RunState(), at(0), over=False) == []
    assert losses(reader.events(stepped(1), at(1), over=False)) == [(1, 4.0)]
    log.write_text("loading\nloss: 4.0\nloss: 3.0\nloss: 2.0\nloss: 1.")
    assert losses(reader.events(stepped(21), at(2), over=False)) == [(21, 3.0), (21, 2.0)]
    assert losses(reader.events(stepped(22), at(2.5), over=False)) == []
    with log.open("a") as file:
        file.write("0")
    assert losses(reader.events(stepped(23), at(2.6), over=True)) == [(23, 1.0)]


def test_a_line_is_of_the_step_after_which_it_was_printed(tmp_path: Path) -> None:
    """Two lines every five steps, of which the counters come later; a line may name the step before or after."""
    line = "loss: {}.0\nlr 0.1 loss: {}.5\n"
    reader, until = PrintedMetrics(tmp_path / "output.log"), 0
    marks, events = list[tuple[int, int]](), list[Event]()
    for second, step in enumerate(range(5, 30, 5)):
        say(tmp_path, line.format(step, step))
        now = step + 3 if marks else 1
        counters = Steps(t=1000.0 + second, rank=0, step=now, own_steps=now, printed=tuple(marks))
        events += reader.events(fold_all(RunState(), [counters]), at(second), over=False)
        until += len(line.format(step, step))
        marks.append((step, until))
    say(tmp_path, "step 29 loss: 29.0\nstep 900 loss: 30.0\n")
    until += len("step 29 loss: 29.0\nstep 900 loss: 30.0\n")
    counters = Steps(t=1009.0, rank=0, step=31, own_steps=31, printed=(*marks, (30, until)))
    events += reader.events(fold_all(RunState(), [counters]), at(9), over=False)
    assert losses(events) == [(step, step + half) for step in range(5, 30, 5) for half in (0, 0.5)] + [
        (29, 29.0),
        (30, 30.0),
    ]


def test_what_follows_an_evaluation_at_the_end_is_its_metric(tmp_path: Path) -> None:
    trained = "Epoch: 300, Loss: 0.1009\n"
    (tmp_path / "output.log").write_text(f"{trained}Accuracy: 0.125\n")
    ended = Phase(t=3.0, rank=0, phase="ending", step=300, output_until=len(trained) + 16)
    state = fold_all(evaluating(300, output=len(trained)), [ended])
    events = PrintedMetrics(tmp_path / "output.log").events(state, at(3), over=True)
    assert evaluations(events) == [(300, {"eval_accuracy": 0.125})]


def test_what_a_resumed_run_prints_is_of_its_own_steps(tmp_path: Path) -> None:
    evaluated = "step 100: val loss 2.7\n"
    (tmp_path / "output.log").write_text(f"{evaluated}loss: 2.0\nloss: 1.0\n")
    state = replace(stepped(105), first_step=100, printed=((0, len(evaluated)),))
    events = PrintedMetrics(tmp_path / "output.log").events(state, at(1), over=True)
    assert losses(events) == [(105, 2.0), (105, 1.0)]
    assert evaluations(events) == [(100, {"eval_loss": 2.7})]


def test_a_printed_loss_is_not_mixed_with_that_of_backward() -> None:
    first = Metrics(t=1.0, rank=0, source=BACKWARD, step=1, loss=9.0)
    printed = Metrics(t=2.0, source="log lines", step=2, loss=0.5, learning_rate=0.1)
    later = Metrics(t=3.0, rank=0, source=BACKWARD, step=3, loss=8.0)
    assert fold_all(RunState(), [first]).loss == 9.0
    state = fold_all(RunState(), [first, printed, later])
    assert (state.loss, state.loss_trust, state.learning_rate) == (0.5, trust("log lines"), 0.1)


def test_a_printed_part_is_not_the_loss_that_backward_was_called_on(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("Loss_D: 1.5 Loss_G: 4.0\n")
    printed = PrintedMetrics(log).events(stepped(1), at(0), over=True)
    whole = Metrics(t=1.0, rank=0, source=BACKWARD, step=1, loss=0.75)
    for events in ([whole, *printed], [*printed, whole]):
        state = fold_all(RunState(), events)
        assert (state.loss, state.loss_parts) == (0.75, {"loss_d": 1.5, "loss_g": 4.0})


def test_much_output_costs_little(tmp_path: Path) -> None:
    """A look reads the last 4 KiB, of which twelve lines are parsed: nobody could read the terabyte before them."""
    write_end(tmp_path / "output.log", b"Train Epoch: 1 [640/6000 (11%)]\tLoss: 0.713240\n" * 200)
    assert 6 <= len(PrintedMetrics(tmp_path / "output.log").events(stepped(1000), at(0), over=False)) <= 7


LOADER = {"epoch_batch": 5, "epoch_batches": 94}


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
    folded = fold_all(state, [Plan(t=0.0, rank=0, total_steps=50)])
    assert not [event for event in PrintedMetrics(log).events(folded, at(1), over=False) if isinstance(event, Plan)]


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


def followed(*pieces: str) -> tuple[RunState, list[Event]]:
    """The state after the pieces, each of which came a second later than the one before."""
    story = LogEventBuilder()
    events = [event for t, piece in enumerate(pieces) for event in story.events(list(parse_output(piece)), 100.0 + t)]
    return fold_all(RunState(), events), events


def bar(done: int, total: int, elapsed_s: int = 0, name: str = "") -> str:
    return f"{name}{100 * done // total:3d}%|##   | {done}/{total} [00:{elapsed_s:02d}<00:09, 1.0it/s]"


def test_a_trainers_bar_and_its_dictionaries() -> None:
    state, events = followed(
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
    assert not state.accepts_orders


def test_an_evaluation_between_is_no_step() -> None:
    state, events = followed(bar(10, 50, 5), bar(1, 4), bar(4, 4, 2), "{'eval_loss': '0.5', 'epoch': '1'}")
    assert (state.step, state.total_steps, state.phase) == (10, 50, "evaluating")
    assert [event.step for event in events if isinstance(event, Evaluated)] == [10]
    state, _ = followed(bar(10, 50, 5), bar(1, 4), bar(11, 50, 8))
    assert (state.step, state.phase) == (11, "training")


def test_epochs_that_begin_anew_add_up() -> None:
    state, _ = followed(bar(10, 10, 20), bar(0, 10), bar(5, 10, 10))
    assert (state.step, state.total_steps) == (15, 20)
    latest = state.ranks[0].latest
    assert latest is not None
    assert latest.train_s == 30.0
    state, _ = followed(bar(10, 10, 20, "Epoch 1/3: "), bar(5, 10, 10, "Epoch 2/3: "))
    assert (state.step, state.total_steps) == (15, 30)


def test_a_bar_of_epochs_around_bars_of_steps() -> None:
    state, _ = followed(bar(0, 3), bar(1, 200, 1), bar(2, 200, 2), bar(1, 3, 9), bar(7, 200, 7))
    assert (state.step, state.total_steps) == (7, 600)


def test_lines_with_a_step_take_their_time_from_the_clock() -> None:
    state, events = followed("iter 0: loss 4.0", "iter 10: loss 3.5", "iter 20: loss 3.0")
    assert (state.step, state.total_steps, state.loss) == (20, None, 3.0)
    assert state.rates.step_time_s == 0.1
    assert len(step_numbers(events)) == 3


def step_numbers(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Steps)]


def look(tmp_path: Path) -> LogOnlyFollower:
    return LogOnlyFollower(tmp_path / "output.log")


def test_it_waits_for_the_observer_to_speak_first(tmp_path: Path) -> None:
    seen = look(tmp_path)
    assert seen.events(100.0, over=False) == []
    say(tmp_path, "\r  1%|  | 1/100 [00:01<01:39,  1.0it/s]")
    assert seen.events(101.0, over=False) == []
    say(tmp_path, "\r  3%|  | 3/100 [00:03<01:37,  1.0it/s]")
    assert seen.events(103.0, over=False) == []
    assert step_numbers(seen.events(104.1, over=False)) == [1, 3]
    say(tmp_path, "\r  5%|  | 5/100 [00:05<01:35,  1.0it/s]")
    assert step_numbers(seen.events(105.0, over=False)) == [5]


def keras(done: int, total: int, rest: str) -> str:
    """A bar as Keras 3 draws it, over what it drew before."""
    bars = f"\x1b[32m{'━' * 20}\x1b[0m\x1b[37m\x1b[0m"
    return "\b" * 40 + f"\r\x1b[1m{done}/{total}\x1b[0m {bars} \x1b[1m1s\x1b[0m 46ms/step - {rest}"


def test_the_bars_of_keras() -> None:
    state, _ = followed(
        "Epoch 1/3\n",
        keras(17, 18, "accuracy: 0.43 - loss: 1.57"),
        keras(18, 18, "accuracy: 0.43 - loss: 1.56 - val_accuracy: 0.46 - val_loss: 1.47") + "\n",
        "Epoch 2/3\n",
        keras(4, 18, "accuracy: 0.5 - loss: 1.25"),
    )
    assert (state.step, state.total_steps, state.loss) == (22, 54, 1.25)
    assert state.evaluations[-1].metrics["eval_loss"] == 1.47
    old, _ = followed("Epoch 1/2\n", "50/94 [==============>...............] - ETA: 1s - loss: 0.5 - accuracy: 0.7")
    assert (old.step, old.total_steps, old.loss) == (50, 188, 0.5)


def test_a_bar_before_the_observers_first_step_is_not_taken_for_the_training(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(bar(24, 24, 1) + "\r")
    follower = LogOnlyFollower(log)
    assert follower.events(1000.0, over=False, observed=True) == []
    assert follower.events(1030.0, over=False, observed=True) == []
    assert follower.events(1060.0, over=False, observed=True)


def test_the_observer_replaces_the_total_of_a_bar() -> None:
    state, _ = followed(bar(24, 24, 1))
    assert (state.step, state.total_steps) == (24, 24)
    state = fold_all(state, [Plan(t=200.0, rank=0, total_steps=6, guessed=True)])
    assert state.total_steps == 6
    state = fold_all(state, [Steps(t=201.0, rank=0, step=1, own_steps=1, train_s=1.0)])
    assert (state.step, state.total_steps, state.total_guessed) == (1, 6, True)
    without_plan = fold_all(followed(bar(24, 24, 1))[0], [Steps(t=201.0, rank=0, step=1, own_steps=1, train_s=1.0)])
    assert (without_plan.step, without_plan.total_steps) == (1, None)


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    write_end(tmp_path / "output.log", b"\r 90%|  | 90/100 [00:90<00:10,  1.0it/s]")
    assert step_numbers(look(tmp_path).events(100.0, over=True)) == [90]


ISOLATED = """
import sys
for step in range(1, 31):
    sys.stderr.write(f"\\r{step * 100 // 30:3d}%|##  | {step}/30 [00:{step:02d}<00:00,  1.00it/s]")
print("{'loss': '0.25', 'learning_rate': '1e-05', 'epoch': '1'}", flush=True)
"""


def test_an_isolated_interpreter_is_seen_from_outside(box: Sandbox) -> None:
    job = CommandJob(command=(sys.executable, "-I", "train.py"))
    folder = box.launch(ISOLATED, job=job)
    wait_ended(folder)
    view = RunReader(folder).poll()
    assert (view.state.step, view.state.total_steps, view.state.loss) == (30, 30, 0.25)
    assert view.state.source == "progress bar"
    assert view.state.outcome == "completed"
    assert view.history.loss.ys == (0.25,)

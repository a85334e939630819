"""Errors during the evaluation of a Trainer, the control file, and numbers that are read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.counters.evaluation import EvaluationDetector
from tuner_tui.observer.site._tuner_observer.counters.step_counters import StepCounters
from tuner_tui.observer.site._tuner_observer.hooks import transformers_trainer
from tuner_tui.observer.site._tuner_observer.hooks.reporter import ControlFile, FrameworkReporter, as_float
from tuner_tui.observer.site._tuner_observer.process_exit import ExitReporter
from tuner_tui.observer.site._tuner_observer.session import Session

torch = late_module("torch")


class FakeTrainer:
    """A Trainer whose evaluation runs out of memory."""

    def evaluate(self) -> None:
        self.evaluation_loop()

    def predict(self) -> None: ...

    def evaluation_loop(self) -> None:
        raise MemoryError

    def _save_checkpoint(self) -> None: ...


def test_error_during_evaluation_reports_its_phase(tmp_path: Path) -> None:
    session = Session(str(tmp_path), launched=True)
    session.open()
    counters = StepCounters(session, torch.Tensor, EvaluationDetector(torch.is_grad_enabled), dict)
    module = SimpleNamespace(DEFAULT_CALLBACKS=[], Trainer=FakeTrainer, TrainerCallback=object)
    transformers_trainer.hook_transformers_trainer(module, session, counters, SimpleNamespace())  # type: ignore[arg-type]
    assert len(module.DEFAULT_CALLBACKS) == 1
    with pytest.raises(MemoryError) as caught:
        FakeTrainer().evaluate()
    ExitReporter(session, lambda: counters).report(caught.value)
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["where"]) == ("out-of-memory", "evaluating")
    assert not counters.evaluation.is_evaluating()


def test_the_losses_of_a_fast_run_are_written_until_they_are_many(tmp_path: Path) -> None:
    session = Session(str(tmp_path), launched=True)
    session.open()
    reporter = FrameworkReporter(session, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]

    def steps() -> list[int]:
        events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
        return [event["step"] for event in events if event["kind"] == "metrics"]

    for step in range(75):
        reporter.report_metrics({"step": step, "loss": 1.0})
    assert steps() == list(range(75))
    for step in range(75, 2000):
        reporter.report_metrics({"step": step, "loss": 1.0})
    assert len(steps()) < 200
    reporter.write_metrics()
    assert steps()[-1] == 1999, "the newest is never lost"


def test_a_request_is_returned_once_and_not_if_it_is_old(tmp_path: Path) -> None:
    file = tmp_path / "control"
    file.write_text("stop\n")
    old = ControlFile(str(tmp_path))
    old.start()
    assert old.request(1) is None
    now = [100.0]
    control = ControlFile(str(tmp_path), lambda: now[0])
    assert control.request(1) == "stop"
    now[0] += 2
    assert control.request(2) is None
    file.write_text("checkpoint 17\n")
    assert control.request(3) is None, "polled at most once a second"
    now[0] += 2
    assert control.request(4) == "checkpoint"


def test_ranks_act_at_the_same_step(tmp_path: Path) -> None:
    now = [100.0]
    first, second, third = (
        ControlFile(str(tmp_path), lambda: now[0], lambda rank=rank: (rank, 3))  # type: ignore[misc]
        for rank in range(3)
    )
    for control in (first, second, third):
        control.start()
    assert [control.request(1) for control in (third, second, first)] == [None] * 3
    (tmp_path / "control").write_text("stop\n")
    now[0] += 0.5
    assert [control.request(2) for control in (first, second, third)] == [None] * 3, "not polled yet"
    now[0] += 0.6
    assert second.request(3) is None, "only rank 0 reads the request"
    assert first.request(3) is None, "other ranks may have finished this step"
    assert [control.request(4) for control in (third, first, second)] == ["stop"] * 3
    now[0] += 2
    assert [control.request(5) for control in (first, second, third)] == [None] * 3


def test_a_loss_that_has_a_gradient_is_read_without_a_warning_of_torch() -> None:
    assert as_float(torch.tensor(0.25, requires_grad=True)) == 0.25


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("sgd", {"optim": "sgd"}), ("adamw_torch_fused", {"learning_rate": 0.5, "weight_decay": 0.25})],
)
def test_an_optimizer_that_a_trainer_was_given_shows_its_own_values(asked: str, expected: dict[str, object]) -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.5, weight_decay=0.25)
    arguments = SimpleNamespace(optim=asked, lr_scheduler_type="linear")
    assert transformers_trainer._optimizer_of(arguments, optimizer) == expected


@pytest.mark.parametrize(
    ("warmup", "shown"), [({"warmup_steps": 5}, 5), ({"warmup_steps": 0, "warmup_ratio": 0.25}, 0.25)]
)
def test_a_schedule_of_the_script_is_none_of_the_arguments(warmup: dict[str, float], shown: float) -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.5)
    arguments = SimpleNamespace(lr_scheduler_type="cosine", **warmup)
    asked = late_module("transformers").get_cosine_schedule_with_warmup(optimizer, 5, 20)
    other = late_module("transformers").get_linear_schedule_with_warmup(optimizer, 5, 20)
    assert transformers_trainer._schedule_of(arguments, asked) == {"lr_scheduler_type": "cosine", "warmup_steps": shown}
    assert transformers_trainer._schedule_of(arguments, other) == {}

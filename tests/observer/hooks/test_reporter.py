"""Errors during the evaluation of a Trainer."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner_tui.observer.site._tuner_observer.counters.evaluation import EvaluationDetector
from tuner_tui.observer.site._tuner_observer.counters.step_counters import StepCounters
from tuner_tui.observer.site._tuner_observer.hooks import transformers_trainer
from tuner_tui.observer.site._tuner_observer.process_exit import ExitReporter
from tuner_tui.observer.site._tuner_observer.session import Session

torch = pytest.importorskip("torch")


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

"""A model that is left in eval mode after an evaluation, and what looks like it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.counters.evaluation import EvaluationDetector
from tuner_tui.observer.site._tuner_observer.settings_in_effect import SettingsInEffect

torch = late_module("torch")


def model_of(layer: str) -> Any:
    layers: dict[str, Any] = {
        "dropout": lambda: torch.nn.Dropout(0.1),
        "no dropout": lambda: torch.nn.Dropout(0.0),
        "batch norm": lambda: torch.nn.BatchNorm1d(4),
        "lstm": lambda: torch.nn.LSTM(4, 4, num_layers=2, dropout=0.1),
    }

    class Model(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = torch.nn.Sequential(torch.nn.Linear(4, 4), layers[layer]())
            self.head = torch.nn.Linear(4, 1)

    return Model()


@pytest.mark.parametrize(
    ("layer", "evaluated", "modes", "since"),
    [
        ("dropout", "model", "teee", 2),
        ("batch norm", "model", "tteeee", 3),
        ("lstm", "model", "teee", 2),
        ("dropout", "model", "tttt", None),  # back in train mode before each step
        ("dropout", "model", "tettt", None),  # for one step
        ("dropout", "model", "eeee", None),  # never in train mode, on purpose
        ("no dropout", "model", "teee", None),
        ("batch norm", "backbone", "teee", None),  # the head remains in train mode
        ("batch norm", "frozen", "teee", None),
        ("dropout", "copy", "teee", None),  # an average of the weights, or a teacher
    ],
)
def test_a_model_that_is_left_in_eval_mode(layer: str, evaluated: str, modes: str, since: int | None) -> None:
    """`modes`: that of the part that is evaluated before each step, as it steps."""
    reported = dict[str, Any]()
    session = SimpleNamespace(report=lambda _, values=None, **__: reported.update(values or {}))
    settings = SettingsInEffect(torch, session)  # type: ignore[arg-type]
    detector, model = EvaluationDetector(torch.is_grad_enabled), model_of(layer)
    part = {"model": model, "copy": model_of(layer)}.get(evaluated, model.backbone)
    if evaluated == "frozen":
        part.requires_grad_(requires_grad=False)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)

    class Hooked(torch.nn.Module):  # type: ignore[name-defined]
        eval = torch.nn.Module.eval

    detector.hook_eval_mode(Hooked, lambda: None)
    for step, mode in enumerate(modes, start=1):
        Hooked.eval(part)
        if mode == "t":
            part.train()
        detector.step_done(step)
        if step == 1:
            settings.optimizer_stepped(optimizer)
        detector.note_mode()
        settings.check(left_in_eval=detector.left_in_eval)
    assert reported.get("eval_mode_since") == since

"""Steps of optimizers that alternate, their settings and their time."""

from __future__ import annotations

import copy
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.counters.evaluation import EvaluationDetector
from tuner_tui.observer.site._tuner_observer.counters.step_counters import StepCounters
from tuner_tui.observer.site._tuner_observer.hooks import optimizer_steps
from tuner_tui.observer.site._tuner_observer.import_hooks import call_after
from tuner_tui.observer.site._tuner_observer.session import Session
from tuner_tui.observer.site._tuner_observer.settings_in_effect import SettingsInEffect, count_parameters

torch = late_module("torch")


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        ("ababab", 3),
        ("aaaaabaaaaab", 10),
        ("abcabc", 2),
        ("aaabbb", 6),
        ("aabbcc", 6),
    ],
)
def test_optimizers_that_alternate_or_follow_each_other(tmp_path: Path, order: str, steps: int) -> None:
    parameter = torch.zeros(1, requires_grad=True)
    optimizers = {name: torch.optim.SGD([parameter]) for name in sorted(set(order))}
    counters = StepCounters(
        Session(str(tmp_path), launched=True), torch.Tensor, EvaluationDetector(torch.is_grad_enabled), dict
    )
    for name in order:
        key = id(optimizers[name])
        counters.buffer.optimizers[key] = weakref.ref(optimizers[name])
        counters.buffer.records.append((key, time.perf_counter(), 0, 0))
    assert counters.step == steps


def test_models_that_are_trained_in_turn_are_counted_alone(tmp_path: Path) -> None:
    """The folds of a cross-validation are all made before the first one trains."""

    class InTurn(torch.optim.SGD):  # type: ignore[name-defined]
        def add_param_group(self, group: Any) -> None:
            super().add_param_group(group)

    counted = list[int]()
    session = SimpleNamespace(
        report=lambda _, **fields: counted.extend({fields["parameters"]} if "values" not in fields else ())
    )
    settings = SettingsInEffect(torch, session)  # type: ignore[arg-type]
    call_after(InTurn, "add_param_group", settings.group_added)
    models = [torch.nn.Linear(4, 1) for _ in range(3)]
    optimizers = [InTurn(model.parameters()) for model in models]
    counters = StepCounters(
        Session(str(tmp_path), launched=True), torch.Tensor, EvaluationDetector(torch.is_grad_enabled), dict
    )

    def look(*stepped: int) -> None:
        for number in stepped:
            counters.buffer.records.append((id(optimizers[number]), time.perf_counter(), 0, 0))
        counters.read()
        settings.check(recent=counters.recent_optimizers)

    settings.optimizer_stepped(optimizers[0])
    look(0)
    assert counted == [15]
    look(*[0] * 20)
    look(0)
    assert counted == [15, 5]
    settings.optimizer_stepped(optimizers[1])
    settings.model_searched = False  # another loop
    look(1)
    look(*[1] * 20)
    look(1)
    assert counted == [15, 5, 5]
    look(*[1, 2] * 20)
    look(1, 2)
    assert counted[3:] == [10], "which step together count together"


def test_momentum_copies_of_parts_do_not_count() -> None:
    """As in MoCo, whose optimizer gets the copies too; they need no gradients."""
    parts = {name: torch.nn.Sequential(torch.nn.Linear(4, size)) for name, size in (("encoder", 3), ("head", 2))}
    model = torch.nn.ModuleDict({**parts, **{f"{name}_copy": copy.deepcopy(part) for name, part in parts.items()}})
    for name in parts:
        model[f"{name}_copy"].requires_grad_(requires_grad=False)
    counted = count_parameters(model, optimized=list(model.parameters()))
    assert counted == {"parameters": 25, "trainable_parameters": 25}


def test_the_state_of_random_numbers_is_no_weight() -> None:
    """Keras keeps it as a parameter and gives it to the optimizer."""
    model = torch.nn.Linear(4, 1)
    model.register_parameter("seed", torch.nn.Parameter(torch.zeros(2, dtype=torch.int32), requires_grad=False))
    assert count_parameters(model, optimized=list(model.parameters())) == {"parameters": 5, "trainable_parameters": 5}
    reports = Reports()
    settings = SettingsInEffect(torch, reports)  # type: ignore[arg-type]
    settings.optimizer_stepped(torch.optim.SGD(model.parameters()))
    settings.model_searched = True
    settings.check()
    assert reports.values["parameter_dtype"] == "float32"


class Optimizer:
    """One without parameters."""

    def __init__(self, learning_rate: float) -> None:
        self.param_groups = [{"lr": learning_rate, "params": []}]


class Reports:
    """The part of a session that reports."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def report(self, kind: str, *, values: dict[str, Any]) -> None:
        self.values.update(values)


def test_an_optimizer_that_comes_late_is_reported_at_the_next_look() -> None:
    """Later looks are rare, and on a slow machine the next one may be the last."""
    reports = Reports()
    settings = SettingsInEffect(SimpleNamespace(), reports)  # type: ignore[arg-type]
    settings.optimizer_stepped(Optimizer(0.5))
    for _ in range(5):
        settings.check()
    assert reports.values["learning_rate"] == 0.5
    settings.optimizer_stepped(Optimizer(0.25))
    settings.check()
    assert reports.values["learning_rate"] == 0.25


def test_the_time_in_the_optimizer_is_known_without_a_closure(tmp_path: Path) -> None:
    before: list[Any] = []
    after: list[Any] = []
    module = SimpleNamespace(
        register_optimizer_step_pre_hook=before.append, register_optimizer_step_post_hook=after.append
    )
    counters = StepCounters(
        Session(str(tmp_path), launched=True), torch.Tensor, EvaluationDetector(torch.is_grad_enabled), dict
    )
    optimizer_steps.hook_optimizers(module, counters, lambda _: None)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])

    def step(calls: int = 1, closure: Any = None) -> None:
        for _ in range(calls):
            before[0](optimizer, (optimizer, closure), {})
        for _ in range(calls):
            after[0](optimizer, (optimizer, closure), {})

    began_s = time.perf_counter()
    for calls in (1, 2, 2):
        step(calls)  # one optimizer may call another one
    assert counters.buffer.optimizer_s is not None
    assert 0 < counters.buffer.optimizer_s < time.perf_counter() - began_s
    step(closure=lambda: 0.0)
    step()
    assert counters.buffer.optimizer_s is None, "a closure computes the gradients"

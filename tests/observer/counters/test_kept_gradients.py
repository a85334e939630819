"""Gradients that are never cleared, and what looks like it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.counters.kept_gradients import KeptGradients

torch = late_module("torch")

STEPS = 12
Loop = Callable[[Any, Any], Iterator[None]]


def loss_of(model: Any) -> Any:
    return model(torch.ones(2, 4)).pow(2).mean()


def never_cleared(model: Any, optimizer: Any) -> Iterator[None]:
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        yield


def never_cleared_with_accumulation(model: Any, optimizer: Any) -> Iterator[None]:
    for _ in range(STEPS):
        for _ in range(3):
            loss_of(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield


def cleared(model: Any, optimizer: Any, to_none: bool = True) -> Iterator[None]:
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        yield


def set_to_zero(model: Any, optimizer: Any) -> Iterator[None]:
    return cleared(model, optimizer, to_none=False)


def by_hand(model: Any, optimizer: Any) -> Iterator[None]:
    for _ in range(STEPS):
        for parameter in model.parameters():
            parameter.grad = None
        loss_of(model).backward()
        optimizer.step()
        yield


def data_set_to_zero(model: Any, optimizer: Any) -> Iterator[None]:
    """Which the version of the gradient does not show."""
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.data.zero_()
        yield


def accumulated(model: Any, optimizer: Any) -> Iterator[None]:
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        for _ in range(3):
            loss_of(model).backward()
        optimizer.step()
        yield


def adversarial(model: Any, optimizer: Any) -> Iterator[None]:
    """The gradients of the inner step lie upon those of the step before, and are cleared with them."""
    for _ in range(STEPS):
        inputs = torch.ones(2, 4, requires_grad=True)
        model(inputs).pow(2).mean().backward()
        optimizer.zero_grad(set_to_none=False)
        model(inputs.detach() + 0.1 * inputs.grad.sign()).pow(2).mean().backward()
        optimizer.step()
        yield


def gan(model: Any, optimizer: Any) -> Iterator[None]:
    """The second optimizer has the parameters of the first, too; the loss of the one reaches those of the other."""
    other = torch.nn.Linear(4, 4)
    second = torch.optim.SGD([*other.parameters(), *model.parameters()], lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        model(other(torch.ones(2, 4))).pow(2).mean().backward()
        optimizer.step()
        second.zero_grad(set_to_none=False)
        model(other(torch.ones(2, 4))).mean().backward()
        second.step()
        yield


def closure(model: Any, optimizer: Any) -> Iterator[None]:
    second = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def evaluate() -> Any:
        second.zero_grad(set_to_none=False)
        loss = loss_of(model)
        loss.backward()
        return loss

    for _ in range(STEPS):
        second.step(evaluate)
        yield


def copied(model: Any, optimizer: Any) -> Iterator[None]:
    """The gradients are computed in a copy of the model."""
    loss_of(model).backward()
    for _ in range(STEPS):
        copy = torch.nn.Linear(4, 1)
        loss_of(copy).backward()
        for parameter, computed in zip(model.parameters(), copy.parameters(), strict=True):
            parameter.grad.copy_(computed.grad)
        optimizer.step()
        yield


def decayed(model: Any, optimizer: Any) -> Iterator[None]:
    """Momentum by hand."""
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad *= 0.9
        yield


@pytest.fixture
def backward() -> Iterator[None]:
    """The function that is hooked, as it was."""
    original = torch.autograd.backward
    yield
    torch.autograd.backward = original


@pytest.mark.parametrize("written_every", [1, 5])
@pytest.mark.parametrize(
    ("loop", "speaks"),
    [
        (never_cleared, True),
        (never_cleared_with_accumulation, True),
        (cleared, False),
        (set_to_zero, False),
        (by_hand, False),
        (data_set_to_zero, False),
        (accumulated, False),
        (adversarial, False),
        (gan, False),
        (closure, False),
        (copied, False),
        (decayed, False),
    ],
)
def test_gradients_that_are_never_cleared(backward: None, loop: Loop, speaks: bool, written_every: int) -> None:
    reports = list[bool]()
    kept = KeptGradients(torch, lambda: reports.append(True))
    model = torch.nn.Linear(4, 1)
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
    before = len(hooks)
    for step, _ in enumerate(loop(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True))):
        if step % written_every == 0:
            kept.write()
    assert reports == [True] * speaks
    assert len(hooks) == before - 1, "optimizers pay nothing once it is known"

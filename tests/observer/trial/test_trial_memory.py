"""Weights and optimizer states of a trial, as a simulated card would hold them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.observer.trial.test_gpu_measurement import GIB, Card
from tuner_tui.observer.site._tuner_observer.trial.trial_memory import TrialMemory

torch = pytest.importorskip("torch")


class GpuTensor(torch.Tensor):  # type: ignore[name-defined]
    """A tensor that says it is on the card."""

    @property
    def device(self) -> Any:
        return torch.device("cuda", 0)


def on_card(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.zeros(*shape, dtype=dtype).as_subclass(GpuTensor)


def resident_bytes(card: Card, weights: Any, states: dict[str, Any], accumulates: bool) -> Any:
    memory = TrialMemory(SimpleNamespace(cuda=card, Tensor=torch.Tensor))
    memory.begin()
    optimizer = SimpleNamespace(param_groups=[{"params": [weights]}], state={weights: states})
    for _ in range(3):
        memory.first_stepped(optimizer)
    return memory.fields(accumulates)["resident_bytes"]


def test_what_every_forward_pass_begins_with() -> None:
    """1,000 weights in fp32, their gradients, two moments, one of them in 8 bit, and a step count on the host."""
    weights = on_card(1000)
    weights.grad = on_card(1000)
    states = {"step": torch.zeros(()), "exp_avg": on_card(1000), "quantised": on_card(1000, dtype=torch.uint8)}
    assert resident_bytes(Card(), weights, states, accumulates=False) == 4000 + 4000 + 1000
    assert resident_bytes(Card(), weights, states, accumulates=True) == 4000 + 4000 + 1000 + 4000


def test_frozen_weights_count_as_they_exist_before_the_first_batch() -> None:
    card = Card()
    card.now_allocated = 14 * GIB
    assert resident_bytes(card, on_card(1000), {"exp_avg": on_card(1000)}, accumulates=False) == 14 * GIB + 4000

"""What a recommendation is made for: the weakest card, and what all cards can do."""

from __future__ import annotations

import pytest

from tests.fakes import inventories
from tuner_tui.advice.recommend.target import TrainingTarget, describe_cards, select_cards
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.job import BuiltinJob

V100, A100, T4 = (inventories.card(name) for name in ("V100", "A100", "T4"))


def target(*cards: Gpu, replicas: int = 1, processes: int = 1) -> TrainingTarget:
    return TrainingTarget(inventories.box(*cards), None, BuiltinJob(), cards, replicas, processes)


def test_memory_is_estimated_for_the_weakest_card() -> None:
    device = target(A100, T4).device
    assert (device.on_gpu, device.capability) == (True, (7, 5))
    assert not target().device.on_gpu
    assert target().device.capability is None


@pytest.mark.parametrize(("processes", "cards"), [(1, 2), (2, 1)])
def test_one_process_splits_a_batch_among_its_cards(processes: int, cards: int) -> None:
    assert target(A100, A100, replicas=2, processes=processes).device.cards == cards


@pytest.mark.parametrize(
    ("cards", "name", "able"),
    [
        ((A100,), "bf16", True),
        ((A100, T4), "bf16", False),
        ((A100, V100), "fp16", True),
        ((T4,), "tf32", False),
        ((), "fp16", False),
    ],
)
def test_a_feature_is_there_where_all_cards_have_it(cards: tuple[Gpu, ...], name: str, able: bool) -> None:
    assert target(*cards).able(name) == able


def test_cards_in_words() -> None:
    assert describe_cards((A100, A100)).startswith("2 × ")
    assert describe_cards((T4,)).startswith("GPU 0 (")
    assert select_cards((T4,)).startswith("CUDA_VISIBLE_DEVICES=")

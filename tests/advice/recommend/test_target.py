"""What a recommendation is made for: the weakest card, and what all cards can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import inventories
from tuner_tui.advice.recommend.batch_and_learning_rate import samples_per_card
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


@pytest.mark.parametrize(
    ("machine", "cards", "label"),
    [
        ((), (), "this machine has no GPU"),
        ((A100,), (), "no GPU is visible"),
        ((T4, A100), (A100, T4), "(Turing 7.5)"),
        ((replace(T4, capability=None),), (replace(T4, capability=None),), "(capability unknown)"),
    ],
)
def test_the_weakest_card_in_words(machine: tuple[Gpu, ...], cards: tuple[Gpu, ...], label: str) -> None:
    found = replace(target(*cards), inventory=inventories.box(*machine))
    assert found.card_label.endswith(label)


@pytest.mark.parametrize(
    ("replicas", "max_samples", "wanted", "share"),
    [
        (1, None, 96, 96),
        (8, None, 48, 32),  # 256 samples in all
        (1, 1000, 48, 16),  # fifty steps
        (4, 1000, 48, 4),
        (1, 10, 48, 1),
    ],
)
def test_many_cards_or_few_samples_make_a_step_smaller(
    replicas: int, max_samples: int | None, wanted: int, share: int
) -> None:
    found = replace(target(A100, replicas=replicas), job=BuiltinJob(max_samples=max_samples))
    assert samples_per_card(found, wanted) == share


def test_cards_in_words() -> None:
    assert describe_cards((A100, A100)).startswith("2 × ")
    assert describe_cards((T4,)).startswith("GPU 0 (")
    assert select_cards((T4,)).startswith("CUDA_VISIBLE_DEVICES=")

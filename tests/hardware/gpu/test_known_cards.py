from __future__ import annotations

import pytest

from tuner_tui.core.units import GIB
from tuner_tui.hardware.gpu.known_cards import CARDS, known_card
from tuner_tui.hardware.inventory import REQUIREMENTS, abilities


@pytest.mark.parametrize(
    ("driver_name", "name", "capability", "memory_gib"),
    [
        ("Tesla T4", "T4", (7, 5), 16),
        ("Tesla K80", "K80", (3, 7), 12),
        ("Tesla V100-SXM2-16GB", "V100", (7, 0), None),
        ("NVIDIA A100-SXM4-80GB", "A100", (8, 0), None),
        ("NVIDIA A10", "A10", (8, 6), 24),
        ("NVIDIA GeForce RTX 3070", "RTX 3070", (8, 6), 8),
        ("NVIDIA GeForce RTX 3070 Ti", "RTX 3070 Ti", (8, 6), 8),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER", (8, 9), 16),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090", (8, 9), None),
        ("NVIDIA L40S", "L40S", (8, 9), 48),
        ("NVIDIA L4", "L4", (8, 9), 24),
        ("NVIDIA H100 80GB HBM3", "H100", (9, 0), None),
        ("NVIDIA H200", "H200", (9, 0), 141),
        ("NVIDIA GH200 480GB", "GH200", (9, 0), None),
        ("NVIDIA B200", "B200", (10, 0), 180),
        ("NVIDIA GB200", "GB200", (10, 0), 186),
        ("NVIDIA GeForce RTX 5090", "RTX 5090", (12, 0), 32),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell", (12, 0), 96),
    ],
)
def test_names_as_drivers_write_them(driver_name: str, name: str, capability: tuple[int, int], memory_gib: int | None):
    card = known_card(driver_name)
    assert card is not None
    assert (card.name, card.capability) == (name, capability)
    assert card.memory_bytes == (None if memory_gib is None else memory_gib * GIB)


@pytest.mark.parametrize("stranger", ["NVIDIA A1000", "NVIDIA A10G", "AMD Instinct MI300X", "Quadro M4000", ""])
def test_a_stranger_is_not_guessed(stranger: str):
    assert known_card(stranger) is None


FIELD_NOTES = {
    "K80": (False, False, False), "V100": (True, False, False), "T4": (True, False, False), "A100": (True, True, True),
    "A10": (True, True, True), "RTX 3070": (True, True, True), "RTX 3090": (True, True, True),
    "RTX 4090": (True, True, True),
}  # fmt: skip


@pytest.mark.parametrize(("name", "precisions"), FIELD_NOTES.items())
def test_precisions_are_those_the_field_notes_give(name: str, precisions: tuple[bool, bool, bool]):
    card = next(card for card in CARDS if card.name == name)
    able = {ability.name: ability.able for ability in abilities(card.capability)}
    assert (able["fp16"], able["bf16"], able["tf32"]) == precisions


def test_every_row_has_its_source_and_a_name_of_its_own():
    assert all(card.source for card in CARDS)
    assert len({card.name for card in CARDS}) == len(CARDS)
    assert {need.name for need in REQUIREMENTS} == {"fp16", "bf16", "tf32", "flash", "fused", "fp8"}

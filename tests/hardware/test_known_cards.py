from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tuner_tui.core.units import GIB
from tuner_tui.hardware.inventory import REQUIREMENTS, abilities
from tuner_tui.hardware.known_cards import CARDS, known_card

EXAMPLES = yaml.safe_load(Path(__file__).with_name("known_cards.yaml").read_text())


@pytest.mark.parametrize(("driver_name", "name", "capability", "memory_gib"), EXAMPLES["names as drivers write them"])
def test_names_as_drivers_write_them(driver_name: str, name: str, capability: list[int], memory_gib: int | None):
    card = known_card(driver_name)
    assert card is not None
    assert (card.name, card.capability) == (name, tuple(capability))
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

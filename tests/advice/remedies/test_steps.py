"""By how much each rung changes a setting, and where it is not offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.situations import box, card, situation, training
from tuner_tui.advice.remedies.catalog import offered
from tuner_tui.settings.model import Settings

STEPS: list[dict[str, Any]] = yaml.load(Path(__file__).with_name("steps.yaml").read_text("utf-8"), yaml.CSafeLoader)
CARDS = {"RTX 3090": (card(),), "V100": (card(name="V100", capability=(7, 0)),), "none": ()}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step['rung']} {step['now']}")
def test_a_rung_changes_this_much(step: dict[str, Any]) -> None:
    machine = box(*CARDS[step.get("gpu", "RTX 3090")], cores=step.get("cores", 16))
    now = situation(inventory=machine, state=training(rates={"data_wait_share": step.get("data_wait", 0.02)}))
    found = [dict(remedy.change) for remedy in offered(step["rung"], now, Settings(**step["now"]))]
    assert found == ([step["change"]] if "change" in step else [])


@pytest.mark.parametrize(
    ("parameters", "effect"), [(None, "6 bytes per parameter less"), (1_000_000_000, "6.0 GB less")]
)
def test_eight_bit_states_save_six_bytes_of_eight(parameters: int | None, effect: str) -> None:
    known = situation(state=training(trainable_parameters=parameters))
    (remedy,) = offered("eight-bit-optimizer", known, Settings(optim="adamw_torch"))
    assert remedy.effect == effect

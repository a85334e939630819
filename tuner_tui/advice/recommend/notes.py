"""What a recommendation says and what the field notes measured: `notes.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner_tui.advice import thresholds
from tuner_tui.core.files import read_data_file
from tuner_tui.hardware.capabilities import least_capabilities

FILE = Path(__file__).with_name("notes.yaml")
SOURCES = {name: value for name, value in vars(thresholds).items() if name.startswith("NOTES_") or name == "JUDGEMENT"}


def read_notes(part: str) -> Any:
    """A part of `notes.yaml`: reasons, notes, batches, other-batches or speeds."""
    return read_data_file(FILE)[part]


def fill_in(text: str, **figures: object) -> str:
    """`text` with the field notes, the capabilities that features need (`least`) and `figures` filled in."""
    return text.format(**SOURCES, least=least_capabilities(), **figures)

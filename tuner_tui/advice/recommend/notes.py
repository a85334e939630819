"""What a recommendation says and what the field notes measured: `notes.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner_tui.advice import thresholds
from tuner_tui.core.files import read_data_file

FILE = Path(__file__).with_name("notes.yaml")
SOURCES = {name: value for name, value in vars(thresholds).items() if name.startswith("NOTES_") or name == "JUDGEMENT"}


def read_notes(part: str) -> Any:
    """A part of `notes.yaml`: reasons, notes, batches, other-batches or speeds."""
    return read_data_file(FILE)[part]


def fill_in(text: str, **figures: object) -> str:
    """`text` with the names of the field notes and `figures` in its placeholders."""
    return text.format(**SOURCES, **figures)

"""What code that trains does with memory beyond the settings."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct, convert

from tuner_tui.core.files import read_data_file

CODE_FILE = Path(__file__).with_name("training_code.yaml")


class TrainingCode(Struct, frozen=True):
    """What code that trains does with memory beyond the settings: a row of training_code.yaml, which explains it."""

    logit_bytes: tuple[float, float] = (10, 12)
    adapter_bytes: int = 4
    upcasts: bool = False
    fused_gelu: bool = False
    adapted: tuple[str, ...] = ()
    buffer_bytes: float = 0.0
    keeps_inputs: bool = False
    holds_graph: bool = False
    unties: bool = False
    quantizes_output: bool = False
    more_embeddings: int = 0
    whole_layers: int = 0
    uncertainty: float = 0.1
    unknown: str = ""


BUILT_IN = TrainingCode()


@cache
def training_code(name: str) -> TrainingCode:
    """The row of `training_code.yaml`; the built-in job's for a tool without one."""
    return convert(read_data_file(CODE_FILE).get(name, {}), TrainingCode)

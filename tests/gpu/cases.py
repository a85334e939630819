"""The measured cases: models, sizes and settings. CPU cases need a few gigabytes and two cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tuner_tui.core.files import read_data_file

MODELS: dict[str, dict[str, dict[str, Any]]] = read_data_file(Path(__file__).with_name("models.yaml"))
HELD_OUT, CAUSAL, UNSEEN_CAUSAL = MODELS["held_out"], MODELS["causal"], MODELS["unseen_causal"]
CONFIGS = {**MODELS["small"], **HELD_OUT}
"""Models given by a `config.json`, as any local folder or Hub id is."""
FAMILIES, UNSEEN = {**CAUSAL, **MODELS["classifying"]}, {**UNSEEN_CAUSAL, **MODELS["unseen_classifying"]}
EVERY = {**CONFIGS, **FAMILIES, **UNSEEN}
"""The same with models of many other architectures."""
LANGUAGE_MODELS = {"other-mistral", "other-gpt2", *CAUSAL, *UNSEEN_CAUSAL}
GROUPS = {
    group: [(model, "causal-lm" if model in LANGUAGE_MODELS else "classification") for model in models]
    for group, models in (("held_out", HELD_OUT), ("families", {**FAMILIES, **UNSEEN}))
}


@dataclass(frozen=True, slots=True)
class Case:
    """One training of three steps. `foreach` makes AdamW on a CPU behave as it does on a GPU."""

    model: str
    task: str = "classification"
    batch: int = 4
    length: int = 64
    precision: str = "fp32"
    optim: str = "adamw_torch"
    foreach: bool = False
    checkpointing: bool = False
    attention: str = "auto"
    adapter: str = "none"
    accumulation: int = 1
    eval_batch: int = 4
    compiled: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The case as `Settings`."""
        return {
            "per_device_train_batch_size": self.batch,
            "per_device_eval_batch_size": self.eval_batch,
            "gradient_accumulation_steps": self.accumulation,
            "max_length": self.length,
            "precision": self.precision,
            "optim": self.optim,
            "gradient_checkpointing": self.checkpointing,
            "attn_implementation": self.attention,
            "peft_method": self.adapter,
            "torch_compile": self.compiled,
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of one case in bytes; None where the device does not report them, and everywhere after out of memory.

    `weights_bytes` are parameters and buffers before training. The peaks are those of the second and later steps and of
    an evaluation. `first_bytes` is the peak of the first step, which creates the optimizer state.
    """

    case: Case
    weights_bytes: int
    first_bytes: int | None = None
    batch_peak_bytes: int | None = None
    step_peak_bytes: int | None = None
    evaluation_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    driver_bytes: int | None = None
    context_bytes: int | None = None
    problem: str | None = None

    @property
    def peak_bytes(self) -> int | None:
        """Maximum over all phases."""
        measured = [self.first_bytes, self.batch_peak_bytes, self.step_peak_bytes, self.evaluation_peak_bytes]
        return max((measured for measured in measured if measured is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        """The result as written to the file."""
        return asdict(self)


def measured_from(data: dict[str, Any]) -> Measured:
    """Inverse of `as_json`."""
    return Measured(**{**data, "case": Case(**data["case"])})


def cases(kind: str) -> list[Case]:
    """All cases of a part of `cases.yaml`: cpu, gpu, families or compiled."""
    rows = read_data_file(Path(__file__).with_name("cases.yaml"))[kind]
    return list(dict.fromkeys(case for row in rows for case in _cases_of(row)))


def _cases_of(row: Mapping[str, Any]) -> Iterator[Case]:
    models = GROUPS.get(row["models"], ()) if isinstance(row["models"], str) else row["models"]
    for (model, task), each, more in product(models, row.get("each", [{}]), row["with"]):
        yield Case(model, task, **{**row.get("values", {}), **each, **more})

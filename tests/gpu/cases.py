"""The measured cases: models, sizes and settings. CPU cases need a few gigabytes and two cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
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
        known = [self.first_bytes, self.batch_peak_bytes, self.step_peak_bytes, self.evaluation_peak_bytes]
        return max((one for one in known if one is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        """The result as written to the file."""
        return asdict(self)


def measured_from(data: dict[str, Any]) -> Measured:
    """Inverse of `as_json`."""
    return Measured(**{**data, "case": Case(**data["case"])})


def cpu_cases() -> list[Case]:
    """Cases for a CPU: every kind of model and setting at least once, the tiny models in every combination."""
    return list(dict.fromkeys([*_tiny_grid(), *_small_models(), *_large_models(), *_batches(), *_held_out()]))


def family_cases() -> list[Case]:
    """A model of each architecture, in a few kinds of training."""
    return [case for model in (*FAMILIES, *UNSEEN) for case in _of_family(model)]


def _of_family(model: str) -> Iterator[Case]:
    task = "causal-lm" if model in CAUSAL or model in UNSEEN_CAUSAL else "classification"
    small = Case(model, task, 4, 128, optim="adamw_torch_fused")
    base = replace(small, batch=12, eval_batch=12)
    yield from (small, base, replace(base, precision="bf16"), replace(base, checkpointing=True))
    yield replace(base, adapter="lora")
    yield replace(base, batch=24, length=64, optim="sgd")


def compiled_cases() -> list[Case]:
    """Trainings with and without torch.compile."""
    bases = (
        Case("tiny", "causal-lm", 24, 128),
        Case("small-llama", "causal-lm", 8, 128),
        Case("small-roberta", batch=12),
    )
    kinds = [replace(base, optim="adamw_torch_fused", length=128) for base in bases]
    kinds = [kind for one in kinds for kind in (one, replace(one, precision="bf16"), replace(one, checkpointing=True))]
    return [replace(kind, compiled=compiled) for kind in kinds for compiled in (False, True)]


def gpu_cases() -> list[Case]:
    """The same kinds at sizes for a GPU."""
    models = (
        ("bert-base", "classification", ((16, 128), (32, 128), (16, 512))),
        ("bert-large", "classification", ((8, 128), (16, 128), (8, 512))),
        ("gpt2", "causal-lm", ((4, 512), (8, 1024))),
        ("llama-1b", "causal-lm", ((1, 512), (2, 1024), (4, 1024))),
    )
    found = []
    for model, task, sizes in models:
        for batch, length in sizes:
            base = Case(model, task, batch, length, "bf16", "adamw_torch_fused", eval_batch=batch)
            found += [base, *_variants(base)]
    return list(dict.fromkeys(found))


def _variants(base: Case) -> Iterator[Case]:
    yield replace(base, precision="fp32")
    yield replace(base, precision="fp16")
    yield replace(base, optim="adamw_torch")
    yield replace(base, optim="sgd")
    yield replace(base, checkpointing=True)
    yield replace(base, attention="eager")
    yield replace(base, accumulation=2)
    for adapter in ("lora", "dora"):
        yield replace(base, adapter=adapter)
        yield replace(base, adapter=adapter, checkpointing=True)


def _tiny_grid() -> Iterator[Case]:
    for task in ("classification", "causal-lm"):
        for batch, length in ((2, 32), (8, 64), (24, 128)):
            base = Case("tiny", task, batch, length, eval_batch=batch)
            yield base
            yield from (replace(base, precision="bf16", attention=kind) for kind in ("auto", "eager"))
            yield replace(base, checkpointing=True)
        yield from (Case("tiny", task, 8, 128, adapter=adapter) for adapter in ("lora", "dora"))


def _small_models() -> Iterator[Case]:
    for model, task in (("small-llama", "causal-lm"), ("small-qwen", "causal-lm"), ("small-roberta", "classification")):
        base = Case(model, task, 4, 128)
        yield from (base, replace(base, batch=1), replace(base, batch=8), replace(base, length=48))
        yield from (replace(base, precision="bf16"), replace(base, precision="bf16", batch=8))
        yield replace(base, checkpointing=True)
        yield replace(base, checkpointing=True, precision="bf16", batch=8)
        yield from (replace(base, optim=name) for name in ("adamw_torch_fused", "sgd", "adafactor"))
        yield replace(base, foreach=True, batch=1)
        yield replace(base, attention="eager")
        yield replace(base, accumulation=2)
        yield from (replace(base, adapter=adapter) for adapter in ("lora", "dora"))
        yield replace(base, adapter="lora", checkpointing=True, batch=8)
        yield replace(base, adapter="lora", precision="bf16")


def _batches() -> Iterator[Case]:
    """The same training at several batches: two to fit, the others to predict."""
    for model, task in (
        ("tiny", "classification"), ("tiny", "causal-lm"), ("small-llama", "causal-lm"),
        ("small-roberta", "classification"), ("small-qwen", "classification"),
    ):  # fmt: skip
        base = Case(model, task, length=96, optim="adamw_torch_fused")
        for kind in (
            base, replace(base, precision="bf16"), replace(base, checkpointing=True), replace(base, adapter="lora")
        ):  # fmt: skip
            yield from (replace(kind, batch=batch) for batch in (2, 4, 12, 24))


def _held_out() -> Iterator[Case]:
    """Proportions that differ from those used to develop the closed form."""
    tasks = {"other-mistral": "causal-lm", "other-bert": "classification", "other-gpt2": "causal-lm"}
    for model in HELD_OUT:
        base = Case(model, tasks.get(model, "classification"), 16, 112, optim="adamw_torch_fused")
        yield from (base, replace(base, batch=3), replace(base, batch=8, length=240))
        yield replace(base, precision="bf16")
        yield replace(base, checkpointing=True)
        yield replace(base, checkpointing=True, precision="bf16", batch=32)
        yield replace(base, attention="eager")
        yield replace(base, accumulation=2)
        yield from (replace(base, adapter=adapter) for adapter in ("lora", "dora"))
        yield replace(base, adapter="lora", precision="bf16")


def _large_models() -> Iterator[Case]:
    bert, gpt2 = Case("bert-base", batch=2, length=64), Case("gpt2", "causal-lm", batch=1, length=64)
    for base in (bert, gpt2):
        yield from (base, replace(base, batch=4), replace(base, batch=2, length=128))
        yield replace(base, batch=4, precision="bf16")
        yield replace(base, batch=8, checkpointing=True)
        yield replace(base, foreach=True)
        yield from (replace(base, optim=name) for name in ("adamw_torch_fused", "sgd"))
        yield replace(base, batch=4, attention="eager", length=128)
        yield replace(base, batch=4, adapter="lora")
        yield replace(base, batch=4, adapter="dora", checkpointing=True)
    large = Case("bert-large", batch=1, length=64, optim="sgd", eval_batch=1)
    yield from (large, replace(large, batch=4), replace(large, batch=4, checkpointing=True))
    yield replace(large, adapter="lora", batch=4)

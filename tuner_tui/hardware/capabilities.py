"""Which GPU can do what, by its compute capability (`capabilities.yaml`): 16 bits, TF32, kernels, torch's own wheels.

torch is not asked: `torch.cuda.is_bf16_supported()` counts emulation as support, so that a T4 and a V100 pass it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tuner_tui.core.files import read_data_file
from tuner_tui.hardware.inventory import Ability, Capability, Gpu

FILE = Path(__file__).with_name("capabilities.yaml")
FP16_SLOW = (6, 1)
_NO_TENSOR_CORES = re.compile(r"\bGTX 16\d\d|\bMX ?[45]50\b|\bT(?:400|500|550|600|1000|1200)\b", re.IGNORECASE)
"""Turing GPUs of capability 7.5 with the small TU116 and TU117 chips, which have no tensor cores."""


@cache
def least_capabilities() -> Mapping[str, str]:
    """The capability that each feature needs, for sentences: `8.0`."""
    return {name: str(feature["least"]) for name, feature in read_data_file(FILE).items()}


@cache
def least_capability(feature: str) -> Capability:
    """The capability that `feature`, a name in `capabilities.yaml`, needs."""
    return parse_capability(least_capabilities()[feature])


def parse_capability(number: object) -> Capability:
    """The capability that `8.6` stands for, a number or a text."""
    major, minor = str(number).split(".")
    return int(major), int(minor)


def weakest(gpus: Iterable[Gpu]) -> Gpu | None:
    """The GPU of the lowest known capability: it decides what a training on all of them can use."""
    candidates = [gpu for gpu in gpus if gpu.capability is not None]
    return min(candidates, key=lambda gpu: gpu.capability or (0, 0), default=None)


def gpu_below(gpus: Iterable[Gpu], feature: str) -> Gpu | None:
    """The weakest GPU if it is known not to support `feature`, else None."""
    gpu = weakest(gpus)
    return gpu if gpu is not None and (gpu.capability or (0, 0)) < least_capability(feature) else None


def supports(gpus: Collection[Gpu], feature: str) -> bool | None:
    """Whether every GPU supports `feature`, False without a GPU; None if a capability is unknown."""
    if not gpus or gpu_below(gpus, feature) is not None:
        return False
    return None if any(gpu.capability is None for gpu in gpus) else True


def has_tensor_cores(gpu: Gpu) -> bool:
    """Whether a GPU is known to have tensor cores, which make fp16 worth its loss scaler."""
    return bool(supports([gpu], "tensor-cores")) and _NO_TENSOR_CORES.search(gpu.name) is None


def abilities(gpu: Gpu) -> tuple[Ability, ...]:
    """The abilities of a GPU, each with its reason; all unknown without a capability."""
    shown = {name: feature for name, feature in read_data_file(FILE).items() if "able" in feature}
    if gpu.capability is None:
        unknown = "The driver does not report this GPU's compute capability."
        return tuple(Ability(name, None, unknown) for name in shown)
    answers = []
    for name, feature in shown.items():
        able = gpu_below([gpu], name) is None
        sentence = next(row["say"] for row in feature["able"] if _holds(row, gpu)) if able else feature["unable"]
        answers.append(Ability(name, able, sentence.format(gpu=describe_generation(gpu), needs=feature["least"])))
    return tuple(answers)


def _holds(conditions: dict[str, Any], gpu: Gpu) -> bool:
    capability = gpu.capability or (0, 0)
    return (
        ("at" not in conditions or capability == parse_capability(conditions["at"]))
        and ("below" not in conditions or capability < parse_capability(conditions["below"]))
        and conditions.get("tensor-cores", has_tensor_cores(gpu)) == has_tensor_cores(gpu)
    )


def build_supports(capability: Capability, arch_list: Collection[str]) -> bool:
    """True when a build for `arch_list` has code for the GPU.

    Binary code (`sm_86`) runs on the same major version with an equal or newer minor one; intermediate code
    (`compute_90`) on anything newer (CUDA C++ Programming Guide, application compatibility).
    """
    for arch in arch_list:
        kind, _, digits = arch.partition("_")
        number = "".join(character for character in digits if character.isdigit())
        if len(number) < 2:
            continue
        built = int(number[:-1]), int(number[-1])
        exact = digits != number  # sm_90a runs on 9.0 only
        if kind == "compute" and built <= capability:
            return True
        if kind == "sm" and (built == capability or (not exact and built[0] == capability[0] and built < capability)):
            return True
    return False


def describe_generation(gpu: Gpu) -> str:
    """The generation of a GPU of known capability: `Turing 7.5`."""
    major, minor = gpu.capability or (0, 0)
    return f"{gpu.architecture or 'capability'} {major}.{minor}"

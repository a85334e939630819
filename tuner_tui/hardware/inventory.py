"""The inventory of the machine: GPUs and what each supports, CPU, memory, disk. What could not be read is `None`.

`torch.cuda.is_bf16_supported()` counts emulation as support, so a T4 and a V100 pass it; the capability does not lie.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum


class GpuProblemKind(StrEnum):
    """The kind of a GPU problem; each has its own sentence and advice."""

    NO_LIBRARY = "no-library"
    NO_DRIVER = "no-driver"
    VERSION_MISMATCH = "version-mismatch"
    NO_GPU = "no-gpu"
    GPU_LOST = "gpu-lost"
    NO_PERMISSION = "no-permission"
    NO_ANSWER = "no-answer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuProblem:
    """One problem with the GPUs of this machine, as a sentence, with advice."""

    kind: GpuProblemKind
    sentence: str
    advice: str
    gpu_index: int | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU as the driver reports it. Inside a container `pid` is the host's.

    `sm_pct` is the percentage of recent time in which its kernels ran; None where the driver does not report it.
    """

    pid: int
    memory_bytes: int | None
    command: str | None = None
    user: str | None = None
    sm_pct: float | None = None


@dataclass(frozen=True, slots=True)
class Ability:
    """Whether a card supports one feature (`bf16`, `tf32`, `flash`, …), and the reason."""

    name: str
    able: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class MigSlice:
    """One slice of a card in MIG mode, by the driver's name for it: `NVIDIA A100-SXM4-40GB MIG 3g.20gb`."""

    name: str
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card. Sizes in bytes, power in watts, clocks in MHz. `slices` are those of a card in MIG mode."""

    index: int
    name: str
    uuid: str | None = None
    architecture: str | None = None
    capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_limit_w: float | None = None
    clock_sm_max_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    mig: bool | None = None
    processes: tuple[GpuProcess, ...] = ()
    abilities: tuple[Ability, ...] = ()
    slices: tuple[MigSlice, ...] = ()


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor, and how much of it this process may use.

    `affinity_cores` is the number of logical cores in the affinity mask, `quota_cores` the cgroup's CPU quota (2.5 is
    two and a half cores), `None` without one.
    """

    model: str | None
    physical_cores: int | None
    logical_cores: int
    affinity_cores: int
    quota_cores: float | None = None

    @property
    def load_cores(self) -> float:
        """The cores that `HostSample.cpu_pct` is relative to: the quota where there is one, else the affinity mask."""
        return self.affinity_cores if self.quota_cores is None else self.quota_cores

    @property
    def usable_cores(self) -> int:
        """Whole cores that this process can keep busy: the affinity mask, limited by the quota, at least 1."""
        if self.quota_cores is None:
            return self.affinity_cores
        return max(1, min(self.affinity_cores, int(self.quota_cores)))


@dataclass(frozen=True, slots=True)
class HostMemory:
    """RAM of the machine and the cgroup's limit, in bytes."""

    total_bytes: int
    available_bytes: int | None = None
    limit_bytes: int | None = None
    swap_total_bytes: int | None = None

    @property
    def usable_bytes(self) -> int:
        """Bytes that a training may use at most."""
        return self.total_bytes if self.limit_bytes is None else min(self.total_bytes, self.limit_bytes)


@dataclass(frozen=True, slots=True)
class Space:
    """Size and free space of the file system of a folder, in bytes."""

    path: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything known about the machine before anything runs.

    `logout_warning` says what a logout would end and how to prevent that; None where it ends nothing.
    """

    hostname: str
    gpus: tuple[Gpu, ...]
    cpu: Cpu
    memory: HostMemory
    driver_version: str | None = None
    cuda_version: str | None = None
    problems: tuple[GpuProblem, ...] = ()
    shm: Space | None = None
    disk: Space | None = None
    container: str | None = None
    multiplexer: str | None = None
    cuda_visible_devices: str | None = None
    logout_warning: str | None = None


Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Requirement:
    """The minimum capability for one ability, and the reasons for both answers; `{has}` is the card: `Turing 7.5`."""

    name: str
    least: Capability
    able: str
    unable: str


REQUIREMENTS = (
    Requirement(
        "fp16",
        (5, 3),  # CUDA C++ Programming Guide, arithmetic instructions: half precision from 5.3
        "{has} computes in FP16; training needs a loss scaler.",
        "FP16 arithmetic needs capability 5.3; {has} only stores it.",
    ),
    Requirement(
        "bf16",
        (8, 0),  # CUDA C++ Programming Guide, tensor cores: __nv_bfloat16 from 8.0
        "{has} has BF16 tensor cores; no loss scaler is needed.",
        "BF16 needs Ampere (capability 8.0) or newer; {has} could only emulate it, slowly.",
    ),
    Requirement(
        "tf32",
        (8, 0),  # the same table: TF32 from 8.0
        "{has} runs FP32 matrix products as TF32 (10 mantissa bits) on its tensor cores.",
        "TF32 needs Ampere (capability 8.0) or newer; on {has} it raises an error.",
    ),
    Requirement(
        "flash",
        (8, 0),  # flash-attn's README and torch's SDPA flash backend (sdp_utils.cpp): sm_80 and newer
        "FlashAttention-2 and torch's flash backend run on {has}.",
        "FlashAttention-2 and torch's flash backend need capability 8.0; on {has} use torch's "
        "memory-efficient attention (attn_implementation=sdpa).",
    ),
    Requirement(
        "fused",
        (5, 0),  # torch.optim: fused AdamW and Adam on every CUDA device torch runs on
        "The fused optimizer kernels run on every GPU torch runs on.",
        "No torch with fused optimizer kernels runs on {has}.",
    ),
    Requirement(
        "fp8",
        (8, 9),  # CUDA C++ Programming Guide, tensor cores: FP8 from 8.9
        "{has} has FP8 tensor cores (through Transformer Engine or torchao).",
        "FP8 needs Ada (8.9), Hopper (9.0) or newer; {has} has none.",
    ),
)
MINIMUM_CAPABILITY: Mapping[str, Capability] = {need.name: need.least for need in REQUIREMENTS}
"""Minimum capability per ability."""
FP16_TENSOR_CORES = (7, 0)
FP16_SLOW = (6, 1)
_NO_TENSOR_CORES = re.compile(r"\bGTX 16\d\d|\bMX ?[45]50\b|\bT(?:400|500|550|600|1000|1200)\b", re.IGNORECASE)
"""Turing cards of capability 7.5 with the small TU116 and TU117 chips, which have no tensor cores."""
FLASH_3 = (9, 0)
# PyTorch's RELEASE.md, "PyTorch CUDA Support Matrix": CUDA 13 builds begin at 7.5, CUDA 12.6 builds at 5.0.
TORCH_CUDA_13 = (7, 5)
TORCH_CUDA_12_6 = (5, 0)


def abilities(capability: Capability | None, architecture: str | None = None, name: str = "") -> tuple[Ability, ...]:
    """The abilities of a card of this capability, each with its reason; all unknown without a capability.

    `name` is the driver's name of the card, by which those without tensor cores are known.
    """
    if capability is None:
        unknown = "The driver does not report this GPU's compute capability."
        return tuple(Ability(name, None, unknown) for name in [need.name for need in REQUIREMENTS] + ["torch"])
    has = describe_generation(capability, architecture)
    answers = [check_requirement(need, capability, has, has_tensor_cores(name, capability)) for need in REQUIREMENTS]
    return (*answers, torch_ability(capability, has))


def check_requirement(need: Requirement, capability: Capability, has: str, tensor_cores: bool) -> Ability:
    able = capability >= need.least
    reason = (need.able if able else need.unable).format(has=has)
    return Ability(need.name, able, " ".join([reason, *remarks(need.name, capability, tensor_cores)]))


def remarks(name: str, capability: Capability, tensor_cores: bool) -> list[str]:
    """Restrictions of an ability that the card has."""
    if name == "fp16" and capability == FP16_SLOW:
        return ["Here it runs at 1/64 of FP32's speed: it saves memory, not time."]
    if name == "fp16" and capability >= MINIMUM_CAPABILITY["fp16"] and not tensor_cores:
        return ["It has no tensor cores, so there is little speed-up."]
    if name == "flash" and capability == FLASH_3:
        return ["FlashAttention-3 is written for this GPU."]
    return []


def torch_ability(capability: Capability, has: str) -> Ability:
    """Whether the official torch wheels run on the card."""
    if capability >= TORCH_CUDA_13:
        return Ability("torch", True, f"Today's torch wheels run on {has}.")
    if capability >= TORCH_CUDA_12_6:
        return Ability(
            "torch",
            True,
            f"torch's CUDA 13 wheels need capability 7.5; for {has} install a CUDA 12.6 build (pip install "
            "torch --index-url https://download.pytorch.org/whl/cu126).",
        )
    return Ability("torch", False, f"No current torch wheel runs on {has}: CUDA 12 dropped it.")


def has_tensor_cores(name: str, capability: Capability) -> bool:
    """Whether a card has tensor cores, which make fp16 worth its loss scaler; `name` is the driver's."""
    return capability >= FP16_TENSOR_CORES and _NO_TENSOR_CORES.search(name) is None


def build_supports(capability: Capability, arch_list: Collection[str]) -> bool:
    """True when a build for `arch_list` has code for the card.

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


def describe_generation(capability: Capability, architecture: str | None) -> str:
    """The card's generation as text: `Turing 7.5`."""
    number = f"{capability[0]}.{capability[1]}"
    return f"{architecture} {number}" if architecture else f"capability {number}"

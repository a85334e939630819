"""GPUs by name (`gpus.yaml`): what a driver does not report, and GPUs to plan for, such as `2x3090` or `A100-80GB`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import parse_data_file
from tuner_tui.core.units import GIB, format_size, parse_size
from tuner_tui.hardware.capabilities import abilities, parse_capability
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Capability, Gpu, Inventory

FILE = Path(__file__).with_name("gpus.yaml")
MAX_GPUS = 64
PROCESSOR = "cpu"
"""Named in place of a GPU for a training without one."""
ASSUMED_CUDA = "13.0"
"""CUDA version assumed for the interpreter there, whose torch may be a CPU build here."""
_COUNT = re.compile(r"(?:(\d{1,3}) ?[x×*] ?)?(.+)", re.IGNORECASE)
_BRANDS = re.compile("^(nvidia|tesla|quadro|geforce|rtx|gtx)+")
_VARIANTS = re.compile(
    r"\b(sxm\d?|pcie|nvl|hbm\d?e?|oam|fhhl|generation|blackwell|(server|workstation) edition|gpus?)\b"
)
"""Words after a name that change neither the generation nor, where one size is sold, the memory."""
_OTHER_MAKERS = re.compile(r"amd|instinct|mi\d{2,3}|radeon|rx ?\d{4}|gaudi|intel|arc|tpu|trainium|apple|ascend")


class KnownGpu(Struct, frozen=True):
    """One GPU; `name` as the driver reports it, without maker and brand."""

    name: str
    memory_gib: tuple[int, ...]
    architecture: str
    capability: Capability

    @property
    def memory_bytes(self) -> int | None:
        """The memory; None where the name is sold with several sizes."""
        return self.memory_gib[0] * GIB if len(self.memory_gib) == 1 else None


@cache
def known_gpus() -> tuple[KnownGpu, ...]:
    """All GPUs of `gpus.yaml`."""
    return tuple(
        KnownGpu(row["name"], tuple(row["memory"]), row["architecture"], parse_capability(row["capability"]))
        for row in parse_data_file(FILE)
    )


def known_gpu(driver_name: str) -> KnownGpu | None:
    """The GPU with the longest name that `driver_name` contains as whole words; None for an unknown GPU.

    A laptop's GPU shares name and generation with the desktop GPU, but not its memory.
    """
    named = [gpu for gpu in known_gpus() if re.search(rf"(?i)\b{re.escape(gpu.name)}(?!\w)", driver_name)]
    gpu = max(named, key=lambda gpu: len(gpu.name), default=None)
    return replace(gpu, memory_gib=()) if gpu is not None and "laptop" in driver_name.lower() else gpu


class UnknownGpuError(ValueError):
    """A GPU that is neither known by name nor a size of memory. The message is for the user."""


class PlannedGpus(Struct, frozen=True):
    """`gpus` of one kind, all unused; `label` is the kind with its count and memory: `2 × RTX 3090 24 GiB`.

    Without GPUs it stands for this machine's processor.
    """

    label: str
    gpus: tuple[Gpu, ...]


def parse_planned_gpus(text: str) -> tuple[PlannedGpus, ...]:
    """The GPUs that a comma-separated list names, in its order; `cpu` is none. Raises `UnknownGpuError`.

    A name that is sold with several sizes of memory stands for each of them, unless it carries one (`A100-40GB`).
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise UnknownGpuError("Name a GPU, such as T4, 3090, A100-80GB or 24GiB.")
    return tuple(planned for entry in entries for planned in _parse_entry(entry))


def _parse_entry(entry: str) -> Iterator[PlannedGpus]:
    if entry.lower() == PROCESSOR:
        yield PlannedGpus("this machine's processor", ())
        return
    match = _COUNT.fullmatch(entry)
    assert match is not None
    count, name = int(match[1] or 1), match[2]
    if not 1 <= count <= MAX_GPUS:
        raise UnknownGpuError(f"{entry!r} names {count} GPUs; 1 to {MAX_GPUS} can be planned.")
    try:
        product, sizes = _find(name)
    except UnknownGpuError:
        size = parse_size(name) if name[0].isdigit() and name[-1].isalpha() else None
        if not size:
            raise
        yield _planned(count, Gpu(0, "gpu", memory_total_bytes=size), f"{format_size(size)} GPU")
        return
    if not sizes:
        raise UnknownGpuError(f"{product.name} is sold with different memory sizes; give the size, such as 64GiB.")
    for size in (gib * GIB for gib in sizes):
        gpu = Gpu(0, product.name, None, product.architecture, product.capability, size)
        yield _planned(count, gpu, f"{product.name} {format_size(size)}")


def _find(name: str) -> tuple[KnownGpu, tuple[int, ...]]:
    """The GPU and the sizes of memory in GiB that `name` can mean."""
    spellings, wanted = _spellings(), _short_names(name)
    for spelling in wanted:
        if spelling in spellings:
            return spellings[spelling]
    if _OTHER_MAKERS.match(name.lower()):
        raise UnknownGpuError(f"{name!r} is not an NVIDIA GPU; other GPUs are not supported.")
    similar = difflib.get_close_matches(wanted[0], spellings, n=3)
    near = next((spelling for spelling in similar if _digits(spelling).startswith(_digits(wanted[0]))), None)
    hint = f"; did you mean {spellings[near][0].name}?" if near else "; a memory size such as 24GiB also works."
    raise UnknownGpuError(f"{name!r} is not a known NVIDIA GPU{hint}")


@cache
def _spellings() -> dict[str, tuple[KnownGpu, tuple[int, ...]]]:
    """The GPUs and their memory in GiB by squeezed names, plain (`a100`) and with a size (`a10080gb`)."""
    spellings: dict[str, tuple[KnownGpu, tuple[int, ...]]] = {}
    for gpu in known_gpus():
        for short in _short_names(gpu.name):
            spellings.setdefault(short, (gpu, gpu.memory_gib))
            for gib in gpu.memory_gib:
                spellings |= {f"{short}{gib}{unit}": (gpu, (gib,)) for unit in ("", "g", "gb", "gib")}
    return spellings


def _digits(name: str) -> str:
    return "".join(re.findall(r"\d", name))


def _short_names(name: str) -> tuple[str, str]:
    """The name in lower case without maker, brand and separators, with its variant and without: `a100sxm4`, `a100`."""
    spaced = re.sub("[^a-z0-9]+", " ", name.lower())
    whole, plain = (_BRANDS.sub("", text.replace(" ", "")) for text in (spaced, _VARIANTS.sub("", spaced)))
    return whole, plain


def _planned(count: int, gpu: Gpu, label: str) -> PlannedGpus:
    gpu = replace(gpu, abilities=abilities(gpu))
    gpus = tuple(replace(gpu, index=index) for index in range(count))
    return PlannedGpus(f"{count} × {label}" if count > 1 else label, gpus)


def planned_inventory(inventory: Inventory, gpus: PlannedGpus) -> Inventory:
    """This machine with `gpus` in place of its own, all visible and unused; processor and memory stay."""
    return replace(inventory, gpus=gpus.gpus, problems=(), cuda_visible_devices=None)


def planned_interpreter(interpreter: Interpreter) -> Interpreter:
    """The interpreter as if its torch had a CUDA build with code for any GPU."""
    packages = {name: version.partition("+cpu")[0] for name, version in interpreter.packages.items()}
    return replace(interpreter, packages=packages, torch_cuda=interpreter.torch_cuda or ASSUMED_CUDA, torch_archs=())

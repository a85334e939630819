"""The interface to a GPU driver (`GpuReader`), its errors, the meaning of each Xid, and what to do about them.

`nvml.NvmlReader` implements it. Every call may block for as long as the driver does, so callers keep each card in a
thread of its own; a figure the card does not give is `None`.

Sources: NVIDIA's catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, and
the names in the driver's source (`nverror.h` of open-gpu-kernel-modules), which still has 61. A number alone rarely
proves a cause: errors that a program's bug brings about can come from broken memory too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from tuner_tui.hardware.inventory import Gpu, GpuProblem, GpuProblemKind, GpuProcess


@dataclass(frozen=True, slots=True)
class FastFigures:
    """Figures read every second, which cost the driver microseconds: percent, bytes, watts, MHz."""

    utilisation_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowFigures:
    """Figures that change slowly or cost the driver more: degrees Celsius, fan in percent, processes."""

    temperature_c: float | None = None
    fan_pct: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's version (`580.65.06`) and the newest CUDA version it supports (`13.0`)."""

    version: str | None = None
    cuda: str | None = None


class _GpuError(Exception):
    """`problem` has the reason and the advice."""

    def __init__(self, problem: GpuProblem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class GpusUnavailable(_GpuError):
    """No card of this machine can be read."""


class CardUnavailable(_GpuError):
    """One card does not answer (it fell off the bus, or its driver hangs); the others may."""


class GpuReader(Protocol):
    """Reads the cards of a machine. `index` counts from 0 as the driver does, not as CUDA_VISIBLE_DEVICES does."""

    def open(self) -> int:
        """Starts the driver's library and returns the number of cards, at least 1. Raises `GpusUnavailable`."""

    def driver(self) -> Driver:
        """The driver's versions. Requires `open`."""

    def describe(self, index: int) -> Gpu:
        """The card, without its abilities. Raises `CardUnavailable`."""

    def fast(self, index: int) -> FastFigures:
        """The figures that change every second. Raises `CardUnavailable`."""

    def slow(self, index: int) -> SlowFigures:
        """The figures that change slowly. Raises `CardUnavailable`."""

    def xids(self, index: int) -> tuple[int, ...]:
        """The driver's critical errors (Xid) on the card since the previous call, oldest first.

        Errors before the first call are not reported. Empty where the driver does not report errors; raises nothing.
        """


PROBLEM_TEXTS: dict[GpuProblemKind, tuple[str, str]] = {
    GpuProblemKind.NO_LIBRARY: (
        "No NVIDIA driver is installed: libnvidia-ml.so.1 was not found.",
        "Without an NVIDIA GPU, ignore this: everything works on the CPU. With one, install the driver; "
        "start containers with docker run --gpus all.",
    ),
    GpuProblemKind.NO_DRIVER: (
        "The NVIDIA driver is installed but not loaded into the kernel.",
        "Load it (sudo modprobe nvidia) or reboot. If that fails, the module was not built for this "
        "kernel: reinstall the driver and check dmesg | grep -i nvrm.",
    ),
    GpuProblemKind.VERSION_MISMATCH: (
        "The NVIDIA driver's library and its loaded kernel module have different versions.",
        "The driver was updated while the old module stayed loaded: reboot. Restart containers, so that "
        "they get the new library.",
    ),
    GpuProblemKind.NO_GPU: (
        "The NVIDIA driver works but sees no GPU.",
        "Check lspci | grep -i nvidia. On a shared machine, request a GPU for the job (Slurm: "
        "--gres=gpu:1); start containers with --gpus all.",
    ),
    GpuProblemKind.GPU_LOST: (
        "{who} has fallen off the bus.",
        "Look for Xid lines in dmesg (Xid 79; usual causes are power, heat and riser cables). A reboot, "
        "or nvidia-smi --gpu-reset -i {index}, brings it back.",
    ),
    GpuProblemKind.NO_PERMISSION: (
        "No permission to use the NVIDIA driver.",
        "Check the permissions of /dev/nvidia* (often group video or render) and, in a container or "
        "Slurm job, the devices passed to it.",
    ),
    GpuProblemKind.NO_ANSWER: (
        "{who} does not respond.",
        "Something blocks the driver, often a crashed process or a failing GPU: check dmesg | grep -i "
        "nvrm, end the processes on the GPUs, or reboot.",
    ),
    GpuProblemKind.UNKNOWN: (
        "The NVIDIA driver returned an error: {error}.",
        "Run nvidia-smi and read its last lines; check dmesg | grep -i nvrm.",
    ),
}


def gpu_problem(kind: GpuProblemKind, index: int | None = None, error: str = "unknown error") -> GpuProblem:
    """The problem of this kind with the card `index`, or with all cards; `error` is the driver's message."""
    sentence, advice = PROBLEM_TEXTS[kind]
    who = "The NVIDIA driver" if index is None else f"GPU {index}"
    if index is not None and "{who}" not in sentence:
        sentence = f"{{who}}: {sentence[0].lower()}{sentence[1:]}"
    number = 0 if index is None else index
    return GpuProblem(kind, sentence.format(who=who, error=error), advice.format(index=number, error=error), index)


Fault = Literal["program", "card", "unknown"]


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """`text` names the error; `fault` is where to look first."""

    text: str
    fault: Fault = "unknown"


XID_MEANINGS = {
    8: XidMeaning("the GPU stopped processing", "program"),
    13: XidMeaning("exception in a kernel, such as an index out of bounds", "program"),
    31: XidMeaning("page fault: a kernel used an illegal address", "program"),
    32: XidMeaning("corrupted command stream"),
    38: XidMeaning("driver firmware error"),
    43: XidMeaning("a program was stopped after its own error", "program"),
    45: XidMeaning("a program was cleaned up after an earlier error", "program"),
    46: XidMeaning("the GPU stopped processing and needs a reset"),
    48: XidMeaning("uncorrectable ECC memory error (double bit)", "card"),
    61: XidMeaning("breakpoint in an internal microcontroller, not fatal"),
    62: XidMeaning("internal microcontroller halted", "card"),
    63: XidMeaning("bad memory was retired or remapped; takes effect after a reset", "card"),
    64: XidMeaning("bad memory could not be retired or remapped", "card"),
    69: XidMeaning("graphics engine class error"),
    74: XidMeaning("NVLink error", "card"),
    79: XidMeaning("the GPU has fallen off the bus", "card"),
    92: XidMeaning("many corrected ECC memory errors", "card"),
    94: XidMeaning("contained memory error: ends the program that hit it", "card"),
    95: XidMeaning("uncontained memory error: the GPU needs a reset", "card"),
    109: XidMeaning("context switch timed out"),
    119: XidMeaning("the GPU System Processor (GSP) does not respond", "card"),
    120: XidMeaning("error in the GPU System Processor (GSP)", "card"),
    121: XidMeaning("corrected error on the CPU link (C2C), harmless", "card"),
    140: XidMeaning("unrecovered memory error", "card"),
}


def xid_meaning(number: int) -> XidMeaning:
    """The meaning of an Xid; also of an unknown one."""
    return XID_MEANINGS.get(number, XidMeaning("see NVIDIA's list of Xid errors"))


def format_xid(number: int) -> str:
    """`Xid 79: the GPU has fallen off the bus`."""
    return f"Xid {number}: {xid_meaning(number).text}"

"""The interface to a GPU driver (`GpuReader`), its errors, and what to do about each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner_tui.hardware.inventory import Gpu, GpuProblem, GpuProblemKind, GpuProcess


@dataclass(frozen=True, slots=True)
class FastFigures:
    """What changes from second to second and costs the driver microseconds. Percent, bytes, watts, MHz."""

    utilisation_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowFigures:
    """What changes slowly or costs the driver more: degrees Celsius, percent of the fan, processes."""

    temperature_c: float | None = None
    fan_pct: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's version (`580.65.06`) and the newest CUDA it runs (`13.0`)."""

    version: str | None = None
    cuda: str | None = None


class GpusUnavailable(Exception):
    """No card of this box can be read; `problem` says why and what to do."""

    def __init__(self, problem: GpuProblem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class CardUnavailable(Exception):
    """One card does not answer any more (it fell off the bus, or its driver is wedged); the others go on."""

    def __init__(self, problem: GpuProblem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class GpuReader(Protocol):
    """Reads the cards of a box. `index` counts from 0 as the driver does, not as CUDA_VISIBLE_DEVICES does."""

    def open(self) -> int:
        """Starts the driver's library once and gives the number of cards (at least 1), or raises GpusUnavailable."""
        ...

    def driver(self) -> Driver:
        """The driver's versions; after `open`."""
        ...

    def describe(self, index: int) -> Gpu:
        """What the card is, without abilities. Raises CardUnavailable."""
        ...

    def fast(self, index: int) -> FastFigures:
        """The figures of the one-second tier. Raises CardUnavailable."""
        ...

    def slow(self, index: int) -> SlowFigures:
        """The figures of the slow tier. Raises CardUnavailable."""
        ...

    def xids(self, index: int) -> tuple[int, ...]:
        """The driver's critical errors (Xid) on the card since the last call, oldest first; raises nothing.

        What was before the first call is not known. Empty where the driver does not tell.
        """
        ...


PROBLEM_TEXTS: dict[GpuProblemKind, tuple[str, str]] = {
    GpuProblemKind.NO_LIBRARY: (
        "No NVIDIA driver is installed: libnvidia-ml.so.1 was not found.",
        "Without an NVIDIA GPU, go on: everything works on the CPU. With one, install the driver; "
        "in a container, start it with GPUs (docker run --gpus all).",
    ),
    GpuProblemKind.NO_DRIVER: (
        "The NVIDIA driver is installed but not loaded into the kernel.",
        "Load it (sudo modprobe nvidia) or reboot. If that fails, the module was not built for this "
        "kernel: reinstall the driver, and see dmesg | grep -i nvrm.",
    ),
    GpuProblemKind.VERSION_MISMATCH: (
        "The NVIDIA driver's library and its loaded kernel module have different versions.",
        "The driver was updated while the old module stayed loaded: reboot. In a container, restart it, "
        "so that it gets the host's new library.",
    ),
    GpuProblemKind.NO_GPU: (
        "The NVIDIA driver works but sees no GPU.",
        "Check lspci | grep -i nvidia. On a shared machine, ask for a GPU with the job "
        "(Slurm: --gres=gpu:1); in a container, start it with --gpus all.",
    ),
    GpuProblemKind.GPU_LOST: (
        "{who} has fallen off the bus.",
        "Look for Xid lines in dmesg (79 is this one; power, heat and risers are the usual causes). "
        "A reboot, or nvidia-smi --gpu-reset -i {index}, brings it back.",
    ),
    GpuProblemKind.NO_PERMISSION: (
        "This user may not talk to the NVIDIA driver.",
        "Check the rights on /dev/nvidia* (often the group video or render), and in a container or "
        "Slurm job the devices it was given.",
    ),
    GpuProblemKind.NO_ANSWER: (
        "{who} does not answer.",
        "Something holds the driver up, often a crashed process or a failing card: see dmesg | grep -i nvrm, "
        "end what runs on the GPUs, or reboot.",
    ),
    GpuProblemKind.UNKNOWN: (
        "The NVIDIA driver answered with an error: {error}.",
        "Run nvidia-smi and read its last lines; see dmesg | grep -i nvrm.",
    ),
}


def gpu_problem(kind: GpuProblemKind, index: int | None = None, error: str = "unknown error") -> GpuProblem:
    """The problem of this kind, of the card `index` or of all cards; `error` is the driver's own word for it."""
    sentence, advice = PROBLEM_TEXTS[kind]
    who = "The NVIDIA driver" if index is None else f"GPU {index}"
    if index is not None and "{who}" not in sentence:
        sentence = f"{{who}}: {sentence[0].lower()}{sentence[1:]}"
    number = 0 if index is None else index
    return GpuProblem(kind, sentence.format(who=who, error=error), advice.format(index=number, error=error), index)

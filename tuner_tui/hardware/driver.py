"""The errors of a GPU driver, the meaning of each Xid, and what to do about them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from tuner_tui.core.files import parse_data_file
from tuner_tui.hardware.inventory import GpuProblem, GpuProblemKind

XIDS_FILE = Path(__file__).with_name("xids.yaml")


class _GpuError(Exception):
    """`problem` has the reason and the advice."""

    def __init__(self, problem: GpuProblem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class GpusUnavailable(_GpuError):
    """No GPU of this machine can be read."""


class GpuUnavailable(_GpuError):
    """One GPU does not answer (it fell off the bus, or its driver hangs); the others may."""


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
    """The problem of this kind with the GPU `index`, or with all GPUs; `error` is the driver's message."""
    sentence, advice = PROBLEM_TEXTS[kind]
    who = "The NVIDIA driver" if index is None else f"GPU {index}"
    if index is not None and "{who}" not in sentence:
        sentence = f"{{who}}: {sentence[0].lower()}{sentence[1:]}"
    number = 0 if index is None else index
    return GpuProblem(kind, sentence.format(who=who, error=error), advice.format(index=number, error=error), index)


Fault = Literal["program", "gpu", "unknown"]


class XidMeaning(NamedTuple):
    """`text` names the error; `fault` is where to look first."""

    text: str
    fault: Fault = "unknown"


@cache
def xid_meanings() -> dict[int, XidMeaning]:
    return {number: XidMeaning(**row) for number, row in parse_data_file(XIDS_FILE).items()}


def xid_meaning(number: int) -> XidMeaning:
    """The meaning of an Xid; also of an unknown one."""
    return xid_meanings().get(number, XidMeaning("see NVIDIA's list of Xid errors"))


def format_xid(number: int) -> str:
    """`Xid 79: the GPU has fallen off the bus`."""
    return f"Xid {number}: {xid_meaning(number).text}"

"""What can be wrong with the GPUs of a box: each case its own sentence and its own way out."""

from __future__ import annotations

from tuner_tui.hardware.inventory import GpuProblem, GpuProblemKind

TEXTS: dict[GpuProblemKind, tuple[str, str]] = {
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
    sentence, advice = TEXTS[kind]
    who = "The NVIDIA driver" if index is None else f"GPU {index}"
    if index is not None and "{who}" not in sentence:
        sentence = f"{{who}}: {sentence[0].lower()}{sentence[1:]}"
    number = 0 if index is None else index
    return GpuProblem(kind, sentence.format(who=who, error=error), advice.format(index=number, error=error), index)

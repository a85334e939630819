"""Whether an interpreter's torch runs on the machine's GPUs: mistakes that otherwise show minutes into a training."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.hardware.gpu.capabilities import TORCH_CUDA_12_6, TORCH_CUDA_13, build_supports, describe_generation
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Gpu, Inventory

INSTALL_COMMAND = "pip install torch --index-url https://download.pytorch.org/whl/"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why an interpreter's torch does not work with the cards, with advice."""

    sentence: str
    advice: str


def find_incompatibilities(inventory: Inventory, interpreter: Interpreter) -> tuple[Incompatibility, ...]:
    """The incompatibilities of the machine's NVIDIA cards and the interpreter's torch; empty where nothing is known."""
    if not inventory.gpus or "torch" not in interpreter.packages:
        return ()
    if interpreter.torch_cuda is None:
        return (no_cuda(interpreter.packages["torch"], inventory.cuda_version),)
    found = [driver_too_old(inventory.cuda_version, interpreter.torch_cuda)]
    found += [not_covered(gpu, interpreter.torch_cuda, interpreter.torch_archs) for gpu in inventory.gpus]
    return tuple(dict.fromkeys(misfit for misfit in found if misfit is not None))


def no_cuda(torch_version: str, driver_cuda: str | None) -> Incompatibility:
    """A torch built without CUDA: for the CPU, or for cards of another vendor."""
    built = "not built for CUDA" if "rocm" in torch_version or "xpu" in torch_version else "CPU-only"
    return Incompatibility(
        f"PyTorch here is {built} ({torch_version}); the GPUs will not be used.",
        f"Install a CUDA build there: {INSTALL_COMMAND}{wheels_for(driver_cuda)}",
    )


def driver_too_old(driver_cuda: str | None, torch_cuda: str) -> Incompatibility | None:
    """A driver supports every CUDA of its own major version and older (CUDA Compatibility guide)."""
    if driver_cuda is None or major(driver_cuda) >= major(torch_cuda):
        return None
    return Incompatibility(
        f"This torch needs CUDA {torch_cuda}; the driver supports up to CUDA {driver_cuda}.",
        f"Update the NVIDIA driver, or install a matching torch: {INSTALL_COMMAND}{wheels_for(driver_cuda)}",
    )


def not_covered(gpu: Gpu, torch_cuda: str, archs: tuple[str, ...]) -> Incompatibility | None:
    """A card that this torch has no code for: trainings on it fail with "no kernel image is available"."""
    if gpu.capability is None:
        return None
    least = TORCH_CUDA_13 if major(torch_cuda) >= 13 else TORCH_CUDA_12_6
    by_release = gpu.capability >= least or major(torch_cuda) < 12
    if build_supports(gpu.capability, archs) if archs else by_release:
        return None
    return Incompatibility(
        f"This torch (CUDA {torch_cuda}) has no kernels for {gpu.name} "
        f"({describe_generation(gpu.capability, gpu.architecture)}).",
        build_for(gpu.capability),
    )


def build_for(capability: tuple[int, int]) -> str:
    """Advice on the torch build that has code for an older card."""
    if capability >= TORCH_CUDA_12_6:
        return f"Older GPUs need a CUDA 12.6 build: {INSTALL_COMMAND}cu126"
    return "CUDA 12 and all current torch wheels dropped it: install an old torch built for CUDA 11."


def wheels_for(driver_cuda: str | None) -> str:
    """The folder of download.pytorch.org with wheels for a driver that supports this CUDA version."""
    return "cu130" if driver_cuda is not None and major(driver_cuda) >= 13 else "cu126"


def major(version: str) -> int:
    return int(version.partition(".")[0])

"""Detects the whole inventory of the machine, once.

A driver or GPU that does not answer is reported after a timeout; until then the caller waits, so screens call this
from a thread.
"""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import Future
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.hardware.capabilities import abilities
from tuner_tui.hardware.driver import GpuUnavailable, gpu_problem
from tuner_tui.hardware.environment import detect_container, logout_warning, sees_host_pids
from tuner_tui.hardware.inventory import Gpu, GpuProblem, GpuProblemKind, Inventory
from tuner_tui.hardware.known_gpus import known_gpu
from tuner_tui.hardware.nvml import NvmlReader
from tuner_tui.hardware.processes import with_command_line
from tuner_tui.hardware.system_info import Cgroups, read_cpu, read_memory, read_space

TIMEOUT_S, BRIEF_TIMEOUT_S = 10.0, 1.2
"""Seconds for the driver and all GPUs together. A GPU without persistence mode takes a second or two to wake up; a
broken one never answers. The brief one is for commands that only report."""
SHM = Path("/dev/shm")  # noqa: S108  its size is read, nothing is written


def read_inventory(disk_folder: Path, timeout_s: float = TIMEOUT_S) -> Inventory:
    """The inventory of this machine; `disk_folder` is where runs are stored.

    GPUs that do not answer within `timeout_s` are listed with their problem.
    """
    (driver, cuda), gpus, problems = read_gpus(NvmlReader(), timeout_s)
    cgroups = Cgroups.of_this_process()
    return Inventory(
        hostname=socket.gethostname(),
        gpus=gpus,
        cpu=read_cpu(cgroups),
        memory=read_memory(cgroups),
        driver_version=driver,
        cuda_version=cuda,
        problems=problems,
        shm=read_space(SHM),
        disk=read_space(disk_folder),
        container=detect_container(os.environ),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        logout_warning=logout_warning(),
    )


def read_gpus(
    reader: NvmlReader, timeout_s: float = TIMEOUT_S
) -> tuple[tuple[str | None, str | None], tuple[Gpu, ...], tuple[GpuProblem, ...]]:
    """The versions of the driver and its CUDA, the GPUs, and their problems.

    A GPU that does not answer keeps its place in the list. All GPUs are asked side by side, and share the time.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        handles = daemon_call(reader.open).result(timeout_s)
    except GpuUnavailable as error:
        return (None, None), (), (error.problem,)
    except TimeoutError:
        return (None, None), (), (gpu_problem(GpuProblemKind.NO_ANSWER),)
    # All calls start before the first is waited for. A call that never returns keeps its daemon thread until the
    # program ends; the later ones share what is left of the time.
    calls = [daemon_call(handle.describe) for handle in handles]
    answers = [read_gpu(index, call, max(0.0, deadline_s - time.monotonic())) for index, call in enumerate(calls)]
    problems = tuple(problem for _, problem in answers if problem is not None)
    return reader.driver(), tuple(complete_gpu(gpu) for gpu, _ in answers), problems


def read_gpu(index: int, call: Future[Gpu], timeout_s: float) -> tuple[Gpu, GpuProblem | None]:
    """The GPU, or a placeholder and the problem."""
    try:
        return call.result(timeout_s), None
    except GpuUnavailable as error:
        return Gpu(index, f"GPU {index}"), error.problem
    except TimeoutError:
        return Gpu(index, f"GPU {index}"), gpu_problem(GpuProblemKind.NO_ANSWER, index)


def complete_gpu(gpu: Gpu) -> Gpu:
    """The GPU with abilities, named processes, and what the driver did not report filled in by the GPU's name."""
    product = known_gpu(gpu.name)
    if product is not None:
        gpu = replace(
            gpu,
            architecture=gpu.architecture or product.architecture,
            capability=gpu.capability or product.capability,
            memory_total_bytes=gpu.memory_total_bytes or product.memory_bytes,
        )
    # In a container the pids are the host's and would name the wrong processes.
    processes = tuple(map(with_command_line, gpu.processes)) if sees_host_pids() else gpu.processes
    return replace(gpu, abilities=abilities(gpu), processes=processes)

"""The whole inventory of the box, read once.

A driver or card that does not answer is given up on after a while and reported; until then the caller waits, so screens
call this from a thread.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner_tui.hardware.capability import abilities
from tuner_tui.hardware.cgroup import Cgroups
from tuner_tui.hardware.gpu_problems import gpu_problem
from tuner_tui.hardware.gpu_reader import CardUnavailable, Driver, GpuReader, GpusUnavailable
from tuner_tui.hardware.host import read_cpu, read_memory, read_space
from tuner_tui.hardware.inventory import Gpu, GpuProblem, GpuProblemKind, GpuProcess, Inventory
from tuner_tui.hardware.known_cards import known_card
from tuner_tui.hardware.logout import logout_warning
from tuner_tui.hardware.nvml import NvmlReader
from tuner_tui.hardware.place import container_of, multiplexer_of, sees_host_pids
from tuner_tui.hardware.process_names import named
from tuner_tui.hardware.threads import Question, ask

ANSWER_WITHIN_S = 10.0
"""A sleeping card without persistence mode takes a second or two to wake; a dead one never answers."""
SHM = Path("/dev/shm")  # noqa: S108  its size is read, nothing is written


def read_inventory(
    disk_folder: Path, reader: GpuReader | None = None, environment: Mapping[str, str] | None = None
) -> Inventory:
    """Everything about this box; `disk_folder` is where runs are kept. Without a `reader`, the cards NVML knows."""
    environment = os.environ if environment is None else environment
    driver, gpus, problems = read_gpus(NvmlReader() if reader is None else reader)
    cgroups = Cgroups.of_this_process()
    return Inventory(
        hostname=socket.gethostname(),
        gpus=gpus,
        cpu=read_cpu(cgroups),
        memory=read_memory(cgroups),
        driver_version=driver.version,
        cuda_version=driver.cuda,
        problems=problems,
        shm=read_space(SHM),
        disk=read_space(disk_folder),
        container=container_of(environment),
        multiplexer=multiplexer_of(environment),
        cuda_visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
        logout_warning=logout_warning(),
    )


def read_gpus(
    reader: GpuReader, timeout_s: float = ANSWER_WITHIN_S
) -> tuple[Driver, tuple[Gpu, ...], tuple[GpuProblem, ...]]:
    """The driver, its cards, and what is wrong with either. A card that does not answer keeps its place."""
    try:
        count = ask(reader.open).answer(timeout_s)
    except GpusUnavailable as error:
        return Driver(), (), (error.problem,)
    except TimeoutError:
        return Driver(), (), (gpu_problem(GpuProblemKind.NO_ANSWER),)
    questions = [ask(partial(reader.describe, index)) for index in range(count)]
    cards = [read_card(index, question, timeout_s) for index, question in enumerate(questions)]
    problems = tuple(problem for _, problem in cards if problem is not None)
    return reader.driver(), tuple(complete(gpu) for gpu, _ in cards), problems


def read_card(index: int, question: Question[Gpu], timeout_s: float) -> tuple[Gpu, GpuProblem | None]:
    """One card's answer, or its bare place in the list and the reason."""
    try:
        return question.answer(timeout_s), None
    except CardUnavailable as error:
        return Gpu(index, f"GPU {index}"), error.problem
    except TimeoutError:
        return Gpu(index, f"GPU {index}"), gpu_problem(GpuProblemKind.NO_ANSWER, index)


def complete(gpu: Gpu) -> Gpu:
    """The card with its abilities, its processes named, and the gaps the driver left filled by its name."""
    known = known_card(gpu.name)
    if known is not None:
        gpu = replace(
            gpu,
            architecture=gpu.architecture or known.architecture,
            capability=gpu.capability or known.capability,
            memory_total_bytes=gpu.memory_total_bytes or known.memory_bytes,
        )
    return replace(gpu, abilities=abilities(gpu.capability, gpu.architecture), processes=tuple(who(gpu.processes)))


def who(processes: tuple[GpuProcess, ...]) -> tuple[GpuProcess, ...]:
    """The processes with command and user, where the driver's pids are ours."""
    return tuple(map(named, processes)) if sees_host_pids() else processes

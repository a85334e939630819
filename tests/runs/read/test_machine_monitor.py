"""Everything that trains on the machine, with fake GPUs and a fake /proc."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.gpu_reader import Clock, FakeHandle, FakeReader
from tests.fakes.procfs import write_process
from tuner_tui.core.file_locks import acquire_lock
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.hardware.host_sampler import HostSampler
from tuner_tui.hardware.inventory import GpuProblemKind
from tuner_tui.hardware.process_sampler import ProcessSampler
from tuner_tui.hardware.process_table import ProcessTable
from tuner_tui.hardware.sampler import Sampler
from tuner_tui.runs.read.machine_monitor import HOST_PIDS_NOTE, LiveRuns, MachineMonitor, MachineView
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, create_folder, write_supervisor_state

SOON_S = 300.0
COMMANDS = {
    7: ("/env/bin/python", "-u", "/home/ann/train.py", "--token", "hf_abcdefghijklmnopqrst"),
    8: ("/env/bin/python", "-u", "/home/ann/train.py", "--token", "hf_abcdefghijklmnopqrst"),
    20: ("/env/bin/python", "cpu_train.py"),
    30: ("vim", "notes"),
}


class Place:
    """A machine: its /proc, its runs, its GPUs. The fake GPU has process 7 on it."""

    def __init__(self, folder: Path, *gpus: FakeHandle, problem: GpuProblemKind | None = None) -> None:
        self.proc, self.root, self.clock = folder / "proc", folder / "runs", Clock()
        self.proc.mkdir()
        self.reader = FakeReader(*gpus, problem=problem)
        self.watches: list[MachineMonitor] = []
        write_process(self.proc, 7, COMMANDS[7])
        write_process(self.proc, 8, COMMANDS[8], ppid=7)
        write_process(self.proc, 20, COMMANDS[20])
        write_process(self.proc, 30, COMMANDS[30], comm="vim")

    def watch(self, host_pids: bool = True) -> MachineMonitor:
        sampler = Sampler(
            self.reader, HostSampler(self.proc, self.clock), ProcessSampler(self.clock), identify=lambda seen: seen
        )
        sampler.start()
        table = ProcessTable(self.clock, self.clock, proc=self.proc)
        watch = MachineMonitor(sampler, table, LiveRuns(self.root, self.clock), host_pids=host_pids)
        self.watches.append(watch)
        assert watch.wait_ready(SOON_S)
        return watch

    def run_of(self, pid: int) -> RunFolder:
        """A run that lives, its training under the number `pid`."""
        folder = create_folder(self.root)
        folder.record.write_text('{"preset": "demo"}')
        training = ProcessId(pid, 1)
        write_supervisor_state(folder.state, SupervisorState(this_machine(), ProcessId(pid, 1), 1.0, training=training))
        folder.events.write_text(
            '{"v":1,"kind":"plan","t":1.0,"total_steps":90}\n'
            '{"v":1,"kind":"steps","t":2.0,"rank":0,"pid":7,"step":12,"own_steps":12}\n'
        )
        return folder


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, FakeHandle())
    yield made
    for watch in made.watches:
        watch.close()


def commands(view: MachineView) -> list[str]:
    return [" ".join(job.command) for job in view.jobs]


def test_a_job_on_a_gpu_has_its_workers_and_its_memory(machine: Place) -> None:
    view = machine.watch().look()
    job = next(job for job in view.jobs if job.gpus)
    assert [process.pid for process in job.processes] == [7, 8]
    assert (job.gpus, job.gpu_memory_bytes, job.user) == ((0,), 8, getpass.getuser())
    assert job.role == "1, 1 worker"


def test_secrets_of_a_command_line_are_not_shown(machine: Place) -> None:
    assert "/env/bin/python -u /home/ann/train.py --token [hidden]" in commands(machine.watch().look())


def test_a_training_without_a_gpu_is_a_job_and_an_editor_is_not(machine: Place) -> None:
    assert "/env/bin/python cpu_train.py" in commands(machine.watch().look())
    assert not any("vim" in command for command in commands(machine.watch().look()))


def test_one_job_alone_whatever_it_is_until_it_ends(machine: Place) -> None:
    watch = machine.watch()
    assert commands(watch.look(30)) == ["vim notes"]
    (machine.proc / "30" / "stat").unlink()
    watch.look(30)
    watch.look(30)
    assert watch.look(30).jobs == ()


def test_in_a_container_the_gpus_processes_are_not_taken_for_ours(machine: Place) -> None:
    view = machine.watch(host_pids=False).look()
    assert view.notes == (HOST_PIDS_NOTE,)
    assert all(job.gpus == () for job in view.jobs)
    assert len(view.jobs) == 2


def test_a_process_the_host_does_not_show_is_shown_with_what_the_driver_knows(machine: Place) -> None:
    for name in ("7", "8"):
        (machine.proc / name / "stat").unlink()
    job = next(job for job in machine.watch().look().jobs if job.gpus)
    assert (job.pid, job.command, job.gpu_memory_bytes, job.cpu_pct) == (7, (), 8, None)


def test_jobs_of_this_program_are_named(machine: Place) -> None:
    folder = machine.run_of(7)
    lock = acquire_lock(folder.lock)
    try:
        job = next(job for job in machine.watch().look().jobs if job.gpus)
        assert job.run is not None
        assert (job.run.run, job.run.preset, job.run.total_steps) == (folder.id, "demo", 90)
    finally:
        os.close(lock)


def test_no_driver_is_a_problem_and_not_the_end(tmp_path: Path) -> None:
    folder = Place(tmp_path, problem=GpuProblemKind.NO_LIBRARY)
    view = folder.watch().look()
    assert view.problem is not None
    assert len(view.jobs) == 2
    folder.watches[0].close()

"""From process tables to jobs."""

from __future__ import annotations

import pytest

from tuner_tui.hardware.processes import (
    HostProcess,
    JobTree,
    find_jobs,
    find_trainings,
    looks_like_training,
)

PYTHON = "/env/bin/python"


def process(pid: int, parent: int, *command: str, group: int | None = None, torch: bool | None = None) -> HostProcess:
    """A process, by default in its own group; it started in the order of its number."""
    comm = command[0].rpartition("/")[2][:15] if command else "hidden"
    return HostProcess(
        pid, parent, pid if group is None else group, 1, comm, pid, "ann", command, float(pid), torch
    )  # fmt: skip


def table(*processes: HostProcess) -> dict[int, HostProcess]:
    return {one.pid: one for one in (process(1, 0, "/sbin/init"), *processes)}


def pids(job: JobTree) -> list[int]:
    return [member.process.pid for member in job.members]


SHELL = process(10, 1, "-bash")
TORCHRUN = (
    process(20, 10, PYTHON, "/env/bin/torchrun", "--nproc-per-node", "2", "train.py"),
    process(21, 20, PYTHON, "-u", "train.py"),
    process(22, 20, PYTHON, "-u", "train.py"),
    process(23, 21, PYTHON, "-u", "train.py", group=21),
    process(24, 22, PYTHON, "-u", "train.py", group=22),
)


def test_ranks_and_workers_under_one_launcher_are_one_job():
    (job,) = find_jobs(table(SHELL, *TORCHRUN), [21, 22])
    assert job.root == 20
    assert pids(job) == [20, 21, 23, 22, 24]
    assert [member.role.value for member in job.members] == ["other", "main", "worker", "main", "worker"]
    assert job.lead.pid == 21


def test_the_shell_somebody_types_in_is_not_part_of_the_job():
    training = process(30, 10, PYTHON, "train.py")
    other = process(40, 10, PYTHON, "other.py")
    jobs = find_jobs(table(SHELL, training, other), [30, 40])
    assert [pids(job) for job in jobs] == [[30], [40]]


def test_a_script_and_what_it_starts_are_one_job_named_by_its_trainer():
    script = process(30, 10, "/bin/bash", "train.sh")
    trainer = process(31, 30, PYTHON, "train.py", group=30)
    log = process(32, 30, "tee", "log", group=30)
    (job,) = find_jobs(table(SHELL, script, trainer, log), [31])
    assert pids(job) == [30, 31, 32]
    assert job.lead.pid == 31


def test_two_commands_of_a_container_without_job_control_stay_apart():
    processes = table(process(30, 1, PYTHON, "a.py", group=1), process(31, 1, PYTHON, "b.py", group=1))
    assert [pids(job) for job in find_jobs(processes, [30, 31])] == [[30], [31]]


def test_workers_that_lost_their_trainer_are_held_together_by_their_group():
    orphans = [process(pid, 1, PYTHON, "train.py", group=30) for pid in (33, 34)]
    (job,) = find_jobs(table(*orphans), [33, 34])
    assert pids(job) == [33, 34]


def test_a_notebook_kernel_is_a_job_of_its_own():
    server = process(30, 10, PYTHON, "/env/bin/jupyter-lab")
    kernel = process(31, 30, PYTHON, "-m", "ipykernel_launcher", "-f", "x.json")
    (job,) = find_jobs(table(SHELL, server, kernel), [31])
    assert pids(job) == [31]


def test_what_was_launched_is_a_top_and_not_part_of_what_launched_it():
    supervisor = process(30, 1, PYTHON, "-P", "-m", "tuner_tui.runs.supervise.supervisor", "/state/runs/r001")
    training = process(31, 30, PYTHON, "train.py")
    processes = table(supervisor, training)
    assert [pids(job) for job in find_jobs(processes, [31], launched=[31])] == [[31]]
    outer, inner = find_jobs(processes, [30, 31], launched=[31])
    assert (pids(outer), pids(inner)) == ([30], [31])


def test_slurm_ranks_of_a_step_are_one_job():
    step = process(30, 1, "slurmstepd: [7.0]")
    step = HostProcess(30, 1, 30, 30, "slurmstepd", 30, "root", (), 1.0)
    ranks = [process(pid, 30, PYTHON, "train.py") for pid in (31, 32)]
    (job,) = find_jobs(table(step, *ranks), [31, 32])
    assert pids(job) == [30, 31, 32]


def test_a_seed_that_is_not_there_has_no_job():
    assert find_jobs(table(SHELL), [99]) == ()


def test_a_table_that_goes_in_circles_ends():
    a, b = process(30, 31, PYTHON, "a.py", group=5), process(31, 30, PYTHON, "a.py", group=5)
    (job,) = find_jobs(table(a, b), [30])
    assert sorted(pids(job)) == [30, 31]


@pytest.mark.parametrize(
    ("one", "is_training"),
    [
        (process(5, 1, PYTHON, "serve.py", torch=True), True),
        (process(5, 1, PYTHON, "train.py", torch=False), False),
        (process(5, 1, PYTHON, "/home/bob/finetune_lora.py", torch=None), True),
        (process(5, 1, PYTHON, "-m", "torch.distributed.run", "x.py"), True),
        (process(5, 1, PYTHON, "/env/bin/accelerate", "launch", "x.py"), True),
        (process(5, 1, "vim", "train.py"), False),
        (process(5, 1, PYTHON), False),
        (process(5, 1), False),
    ],
)
def test_what_looks_like_a_training(one: HostProcess, is_training: bool):
    assert looks_like_training(one) is is_training
    assert find_trainings({5: one}) == ((5,) if is_training else ())

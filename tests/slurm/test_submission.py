"""A submission without a cluster: exactly one job or none, and commands for several nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.launchers import launcher_command
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch, prepare
from tuner_tui.runs.launch.slurm_submission import cluster_request, submit
from tuner_tui.runs.slurm import SlurmError, SlurmOptions, read_job
from tuner_tui.runs.store.folder import list_runs
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob, Launcher
from tuner_tui.settings.model import Resolved, Settings


def request(*command: str, launcher: Launcher = "plain", processes: int = 1, root: Path | None = None) -> LaunchRequest:
    job = CommandJob(command=command, apply="none", launcher=launcher, processes=processes)
    return LaunchRequest(job, Resolved(Settings()), root=root)


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedLaunch:
    return prepare(request(sys.executable, "-c", "pass", root=tmp_path / "runs"))


def test_an_accepted_job(prepared: PreparedLaunch) -> None:
    calls: list[Sequence[str]] = []
    folder, job_id = submit(prepared, SlurmOptions(), lambda command: calls.append(command) or "12;main\n")  # type: ignore[func-returns-value]
    job = read_job(folder.path)
    assert job is not None
    assert (job_id, job.job_id, calls) == ("12", "12", [["sbatch", "--parsable", str(folder.path / "slurm.sh")]])


@pytest.mark.parametrize("answer", ["", "12\n13", "$(reboot)", "１２"])
def test_an_answer_that_is_no_id_leaves_no_run(prepared: PreparedLaunch, answer: str) -> None:
    with pytest.raises(LaunchError, match="sbatch did not answer with the id of a job"):
        submit(prepared, SlurmOptions(), lambda _: answer)
    assert list_runs(prepared.request.runs_root) == []


def test_a_job_that_started_before_sbatch_failed_is_kept(prepared: PreparedLaunch) -> None:
    def fail(command: Sequence[str]) -> str:
        Path(command[2]).with_name("state.json").write_text("{}")  # by its supervisor
        raise SlurmError("sbatch was killed by signal 9.")

    folder, _ = submit(prepared, SlurmOptions(), fail)
    assert folder.record.exists()


NODES = SlurmOptions({"nodes": "2"})


def test_torchrun_in_the_command_reads_the_nodes_from_its_environment() -> None:
    launch = cluster_request(request("torchrun", "--nproc-per-node", "2", "train.py"), NODES)
    assert isinstance(launch.job, CommandJob)
    assert (launch.nodes, launch.job.env) == (2, {"PET_NNODES": "2"})
    assert launcher_command("plain", launch.job.command, 1, "python", 2)[:2] == ("srun", "--ntasks-per-node=1")


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        (
            request("python", "train.py", "--strategy", "deepspeed"),
            "--nodes 2 needs --launcher torchrun, accelerate or",
        ),
        (request("train.py", launcher="torchrun", processes=3), "--processes 3 is the number on all 2 nodes"),
        (request("train.py", launcher="accelerate", processes=3), "--processes 3 is the number on all 2 nodes"),
    ],
)
def test_commands_that_cannot_use_several_nodes(launch: LaunchRequest, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        cluster_request(launch, NODES)


def test_processes_are_shared_among_the_nodes() -> None:
    assert launcher_command("torchrun", ("python", "train.py", "--lr", "1"), 16, "python", 2) == (
        "srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "sh", "-c", words_of("on_each_node")["torchrun"], "sh",
        "python", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=8", "train.py", "--lr", "1",
    )  # fmt: skip


def test_srun_of_the_command_is_left_alone() -> None:
    assert launcher_command("plain", ("srun", "python", "train.py"), 1, "python", 2) == ("srun", "python", "train.py")

"""Runs on the pretended cluster, as a user of the login node sees them. Each node hides its processes from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.read.reader import RunReader, read_brief
from tuner_tui.runs.read.status import RunStatus, read_status
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record
from tuner_tui.scheduling.slurm_allocation import rendezvous
from tuner_tui.slurm.jobs import ask, read_job, write_job

TIMEOUT_S = 120.0
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
WAITING = "import time, sys\nprint('up', flush=True)\ntime.sleep(600)\n"


def tuner(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program; without a terminal."""
    env = {**os.environ, **({} if path is None else {"PATH": path})}
    command = [sys.executable, "-m", "tuner_tui", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def submit(*words: str) -> RunFolder:
    done = tuner("run", "--on", "slurm", "--json", *words)
    assert done.returncode == 0, done.stderr
    return RunFolder(Path(json.loads(done.stdout)["path"]))


def wait_for(folder: RunFolder, wanted: Callable[[RunStatus], bool]) -> RunStatus:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        ask(folder.path.parent.parent)  # without the twenty seconds between two questions
        status = read_status(folder)
        if wanted(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.2)


def wait_output(folder: RunFolder) -> None:
    wait_for(folder, lambda _: folder.output_log.exists() and b"up" in folder.output_log.read_bytes())


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "wait.py"
    path.write_text(WAITING)
    return str(path)


def test_a_run_from_submission_to_its_end(cluster: SlurmCluster) -> None:
    folder = submit("--", sys.executable, "-c", "print('trained')", "--hf_token", SECRET)
    status = wait_for(folder, lambda status: not status.live)
    assert (status.kind, status.outcome) == ("ended", "completed")
    assert folder.output_log.read_text() == "trained\n"
    assert (folder.path / "slurm.log").read_text() == ""
    assert "completed" in tuner("ps").stdout
    held = [path.name for path in folder.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert held == []


def test_the_script_is_shown_and_nothing_is_submitted(cluster: SlurmCluster, tmp_path: Path) -> None:
    done = tuner(
        "run", "--on", "slurm", "--dry-run", "--time", "10", "--", sys.executable, "-c", "pass", "--token", SECRET
    )
    assert done.stdout.startswith("#!/bin/sh\n#SBATCH --job-name=r001\n")
    assert "#SBATCH --time=10\n" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert cluster.ask("squeue", "--noheader") == ""
    assert not (tmp_path / "state/runs/r001").exists()


def test_what_waits_says_why_and_is_cancelled(cluster: SlurmCluster, script: str) -> None:
    first = submit("--sbatch-option", "exclusive", "--sbatch-option", "nodes=2", "--", "srun", sys.executable, script)
    wait_output(first)
    second = submit("--sbatch-option", "exclusive", "--", sys.executable, script, "second")
    status = wait_for(second, lambda status: "waiting for resources" in status.sentence)
    assert status.kind == "pending"
    assert "waiting for resources" in tuner("ps").stdout
    assert tuner("stop", second.id).returncode == 0
    assert read_status(second).sentence.endswith("was cancelled in Slurm before the training started.")
    assert read_status(first).kind == "running"


def test_a_run_on_another_node_is_stopped_through_its_folder(cluster: SlurmCluster, script: str) -> None:
    folder = submit("--", sys.executable, script)
    wait_output(folder)
    status = wait_for(folder, lambda status: status.kind == "running" and "Slurm job" in status.sentence)
    assert status.pid is None
    watched = tuner("watch", folder.id, "--once", "--json")  # by a step of the job
    assert [one["run"]["run"] for one in json.loads(watched.stdout)["jobs"]] == [folder.id]
    done = tuner("stop", folder.id)
    assert (done.returncode, done.stdout) == (0, "Stopped on request.\n")
    assert read_status(folder).outcome == "stopped"


def test_scancel_ends_in_a_true_state(cluster: SlurmCluster, script: str) -> None:
    folder = submit("--", sys.executable, script)
    wait_output(folder)
    job = read_job(folder.path)
    assert job is not None
    assert job.job_id is not None
    cluster.ask("scancel", job.job_id)
    status = wait_for(folder, lambda status: not status.live)
    assert (status.outcome, status.sentence) == ("stopped", "Cancelled in Slurm.")


def test_a_job_that_cannot_start_says_why(cluster: SlurmCluster) -> None:
    blind = submit("--sbatch-option", "export=NONE", "--", sys.executable, "-c", "pass", "--token", SECRET)
    status = wait_for(blind, lambda status: not status.live)
    assert status.outcome == "failed"
    assert "The command contains a secret, which the environment of the job does not have." in status.sentence


def test_sbatch_that_refuses_leaves_no_run(cluster: SlurmCluster, tmp_path: Path) -> None:
    done = tuner("run", "--on", "slurm", "--partition", "none", "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert "Invalid partition name specified. Nothing will run." in done.stderr
    assert not (tmp_path / "state/runs/r001").exists()


def test_sbatch_killed_after_it_submitted_starts_nothing(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The folder is removed, and the job that was accepted finds none."""
    programs = tmp_path / "programs"
    programs.mkdir()
    real = subprocess.run(["which", "sbatch"], capture_output=True, text=True, check=True).stdout.strip()
    (programs / "sbatch").write_text(f'#!/bin/sh\n{real} --hold "$@" >{tmp_path}/id\nkill -9 $$\n')
    (programs / "sbatch").chmod(0o755)
    mark = tmp_path / "trained"
    path = f"{programs}:{os.environ['PATH']}"
    done = tuner("run", "--on", "slurm", "--", sys.executable, "-c", f"open({str(mark)!r}, 'w')", path=path)
    assert done.returncode == 2
    assert "sbatch was killed by signal 9. Nothing will run." in done.stderr
    job_id = (tmp_path / "id").read_text().strip()
    cluster.ask("scontrol", "release", job_id)
    deadline = time.monotonic() + TIMEOUT_S
    while "FAILED" not in (
        found := cluster.ask("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T")
    ):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    assert not mark.exists()


def test_a_job_of_a_submitter_that_was_killed_is_found_by_its_script(cluster: SlurmCluster) -> None:
    folder = submit("--sbatch-option", "hold", "--", sys.executable, "-c", "pass")
    job = read_job(folder.path)
    assert job is not None
    write_job(folder.path, replace(job, job_id=None))
    found = wait_for(folder, lambda status: "held" in status.sentence)
    assert (found.kind, found.sentence) == ("pending", "The Slurm job waits to start: held by its user.")
    cluster.ask("scontrol", "release", str(job.job_id))
    assert wait_for(folder, lambda status: not status.live).outcome == "completed"
    assert read_job(folder.path) == job


def test_a_controller_that_hangs_holds_up_nothing(cluster: SlurmCluster, tmp_path: Path) -> None:
    folder = submit("--sbatch-option", "hold", "--", sys.executable, "-c", "pass")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "squeue").write_text("#!/bin/sh\nexec sleep 600\n")
    (programs / "squeue").chmod(0o755)
    done = tuner("ps", path=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 0
    assert f"{folder.id}  pending" in done.stdout


def test_a_machine_without_slurm_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    done = tuner("run", "--on", "slurm", "--", sys.executable, "-c", "pass", path=str(tmp_path))
    assert done.returncode == 2
    assert "sbatch was not found: run this on a login node of the Slurm cluster." in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gres", "gpu:1"), "go with --on slurm"),
        (("--dry-run",), "go with --on slurm"),
        (("--on", "slurm", "--when-free"), "--when-free is for this machine"),
        (("--on", "pbs"), "--on: 'pbs' is not known"),
        (("--on", "slurm", "--sbatch-option", "output=/tmp/x"), "The option --output of sbatch cannot be set here."),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], words: str) -> None:
    done = tuner("run", *options, "--", "true")
    assert done.returncode == 2
    assert words in done.stderr


def test_a_restart_here_is_refused(cluster: SlurmCluster) -> None:
    from tuner_tui.runs.launch.restart import plan_restart

    folder = submit("--", sys.executable, "-c", "pass")
    wait_for(folder, lambda status: not status.live)
    with pytest.raises(LaunchError, match="run --on slurm --resume r001"):
        plan_restart(folder)


TRAINER = """
import sys, time, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

class Slow(TrainerCallback):
    def on_step_end(self, *_, **__):
        time.sleep(0.05)

data = [{"input_ids": torch.full((8,), number % 9), "labels": torch.tensor(number % 2)} for number in range(64)]
sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
arguments = TrainingArguments(
    sys.argv[1], max_steps=int(sys.argv[2]), per_device_train_batch_size=4, save_steps=10**6, report_to=[], use_cpu=True
)
Trainer(BertForSequenceClassification(BertConfig(**sizes)), arguments, train_dataset=data, callbacks=[Slow()]).train()
"""


@pytest.mark.train
def test_the_time_limit_ends_in_a_checkpoint_from_which_the_requeued_job_resumes(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Slurm's signal comes when a test sends it: real limits are minutes. The same goes for the start of the requeued
    job, which Slurm puts off by two minutes."""
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    first = submit("--time", "20", "--", sys.executable, str(script), str(tmp_path / "out"), "2000")
    wait_for(first, lambda _: (read_brief(first).state.step or 0) >= 3)
    job = read_job(first.path)
    assert job is not None
    assert job.job_id is not None
    attach = [sys.executable, "-m", "tuner_tui", "attach", first.id]
    following = subprocess.Popen(attach, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    cluster.ask("scancel", "--signal=USR2", "--batch", job.job_id)
    status = wait_for(first, lambda status: status.kind == "pending" and "start time" in status.sentence)
    assert f"Slurm job {job.job_id} reached its time limit and continues the run: " in status.sentence
    assert "pending" in tuner("ps").stdout
    cluster.ask("scontrol", "update", f"JobId={job.job_id}", "StartTime=now")
    wait_for(first, lambda status: not status.live)
    second = RunFolder(first.path.with_name("r002"))
    wait_for(second, lambda _: read_brief(second).state.step is not None)
    record = read_record(second)
    saved = list((tmp_path / "out").glob("checkpoint-*"))
    assert (record.parent, record.lineage, record.resumed_from) == (first.id, (first.id,), str(saved[0]))
    assert tuner("stop", second.id).returncode == 0
    assert read_status(first).outcome == "stopped"
    followed = following.communicate(timeout=TIMEOUT_S)[0]
    assert "reached its time limit and continues the run: " in followed
    assert f"Run {second.id}, output in " in followed
    cluster.wait_idle()  # the job has ended with the run that was stopped


RANKS = """
import sys, torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.ones(160, 4))
for (batch,) in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.train
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed"])
def test_two_ranks_on_each_of_two_nodes(
    launcher: str, cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if launcher != "torchrun" and find_spec(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    monkeypatch.setenv("PET_LOCAL_ADDR", "127.0.0.1")  # no name service knows the pretended nodes
    monkeypatch.setenv("HF_HOME", str(tmp_path))  # no configuration of accelerate
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    options = ("--nodes", "2", "--launcher", launcher, "--processes", "4")
    folder = submit(*options, "--", sys.executable, str(script))
    status = wait_for(folder, lambda status: not status.live)
    assert status.outcome == "completed", folder.output_log.read_text()
    assert [path.name for path in folder.event_files()[1:]] == [f"events-rank{rank}.jsonl" for rank in range(4)]
    view = RunReader(folder).poll()
    state = view.state
    assert sorted(state.hosts) == ["n1", "n2"]
    assert {view.host, *(node.host for node in view.nodes)} == {"n1", "n2"}
    assert any(process.role == "main" for sample in view.nodes[0].samples for process in sample.processes)
    assert {rank: counted.latest.own_steps for rank, counted in state.ranks.items() if counted.latest} == {
        0: 20, 1: 20, 2: 20, 3: 20,
    }  # fmt: skip


def test_the_address_at_which_nodes_meet() -> None:
    environ = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "10007", "SLURMD_NODENAME": "n1"}
    assert rendezvous(environ, lambda _: "NodeName=n1 Arch=x86_64\n   NodeAddr=10.0.0.7 NodeHostName=gpu1\n") == {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "10.0.0.7:20007",
        "PET_RDZV_ID": "10007",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "20007",
    }
    assert rendezvous({**environ, "SLURM_JOB_NUM_NODES": "1"}) == {}


def status_after_failure(cluster: SlurmCluster, node: str, folder: RunFolder) -> RunStatus:
    """Fail the node until the run has ended, and return its status."""
    cluster.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        return wait_for(folder, lambda status: not status.live)
    finally:
        with suppress(RuntimeError):  # a node may return to service without this
            cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")


def test_a_node_that_fails_is_a_true_end(cluster: SlurmCluster, script: str) -> None:
    folder = submit("--sbatch-option", "no-requeue", "--", sys.executable, script)
    wait_output(folder)
    job = read_job(folder.path)
    assert job is not None
    node = cluster.ask("squeue", "--noheader", f"--jobs={job.job_id}", "--format=%N")
    status = status_after_failure(cluster, node, folder)
    assert (status.kind, status.outcome) == ("ended", "killed")
    assert status.sentence == "Ended by Slurm because a node failed."


def test_another_node_that_fails_is_named(cluster: SlurmCluster, script: str) -> None:
    folder = submit("--nodes", "2", "--sbatch-option", "no-requeue", "--", "srun", sys.executable, script)
    wait_for(folder, lambda _: folder.output_log.exists() and folder.output_log.read_bytes().count(b"up") == 2)
    here = RunReader(folder).poll().host
    [node] = {"n1", "n2"} - {here}
    status = status_after_failure(cluster, node, folder)
    assert status.outcome == "killed"
    assert status.sentence == f"Ended by Slurm because node {node} failed."

"""Runs on a real cluster of two pretended nodes, as a user of the login node sees them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.test_fake_commands import TIMEOUT_S, tuner
from tuner_tui.runs.read.reader import RunReader, read_brief
from tuner_tui.runs.read.status import RunStatus, read_status
from tuner_tui.runs.slurm import ask, read_job
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record

WAITING = "import time, sys\nprint('up', flush=True)\ntime.sleep(600)\n"
pytestmark = pytest.mark.full


def submit(*words: str) -> RunFolder:
    done = tuner("slurm", "submit", "--json", *words)
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
    done = tuner("stop", folder.id)
    assert (done.returncode, done.stdout) == (0, "Stopped on request.\n")
    assert read_status(folder).outcome == "stopped"


@pytest.mark.parametrize(
    "words",
    [
        ("scontrol", "requeue", "JOB"),
        ("scontrol", "update", "NodeName=NODE", "State=DOWN", "Reason=test"),  # which returns by itself
    ],
)
def test_a_job_that_is_taken_waits_again_and_a_stop_ends_it(
    cluster: SlurmCluster, script: str, words: tuple[str, ...]
) -> None:
    folder = submit("--", sys.executable, script)
    wait_output(folder)
    job = read_job(folder.path)
    assert job is not None
    assert job.job_id is not None
    node = cluster.ask("squeue", "--noheader", "--format=%N", f"--jobs={job.job_id}")
    cluster.ask(*(word.replace("JOB", job.job_id).replace("NODE", node) for word in words))
    status = wait_for(folder, lambda status: status.kind == "pending")
    assert "again" in status.sentence
    assert f"Slurm job {job.job_id} " in status.sentence
    assert tuner("stop", folder.id).returncode == 0
    assert not read_status(folder).live
    assert cluster.ask("squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING") == ""


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
    attach = [sys.executable, "-m", "tuner_tui", "logs", "-f", "--events", first.id]
    following = subprocess.Popen(attach, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    cluster.ask("scancel", "--signal=USR2", "--batch", job.job_id)
    limit_reached = f"Slurm job {job.job_id} reached its time limit and continues the run: "
    # Slurm lists the job as waiting a moment before the job's script has written why it does.
    wait_for(first, lambda status: status.kind == "pending" and f"{limit_reached}its start time" in status.sentence)
    assert "pending" in tuner("ps").stdout
    # A node refuses what starts in the second in which it ended the job: that is why Slurm puts it off.
    cluster.ask("scontrol", "update", f"JobId={job.job_id}", "StartTime=now+3")
    wait_for(first, lambda status: not status.live)
    second = RunFolder(first.path.with_name("r002"))
    wait_for(second, lambda _: read_brief(second).state.step is not None)
    record = read_record(second)
    saved = list((tmp_path / "out").glob("checkpoint-*"))
    assert (record.parent, record.lineage, record.resumed_from) == (first.id, (first.id,), str(saved[0]))
    assert tuner("stop", second.id).returncode == 0
    assert read_status(first).outcome == "time-limit"
    followed = following.communicate(timeout=TIMEOUT_S)[0]
    assert "reached its time limit and continues the run: " in followed
    assert f"Run {second.id}, output in " in followed
    cluster.wait_idle()  # the job has ended with the run that was stopped


RANKS = """
import gc, sys, torch, torch.distributed
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
del model, optimizer  # gloo's threads end with the last that holds the group; left alive they may abort the exit
gc.collect()
torch.distributed.destroy_process_group()
"""


@pytest.mark.train
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_two_ranks_on_each_of_two_nodes(
    launcher: str, cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if launcher != "torchrun" and find_spec(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    monkeypatch.setenv("HF_HOME", str(tmp_path))  # no configuration of accelerate
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    options = ("--nodes", "2", "--launcher", launcher, "--processes", "4")
    folder = submit(*options, "--", sys.executable, str(script))
    status = wait_for(folder, lambda status: not status.live)
    assert status.outcome == "completed", folder.output_log.read_text()
    assert [path.name for path in folder.event_files()[1:]] == [f"events-rank{rank}.jsonl" for rank in range(4)]
    state = RunReader(folder).poll().state
    assert sorted(state.hosts) == ["n1", "n2"]
    assert {rank: counted.latest.own_steps for rank, counted in state.ranks.items() if counted.latest} == {
        0: 20, 1: 20, 2: 20, 3: 20,
    }  # fmt: skip

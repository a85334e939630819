"""`slurm submit` with commands of Slurm that start the script of a job here, as a cluster of this one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.slurm import REQUEST, FakeCluster
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.restart import plan_restart
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.slurm import CANCEL_FILE, read_job
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record
from tuner_tui.tuning.slurm_allocation import rendezvous

TIMEOUT_S = 300.0
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
# Saves a checkpoint when it is asked to end, and prints the one that it starts from.
TRAINING = """
import json, os, pathlib, signal, sys
def save(*_):
    checkpoint = pathlib.Path(sys.argv[1], "checkpoint-5")
    checkpoint.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt"):
        (checkpoint / name).write_bytes(b"x")
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    event = {"story": 1, "v": 1, "t": 1.0, "kind": "checkpoint", "step": 5, "path": str(checkpoint)}
    with pathlib.Path(os.environ["TUNER_RUN_DIR"], "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\\n")
    sys.exit(0)
if len(sys.argv) > 2:
    sys.exit(print("resumed from", pathlib.Path(sys.argv[3]).name))
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
signal.pause()
"""


def tuner(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program; without a terminal."""
    command = [sys.executable, "-m", "tuner_tui", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster whose programs are first in PATH."""
    (tmp_path / "cluster").mkdir()
    with FakeCluster(tmp_path / "cluster") as fake:
        monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_SLURM", str(fake.folder))
        yield fake


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> Path:
    """The state directory of a machine of the cluster."""
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_run_from_submission_to_its_end(state: Path) -> None:
    command = [sys.executable, "-c", "print('trained')", "--hf_token", SECRET]
    done = tuner("slurm", "submit", "--json", "--", *command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"run": "r001", "path": str(state / "runs/r001"), "job": "7"}
    folder = RunFolder(state / "runs/r001")
    wait(lambda: not read_status(folder).live)
    assert read_status(folder).outcome == "completed", (folder.path / "slurm.log").read_text()
    assert folder.output_log.read_text() == "trained\n"
    assert "completed" in tuner("ps").stdout
    held = [path.name for path in folder.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert held == []
    with pytest.raises(LaunchError, match="slurm submit --resume r001"):
        plan_restart(folder)


def test_the_time_limit_ends_in_a_checkpoint_from_which_the_requeued_job_resumes(
    state: Path, tmp_path: Path, cluster: FakeCluster
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "out"), "--resume", "{checkpoint}"]
    assert tuner("slurm", "submit", "--time", "10", "--", *command).returncode == 0
    first, second = RunFolder(state / "runs/r001"), RunFolder(state / "runs/r002")
    wait(lambda: first.output_log.exists() and "up" in first.output_log.read_text())
    cluster.send(signal.SIGUSR2)
    wait(lambda: read_status(second).kind == "ended")
    assert second.output_log.read_text() == "resumed from checkpoint-5\n"
    assert read_record(second).lineage == ("r001",)
    assert read_status(first).outcome == "time-limit"
    job = read_job(first.path)
    assert job is not None
    assert (job.job_id, job.continued_by) == ("7", "r002")


# Its checkpoint takes until a person has cancelled the job.
SAVES = f"""def save(*_):
    print("saving", flush=True)
    while not pathlib.Path(os.environ["TUNER_RUN_DIR"], "{CANCEL_FILE}").exists():
        time.sleep(0.05)
"""
SLOW = TRAINING.replace("def save(*_):\n", SAVES, 1).replace("import json,", "import time, json,", 1)


def test_a_stop_during_the_checkpoint_of_the_time_limit_is_the_end(
    state: Path, tmp_path: Path, cluster: FakeCluster
) -> None:
    (tmp_path / "train.py").write_text(SLOW)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "out"), "--resume", "{checkpoint}"]
    assert tuner("slurm", "submit", "--time", "10", "--", *command).returncode == 0
    run = RunFolder(state / "runs/r001")
    wait(lambda: run.output_log.exists() and "up" in run.output_log.read_text())
    cluster.send(signal.SIGUSR2)
    wait(lambda: "saving" in run.output_log.read_text())
    stopped = tuner("stop", "r001")
    assert (stopped.returncode, stopped.stdout) == (0, "Stopped on request.\n"), stopped
    assert ["scontrol", "requeue", "7"] not in cluster.calls
    assert not (state / "runs/r002").exists()


@pytest.mark.parametrize("end", ["", "kill -KILL $$\n"], ids=["answered", "killed with its job"])
def test_a_stop_of_a_requeued_job_that_waits_cancels_it(
    end: str, state: Path, tmp_path: Path, cluster: FakeCluster
) -> None:
    cluster.holds = True
    (cluster.bin / "scontrol").write_text(f"{REQUEST}{end}")
    (tmp_path / "train.py").write_text(TRAINING)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "out"), "--resume", "{checkpoint}"]
    assert tuner("slurm", "submit", "--time", "10", "--", *command).returncode == 0
    run = RunFolder(state / "runs/r001")
    wait(lambda: run.output_log.exists() and "up" in run.output_log.read_text())
    cluster.send(signal.SIGUSR2)
    wait(lambda: ["scontrol", "requeue", "7"] in cluster.calls and read_status(run).kind == "pending")
    stopped = tuner("stop", "r001")
    assert stopped.returncode == 0, stopped
    assert "was cancelled in Slurm before it continued the run" in stopped.stdout
    assert ["scancel", "7"] in cluster.calls
    assert not (state / "runs/r002").exists()


def test_the_script_is_shown_and_nothing_is_submitted(state: Path) -> None:
    done = tuner("slurm", "submit", "--dry-run", "--time", "10", "--", sys.executable, "-c", "pass", "--token", SECRET)
    assert done.stdout.startswith("#!/bin/sh\n#SBATCH --job-name=r001\n")
    assert "#SBATCH --time=10\n" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert not (state / "runs/r001").exists()


def test_a_machine_without_slurm_is_said_in_a_sentence(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = tuner("slurm", "submit", "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert "sbatch was not found: run this on a login node of the Slurm cluster. Nothing will run." in done.stderr
    assert not (state / "runs/r001").exists()


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

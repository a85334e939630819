"""`slurm submit` with commands of Slurm that start the script of a job here, as a cluster of this one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.restart import plan_restart
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.slurm import read_job
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record
from tuner_tui.tuning.slurm_allocation import rendezvous

TIMEOUT_S = 120.0
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
START = """#!/bin/sh
SLURM_JOB_ID=7 setsid sh "$script" >>"$(dirname "$script")/slurm.log" 2>&1 &
echo $! >"$PLACE/pid"
"""
PROGRAMS = {
    "sbatch": '#!/bin/sh\nscript="$2"; echo "$2" >"$PLACE/script"; . "$PLACE/start"; echo 7\n',
    "scontrol": '#!/bin/sh\nif [ "$1" = requeue ]; then read script <"$PLACE/script"; . "$PLACE/start"; fi\n',
    "squeue": "#!/bin/sh\nprintf '7\\037RUNNING\\037here\\037N/A\\037None\\n'\n",
}
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
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory; the commands of Slurm are first in PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "start").write_text(START)
    for name, script in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PLACE", str(tmp_path))
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


def test_the_time_limit_ends_in_a_checkpoint_from_which_the_requeued_job_resumes(state: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "out"), "--resume", "{checkpoint}"]
    assert tuner("slurm", "submit", "--time", "10", "--", *command).returncode == 0
    first, second = RunFolder(state / "runs/r001"), RunFolder(state / "runs/r002")
    wait(lambda: first.output_log.exists() and "up" in first.output_log.read_text())
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGUSR2)
    wait(lambda: read_status(second).kind == "ended")
    assert second.output_log.read_text() == "resumed from checkpoint-5\n"
    assert read_record(second).lineage == ("r001",)
    assert read_status(first).outcome == "stopped"
    job = read_job(first.path)
    assert job is not None
    assert (job.job_id, job.continued_by) == ("7", "r002")


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

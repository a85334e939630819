"""`tuner-tui tune --on ray`: over a real cluster of two nodes on this machine, where Ray is installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

import tests.tuning.scripts
from tests.cli.commands.test_run import Shell, line_of, shell
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import list_runs, runs_dir
from tuner_tui.tuning.store import tunings_dir

SCRIPTS = Path(tests.tuning.scripts.__file__).parent
SLOW_LOOP = (sys.executable, str(SCRIPTS / "plain_loop.py"), "8", "{dataloader_num_workers}", "slow", "samples=9999")
TUNE = ("tune", "--on", "ray", "--most-minutes", "25", "--set", "dataloader_num_workers=0")
RAY = find_spec("ray") is not None
__all__ = ["shell"]


@pytest.fixture
def nodes(shell: Shell) -> Iterator[psutil.Process]:
    """A cluster of two nodes, which the commands of the shell use."""
    shell.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "XDG_CONFIG_HOME": str(shell.home / "config")}
    command = [sys.executable, str(SCRIPTS / "ray_nodes.py"), "2"]
    with subprocess.Popen(
        command, env=shell.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as cluster:
        shell.environ |= {"RAY_ADDRESS": line_of(cluster.stdout).strip()}
        yield psutil.Process(cluster.pid)


def begun(entry: dict[str, Any]) -> int | None:
    """The number of the trial that an entry of the log says has begun."""
    return entry["trial"]["number"] if entry["kind"] == "trial-begun" else None


@pytest.mark.train
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not RAY, reason="Ray is not installed")
def test_a_tuning_on_two_nodes_of_which_one_loses_its_worker(shell: Shell, nodes: psutil.Process) -> None:
    process = shell.start(*TUNE, "--json", "--", *SLOW_LOOP)
    entries: list[dict[str, Any]] = []
    while not entries or entries[-1]["kind"] != "ended":
        entries.append(json.loads(line_of(process.stdout)))
        if begun(entries[-1]) == 3 and all(begun(entry) != 3 for entry in entries[:-1]):
            workers = [
                process for process in nodes.children(recursive=True) if process.name().startswith("ray::TrialWorker")
            ]
            assert len(workers) == 2
            os.kill(workers[0].pid, signal.SIGKILL)
    process.communicate(timeout=300)
    last = entries[-1]
    assert (last["status"], last["verdict"]["winner"]["dataloader_num_workers"] > 0) == ("finished", True), entries
    assert last["verdict"]["ratio"] > 1.2, "a loop that waits for its data is as much faster with workers as elsewhere"
    gpus = [entry["trial"]["gpu"] for entry in entries if begun(entry)]
    assert len(set(gpus)) == 2
    assert len(set(gpus[4:])) == 1, "the worker that is left takes over"
    assert all(not read_status(folder).live for folder in list_runs(runs_dir(shell.environ)))


@pytest.mark.skipif(RAY, reason="Ray is installed")
def test_without_ray_it_names_the_package(shell: Shell) -> None:
    done = shell(*TUNE, "--", *SLOW_LOOP)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install ray" in done.stderr
    assert not tunings_dir(shell.environ).exists()


def test_only_ray_is_known(shell: Shell) -> None:
    done = shell("tune", "--on", "slurm", "--", *SLOW_LOOP)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--on: 'slurm' is not ray." in done.stderr

"""`tuner-tui profile`: a run whose steps wait for data, and one that cannot be profiled."""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

from tests.cli.commands.test_run import PATIENCE_S, WAIT, Shell, shell
from tests.inspection.test_ask import select_for
from tests.inspection.test_ask_profile import SCRIPT
from tests.runs.sandbox import Fifo, fifo
from tuner_tui.runs.events.types import Profiled
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder

RECORDED_PEAKS = Path(__file__).parents[2] / "inspection" / "recorded_peaks"
__all__ = ["fifo", "shell"]


def test_a_run_that_waits_for_data(shell: Shell) -> None:
    shell("run", "--detach", "--", sys.executable, str(SCRIPT), "slow-loader")
    folder = RunFolder(shell.home / "state" / "runs" / "r001")
    reader, deadline = RunReader(folder), time.monotonic() + PATIENCE_S
    while (reader.poll().state.step or 0) < 2 and time.monotonic() < deadline:
        select_for(0.2)
    shown = shell("profile", "r001", "--steps", "3", "--json")
    [rank] = json.loads(shown.stdout)["ranks"]
    assert rank["verdict"]["bound"] == "input"
    assert "decode" in rank["verdict"]["where"]
    assert json.loads(gzip.decompress(Path(rank["trace"]).read_bytes()))["traceEvents"]
    while reader.poll().state.profiled is None and time.monotonic() < deadline:
        select_for(0.2)
    profiled = reader.poll().state.profiled
    assert isinstance(profiled, Profiled)
    assert "profiled: Input-bound" in shell("diagnose", "r001").stdout
    assert shell("stop", "r001", "--now").returncode == 0
    ended = shell("profile", "r001")
    assert ended.returncode == 1
    assert "r001 has no process here that could answer." in ended.stderr


def test_a_run_without_steps(shell: Shell, fifo: Fifo) -> None:
    shell("run", "--detach", "--", sys.executable, shell.script(WAIT), str(fifo.path))
    assert fifo.word() == "up"
    shown = shell("profile", "r001")
    assert shown.returncode == 1
    assert "without the observer none can be profiled" in shown.stderr
    assert shell("stop", "r001", "--now").returncode == 0


def test_what_held_the_memory_of_a_run_that_ended(shell: Shell) -> None:
    folder = shell.home / "state" / "runs" / "r001"
    folder.mkdir(parents=True)
    (folder / "memory-rank0.json").write_bytes((RECORDED_PEAKS / "qlora_notebook.json").read_bytes())
    (folder / "memory-rank1.json").write_text('{"peak_bytes": 1')
    lines = shell("profile", "r001", "--memory").stdout.splitlines()
    assert lines[0] == "Rank 0: largest at the peak: activations, 4.1 GiB, 3105878423.py:21 (forward)."
    assert lines[1].startswith("The change that removes most, 1.6 GiB or more: gradient checkpointing.")
    rows = [" ".join(line.split()) for line in lines]
    assert "3105878423.py:21 · activations 4.09 GiB 75 %" in rows
    assert "before the recording · unknown 1.02 GiB 19 %" in rows
    assert rows.count("all tensors 5.47 GiB 100 %") == 3
    [document] = json.loads(shell("profile", "r001", "--memory", "--json").stdout)
    assert sum(part["size"] for part in document["parts"]) == document["tensor_bytes"] == 5_876_132_840
    assert document["change"] == {"change": "gradient checkpointing", "saved_bytes": 1758716634}


def test_without_cuda_no_memory_can_be_recorded(shell: Shell) -> None:
    shell("run", "--detach", "--", sys.executable, str(SCRIPT), "slow-loader")
    reader, deadline = RunReader(RunFolder(shell.home / "state" / "runs" / "r001")), time.monotonic() + PATIENCE_S
    while (reader.poll().state.step or 0) < 2 and time.monotonic() < deadline:
        select_for(0.2)
    shown = shell("profile", "r001", "--memory")
    assert shown.returncode == 1
    words = " ".join(shown.stderr.split())
    assert "Rank 0 was not recorded: it trains without CUDA, and only CUDA's allocator keeps a history." in words
    assert "`tuner-tui estimate --by line` shows what is known without a GPU." in words
    assert shell("stop", "r001", "--now").returncode == 0
    ended = shell("profile", "r001", "--memory")
    assert "r001 has ended, and its memory was not recorded" in " ".join(ended.stderr.split())

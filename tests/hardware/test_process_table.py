"""The table of processes, over a made-up /proc and over this machine's own."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.gpu_reader import Clock
from tests.fakes.procfs import stat_line, write_process, write_tree
from tuner_tui.core.procfs import PAGE_BYTES, TICKS_PER_S
from tuner_tui.hardware.process_table import SCAN_EVERY, SHARES, ProcessTable


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(tmp_path: Path, clock: Clock) -> ProcessTable:
    write_tree(tmp_path, {"stat": f"btime {clock.now_s:.0f}\n"})
    return ProcessTable(clock, clock, proc=tmp_path)


def scan(table: ProcessTable) -> None:
    """Looks until everybody was read."""
    while not table.read():
        pass


def test_who_it_is_is_read_once(tmp_path: Path, table: ProcessTable, clock: Clock):
    clock.now_s += 100
    write_process(tmp_path, 7, ["python", "train.py"], ppid=3, started=40 * TICKS_PER_S)
    scan(table)
    write_process(tmp_path, 7, ["python", "renamed.py"], ppid=3, started=40 * TICKS_PER_S)
    scan(table)
    process = table.processes[7]
    assert (process.parent, process.user, process.command) == (3, getpass.getuser(), ("python", "train.py"))
    assert process.started_s == clock.now_s - 60


def test_load_is_what_was_used_since_the_look_before(tmp_path: Path, table: ProcessTable, clock: Clock):
    write_process(tmp_path, 7, ["python"], ticks=100, pages=5)
    table.read()
    first = table.load(7)
    assert first is not None
    assert (first.cpu_pct, first.rss_bytes) == (None, 5 * PAGE_BYTES)
    clock.now_s += 2
    write_process(tmp_path, 7, ["python"], ticks=100 + TICKS_PER_S, pages=6)
    table.read([7])
    second = table.load(7)
    assert second is not None
    assert (second.cpu_pct, second.rss_bytes) == (50.0, 6 * PAGE_BYTES)


def test_a_recycled_number_is_somebody_new(tmp_path: Path, table: ProcessTable):
    write_process(tmp_path, 7, ["python"], started=5)
    table.read()
    write_process(tmp_path, 7, ["python", "other.py"], started=9)
    table.read([7])
    load = table.load(7)
    assert load is not None
    assert load.cpu_pct is None
    assert table.processes[7].command == ("python", "other.py")


def test_newcomers_are_seen_at_the_next_full_look_and_the_dead_are_gone_at_once(tmp_path: Path, table: ProcessTable):
    write_process(tmp_path, 7, ["python"])
    assert table.read()
    write_process(tmp_path, 8, ["python"])
    (tmp_path / "7" / "stat").unlink()
    assert not table.read([7])
    assert table.load(7) is None
    assert 8 not in table.processes
    assert [table.read() for _ in range(SCAN_EVERY - 1)][-1]
    assert 8 in table.processes


def test_a_process_that_becomes_another_program_is_asked_again(tmp_path: Path, table: ProcessTable):
    write_process(tmp_path, 7, ["bash"], comm="bash")
    table.read()
    write_process(tmp_path, 7, ["python", "late.py"], comm="python")
    table.read([7])
    assert table.processes[7].command == ("python", "late.py")


def test_one_that_nobody_wants_is_looked_at_now_and_then(tmp_path: Path, table: ProcessTable):
    write_process(tmp_path, 7, ["bash"], comm="bash")
    scan(table)
    write_process(tmp_path, 7, ["python", "late.py"], comm="python")
    for _ in range(SHARES):
        scan(table)
    assert table.processes[7].command == ("python", "late.py")


def test_a_scan_reads_a_share_of_those_that_nobody_wants(tmp_path: Path, table: ProcessTable, clock: Clock):
    for pid in range(100, 200):
        write_process(tmp_path, pid, ["python"])
    for _ in range(3):
        scan(table)
    clock.now_s += 5
    before = {pid: table.load(pid) for pid in range(100, 200)}
    table.read()
    table.read()
    read = [pid for pid in before if table.load(pid) is not before[pid]]
    assert len(read) == len(before) / SHARES


def test_one_that_was_very_young_is_read_once_more(tmp_path: Path, table: ProcessTable):
    for command in ("bash", "python", "renamed"):
        write_process(tmp_path, 7, [command])
        table.read([7])
    assert table.processes[7].command == ("python",)


def test_kernel_threads_and_zombies_are_left_out(tmp_path: Path, table: ProcessTable):
    write_tree(tmp_path / "2", {"stat": stat_line(2, "kthreadd", 0)})
    write_tree(tmp_path / "40", {"stat": stat_line(40, "kworker/0:1", 2)})
    write_tree(tmp_path / "41", {"stat": stat_line(41, "python", 1, state="Z")})
    write_tree(tmp_path / "42", {"stat": "torn"})
    table.read()
    assert dict(table.processes) == {}


def test_torch_is_looked_for_at_some_ages_only(tmp_path: Path, table: ProcessTable, clock: Clock):
    write_process(tmp_path, 7, ["python"])
    scan(table)
    assert table.processes[7].torch is None
    clock.now_s += 3
    write_tree(tmp_path / "7", {"maps": "7f00 r-xp 00 08:01 1 /env/torch/lib/libtorch_cpu.so\n"})
    scan(table)
    assert table.processes[7].torch is True


def test_this_box_has_this_process_and_its_child():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        table = ProcessTable()
        assert table.read()
        mine, its = table.processes[os.getpid()], table.processes[child.pid]
        assert its.parent == mine.pid
        assert its.command[1:] == ("-c", "input()")
        assert time.time() - 60 < (its.started_s or 0) <= time.time() + 1
        assert its.user == mine.user
        assert table.load(child.pid) is not None
    finally:
        child.communicate(b"\n")
    table.read([child.pid])
    assert table.load(child.pid) is None

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.procfs import stat_line, write_process, write_tree
from tuner_tui.core.procfs import (
    PAGE_BYTES,
    TICKS_PER_S,
    ProcessId,
    all_processes,
    descendants_in,
    identify_process,
    is_alive,
    list_pids,
    read_command_line,
    read_proc_text,
    read_stat,
)


def test_a_stat_line_is_read_whatever_the_process_is_called(tmp_path: Path):
    line = stat_line(7, "a) S 1 (b", ppid=3, ticks=2 * TICKS_PER_S, started=55, pages=4)
    write_tree(tmp_path, {"7/stat": line})
    stat = read_stat(7, tmp_path)
    assert stat is not None
    assert (stat.pid, stat.comm, stat.state, stat.parent) == (7, "a) S 1 (b", "S", 3)
    assert (stat.cpu_s, stat.start_ticks, stat.rss_bytes) == (2.0, 55, 4 * PAGE_BYTES)
    assert stat.is_running


def test_a_torn_or_missing_entry_is_none_and_a_zombie_has_ended(tmp_path: Path):
    write_tree(tmp_path, {"7/stat": "7 (python) S 1", "8/stat": stat_line(8, "python", 1, state="Z"), "self/stat": ""})
    assert read_stat(7, tmp_path) is None
    assert read_stat(9, tmp_path) is None
    zombie = read_stat(8, tmp_path)
    assert zombie is not None
    assert not zombie.is_running
    assert sorted(list_pids(tmp_path)) == [7, 8]


def test_a_command_line_keeps_empty_arguments_but_those_at_its_end(tmp_path: Path):
    write_process(tmp_path, 7, ["python", "", "train.py"])
    assert read_command_line(7, tmp_path) == ("python", "", "train.py")
    assert read_command_line(8, tmp_path) == ()
    assert read_proc_text(tmp_path / "none") == ""


def test_this_process_and_its_child_are_found():
    identity = identify_process(os.getpid())
    assert identity is not None
    assert is_alive(identity)
    assert not is_alive(ProcessId(identity.pid, identity.start_ticks + 1))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        assert child.pid in [stat.pid for stat in descendants_in(all_processes(), [os.getpid()])]
        child.kill()
    assert not is_alive(ProcessId(child.pid, 0))


def test_the_number_of_no_group_ends_nobody():
    """The kernel takes 0 for the group of the caller, here that of a process in a session of its own."""
    script = "from tuner_tui.core.procfs import end_group\nend_group(0)\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, start_new_session=True)
    assert done.stdout == "alive\n"

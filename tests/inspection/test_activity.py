"""What a thread does, by the examples of the table and by the state of its process."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.inspection.hang import TABLE, find_activity
from tuner_tui.inspection.process_dump import ProcessDump, StackFrame, ThreadStack

ENTRIES = read_data_file(TABLE)
KEYS = {"activity", "phrase", "file", "function", "source", "kernel", "within", "example", "counter_example"}


def process(*calls: str, state: str = "S", cpu_share: float = 0.0) -> ProcessDump:
    """A process with calls written as `function file`, the innermost first."""
    frames = tuple(StackFrame(call.partition(" ")[2], 7, call.partition(" ")[0]) for call in calls)
    return ProcessDump(1, 0, "python", state, cpu_share, (ThreadStack(frames),) if frames else ())


def activity(*calls: str, line: str = "", **state: Any) -> str:
    return find_activity(process(*calls, **state), lambda frame: line).name


def at_kernel(name: str, **state: Any) -> str:
    return find_activity(replace(process("f /home/u/a.py", **state), kernel_wait=name), lambda frame: "").name


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["activity"])
def test_examples_of_the_table(entry: dict[str, Any]) -> None:
    assert set(entry) <= KEYS
    if "kernel" in entry:
        assert {at_kernel(name) for name in entry["example"]} == {entry["activity"]}
        assert entry["activity"] not in {at_kernel(name) for name in entry["counter_example"]}
        return
    if "source" not in entry:
        assert activity(*entry["example"]) == entry["activity"]
    assert activity(*entry["counter_example"]) != entry["activity"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("    with self._lock:", "lock"),
        ("    self.sem.acquire()", "lock"),
        ("    fcntl.flock(file, fcntl.LOCK_EX)", "lock"),
        ("    with open(path) as blocks:", "other"),
        ("    time.sleep(5)", "other"),
    ],
)
def test_a_lock_written_in_c_is_known_by_the_source(line: str, name: str) -> None:
    assert activity("step /home/u/train.py", line=line) == name


def test_the_line_counts_only_where_the_thread_is_at_it() -> None:
    assert (
        activity("forward /v/site-packages/torch/nn/modules/linear.py", "f /home/u/a.py", line="with lock:") == "other"
    )


def test_what_the_kernel_says() -> None:
    assert activity("read /home/u/data.py", state="D") == "storage"
    assert activity("forward /home/u/model.py", cpu_share=0.9) == "computing"
    assert activity("wait /usr/lib/python3.11/threading.py", "f /home/u/a.py", cpu_share=0.9) == "computing"
    assert activity("forward /home/u/model.py", cpu_share=0.2) == "other"
    assert at_kernel("hrtimer_nanosleep", cpu_share=0.9) == "computing"


def test_a_loader_worker_does_what_the_loader_calls() -> None:
    above = ("fetch /v/site-packages/torch/utils/data/_utils/fetch.py",)
    below = ("_worker_loop /v/site-packages/torch/utils/data/_utils/worker.py", "evaluate /home/u/train.py")
    assert activity("get /usr/lib/python3.11/multiprocessing/queues.py", *below) == "idle"
    worker = find_activity(process("__getitem__ /home/u/data.py", *above, *below), lambda frame: "")
    assert (worker.name, str(worker)) == ("other", "waits in __getitem__ (/home/u/data.py:7)")

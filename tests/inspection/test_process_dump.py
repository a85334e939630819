"""The two texts that a process writes when it is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuner_tui.inspection.process_dump import RecordedCollective, StackFrame, parse_collectives, parse_stacks

STACKS = """\
Thread 0x00007f19ab6546c0 (most recent call first):
  File "/v/lib/python3.11/threading.py", line 331 in wait
  ...
Thread 0x00007f19ab0000c0 [recorder] (most recent call first):
  File "/t/site/_tuner_observer/inspection.py", line 99 in _answer_requests

Current thread 0x00007f19d6854b80 (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134 in forward
  File "/home/a "quoted" name/model.py", line 12 in forward
  File "<frozen runpy>", line ??? in _run_code
Extension modules: numpy.core._multiarray_umath (total: 1)
"""


def answer(**changes: Any) -> dict[str, Any]:
    entry = {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 9,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[3]],
        "input_dtypes": ["Float"],
        "time_created_ns": 5_000_000_000,
        "retired": False,
        "state": "scheduled",
        "is_p2p": False,
        **changes,
    }
    return {"rank": 1, "world_size": 2, "record": {"entries": [entry], "pg_config": {"0": {"ranks": "[0, 1]"}}}}


def test_the_main_thread_comes_first_and_the_observer_is_left_out() -> None:
    main, second = parse_stacks(STACKS)
    assert main.frames[1] == StackFrame('/home/a "quoted" name/model.py', 12, "forward")
    assert main.frames[2].line is None
    assert main.own_frame == main.frames[1]
    assert second.frames == (StackFrame("/v/lib/python3.11/threading.py", 331, "wait"),)
    assert second.own_frame is None


@pytest.mark.parametrize(
    ("file", "is_library"),
    [
        ("/home/ann/src/lib/train.py", False),
        ("D:\\rims\\lib\\train.py", False),
        ("D:\\anaconda3\\lib\\runpy.py", True),
        ("C:\\Python310\\Lib\\runpy.py", True),
        ("/usr/lib/python3.11/runpy.py", True),
    ],
)
def test_a_folder_lib_is_that_of_python_below_a_python_alone(file: str, is_library: bool) -> None:
    assert StackFrame(file, 7, "run").is_library == is_library


@pytest.mark.parametrize("text", ["", "Thread 0x1 (most", "  File", STACKS[:60], "\0\0\0"])
def test_a_torn_text_gives_what_is_whole(text: str) -> None:
    assert all(stack.frames for stack in parse_stacks(text))


def test_a_pending_collective() -> None:
    record = parse_collectives(json.dumps(answer()))
    assert record is not None
    assert record.pending() == RecordedCollective("0", 9, "all_reduce", "[[3]]", "Float", 5.0, done=False)
    assert (record.rank, record.world_size, record.groups) == (1, 2, {"0": (0, 1)})
    assert record.entry("0", 8) is None


@pytest.mark.parametrize("changes", [{"retired": True}, {"state": "completed"}, {"is_p2p": True}])
def test_nothing_pends_that_ended_or_is_between_two_ranks(changes: dict[str, Any]) -> None:
    record = parse_collectives(json.dumps(answer(**changes)))
    assert record is not None
    assert record.pending() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"rank": 0, "world_size": 2, "record": null}', '{"rank": 0, "record": {}}']
)
def test_without_a_whole_record(text: str) -> None:
    assert parse_collectives(text) is None


@pytest.mark.parametrize("name", ["collective_seq_id", "process_group", "time_created_ns", "profiling_name"])
def test_a_record_of_another_form_is_none(name: str) -> None:
    whole = answer()
    del whole["record"]["entries"][0][name]
    assert parse_collectives(json.dumps(whole)) is None

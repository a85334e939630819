"""How a process ends: out of memory, its exit code, and what is written of a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import observe
from tuner_tui.observer.site._tuner_observer.process_exit import is_out_of_memory, redact
from tuner_tui.runs.events.types import Ended


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("AcceleratorError", "CUDA error: out of memory", True),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("MemoryError", "", True),
        ("_ArrayMemoryError", "Unable to allocate 1.00 TiB for an array", True),
        ("OutOfResources", "out of resource: shared memory, Required: 147456", False),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate more than 1EB memory.", False),
        ("RuntimeError", "DataLoader worker is killed by signal: Bus error. out of shared memory", False),
        ("ValueError", "bad shape", False),
    ],
)
def test_what_counts_as_out_of_memory(kind: str, message: str, expected: bool) -> None:
    assert is_out_of_memory(kind, message) is expected


@pytest.mark.train
@pytest.mark.parametrize(
    ("code", "expected"),
    [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no data')", 1), ("raise SystemExit", None), ("pass", None)],
)
def test_the_code_given_to_sys_exit(tmp_path: Path, code: str, expected: int | None) -> None:
    run = observe(tmp_path, "-c", f"import sys, torch\n{code}")
    assert [event.exit_code for event in run.of(Ended)] == [expected]


def test_a_message_is_written_without_colours_and_secrets() -> None:
    """torch.load emphasises a part of its message; a token may be anywhere."""
    assert redact("two options, \x1b[1mdo those steps only if\x1b[0m you trust it") == (
        "two options, do those steps only if you trust it"
    )
    assert "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH" not in redact("bad token hf_abcdefghijklmnopqrstuvwxyzABCDEFGH")

"""Questions about a job that `tuner_tui/memory` and `tuner_tui/advice` ask of the interpreter that trains.

A probe reads JSON from stdin and writes one line of JSON to stdout, after `MARK`: libraries print there, too. The exit
code is 2 for an answer of `{"problem": sentence}`, else 0.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

MARK = "tuner-tui-trace "
IMPORTED_MODULES = ("torch", "transformers.trainer", "datasets")
STATUS_FILE = Path("/proc/self/status")


def answer_question(probe: Callable[[], dict[str, Any]]) -> int:
    """Print the answer of `probe`. Returns the exit code."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    answer = probe()
    sys.stdout.write("\n" + MARK + json.dumps(answer) + "\n")
    return 2 if "problem" in answer else 0


def trace_memory() -> dict[str, Any]:
    """The memory of training steps on fake tensors."""
    from .memory_tracer.tracer import answer_request

    return answer_request(json.load(sys.stdin))


def measure_data() -> dict[str, Any]:
    """How long the samples of a data set are."""
    from .data.length_probe import answer_request

    return answer_request(json.load(sys.stdin))


def measure_import_footprint() -> dict[str, Any]:
    """The memory of a job's Python after what every job imports, before a model exists: resident and private bytes."""
    try:
        for name in IMPORTED_MODULES:
            import_module(name)
        status = STATUS_FILE.read_text("ascii", "replace")
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        sizes = {name: int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmData")}
    except (ImportError, OSError, KeyError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    return {"resident_bytes": sizes["VmRSS"], "private_bytes": sizes["VmData"]}


PROBES = {
    "trace-memory": trace_memory,
    "started-memory": measure_import_footprint,
    "measure-data": measure_data,
}
"""Probes by the argument that stands in place of a configuration file."""

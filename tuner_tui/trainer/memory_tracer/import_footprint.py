"""Reports the memory of a job's Python after its imports, before a model exists, as one marked line of JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from .tracer import MARK

IMPORTED_MODULES = ("torch", "transformers.trainer", "datasets")
STATUS_FILE = Path("/proc/self/status")


def main() -> int:
    """Import what every job imports and print the memory. Returns 0, or 2 with `{"problem": sentence}`."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        for name in IMPORTED_MODULES:
            import_module(name)
        answer: dict[str, int | str] = parse_status(STATUS_FILE.read_text("ascii", "replace"))
    except (ImportError, OSError, KeyError) as error:
        answer = {"problem": f"{type(error).__name__}: {error}"}
    sys.stdout.write("\n" + MARK + json.dumps(answer) + "\n")
    return 2 if "problem" in answer else 0


def parse_status(status: str) -> dict[str, int | str]:
    """Resident and private memory in bytes from `/proc/self/status`. Raises `KeyError`."""
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "resident_bytes": int(lines["VmRSS"].split()[0]) * 1024,
        "private_bytes": int(lines["VmData"].split()[0]) * 1024,
    }

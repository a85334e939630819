"""Memory of the interpreter after its imports, before a model is built: measured once and cached on disk."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tuner_tui.core.probe_cache import write_atomically
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.memory.device import ImportFootprint
from tuner_tui.memory.trace import TraceError, ask_trainer

VERB = "started-memory"
TIMEOUT_S = 120.0
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
"""What besides packages and cores decides how much is reserved."""


def import_footprint(interpreter: Interpreter, cores: int, cache_folder: Path | None = None) -> ImportFootprint | None:
    """The figures of `interpreter` on `cores` cores; None where it cannot say. Seconds the first time."""
    known = cached_import_footprint(interpreter, cores, cache_folder)
    if known is not None:
        return known
    try:
        answer = ask_trainer(Path(interpreter.path), {}, TIMEOUT_S, VERB)
        found = ImportFootprint(int(answer["resident_bytes"]), int(answer["private_bytes"]))
    except (TraceError, KeyError, ValueError):
        return None
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomically(_entry(interpreter, cores, cache_folder), json.dumps(answer))
    return found


def cached_import_footprint(
    interpreter: Interpreter, cores: int, cache_folder: Path | None = None
) -> ImportFootprint | None:
    """The figures that are remembered; None where there are none. Reads one small file."""
    try:
        answer = json.loads(_entry(interpreter, cores, cache_folder).read_text("utf-8"))
        return ImportFootprint(int(answer["resident_bytes"]), int(answer["private_bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _entry(interpreter: Interpreter, cores: int, folder: Path | None) -> Path:
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("tuner-tui") / "started"
    threads = [os.environ.get(name) for name in THREADS]
    key = json.dumps([interpreter.path, dict(interpreter.packages), cores, threads], sort_keys=True)
    return folder / f"{sha256(key.encode()).hexdigest()[:24]}.json"

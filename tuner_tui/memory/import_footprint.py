"""Memory of the interpreter after its imports, before a model is built: measured once and cached.

Under a memory limit this is a large part: libraries reserve a gigabyte and more, depending on the number of cores.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuner_tui.hardware.interpreter.probe import Interpreter, ProbeCacheEntry, probe_cache_entry
from tuner_tui.memory.device import ImportFootprint
from tuner_tui.memory.trace import TraceError, ask_trainer

VERB = "started-memory"
TIMEOUT_S = 120.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
"""Variables that, like the packages and the number of cores, decide how much is reserved."""


def import_footprint(interpreter: Interpreter, cores: int, cache_folder: Path | None = None) -> ImportFootprint | None:
    """The footprint of `interpreter` on `cores` cores, within seconds the first time; None where it cannot be had."""
    known = cached_import_footprint(interpreter, cores, cache_folder)
    if known is not None:
        return known
    try:
        answer = ask_trainer(Path(interpreter.path), {}, TIMEOUT_S, VERB)
        found = ImportFootprint(int(answer["resident_bytes"]), int(answer["private_bytes"]))
    except (TraceError, KeyError, ValueError):
        return None
    _cache_entry(interpreter, cores, cache_folder).write(answer)
    return found


def cached_import_footprint(
    interpreter: Interpreter, cores: int, cache_folder: Path | None = None
) -> ImportFootprint | None:
    """The footprint from the cache; None where it is not there. Reads one small file."""
    answer = _cache_entry(interpreter, cores, cache_folder).read()
    try:
        return None if answer is None else ImportFootprint(int(answer["resident_bytes"]), int(answer["private_bytes"]))
    except (ValueError, KeyError, TypeError):
        return None


def _cache_entry(interpreter: Interpreter, cores: int, folder: Path | None) -> ProbeCacheEntry:
    threads = [os.environ.get(name) for name in THREAD_VARIABLES]
    return probe_cache_entry("started", [interpreter.path, dict(interpreter.packages), cores, threads], folder)

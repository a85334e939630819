"""Starts a module of this package as a process that outlives its starter, whatever started it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tuner_tui.core.files import open_to_append
from tuner_tui.runs.supervise.run_processes import RUN_VARIABLE

SUPERVISOR_MODULE = "tuner_tui.runs.supervise.supervisor"
FALLBACK_MODULE = "tuner_tui.tuning.fallback"
"""Started by its name, since its package is above this one."""


def open_detached(
    module: str,
    arguments: Sequence[str],
    log: Path,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments` in a session of its own, with its standard error in `log`. Raises `OSError`.

    The module forks once more after it has imported what it needs: init adopts the second process, so that the starter
    waits for a moment only and leaves no zombie.
    """
    descriptor = open_to_append(log)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd="/",
            # A detached process that is started from inside a training belongs to another run, or to none.
            env={name: value for name, value in os.environ.items() if name != RUN_VARIABLE},
            stdin=stdin,
            stdout=stdout,
            stderr=descriptor,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    finally:
        os.close(descriptor)

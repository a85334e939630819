"""Starts the real command line against a state directory of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def start_tuner(state_dir: Path, *words: str | bytes, **environment: str) -> subprocess.Popen[str]:
    """Start a command in the parent of `state_dir`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuner_tui", *words],
        env={**os.environ, "TUNER_STATE_DIR": str(state_dir), **environment},
        cwd=state_dir.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tuner(
    state_dir: Path, *words: str | bytes, timeout_s: float = 300.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that waits for ever fails."""
    with start_tuner(state_dir, *words, **environment) as command:
        try:
            out, err = command.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            command.kill()
            raise
    return subprocess.CompletedProcess(words, command.returncode, out, err)

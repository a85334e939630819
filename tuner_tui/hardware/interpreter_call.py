"""Asks a Python a question in a subprocess, and turns every way that can fail into a sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

PROBE = Path(__file__).with_name("interpreter_probe.py")
MARK = "tuner-tui-interpreter "


def ask(path: Path, stages: tuple[str, ...], timeout_s: float) -> tuple[dict[str, Any], str | None]:
    """What the interpreter said in all `stages` together, and the sentence of what went wrong, if anything did.

    The stages that were answered before it failed count: an interpreter that dies while importing transformers has told
    its versions.
    """
    output, problem = run(path, stages, timeout_s)
    answer: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            answer.update(json.loads(line.removeprefix(MARK)))
    if problem is None and not answer:
        problem = f"{path} gave no answer: it does not seem to be a Python 3.8 or newer."
    return answer, problem


def run(path: Path, stages: tuple[str, ...], timeout_s: float) -> tuple[str, str | None]:
    """The probe's output, and the sentence of why there is no more of it."""
    try:
        # A session of its own, so that on a timeout what the interpreter itself started ends with it.
        process = subprocess.Popen(
            [str(path), "-", *stages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return "", start_sentence(path, error)
    try:
        output, _ = process.communicate(PROBE.read_text(encoding="utf-8"), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return output, f"{path} did not answer within {timeout_s:.0f} s and was stopped; is its disk slow?"
    return output, end_sentence(path, process.returncode)


def start_sentence(path: Path, error: OSError) -> str:
    """Why the interpreter could not be started."""
    if isinstance(error, FileNotFoundError):
        return f"There is no Python at {path}: choose another interpreter."
    if isinstance(error, PermissionError):
        return f"{path} may not be executed by this user."
    return f"{path} is not a program this machine can run ({error.strerror})."


def end_sentence(path: Path, code: int) -> str | None:
    """Why the interpreter stopped early; None when it did not."""
    if code == 0:
        return None
    if code < 0:
        return f"{path} was ended by {signal.Signals(-code).name} while it was asked for its packages."
    return f"{path} stopped with exit code {code} when asked for its packages: is it a Python 3.8 or newer?"

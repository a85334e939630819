"""Starting a detached process that receives its input, secrets included, on standard input."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from tuner_tui.core.locks import LockedError
from tuner_tui.runs.launch.command import LaunchError

START_TIMEOUT_S = 20.0

Ready = TypeVar("Ready")


def start_detached(module: str, folder: Path, orders: bytes, log: Path, name: str) -> None:
    """Start `python -m module folder` and hand it `orders`; returns once it says that it is at its post.

    Raises `LaunchError` with its sentence, after `name`, where it does not come up.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(folder)],
            cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=descriptor, start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(descriptor)
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(orders)
            child.stdin.close()
        except BrokenPipeError:  # it died early, and says nothing
            pass
        came = select.select([child.stdout], [], [], START_TIMEOUT_S)[0]
        answer = os.read(child.stdout.fileno(), 4096).decode("utf-8", "replace") if came else ""
    if answer != "ok":
        raise LaunchError(f"{name} did not come up: {answer or f'see {log}'}.")


def detach(ready: Callable[[bytes], Ready]) -> Ready:
    """In the new process: read the orders, leave the one who asked behind, and say whether `ready` could be.

    `ready` makes of the orders what it needs, its lock among it; where it raises `ValueError`, `OSError` or
    `LockedError`, that is said and the process ends.
    """
    data = sys.stdin.buffer.read()
    if os.fork():
        os._exit(0)  # the one who asked waits for this process only
    try:
        made = ready(data)
    except (ValueError, OSError, LockedError) as error:
        _refuse(str(error) or type(error).__name__)
    os.write(1, b"ok")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return made


def _refuse(sentence: str) -> NoReturn:
    os.write(1, sentence.encode())
    sys.exit(1)

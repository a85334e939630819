"""Helper programs such as ssh, git and squeue: they have a time limit and bounded output, and end with this process.

Each runs below small processes of its own, `child_guard`, which end it together with all that it has started: also what
left its session, and also when this process is killed.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from tuner_tui.core.procfs import all_processes, descendants_in, end_group, send_signal

GUARD = str(Path(__file__).with_name("child_guard.py"))
START_S = 10.0
"""For the start of the guard, which takes hundredths of a second on an idle machine."""
END_S = 7.0
"""For the guard to end what is below it, a little more than its own patience."""
MAX_OUTPUT_BYTES = 4 << 20


class EndlessOutputError(OSError):
    """A program printed more than it may."""


class ChildProcess:
    """A running helper. Its output, and its error output unless that is apart, is read by `read`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stderr: int = subprocess.STDOUT,
    ) -> None:
        """Start it; `env` and `cwd` None: those of this process. Raises `OSError`."""
        reading, self._lifeline = os.pipe()
        status, writing = os.pipe()
        try:
            # The input is a file, not a pipe: a program that never reads it cannot block this process.
            with TemporaryFile() as file:
                file.write(stdin)
                file.seek(0)
                self._guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", GUARD, str(reading), str(writing), *command],
                    stdin=file if stdin else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    start_new_session=True,  # it has no terminal to ask on, and Ctrl-C does not reach it
                    pass_fds=(reading, writing),
                    bufsize=0,
                )
        except BaseException:
            os.close(self._lifeline)
            os.close(status)
            raise
        finally:
            os.close(reading)
            os.close(writing)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(status, selectors.EVENT_READ)
                number = os.read(status, 16) if selector.select(START_S) else b""
            if number:
                raise OSError(int(number), os.strerror(int(number)), command[0])
        except BaseException:  # KeyboardInterrupt too
            self.close()
            raise
        finally:
            os.close(status)

    @property
    def output(self) -> IO[bytes]:
        assert self._guard.stdout is not None
        return self._guard.stdout

    @property
    def error_output(self) -> IO[bytes] | None:
        """Apart from the output if it was started with `stderr=subprocess.PIPE`."""
        return self._guard.stderr

    def read(self, timeout_s: float) -> bytes | None:
        """The next bytes; empty at the end, None if there are none within `timeout_s`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            ready = selector.select(max(0.0, timeout_s))
        return os.read(self.output.fileno(), 1 << 16) if ready else None

    def terminate(self) -> None:
        """Let it be ended, without waiting for it; any thread may do so."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def close(self) -> int:
        """End it with all its descendants; return its exit code, or minus the number of a signal."""
        self.terminate()
        self._guard.send_signal(signal.SIGCONT)  # the command may have stopped it
        try:
            self._guard.wait(END_S)
        except subprocess.TimeoutExpired:
            self._kill()
        if self._guard.returncode == -signal.SIGKILL:  # the guard itself may have been killed
            end_group(self._guard.pid)
        self.output.close()
        if self.error_output is not None:
            self.error_output.close()
        return self._guard.returncode

    def _kill(self) -> None:
        """End a guard that does not do so itself, as it was stopped again."""
        for process in descendants_in(all_processes(), [self._guard.pid]):
            send_signal(process, signal.SIGKILL)
        end_group(self._guard.pid)
        self._guard.kill()
        self._guard.wait()


class CommandResult(Struct, frozen=True):
    """What a helper printed, and its exit code, or minus the number of the signal that ended it."""

    output: bytes
    errors: bytes
    exit_code: int


def run_command(
    command: Sequence[str],
    timeout_s: float,
    *,
    silent_s: float | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> CommandResult:
    """Run a helper to its end.

    Raises `OSError` if it cannot be started, `EndlessOutputError` if it prints more than `max_bytes`, and
    `subprocess.TimeoutExpired` with the output so far after `timeout_s` seconds, or after `silent_s` without any.
    """
    started_s = time.monotonic()
    child = ChildProcess(command, stdin=stdin, env=env, cwd=cwd, stderr=subprocess.PIPE)
    output, errors = bytearray(), bytearray()
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.output, selectors.EVENT_READ, output)
            assert child.error_output is not None
            selector.register(child.error_output, selectors.EVENT_READ, errors)
            while selector.get_map():
                limit_s = timeout_s if output or silent_s is None else min(silent_s, timeout_s)
                ready = selector.select(max(0.0, started_s + limit_s - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(list(command), limit_s, bytes(output), bytes(errors))
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fileobj)
                if len(output) + len(errors) > max_bytes:
                    raise EndlessOutputError(f"{command[0]} wrote more than {max_bytes >> 20} MiB.")
    except BaseException:  # KeyboardInterrupt too
        child.close()
        raise
    # Both are closed when the guard has ended, which it does after the command.
    return CommandResult(bytes(output), bytes(errors), child.close())

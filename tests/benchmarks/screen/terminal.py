"""A program in a pseudo terminal: its output, the times of its frames, and its cost."""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

TICKS_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Cost:
    """Cost of a program over some seconds: bytes written to its terminal, CPU time, memory at the end."""

    seconds: float
    written_bytes: int
    cpu_s: float
    rss_bytes: int

    @property
    def bytes_s(self) -> float:
        return self.written_bytes / self.seconds

    @property
    def cpu_pct(self) -> float:
        return 100 * self.cpu_s / self.seconds


class Terminal:
    """`command` on a terminal of `columns` × `rows` cells."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, columns: int = 120, rows: int = 40
    ) -> None:
        self.started_s = time.perf_counter()
        # A signal that comes before exec must end the child, not run on as a second copy of this process.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.chdir(cwd)
            os.execvpe(command[0], list(command), dict(environment))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.resize(columns, rows)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)
        self.ended = False

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the program by closing the terminal, and by SIGKILL if that is not enough."""
        os.kill(self.pid, signal.SIGHUP)
        deadline = time.perf_counter() + 3
        while time.perf_counter() < deadline and os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            self.read(0.05)
        else:
            if time.perf_counter() >= deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        self._selector.close()
        os.close(self._fd)

    def read(self, timeout_s: float) -> bytes:
        """Output so far, after waiting at most `timeout_s` for the first byte; empty after the program has ended."""
        if self.ended or not self._selector.select(timeout_s):
            return b""
        try:
            data = os.read(self._fd, READ_BYTES)
        except OSError:
            data = b""
        self.ended = not data
        return data

    def resize(self, columns: int, rows: int) -> None:
        """Change its size, of which the program is informed by SIGWINCH."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        """Type `keys`, unless the program has ended."""
        if keys and not self.ended:
            os.write(self._fd, keys)

    def watch(self, seconds: float) -> Cost:
        """Read for `seconds` and return their cost."""
        start, cpu_before, written = time.perf_counter(), self.cpu_s(), 0
        while (left := start + seconds - time.perf_counter()) > 0 and not self.ended:
            written += len(self.read(left))
        if self.ended:
            raise SystemExit("the program ended by itself: run it by hand to see why")
        return Cost(time.perf_counter() - start, written, self.cpu_s() - cpu_before, self.rss_bytes())

    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_S

    def rss_bytes(self) -> int:
        """Its resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

"""The event log of one process: appends JSON lines to the run folder once the process proves to be a training."""

from __future__ import annotations

import json
import math
import os
import sys
import time

from . import process_role

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without torch should not import `typing`
    from collections.abc import Callable
    from typing import Any


EVENT_VERSION = 1
STORY = '"story":1,'


def json_safe(value: Any) -> Any:
    """Replace numbers that JSON lacks by their names: `nan`, `inf` or `-inf`."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): json_safe(each) for name, each in value.items()}
    return value


def json_variable(name: str) -> dict[str, Any] | None:
    """The JSON object in an environment variable; None if there is none."""
    try:
        value = json.loads(os.environ.get(name) or "null")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class LogFile:
    """A file of the run folder, created by the first write. I/O errors are ignored: they must not end a training."""

    def __init__(self, run_dir: str, name: str) -> None:
        self._path = os.path.join(run_dir, name)
        self._fd: int | None = None

    def append(self, text: bytes, max_bytes: float = math.inf) -> int:
        """Return how many bytes were written. A file that would be longer than `max_bytes` is kept as `.old`."""
        try:
            if os.fstat(self._open()).st_size + len(text) > max_bytes:
                self.close()
                os.replace(self._path, self._path + ".old")
            return os.write(self._open(), text)
        except OSError:
            return 0

    def _open(self) -> int:
        if self._fd is None:
            self._fd = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        return self._fd

    def close(self) -> None:
        """Close the file descriptor: it was inherited by a fork, or the file belongs to another process."""
        if self._fd is not None:
            try:  # noqa: SIM105 - contextlib would be imported for this
                os.close(self._fd)
            except OSError:
                pass
        self._fd = None


class EventWriter(LogFile):
    """The event file of one rank."""

    def __init__(self, run_dir: str, rank: int, separate: bool) -> None:
        """`separate`: give this rank a file of its own, as one of several."""
        super().__init__(run_dir, f"events-rank{rank}.jsonl" if separate else "events.jsonl")
        self.rank = rank
        self._broken_line = False

    def claim(self) -> bool:
        """Lock the file for the training of this process. False if another process, which is alive, trains in it."""
        import fcntl  # a process that does not train should not import it

        try:
            fcntl.flock(self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def write(self, kind: str, fields: dict[str, Any], story: bool) -> None:
        """Write an event. Readers keep a `story` in full; of cumulative counters they may skip all but the last."""
        head = f'{{{STORY if story else ""}"kind":"{kind}","v":{EVENT_VERSION},'
        present = {name: json_safe(value) for name, value in fields.items() if value is not None}
        body = json.dumps(dict(present, t=round(time.time(), 3), rank=self.rank), separators=(",", ":"), default=str)
        line = (head + body[1:] + "\n").encode("utf-8", "replace")
        if self._broken_line:
            line = b"\n" + line
        written = self.append(line)
        if written:
            self._broken_line = written < len(line)


MAX_INDEPENDENT = 256
"""Processes without ranks that train at the same time."""

PHASE_BURST = 32
"""Pauses written at once before they are limited to one a second (a loop may evaluate after every step)."""

PHASE_MIN_TOKENS = {"ending": -math.inf, "training": -math.inf, "saving": 1.0}
"""Tokens needed to write a phase: none for the end and for training, which takes the place of a pause that was written,
and saving may take the token that others must leave."""


class Session:
    """Writes the events of one process. `is_open` stays False in helper processes, which neither were launched nor
    train. `marks_output`: phases say how much output there is, to tell what is printed in them.
    `generates`: the evaluation that begins generates samples.
    """

    def __init__(self, run_dir: str, launched: bool) -> None:
        """`launched`: this is the launched process or a rank of it."""
        self.get_step: Callable[[], int | None] = lambda: None
        self.at_exit: Callable[[], None] = lambda: None
        self._start(run_dir, launched)

    def _start(self, run_dir: str, launched: bool) -> None:
        self.run_dir = run_dir
        self._output_log = os.path.join(run_dir, "output.log")
        self._prints: bool | None = None
        self.launched = launched
        self.is_open = False
        self.phase = "starting"
        self.failure: tuple[int, str] | None = None
        self._written_phase: str | None = None
        self._shown = True
        self._phase_tokens = float(PHASE_BURST)
        self._phase_refilled_at = time.monotonic()
        self._file: EventWriter | None = None
        self._logs: dict[str, LogFile] = {}
        self._claimed = False
        self.marks_output = self.generates = False
        self._output_ended: int | None = None

    def open(self) -> None:
        """Start the event file: when torch is imported in the launched process, else when training begins."""
        if self.is_open:
            return

        self.is_open = True
        rank, world_size = process_role.rank_and_world()
        self._claimed = world_size > 1 or "RANK" in os.environ
        self._file = EventWriter(self.run_dir, rank, separate=self._claimed)
        if self.launched or not self._claim():
            self._report_start(world_size)

    def start_training(self) -> None:
        """Open the session. A process without a rank gets one of its own if another one trains at the same time."""
        self.open()
        self._claim()

    def _claim(self) -> bool:
        """Claim an event file once. Returns whether it is that of another rank, where the start is reported."""
        if self._claimed or self._file is None:
            return False
        self._claimed = True
        file = self._file
        # Processes without ranks that train side by side (hogwild, two runs in one script) would overwrite each other's
        # counters: the lock of the file says which rank is taken. It ends with the process, however that ends.
        while not file.claim() and file.rank < MAX_INDEPENDENT:
            file.close()
            file = EventWriter(self.run_dir, file.rank + 1, separate=True)
        if file is self._file:
            return False
        self._file = file
        self._report_start(1, independent=True)
        return True

    def _report_start(self, world_size: int, independent: bool | None = None) -> None:
        self.report(
            "started",
            pid=os.getpid(),
            host=os.uname().nodename,
            world_size=world_size,
            independent=independent,
            python=".".join(str(part) for part in sys.version_info[:3]),
            torch=version_of("torch"),
            transformers=version_of("transformers"),
            device=_device(),
        )
        self._write_phase()
        # Children of `multiprocessing` skip `atexit` but run their own finalizers.
        util = sys.modules.get("multiprocessing.util")
        processes = sys.modules.get("multiprocessing.process")
        if util is not None and processes is not None and processes.parent_process() is not None:
            util.Finalize(None, self.at_exit, exitpriority=-100)

    @property
    def rank(self) -> int:
        """The rank whose event file is written, 0 before there is one."""
        return 0 if self._file is None else self._file.rank

    @property
    def step(self) -> int | None:
        """Step of the whole training, None before there are counters."""
        return self.get_step()

    def report(self, kind: str, **fields: Any) -> None:
        """Write a story event if the session is open."""
        if self._file is not None:
            self._file.write(kind, fields, story=True)

    def append(self, name: str, lines: list[str], max_bytes: float = math.inf) -> None:
        """Append lines to the file `name` of this rank; one of `max_bytes` is kept until the next one is full."""
        file = self._logs.setdefault(name, LogFile(self.run_dir, f"{name}-rank{self.rank}.jsonl"))
        file.append(("\n".join(lines) + "\n").encode(), max_bytes)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Replace the file `name` of the run folder, which only its user can read. Raises `OSError`."""
        path = os.path.join(self.run_dir, name)
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(content, file, separators=(",", ":"))
        os.replace(path + ".new", path)

    def report_counters(self, kind: str, fields: dict[str, Any]) -> None:
        """Write a frequent event if the session is open."""
        if self._file is not None:
            self._file.write(kind, fields, story=False)

    def enter_phase(self, phase: str, shown: bool = True) -> bool:
        """Change the phase of the training. Returns whether an event was written.

        One that is not to be `shown` is only noted, for an error that is raised in it.
        """
        if phase == self.phase:
            return False
        self.phase, self._shown = phase, shown
        return self.flush_phase()

    def show_phase(self) -> bool:
        """Write the phase after all: it has lasted. Returns whether an event was written."""
        self._shown = True
        return self.flush_phase()

    def flush_phase(self) -> bool:
        """Write the phase if it changed since the last `phase` event and the rate limit allows it."""
        if self.phase == self._written_phase or not self._shown:
            return False
        if self.take_token(PHASE_MIN_TOKENS.get(self.phase, 2.0)):
            self._write_phase()
            return True
        return False

    def take_token(self, least: float = 2.0) -> bool:
        """Whether an event may be written that some loops cause at every step: one a second, after a burst."""
        now = time.monotonic()
        # A token bucket, refilled by one a second: a loop that evaluates or saves after every step changes its phase
        # hundreds of times a second, and each change is a line in a file that is kept in full. Most phases leave the
        # last token to `saving`, during which a process is often killed; the end of the training needs none.
        refill = now - self._phase_refilled_at
        self._phase_refilled_at = now
        self._phase_tokens = min(float(PHASE_BURST), self._phase_tokens + refill)
        if self._phase_tokens >= least:
            self._phase_tokens -= least > 0
            return True
        return False

    def _write_phase(self) -> None:
        if self.is_open:
            size = self.output_size() if "evaluating" in (self.phase, self._written_phase) else None
            evaluates, marked = self.phase == "evaluating", size if self.marks_output else None
            output, until = (marked, None) if evaluates else (self._output_ended, size)
            self._written_phase = self.phase
            self._output_ended = size if evaluates and output is None else None
            more = {"generates": True} if evaluates and self.generates else {}
            self.report("phase", phase=self.phase, step=self.step, output=output, output_until=until, **more)

    def output_ended(self) -> None:
        """What is printed from here on belongs to the next phase, which may be known only later."""
        if self.marks_output:
            self.marks_output, self._output_ended = False, self.output_size()

    def output_size(self) -> int | None:
        """Bytes that the run has printed so far. Where this process prints them, its position costs a tenth."""
        try:
            if self._prints is None:
                self._prints = os.path.samestat(os.fstat(1), os.stat(self._output_log))
            return os.lseek(1, 0, os.SEEK_CUR) if self._prints else os.stat(self._output_log).st_size
        except OSError:
            return None

    def after_fork(self, launched: bool) -> None:
        """Reset in a forked child, which stays silent until it trains."""
        if self._file is not None:
            self._file.close()
        self._start(self.run_dir, launched)


def version_of(name: str) -> str | None:
    """The version of a library, None if it is not imported."""
    version = getattr(sys.modules.get(name), "__version__", None)
    return None if version is None else str(version)


def _device() -> str | None:
    """ "cuda" if CUDA is initialised, else None. Never initialises a device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return None if cuda is None else ("cuda" if cuda.is_initialized() else None)
    except (AttributeError, RuntimeError):
        return None

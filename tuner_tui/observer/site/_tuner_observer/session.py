"""The event log of one process: appends JSON lines to the run folder once the process proves to be a training."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from . import process_role

if TYPE_CHECKING:
    from collections.abc import Callable


EVENT_VERSION = 1


def json_safe(value: Any) -> Any:
    """JSON knows no NaN: a number that is not finite becomes its name, `nan`, `inf` or `-inf`."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): json_safe(each) for name, each in value.items()}
    return value


class EventWriter:
    """The file of one rank, opened at the first line. Errors are swallowed: a full disk must not hurt a training."""

    def __init__(self, run_dir: str, rank: int, separate: bool) -> None:
        """`separate`: one of several ranks, with a file of its own."""
        name = f"events-rank{rank}.jsonl" if separate else "events.jsonl"
        self.rank = rank
        self._path = os.path.join(run_dir, name)
        self._fd: int | None = None
        self._broken_line = False

    def story(self, kind: str, **fields: Any) -> None:
        """A rare event, kept for ever."""
        self._write(f'{{"story":1,"kind":"{kind}","v":{EVENT_VERSION},', fields)

    def frequent(self, kind: str, fields: dict[str, Any]) -> None:
        """Cumulative counters."""
        self._write(f'{{"kind":"{kind}","v":{EVENT_VERSION},', fields)

    def _write(self, head: str, fields: dict[str, Any]) -> None:
        known = {name: json_safe(value) for name, value in fields.items() if value is not None}
        body = json.dumps(dict(known, t=round(time.time(), 3), rank=self.rank), separators=(",", ":"), default=str)
        line = (head + body[1:] + "\n").encode("utf-8", "replace")
        if self._broken_line:
            line = b"\n" + line
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            written = os.write(self._fd, line)
        except OSError:
            return
        self._broken_line = written < len(line)

    def forget(self) -> None:
        """After a fork: the descriptor belongs to the parent's story."""
        if self._fd is not None:
            try:  # noqa: SIM105 - contextlib would be imported for this
                os.close(self._fd)
            except OSError:
                pass
        self._fd = None


PHASE_BURST = 6
"""Phase lines written at once before they are thinned out to one a second: a loop may evaluate after every step."""

PHASE_MIN_TOKENS = {"ending": -math.inf, "saving": 1.0}
"""Fewest tokens at which a phase is written: the end always, saving with the token that the others leave."""


class Session:
    """Writes the events of one process. `opened` is False in processes that neither were launched nor train."""

    def __init__(self, run_dir: str, launched: bool) -> None:
        """`launched`: this is the process that was launched, or a rank of it."""
        self._start(run_dir, launched)

    def _start(self, run_dir: str, launched: bool) -> None:
        self.run_dir = run_dir
        self.launched = launched
        self.opened = False
        self.phase = "starting"
        self.step_of: Callable[[], int | None] = _return_none
        self.failed_in: tuple[int, str] | None = None
        self.at_exit: Callable[[], None] = _return_none
        self._written_phase: str | None = None
        self._phase_tokens = float(PHASE_BURST)
        self._phase_refilled_at = time.monotonic()
        self._file: EventWriter | None = None

    def open(self) -> None:
        """Say that the observer is here: at torch's import in the launched process, else at the first training."""
        if self.opened:
            return

        self.opened = True
        rank, world_size = process_role.rank_and_world()
        separate = world_size > 1 or "RANK" in os.environ
        self._file = EventWriter(self.run_dir, rank, separate)
        self.tell(
            "started",
            pid=os.getpid(),
            world_size=world_size,
            python=".".join(str(part) for part in sys.version_info[:3]),
            torch=_version("torch"),
            transformers=_version("transformers"),
            device=_device(),
        )
        self._write_phase()
        self._end_with_multiprocessing()

    def _end_with_multiprocessing(self) -> None:
        """A child of `multiprocessing` leaves without `atexit`; it has a list of its own."""
        util = sys.modules.get("multiprocessing.util")
        processes = sys.modules.get("multiprocessing.process")
        if util is not None and processes is not None and processes.parent_process() is not None:
            util.Finalize(None, self.at_exit, exitpriority=-100)

    @property
    def step(self) -> int | None:
        """The step of the whole training; None before there are counters."""
        return self.step_of()

    def tell(self, kind: str, **fields: Any) -> None:
        """Write a story event, if this process has a story."""
        if self._file is not None:
            self._file.story(kind, **fields)

    def count(self, kind: str, fields: dict[str, Any]) -> None:
        """Write a frequent event, if this process has a story."""
        if self._file is not None:
            self._file.frequent(kind, fields)

    def enter(self, phase: str) -> bool:
        """The training is in this phase now. Returns whether that was written."""
        if phase == self.phase:
            return False
        self.phase = phase
        return self.settle_phase()

    def settle_phase(self) -> bool:
        """Write the phase if the last line says another one and there have not been too many of them lately."""
        if self.phase == self._written_phase:
            return False
        now = time.monotonic()
        refill = now - self._phase_refilled_at
        self._phase_refilled_at = now
        self._phase_tokens = min(float(PHASE_BURST), self._phase_tokens + refill)
        if self._phase_tokens >= PHASE_MIN_TOKENS.get(self.phase, 2.0):
            self._phase_tokens -= 1.0
            self._write_phase()
            return True
        return False

    def _write_phase(self) -> None:
        if self.opened:
            self._written_phase = self.phase
            self.tell("phase", phase=self.phase, step=self.step)

    def forked(self, launched: bool) -> None:
        """In a forked child: silent until it trains by itself."""
        if self._file is not None:
            self._file.forget()
        at_exit, step_of = self.at_exit, self.step_of
        self._start(self.run_dir, launched)
        self.at_exit, self.step_of = at_exit, step_of


def _return_none() -> None:
    return None


def _version(name: str) -> str | None:
    version = getattr(sys.modules.get(name), "__version__", None)
    return None if version is None else str(version)


def _device() -> str | None:
    """Where torch would train, without making it start a device: None while torch does not know yet."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return None if cuda is None else ("cuda" if cuda.is_initialized() else None)
    except (AttributeError, RuntimeError):
        return None

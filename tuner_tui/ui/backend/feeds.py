"""Daemon threads that sample the hardware, follow a run or poll anything else, and post messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from tuner_tui.ui.backend.interface import BackendError
from tuner_tui.ui.messages import (
    FindingsArrived,
    LogSearchWanted,
    LogWindowArrived,
    LogWindowWanted,
    RunViewArrived,
    SampleArrived,
    TroubleArrived,
)

if TYPE_CHECKING:
    from textual.message import Message

    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.ui.backend.interface import Backend, HardwareSampler


Post = Callable[["Message"], object]
PERIOD_S = 1.0
FIRST_LOG_LINES = 200


def seconds_to_tick(period_s: float, now_s: float) -> float:
    """Seconds from `now_s` to the next tick of a clock that all feeds go by: what they bring is drawn once, not twice.

    A tick that is all but there is left out, for a wait can end a little early.
    """
    left_s = period_s - now_s % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s


class SamplerFeed:
    """Samples the box once a second. `watched` are the pids of the training that is followed."""

    def __init__(self, open_sampler: Callable[[], HardwareSampler], post: Post, period_s: float = PERIOD_S) -> None:
        self._open_sampler = open_sampler
        self._post = post
        self._period_s = period_s
        self._end = Event()
        self.watched: tuple[int, ...] = ()

    def start(self) -> None:
        """Begin; the sampler is opened on the thread, for a driver may take seconds to answer."""
        Thread(target=self._work, name="tuner-sampler", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._end.set()

    def _work(self) -> None:
        try:
            sampler = self._open_sampler()
        except OSError as error:
            self._post(TroubleArrived(f"The hardware cannot be sampled: {error.strerror or error}."))
            return
        while not self._end.is_set():
            self._post(SampleArrived(sampler.sample(self.watched)))
            self._end.wait(seconds_to_tick(self._period_s, time.monotonic()))
        sampler.close()


@dataclass(frozen=True, slots=True)
class _Follow:
    folder: Path | None


class _Stop:
    """Ask the thread to end."""


class FollowerFeed:
    """Reads the followed run's folder and log once a second, and at once when something of the log is asked for."""

    def __init__(self, services: Backend, post: Post, period_s: float = PERIOD_S) -> None:
        self._services = services
        self._post = post
        self._period_s = period_s
        self._requests: SimpleQueue[_Follow | LogWindowWanted | LogSearchWanted | _Stop] = SimpleQueue()
        self._following: _FollowedRun | None = None
        self.inventory: Inventory | None = None

    def start(self) -> None:
        """Begin."""
        Thread(target=self._work, name="tuner-follower", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._requests.put(_Stop())

    def follow(self, folder: Path | None) -> None:
        """Follow the run in `folder` from now on."""
        self._requests.put(_Follow(folder))

    def ask(self, request: LogWindowWanted | LogSearchWanted) -> None:
        """Show another part of the log."""
        self._requests.put(request)

    def _work(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=self._pause_s())
            except Empty:
                request = None
            if isinstance(request, _Stop):
                return
            try:
                self._answer(request)
            except OSError as error:
                self._following = None
                self._post(TroubleArrived(f"The run cannot be read any more: {error.strerror or error}."))

    def _pause_s(self) -> float | None:
        return seconds_to_tick(self._period_s, time.monotonic()) if self._following else None

    def _answer(self, request: _Follow | LogWindowWanted | LogSearchWanted | None) -> None:
        if isinstance(request, _Follow):
            self._following = None if request.folder is None else self._open(request.folder)
        if self._following is None:
            return
        if request is not None and not isinstance(request, _Follow):
            self._following.ask(request)
        else:
            self._following.poll(self.inventory)

    def _open(self, folder: Path) -> _FollowedRun:
        return _FollowedRun(self._services, folder, self._post)


class _FollowedRun:
    """One run being followed: what was posted of it last, so that only news is posted."""

    def __init__(self, services: Backend, folder: Path, post: Post) -> None:
        self._run = services.follow(folder)
        self._log = services.open_log(folder)
        self._post = post
        self._diagnosis = services.diagnosis(folder)
        self._view: RunView | None = None
        self._shown = LogWindowWanted(None, FIRST_LOG_LINES)
        self._window: LogWindow | None = None
        self._findings: object = None

    def poll(self, inventory: Inventory | None) -> None:
        """Read what is new."""
        view = self._run.poll()
        if view != self._view:
            self._view = view
            self._post(RunViewArrived(view))
        self._show_log()
        findings = self._diagnosis(view, inventory)
        if findings != self._findings:
            self._findings = findings
            self._post(FindingsArrived(findings))

    def ask(self, request: LogWindowWanted | LogSearchWanted) -> None:
        """Show the part of the log asked for."""
        if isinstance(request, LogWindowWanted):
            self._shown = request
        else:
            self._search(request)
        self._show_log()

    def _search(self, request: LogSearchWanted) -> None:
        match = self._log.search(request.text, request.start, backwards=request.backwards)
        if match.anchor is not None:
            self._shown = LogWindowWanted(match.anchor, self._shown.count)
            return
        where = "above" if request.backwards else "below"
        far = "" if match.complete else " in the part that was searched"
        self._post(TroubleArrived(f"“{request.text}” is not in the output {where}{far}.", grave=False))

    def _show_log(self) -> None:
        window = self._read_log(self._shown)
        if window != self._window:
            self._window = window
            self._post(LogWindowArrived(window))

    def _read_log(self, shown: LogWindowWanted) -> LogWindow:
        if shown.anchor is None:
            return self._log.tail(shown.count)
        return (self._log.before if shown.before else self._log.window)(shown.anchor, shown.count)


T = TypeVar("T")


class PollingFeed(Generic[T]):
    """Posts what `look` finds, through `told`, whenever it differs from the last look.

    `opened` gives the look and is called on the thread; `over` says of a look that nothing can come after it. A plain
    daemon thread, as the other feeds are: where a file system hangs it stands still, and nothing else does.
    """

    def __init__(
        self,
        opened: Callable[[], Callable[[], T]],
        told: Callable[[T], object],
        post: Post,
        over: Callable[[T], bool] = lambda found: False,
        period_s: float = PERIOD_S,
    ) -> None:
        self._opened = opened
        self._told = told
        self._post = post
        self._over = over
        self._period_s = period_s
        self._end = Event()

    def start(self) -> None:
        """Begin."""
        Thread(target=self._work, name="tuner-look", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._end.set()

    def _work(self) -> None:
        try:
            self._follow(self._opened())
        except BackendError as error:
            self._post(TroubleArrived(str(error)))
        except OSError as error:
            self._post(TroubleArrived(f"It cannot be read any more: {error.strerror or error}."))

    def _follow(self, look: Callable[[], T]) -> None:
        last: T | None = None
        while not self._end.is_set():
            found = look()
            if found != last and not self._end.is_set():
                last = found
                self._told(found)
            if self._over(found):
                return
            self._end.wait(seconds_to_tick(self._period_s, time.monotonic()))

"""Daemon threads that poll the hardware, a run or anything else, and show what is new.

If a driver or a file system hangs, its feed stalls and nothing else does. The functions that show something are called
on the thread of the feed: the apps pass them on with `App.call_later`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Generic, TypeVar

from tuner_tui.core.daemon_thread import start_daemon_thread
from tuner_tui.ui.backend.records import BackendError
from tuner_tui.ui.messages import LogSearchWanted, LogWindowWanted

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

    from tuner_tui.advice.finding import Finding
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.hardware.sampler import Sampler
    from tuner_tui.runs.read.log_reader import LogReader, LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.ui.backend.facade import Backend
    from tuner_tui.ui.backend.records import EstimateRequest, FollowedRun, MemoryOutlook

T = TypeVar("T")
Note = Callable[[str, "SeverityLevel"], object]
"""Shows a sentence for the user."""
PERIOD_S = 1.0
ESTIMATE_IDLE_S = 1.5
"""Seconds without a new request before the refined estimate is computed."""
FIRST_LOG_LINES = 200
UNREADABLE = "It can no longer be read"


def seconds_to_tick(period_s: float, now_s: float) -> float:
    """Return the seconds from `now_s` to the next multiple of the period, which all feeds wait for.

    What several feeds bring is so drawn once. A tick less than a tenth of a period away is skipped, because a wait can
    end slightly early.
    """
    left_s = period_s - now_s % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s


def only_changes(show: Callable[[T], object]) -> Callable[[T], None]:
    """Return `show` as a function that skips a value equal to the one before.

    Values are frozen, so they are compared as a whole: a file that has not changed wakes up nothing on the event loop.
    """
    last: T | None = None

    def show_change(value: T) -> None:
        nonlocal last
        if value != last:
            last = value
            show(value)

    return show_change


class PollingFeed(Generic[T]):
    """Takes an item from `items` at each tick and shows it if it differs from the one before.

    `items` is advanced on the thread only; it reads its source for each item and ends when nothing can change any more.
    """

    def __init__(
        self,
        items: Iterator[T],
        show: Callable[[T], object],
        note: Note,
        failure: str = UNREADABLE,
        period_s: float = PERIOD_S,
    ) -> None:
        self._items = items
        self._show = only_changes(show)
        self._note = note
        self._failure = failure
        self._period_s = period_s
        self._end = Event()

    def start(self) -> None:
        start_daemon_thread("tuner-poll", self._work)

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._end.set()

    @property
    def stopped(self) -> bool:
        """Whether nothing is to be shown any more."""
        return self._end.is_set()

    def _work(self) -> None:
        try:
            for item in self._items:
                if self._end.is_set():
                    break
                self._show(item)
                if self._end.wait(seconds_to_tick(self._period_s, time.monotonic())):
                    break
        except BackendError as error:
            self._note(str(error), "error")
        except OSError as error:
            self._note(f"{self._failure}: {error.strerror or error}.", "error")
        finally:
            del self._items  # a generator that holds a driver closes it


class SamplerFeed(PollingFeed["Sample | None"]):
    """Samples the hardware, with the processes below the pids in `watched`.

    It pauses until `covered_until_s` (seconds since the epoch): the supervisor of the followed run writes the same
    samples, and reading the drivers twice would double their cost.
    """

    def __init__(
        self,
        open_sampler: Callable[[], Sampler],
        show: Callable[[Sample], object],
        note: Note,
        period_s: float = PERIOD_S,
    ) -> None:
        super().__init__(
            self._samples(open_sampler),
            lambda sample: None if sample is None else show(sample),
            note,
            "The hardware cannot be sampled",
            period_s,
        )
        self.watched: tuple[int, ...] = ()
        self.covered_until_s = 0.0

    def _samples(self, open_sampler: Callable[[], Sampler]) -> Iterator[Sample | None]:
        sampler = open_sampler()
        try:
            paused = False
            while True:
                if time.time() < self.covered_until_s:
                    sampler.pause()
                    paused = True
                    yield None
                elif paused:
                    # Figures from before the pause are stale, and rates would be averages over it: start them again.
                    sampler.resume()
                    sampler.sample(self.watched)
                    paused = False
                    yield None
                else:
                    yield sampler.sample(self.watched)
        finally:
            sampler.close()


class EstimateFeed:
    """Answers the newest request at once, and with a refined estimate if no newer request follows."""

    def __init__(
        self, backend: Backend, show: Callable[[MemoryOutlook], object], idle_s: float = ESTIMATE_IDLE_S
    ) -> None:
        self._backend = backend
        self._show = show
        self._idle_s = idle_s
        self._requests: SimpleQueue[EstimateRequest | None] = SimpleQueue()

    def start(self) -> None:
        start_daemon_thread("tuner-estimate", self._work)

    def ask(self, request: EstimateRequest) -> None:
        """Replace all earlier requests with this one."""
        self._requests.put(request)

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._requests.put(None)

    def _work(self) -> None:
        request = self._newest(self._requests.get())
        while request is not None:
            self._show(self._backend.estimate(request))
            try:
                following = self._requests.get(timeout=self._idle_s)
            except Empty:
                better = self._backend.refine_estimate(request)
                if better is not None and self._requests.empty():
                    self._show(better)
                following = self._requests.get()
            # A key that is held down asks many times a second: all but the newest request are dropped. The refined
            # estimate waits for a pause, as it may trace a model for seconds, and is not shown if a newer request came
            # in meanwhile.
            request = self._newest(following)

    def _newest(self, request: EstimateRequest | None) -> EstimateRequest | None:
        while request is not None and not self._requests.empty():
            request = self._requests.get()
        return request


class FollowerFeed:
    """Reads the folder and the log of the followed run at each tick, and at once for a request about the log."""

    def __init__(
        self,
        backend: Backend,
        show_view: Callable[[RunView], object],
        show_log: Callable[[LogWindow], object],
        show_findings: Callable[[tuple[Finding, ...]], object],
        note: Note,
        period_s: float = PERIOD_S,
    ) -> None:
        self._backend = backend
        self._shows = show_view, show_log, show_findings
        self._note = note
        self._period_s = period_s
        # Everything that reads the run passes through this queue to one thread: its reader needs no lock, and a request
        # to scroll is answered between two polls. None ends the thread.
        self._requests: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._run: FollowedRun | None = None
        self.inventory: Inventory | None = None

    def start(self) -> None:
        start_daemon_thread("tuner-follower", self._work)

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._requests.put(None)

    def follow(self, folder: Path | None) -> None:
        """Follow the run in `folder` from now on, or none."""
        self._requests.put(partial(self._open, folder))

    def ask(self, request: LogWindowWanted | LogSearchWanted) -> None:
        """Show another part of the log."""
        self._requests.put(partial(self._answer, request))

    def _work(self) -> None:
        while True:
            timeout_s = seconds_to_tick(self._period_s, time.monotonic()) if self._run else None
            try:
                request = self._requests.get(timeout=timeout_s)
            except Empty:
                request = self._poll
            if request is None:
                return
            try:
                request()
            except OSError as error:
                self._run = None
                self._note(f"The run can no longer be read: {error.strerror or error}.", "error")

    def _open(self, folder: Path | None) -> None:
        show_view, show_log, show_findings = self._shows
        self._show_view, self._show_log = only_changes(show_view), only_changes(show_log)
        self._show_findings = only_changes(show_findings)
        self._part = LogWindowWanted(None, FIRST_LOG_LINES)
        self._run = None if folder is None else self._backend.follow_run(folder)
        self._poll()

    def _poll(self) -> None:
        if self._run is not None:
            view = self._run.reader.poll()
            self._show_view(view)
            self._show_log(self._log_window(self._run.log))
            self._show_findings(self._run.diagnose(view, self.inventory))

    def _answer(self, request: LogWindowWanted | LogSearchWanted) -> None:
        if self._run is None:
            return
        if isinstance(request, LogSearchWanted):
            self._search(self._run.log, request)
        else:
            self._part = request
        self._show_log(self._log_window(self._run.log))

    def _search(self, log: LogReader, request: LogSearchWanted) -> None:
        match = log.search(request.text, request.start, backwards=request.backwards)
        if match.anchor is not None:
            self._part = LogWindowWanted(match.anchor, self._part.count)
            return
        where = "above" if request.backwards else "below"
        far = "" if match.complete else " in the part that was searched"
        self._note(f"“{request.text}” is not in the output {where}{far}.", "warning")

    def _log_window(self, log: LogReader) -> LogWindow:
        part = self._part
        if part.anchor is None:
            return log.tail(part.count)
        return (log.before if part.before else log.window)(part.anchor, part.count)

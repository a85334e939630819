"""Daemon threads that poll the hardware, a run or anything else, and post messages to the app.

If a driver or a file system hangs, its feed stalls and nothing else does.
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
from tuner_tui.ui.messages import (
    EstimateArrived,
    FindingsArrived,
    LogSearchWanted,
    LogWindowArrived,
    LogWindowWanted,
    NoticeArrived,
    RunViewArrived,
    SampleArrived,
)

if TYPE_CHECKING:
    from textual.message import Message

    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.ui.backend.facade import Backend
    from tuner_tui.ui.backend.records import EstimateRequest, HardwareSampler, MemoryOutlook

T = TypeVar("T")
Post = Callable[["Message"], object]
PERIOD_S = 1.0
ESTIMATE_IDLE_S = 1.5
"""Seconds without a new request before the refined estimate is computed."""
FIRST_LOG_LINES = 200


def seconds_to_tick(period_s: float, now_s: float) -> float:
    """Return the seconds from `now_s` to the next tick of the clock that all feeds share.

    Sharing ticks means that the news of several feeds is drawn once. A tick less than a tenth of a period away is
    skipped, because a wait can end slightly early.
    """
    # All feeds wait for the same multiples of the period. Their messages then arrive together and Textual lays out and
    # writes once per second, where feeds out of step would make it do so several times.
    left_s = period_s - now_s % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s


class PollingFeed(Generic[T]):
    """Takes an item from `items` at each tick and passes it to `publish` if it differs from the one before.

    `items` is advanced on the thread only; it reads its source for each item and ends when nothing can change any more.
    """

    def __init__(
        self,
        items: Iterator[T],
        publish: Callable[[T], object],
        post: Post,
        failure: str = "It can no longer be read",
        period_s: float = PERIOD_S,
    ) -> None:
        self._items = items
        self._publish = publish
        self._post = post
        self._failure = failure
        self._period_s = period_s
        self._end = Event()

    def start(self) -> None:
        start_daemon_thread("tuner-poll", self._work)

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._end.set()

    def _work(self) -> None:
        last: T | None = None
        try:
            for item in self._items:
                if self._end.is_set():
                    break
                # Items are frozen values, so they are compared as a whole: a file that has not changed wakes up nothing
                # on the event loop, and an idle screen costs only the read.
                if item != last:
                    last = item
                    self._publish(item)
                if self._end.wait(seconds_to_tick(self._period_s, time.monotonic())):
                    break
        except BackendError as error:
            self._post(NoticeArrived(str(error)))
        except OSError as error:
            self._post(NoticeArrived(f"{self._failure}: {error.strerror or error}."))
        finally:
            del self._items  # a generator that holds a driver closes it


class SamplerFeed(PollingFeed["Sample | None"]):
    """Samples the hardware, with the processes below the pids in `watched`.

    It pauses until `covered_until_s` (seconds since the epoch): the supervisor of the followed run writes the same
    samples, and reading the drivers twice would double their cost.
    """

    def __init__(self, open_sampler: Callable[[], HardwareSampler], post: Post, period_s: float = PERIOD_S) -> None:
        super().__init__(
            self._samples(open_sampler),
            lambda sample: None if sample is None else post(SampleArrived(sample)),
            post,
            "The hardware cannot be sampled",
            period_s,
        )
        self.watched: tuple[int, ...] = ()
        self.covered_until_s = 0.0

    def _samples(self, open_sampler: Callable[[], HardwareSampler]) -> Iterator[Sample | None]:
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
        self,
        quick: Callable[[EstimateRequest], MemoryOutlook],
        refined: Callable[[EstimateRequest], MemoryOutlook | None],
        post: Post,
        idle_s: float = ESTIMATE_IDLE_S,
    ) -> None:
        self._quick = quick
        self._refined = refined
        self._post = post
        self._idle_s = idle_s
        self._requests: SimpleQueue[EstimateRequest | None] = SimpleQueue()
        self._started = False

    def ask(self, request: EstimateRequest) -> None:
        """Replace all earlier requests with this one."""
        if not self._started:
            self._started = True
            start_daemon_thread("tuner-estimate", self._work)
        self._requests.put(request)

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._requests.put(None)

    def _work(self) -> None:
        request = self._newest(self._requests.get())
        while request is not None:
            self._post(EstimateArrived(self._quick(request)))
            try:
                following = self._requests.get(timeout=self._idle_s)
            except Empty:
                better = self._refined(request)
                if better is not None and self._requests.empty():
                    self._post(EstimateArrived(better))
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

    def __init__(self, backend: Backend, post: Post, period_s: float = PERIOD_S) -> None:
        self._backend = backend
        self._post = post
        self._period_s = period_s
        # Everything that reads the run passes through this queue to one thread: its reader needs no lock, and a request
        # to scroll is answered between two polls. None ends the thread.
        self._requests: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._followed: _FollowedRun | None = None
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
        self._requests.put(partial(self._show_log, request))

    def _work(self) -> None:
        while True:
            timeout_s = seconds_to_tick(self._period_s, time.monotonic()) if self._followed else None
            try:
                request = self._requests.get(timeout=timeout_s)
            except Empty:
                request = self._poll
            if request is None:
                return
            try:
                request()
            except OSError as error:
                self._followed = None
                self._post(NoticeArrived(f"The run can no longer be read: {error.strerror or error}."))

    def _open(self, folder: Path | None) -> None:
        self._followed = None if folder is None else _FollowedRun(self._backend, folder, self._post)
        self._poll()

    def _show_log(self, request: LogWindowWanted | LogSearchWanted) -> None:
        if self._followed is not None:
            self._followed.ask(request)

    def _poll(self) -> None:
        if self._followed is not None:
            self._followed.poll(self.inventory)


class _FollowedRun:
    """One followed run, and what was posted about it last: only changes are posted."""

    def __init__(self, backend: Backend, folder: Path, post: Post) -> None:
        self._run = backend.follow_run(folder)
        self._log = backend.open_log(folder)
        self._post = post
        self._diagnose = backend.diagnoser(folder)
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
        findings = self._diagnose(view, inventory)
        if findings != self._findings:
            self._findings = findings
            self._post(FindingsArrived(findings))

    def ask(self, request: LogWindowWanted | LogSearchWanted) -> None:
        """Show the requested part of the log."""
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
        self._post(NoticeArrived(f"“{request.text}” is not in the output {where}{far}.", is_error=False))

    def _show_log(self) -> None:
        window = self._read_log(self._shown)
        if window != self._window:
            self._window = window
            self._post(LogWindowArrived(window))

    def _read_log(self, shown: LogWindowWanted) -> LogWindow:
        if shown.anchor is None:
            return self._log.tail(shown.count)
        return (self._log.before if shown.before else self._log.window)(shown.anchor, shown.count)

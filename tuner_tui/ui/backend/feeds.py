"""Tasks that poll the hardware, a run or anything else on daemon threads, and show what is new.

If a driver or a file system hangs, its task waits and nothing else does. Cancelling a task abandons its thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.ui.backend.records import BackendError, FollowedRun, translate_errors
from tuner_tui.ui.messages import LogSearchWanted, LogWindowWanted

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.hardware.sampler import Sampler
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.reader import RunView

T = TypeVar("T")
PERIOD_S = 1.0
FIRST_LOG_LINES = 200
UNREADABLE = "It can no longer be read"


def seconds_to_tick(period_s: float, now_s: float) -> float:
    """Return the seconds from `now_s` to the next multiple of the period, which all tasks wait for.

    What several tasks bring is so drawn once. A tick less than a tenth of a period away is skipped, because a wait can
    end slightly early.
    """
    left_s = period_s - now_s % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s


async def poll(
    items: Iterator[T], show: Callable[[T], object], failure: str = UNREADABLE, period_s: float = PERIOD_S
) -> None:
    """Take an item from `items` at each tick, on a thread, and show it if it differs from the one before.

    `items` reads its source for each item, and ends when nothing can change any more. Raises `BackendError`.
    """
    last = end = object()
    while True:
        try:
            item = await to_daemon_thread(lambda: next(items, end))
        except OSError as error:
            raise BackendError(f"{failure}: {error.strerror or error}.") from error
        if item is end:
            return
        # Items are frozen values, so they are compared as a whole: an idle screen costs only the read.
        if item != last:
            last = item
            show(item)  # type: ignore[arg-type]
        await asyncio.sleep(seconds_to_tick(period_s, time.monotonic()))


class HardwareFeed:
    """Samples the hardware, with the processes below the pids in `watched`.

    It pauses until `covered_until_s` (seconds since the epoch): the supervisor of the followed run writes the same
    samples, and reading the drivers twice would double their cost.
    """

    def __init__(self) -> None:
        self.watched: tuple[int, ...] = ()
        self.covered_until_s = 0.0

    def samples(self, open_sampler: Callable[[], Sampler]) -> Iterator[Sample | None]:
        """Yield a sample for each read, None during a pause."""
        sampler = open_sampler()
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


class RunNews(NamedTuple):
    """A run as it is now, the part of its log that is shown, and its findings."""

    view: RunView
    log: LogWindow
    findings: tuple[Finding, ...]


class RunFeed:
    """Reads the folder and the log of a run."""

    def __init__(self, run: FollowedRun, inventory: Inventory | None) -> None:
        self._run = run
        self.inventory = inventory
        self._part = LogWindowWanted(None, FIRST_LOG_LINES)
        self._lock = Lock()  # the readers are for one thread at a time

    def news(self) -> Iterator[RunNews]:
        """Yield the run for each read. Raises `OSError`."""
        while True:
            with self._lock:
                view = self._run.reader.poll()
                news = RunNews(view, self._log_window(), self._run.diagnose(view, self.inventory))
            yield news

    @translate_errors()
    def find(self, request: LogWindowWanted | LogSearchWanted) -> LogWindow | str:
        """Return another part of the log, which `news` has from then on; or a sentence if there is no match."""
        with self._lock:
            if isinstance(request, LogWindowWanted):
                self._part = request
                return self._log_window()
            match = self._run.log.search(request.text, request.start, backwards=request.backwards)
            if match.anchor is not None:
                self._part = LogWindowWanted(match.anchor, self._part.count)
                return self._log_window()
        where = "above" if request.backwards else "below"
        far = "" if match.complete else " in the part that was searched"
        return f"“{request.text}” is not in the output {where}{far}."

    def _log_window(self) -> LogWindow:
        log, part = self._run.log, self._part
        if part.anchor is None:
            return log.tail(part.count)
        return (log.before if part.before else log.window)(part.anchor, part.count)

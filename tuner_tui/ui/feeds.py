"""Tasks that poll the hardware, a run or anything else on daemon threads, and show what is new.

If a driver or a file system hangs, its task waits and nothing else does. Cancelling a task abandons its thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tuner_tui.core.daemon_thread import to_daemon_thread

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.hardware.sampler import Sampler

T = TypeVar("T")
PERIOD_S = 1.0
UNREADABLE = "It can no longer be read"


class BackendError(Exception):
    """A request failed; the text is one sentence for the user."""


def seconds_to_tick(period_s: float, now_s: float) -> float:
    """Return the seconds from `now_s` to the next multiple of the period, which all tasks wait for.

    What several tasks bring is so drawn once. A tick less than a tenth of a period away is skipped, because a wait can
    end slightly early.
    """
    left_s = period_s - now_s % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s


async def poll(
    items: Iterator[T | None], show: Callable[[T], object], failure: str = UNREADABLE, period_s: float = PERIOD_S
) -> None:
    """Take an item from `items` at each tick, on a thread, and show it if it is not None and differs from the last one.

    `items` reads its source for each item, and ends when nothing can change any more. Raises `BackendError`.
    """
    last: object = None
    end = object()
    while True:
        try:
            item = await to_daemon_thread(lambda: next(items, end))
        except OSError as error:
            raise BackendError(f"{failure}: {error.strerror or error}.") from error
        if item is end:
            return
        # Items are frozen values, so they are compared as a whole: an idle screen costs only the read.
        if item is not None and item != last:
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

"""Tasks that poll the hardware, a run or anything else on daemon threads, and show what is new.

If a driver or a file system hangs, its task waits and nothing else does. Cancelling a task abandons its thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
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
    items: Iterable[T | None], show: Callable[[T], object], failure: str = UNREADABLE, period_s: float = PERIOD_S
) -> None:
    """Take an item from `items` at each tick, on a thread, and show it if it is not None and differs from the last one.

    `items` reads its source for each item, and ends when nothing can change any more. Raises `BackendError`.
    """
    loop, changes, ended = asyncio.get_running_loop(), asyncio.Queue[T | None](), threading.Event()

    def read() -> None:
        last: T | None = None
        for item in items:
            # Items are frozen values, so they are compared as a whole: an idle screen costs only the read.
            if item is not None and item != last:
                loop.call_soon_threadsafe(changes.put_nowait, last := item)
            if ended.wait(seconds_to_tick(period_s, time.monotonic())):
                return

    # One thread for all items: to start one for each, and to wake the event loop for it, costs as much as many reads.
    reading = asyncio.ensure_future(to_daemon_thread(read))
    reading.add_done_callback(lambda _: changes.put_nowait(None))
    try:
        while (change := await changes.get()) is not None:
            show(change)
        await reading
    except OSError as error:
        raise BackendError(f"{failure}: {error.strerror or error}.") from error
    finally:
        ended.set()
        reading.cancel()


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
        was_paused = False
        while True:
            pauses = time.time() < self.covered_until_s
            if pauses:
                sampler.pause()
            elif was_paused:
                # Figures from before the pause are stale, and rates would be averages over it: start them again.
                sampler.resume()
                sampler.sample(self.watched)
            yield None if pauses or was_paused else sampler.sample(self.watched)
            was_paused = pauses

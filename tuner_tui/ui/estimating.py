"""The memory that the settings shown would take: what is asked for it, and the thread that answers.

One thread for the whole screen. It answers the newest question at once by the closed form, and with a better figure
when no newer question has come for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tuner_tui.ui.messages import EstimateArrived

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Settings
    from tuner_tui.ui.feeds import Post

IDLE_S = 1.5
"""How long no value may have been edited before the better figure is worked out."""


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What the memory is asked of.

    `memory_limit_bytes` is what a training may take at most. `worked_on`: somebody changed something here and nothing
    trains, so that a figure that takes some seconds of a processor is worth them. `chosen` are the settings that
    somebody chose; in the others a command has its own.
    """

    settings: Settings
    job: Job
    inventory: Inventory
    interpreter: Interpreter
    memory_limit_bytes: int | None = None
    worked_on: bool = False
    chosen: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Outlook:
    """The memory expected, of the card or the host (`on_gpu`).

    `against` says whose memory it is held against, where that is not plain; `unknown` why there is no figure.
    `measured`: by runs of a command alone, and `measured_largest` is the largest batch by them, where they tell it.
    """

    estimate: MemoryEstimate | None = None
    on_gpu: bool = True
    against: str = ""
    unknown: str = ""
    measured: bool = False
    measured_largest: int | None = None

    @property
    def largest(self) -> int | None:
        """The largest micro batch that fits; None where that is not known."""
        return self.measured_largest if self.measured or self.estimate is None else self.estimate.largest_batch()


Quick = Callable[[EstimateRequest], Outlook]
Refined = Callable[[EstimateRequest], "Outlook | None"]


class EstimateFeed:
    """Answers by `quick`, then by `refined` where that knows better; it may take half a minute."""

    def __init__(self, quick: Quick, refined: Refined, post: Post, idle_s: float = IDLE_S) -> None:
        self._quick = quick
        self._refined = refined
        self._post = post
        self._idle_s = idle_s
        self._requests: SimpleQueue[EstimateRequest | None] = SimpleQueue()
        self._thread: Thread | None = None

    def ask(self, request: EstimateRequest) -> None:
        """Answer this instead of anything asked before."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="tuner-estimate", daemon=True)
            self._thread.start()
        self._requests.put(request)

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
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
            request = self._newest(following)

    def _newest(self, request: EstimateRequest | None) -> EstimateRequest | None:
        while request is not None and not self._requests.empty():
            request = self._requests.get()
        return request

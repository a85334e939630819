"""Base of the framework reporters: evaluations and checkpoints as pauses, metrics at most once a second."""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING, Any

from ..import_hooks import call_safely
from .control_file import ControlFile

if TYPE_CHECKING:
    from ..counters.step_counters import StepCounters
    from ..session import Session
    from ..settings_in_effect import SettingsInEffect


class FrameworkReporter:
    """Tells of one trainer class. Methods may raise: whoever calls them from the training does so by `call_safely`."""

    def __init__(self, session: Session, counters: StepCounters, effective: SettingsInEffect) -> None:
        self.session = session
        self.counters = counters
        self.effective = effective
        self.control_file = ControlFile(session.run_dir)
        self.saving_s: float | None = None
        self._last_metrics_s = -math.inf
        self._metrics: dict[str, Any] | None = None

    def enter(self, phase: str) -> bool:
        """The trainer evaluates or saves from here. Returns whether it is the outermost such thing."""
        self.counters.unsettle()
        if phase == "evaluating":
            self.counters.evaluation.depth += 1
        return self.counters.pause(phase, time.perf_counter())

    def leave(self, phase: str, outermost: bool) -> None:
        """The trainer is done with it."""
        if phase == "evaluating":
            self.counters.evaluation.depth -= 1
        else:
            self.saving_s = self.paused_s()
        if outermost:
            self.counters.end_pause()

    def failed(self, phase: str, error: BaseException) -> None:
        """An error leaves this phase: should nobody catch it, this is where it happened."""
        if self.session.failed_in is None or self.session.failed_in[0] != id(error):
            self.session.failed_in = (id(error), phase)

    def paused_s(self) -> float | None:
        """Seconds of the present pause so far."""
        seconds = self.counters.clock.paused_s(time.perf_counter())
        return None if seconds is None else round(seconds, 6)

    def measured(self, fields: dict[str, Any]) -> None:
        """Fields of a `metrics` line; at most one a second is written, the newest kept for the end."""
        self._metrics = fields
        if time.perf_counter() - self._last_metrics_s >= 1.0:
            self.write_metrics()

    def write_metrics(self) -> None:
        """Write what was measured last, unless that is written."""
        if self._metrics is not None:
            self.session.count("metrics", self._metrics)
            self._metrics = None
            self._last_metrics_s = time.perf_counter()

    def evaluated(self, step: int, metrics: Any) -> None:
        """An evaluation's metrics, those that are numbers, by the trainer's own names."""
        numbers = {name: as_float(value) for name, value in (metrics or {}).items()}
        known = {name: value for name, value in numbers.items() if value is not None}
        self.session.tell("evaluated", step=step, metrics=known, seconds=self.paused_s())


def hook_pause(owner: Any, name: str, story: FrameworkReporter, phase: str) -> None:
    """Let training's time stand still while this method of the class `owner` runs. Nothing where there is none."""
    original = owner.__dict__.get(name)
    if original is None:
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        paused = call_safely(story.enter, phase)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            call_safely(story.failed, phase, error)
            raise
        finally:
            call_safely(story.leave, phase, paused)

    setattr(owner, name, method)


def as_float(value: Any) -> float | None:
    """A float of a number, its text (Trainer's logs since transformers 5) or a tensor of one on the CPU; else None.

    A tensor on a device is not asked: that would make the training wait for the device.
    """
    if value is None or isinstance(value, bool) or not getattr(value, "is_cpu", True):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None

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
    """Reports the events of one Trainer class. Methods may raise, so hooks call them with `call_safely`."""

    def __init__(self, session: Session, counters: StepCounters, settings_in_effect: SettingsInEffect) -> None:
        self.session = session
        self.counters = counters
        self.settings_in_effect = settings_in_effect
        self.control_file = ControlFile(session.run_dir)
        self.saving_s: float | None = None
        self._last_metrics_s = -math.inf
        self._metrics: dict[str, Any] | None = None

    def enter(self, phase: str) -> bool:
        """Start an evaluation or a checkpoint. Returns whether training was running."""
        self.counters.invalidate()
        if phase == "evaluating":
            self.counters.evaluation.depth += 1
        return self.counters.pause(phase, time.perf_counter())

    def leave(self, phase: str, outermost: bool) -> None:
        """End an evaluation or a checkpoint."""
        if phase == "evaluating":
            self.counters.evaluation.depth -= 1
        else:
            self.saving_s = self.paused_s()
        if outermost:
            self.counters.end_pause()

    def failed(self, phase: str, error: BaseException) -> None:
        """Remember the phase in which `error` was raised, in case it is not caught."""
        if self.session.failure is None or self.session.failure[0] != id(error):
            self.session.failure = (id(error), phase)

    def paused_s(self) -> float | None:
        """Seconds of the current pause so far."""
        seconds = self.counters.clock.paused_s(time.perf_counter())
        return None if seconds is None else round(seconds, 6)

    def report_metrics(self, fields: dict[str, Any]) -> None:
        """Write a `metrics` event, at most once a second; the newest fields are kept until then."""
        self._metrics = fields
        if time.perf_counter() - self._last_metrics_s >= 1.0:
            self.write_metrics()

    def write_metrics(self) -> None:
        """Write the newest metrics unless they were written."""
        if self._metrics is not None:
            self.session.report_counters("metrics", self._metrics)
            self._metrics = None
            self._last_metrics_s = time.perf_counter()

    def report_evaluation(self, step: int, metrics: Any) -> None:
        """Report the numeric metrics of an evaluation, under the framework's names."""
        numbers = {name: as_float(value) for name, value in (metrics or {}).items()}
        metrics = {name: value for name, value in numbers.items() if value is not None}
        self.session.report("evaluated", step=step, metrics=metrics, seconds=self.paused_s())


def hook_pause(owner: Any, name: str, reporter: FrameworkReporter, phase: str) -> None:
    """Pause training while the method `name` of `owner` runs. Does nothing if there is no such method."""
    original = owner.__dict__.get(name)
    if original is None:
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        paused = call_safely(reporter.enter, phase)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            call_safely(reporter.failed, phase, error)
            raise
        finally:
            call_safely(reporter.leave, phase, paused)

    setattr(owner, name, method)


def as_float(value: Any) -> float | None:
    """Convert a number, its text (Trainer's logs since transformers 5) or a CPU tensor to float, else None.

    Tensors on a device are not read, since that would synchronise.
    """
    if value is None or isinstance(value, bool) or not getattr(value, "is_cpu", True):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None

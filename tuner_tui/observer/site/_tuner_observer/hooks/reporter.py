"""Base of the framework reporters: evaluations and checkpoints as pauses, metrics, control file.

The control file of the run folder holds a request for a checkpoint, or for a checkpoint and a stop. All ranks have to
act at the same step, or one would wait forever for a gradient of another. Rank 0 reads the request and writes its next
step, at which all ranks act, to `agreed`. No rank can finish that step before rank 0 has started it, so every rank sees
the file in time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .. import process_role
from ..counters.step_counters import StepCounters
from ..import_hooks import call_around
from ..session import Session
from ..settings_in_effect import SettingsInEffect, count_parameters

METRICS_AT_ONCE = 100
"""So many metrics are written as they come, then one a second: a short run has a course of its loss, too."""


class FrameworkReporter:
    """Reports the events of one Trainer class. Methods may raise, so hooks call them with `call_safely`."""

    def __init__(self, session: Session, counters: StepCounters, settings_in_effect: SettingsInEffect) -> None:
        self.session = session
        self.counters = counters
        self.settings_in_effect = settings_in_effect
        self.control_file = ControlFile(session.run_dir)
        self.saving_s: float | None = None
        self._metrics_left, self._metrics_s = float(METRICS_AT_ONCE), time.perf_counter()
        self._metrics: dict[str, Any] | None = None

    def handlers(self) -> dict[str, Callable[..., None]]:
        """The methods that the framework calls, under its own names for them."""
        return {name: getattr(self, name) for name in dir(self) if name.startswith("on_")}

    def begin(self, model: Any, phase: str, **plan: Any) -> None:
        """Report the plan and the model of a training that begins in `phase`."""
        self.counters.trainer_reports = True
        self.counters.evaluation.ignore_mode()
        self.session.open()
        counts = {} if model is None else count_parameters(model)
        self.session.report("plan", obeys=True, **counts, **plan)
        self.settings_in_effect.read_model(model)
        self.settings_in_effect.read_versions()
        self.control_file.start()
        self.session.enter_phase(phase)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.write_metrics()
        self.counters.trainer_ended()
        self.session.enter_phase("ending")

    def enter(self, phase: str) -> bool:
        """Start an evaluation or a checkpoint. Returns whether training was running."""
        self.counters.invalidate()
        if phase == "evaluating":
            self.counters.evaluation.depth += 1
        return self.counters.pause(phase, time.perf_counter())

    def leave(self, phase: str, outermost: bool) -> None:
        """End an evaluation or a checkpoint."""
        now = time.perf_counter()
        if phase == "evaluating":
            self.counters.evaluation.depth -= 1
        else:
            self.saving_s = self.paused_s(now)
        if outermost:
            self.counters.end_pause(now)

    def failed(self, phase: str, error: BaseException) -> None:
        """Remember the phase in which `error` was raised, in case it is not caught."""
        if self.session.failure is None or self.session.failure[0] != id(error):
            self.session.failure = (id(error), phase)

    def paused_s(self, now: float) -> float | None:
        seconds = self.counters.clock.paused_s(now)
        return None if seconds is None else round(seconds, 6)

    def report_metrics(self, fields: dict[str, Any]) -> None:
        """Write a `metrics` event, or keep the newest fields for the next one where there were many."""
        self._metrics, self.counters.trainer_logs = fields, True
        now = time.perf_counter()
        self._metrics_left = min(float(METRICS_AT_ONCE), self._metrics_left + now - self._metrics_s)
        self._metrics_s = now
        if self._metrics_left >= 1:
            self._metrics_left -= 1
            self.write_metrics()

    def write_metrics(self) -> None:
        """Write the newest metrics unless they were written."""
        if self._metrics is not None:
            self.session.report_counters("metrics", self._metrics)
            self._metrics = None

    def report_evaluation(self, step: int, metrics: Any) -> None:
        """Report the numeric metrics of an evaluation, under the framework's names."""
        numbers = {name: as_float(value) for name, value in (metrics or {}).items()}
        metrics = {name: value for name, value in numbers.items() if value is not None}
        self.session.report("evaluated", step=step, metrics=metrics, seconds=self.paused_s(time.perf_counter()))


def hook_pause(owner: Any, name: str, reporter: FrameworkReporter, phase: str) -> None:
    """Pause training while the method `name` of `owner` runs. Does nothing if there is no such method."""

    def leave(paused: bool, _: Any, error: BaseException | None) -> None:
        if error is not None:
            reporter.failed(phase, error)
        reporter.leave(phase, paused)

    if name in owner.__dict__:
        call_around(owner, name, lambda *_, **__: reporter.enter(phase), leave)


def hook_loading(owner: Any, name: str, session: Session, phase: str) -> None:
    """Report `phase` while the function `name` of `owner`, or its class method, runs before the training starts."""

    def enter(*_: Any, **__: Any) -> bool:
        loads = session.phase == "starting"
        if loads:
            session.enter_phase(phase)
        return loads

    def leave(loads: bool | None, _: Any, error: BaseException | None) -> None:
        if loads and session.phase == phase:
            session.enter_phase("starting")

    method = getattr(owner, "__dict__", {}).get(name)
    if not isinstance(method, classmethod):
        call_around(owner, name, enter, leave)
        return
    # `getattr` would bind the class to which it belongs, and its subclasses would load that one.
    holder = SimpleNamespace(**{name: method.__func__})
    call_around(holder, name, enter, leave)
    setattr(owner, name, classmethod(getattr(holder, name)))


def as_float(value: Any) -> float | None:
    """Convert a number, its text (Trainer's logs since transformers 5) or a CPU tensor to float, else None.

    Tensors on a device are not read, since that would synchronise.
    """
    if value is None or isinstance(value, bool) or not getattr(value, "is_cpu", True):
        return None
    try:
        return float(value.detach() if hasattr(value, "detach") else value)  # torch warns of one with a gradient
    except (TypeError, ValueError, RuntimeError):
        return None


POLL_INTERVAL_S = 1.0
MAX_CONTROL_BYTES = 256
RESERVED_BYTES = 64


class ControlFile:
    """Polled at most once a second. A request is returned once, when the file changes."""

    def __init__(
        self,
        run_dir: str,
        clock: Callable[[], float] = time.perf_counter,
        rank_and_world: Callable[[], tuple[int, int]] = process_role.rank_and_world,
    ) -> None:
        self._path = os.path.join(run_dir, "control")
        self._agreed_path = os.path.join(run_dir, "agreed")
        self._clock = clock
        self._rank_and_world = rank_and_world
        self._rank, self._world = 0, 1
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._agreed: tuple[str, int] | None = None
        self._next_poll_s = 0.0

    def start(self) -> None:
        """Ignore requests made to an earlier process of this run."""
        self._rank, self._world = self._rank_and_world()
        self._agreed, self._seen = None, {}
        for path in (self._path, self._agreed_path):
            self._new_words(path)

    def request(self, step: int) -> str | None:
        """The request to act on after `step`, or None."""
        if self._agreed is None and self._rank > 0:
            # Read at every step by the other ranks: a second later may be too late.
            words = self._new_words(self._agreed_path)
            if len(words) == 2 and words[1].isdigit():
                self._agreed = (words[0], int(words[1]))
        elif self._agreed is None and self._clock() >= self._next_poll_s:
            self._next_poll_s = self._clock() + POLL_INTERVAL_S
            for word in self._new_words(self._path)[:1]:
                if self._world == 1:
                    return word
                self._announce(word, step + 1)
        if self._agreed is None or step < self._agreed[1]:
            return None
        request, self._agreed = self._agreed[0], None
        return request

    def _new_words(self, path: str) -> list[str]:
        """The words of a file that has changed."""
        try:
            status = os.stat(path)
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if stamp == self._seen.get(path):
                return []
            self._seen[path] = stamp
            with open(path, encoding="utf-8") as file:
                return file.read(MAX_CONTROL_BYTES).split()
        except (OSError, ValueError):
            return []

    def _announce(self, request: str, step: int) -> None:
        """Rank 0 acts only if the other ranks can read the request."""
        try:  # in place: the launch reserved the space, and the disk may be full
            descriptor = os.open(
                self._agreed_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{request} {step}".ljust(RESERVED_BYTES - 1).encode("ascii") + b"\n")
        except OSError:
            return
        self._agreed = (request, step)

"""Runs one trial as a short run: launches it, waits, ends it when overdue, and reads its measurement."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, structs
from msgspec.structs import replace

from tuner_tui.advice.situation import Situation, effective_settings, situation_of_run
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, TrialMeasured
from tuner_tui.runs.launch.orders import give_order, wait_ended
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.start import adopt, launch
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, wait_supervisor_ended
from tuner_tui.runs.supervise.training_process import StopTimeouts
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings
from tuner_tui.tuning.measurement import FinishedTrial, measure_trial
from tuner_tui.tuning.search.space import MICRO, PERSISTENT, PIN, PREFETCH, TUNED_FIELDS, WORKERS
from tuner_tui.tuning.trial import TRIAL_VARIABLE, Measurement, Trial, TrialProtocol

POLL_S = 0.5
"""Interval of checks for an abort and for finished ranks. The end of the run itself is noticed at once."""
LOADER_FIELDS = frozenset({MICRO, WORKERS, PREFETCH, PIN, PERSISTENT})
"""Fields that are injected into a DataLoader that the script builds itself."""
STOP_TIMEOUTS = StopTimeouts(stop_s=1.0, kill_s=2.0, saving_s=10.0, orphan_s=0.5)
"""Short, because a trial has nothing to save."""
FIRST_STEP_HINT = " The limit is a third of --most-minutes, at least five minutes."
TRACKING_DISABLED = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "MLFLOW_TRACKING_URI": ""}
"""Environment that keeps trials out of experiment trackers."""


class TrialReport(Struct, frozen=True):
    """The measurement of a trial, the settings in effect, and the tuned fields that do not reach the training."""

    measurement: Measurement
    settings: Settings
    unreachable: frozenset[str] = frozenset()


class TrialCallbacks(Struct, frozen=True):
    """Callbacks of a running trial.

    `aborted` returns whether to abort it, `launched` is called with its run. It ends at `deadline_t` (epoch seconds).
    It was predicted to take `expected_s`, and is given up after `give_up_s`; both are None if that is not known.
    """

    aborted: Callable[[], bool] = lambda: False
    launched: Callable[[RunFolder], None] = lambda run: None
    deadline_t: float | None = None
    expected_s: float | None = None
    give_up_s: float | None = None

    def overdue_reason(self, state: RunState, now: float) -> str:
        """Return a sentence if the trial takes several times as long as predicted, else empty."""
        launched = state.launched_t
        if self.give_up_s is None or self.expected_s is None or launched is None or now - launched < self.give_up_s:
            return ""
        return f"It should have taken {self.expected_s:.0f} s and was stopped after {now - launched:.0f} s."


class TrialRunner(Struct, frozen=True):
    """Runs the trials of one tuning. `base` is the launch request with the settings to start from."""

    base: LaunchRequest
    protocol: TrialProtocol

    def run(self, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run a trial to its end. Raises `LaunchError` if the command cannot be started."""
        started = time.monotonic()
        folder = launch(prepare(self.request(trial.settings)))
        callbacks.launched(folder)
        monitor = _TrialMonitor(folder, self.protocol, callbacks)
        monitor.wait()
        view = monitor.reader.poll()
        situation = situation_of_run(folder, view)
        finished = FinishedTrial(
            run_id=folder.id,
            situation=situation,
            measured=tuple(monitor.measured.values()),
            seconds=time.monotonic() - started,
            stop_reason=monitor.stop_reason,
            aborted=monitor.aborted,
            transient=monitor.transient,
        )
        effective = effective_settings(trial.settings, situation.chosen, situation.state.in_effect)
        return TrialReport(measure_trial(finished, trial), effective, uninjectable_fields(situation))

    def with_start(self, start: Settings) -> TrialRunner:
        """Return a runner for a training whose own settings turned out to be `start`; these are not passed to it."""
        return replace(self, base=replace(self.base, resolved=replace(self.base.resolved, settings=start)))

    def request(self, settings: Settings) -> LaunchRequest:
        """Return the launch request of a trial. Settings that differ from the start count as chosen by the tuning."""
        resolved = with_tuned_origins(self.base.resolved, settings)
        environ = {**self.base.environ, **TRACKING_DISABLED, TRIAL_VARIABLE: self.protocol.to_json()}
        job = structs.replace(self.base.job, fallback=0)
        return replace(self.base, job=job, resolved=resolved, environ=environ, stop_timeouts=STOP_TIMEOUTS, parent=None)


def with_tuned_origins(start: Resolved, settings: Settings) -> Resolved:
    """Return `settings` with the origins of `start`, and the origin TUNED for values that differ from it."""
    names = [name for name in FIELDS if getattr(settings, name) != getattr(start.settings, name)]
    return Resolved(settings, {**start.origins, **dict.fromkeys(names, Origin(OriginKind.TUNED))})


class _TrialMonitor:
    """Waits for the end of a run, and ends it when it is aborted, overdue or measured."""

    def __init__(self, folder: RunFolder, protocol: TrialProtocol, callbacks: TrialCallbacks) -> None:
        self.reader = RunReader(folder)
        self.measured: dict[int, TrialMeasured] = {}
        self.stop_reason = ""
        self.aborted = ""
        self.transient = False
        self._folder = folder
        self._protocol = protocol
        self._callbacks = callbacks
        self._ending = False

    def wait(self) -> None:
        """Block until the run has ended and its supervisor has recorded how."""
        while not wait_supervisor_ended(self._folder, POLL_S):
            self._check(time.time())
        if read_status(self._folder).training_alive:  # the supervisor was killed, the training was not
            self.stop_reason, self.transient = "Its supervisor was killed, so it was stopped.", True
            adopt(self._folder)
            self._end()
            self.wait()
        self._read()

    def _read(self) -> list[Event]:
        events = self.reader.events()
        self.measured |= {event.rank or 0: event for event in events if isinstance(event, TrialMeasured)}
        return events

    def _check(self, now: float) -> None:
        self._read()
        if self._ending:
            return
        state = self.reader.state
        deadline = self._callbacks.deadline_t
        if self._callbacks.aborted():
            self.aborted = "Aborted."
        elif deadline is not None and now >= deadline:
            self.aborted = "The time limit of the tuning was reached."
        if not self.aborted and not self._all_measured(state):
            stalled = overdue_reason(state, self._protocol, now)
            self.stop_reason = stalled or self._callbacks.overdue_reason(state, now)
            self.transient = bool(stalled) and state.last_step_t is not None
        if self.aborted or self.stop_reason or self._all_measured(state):
            self._end()

    def _all_measured(self, state: RunState) -> bool:
        # A single process ends after measuring; several would wait for one another.
        return len(state.ranks) > 1 and len(self.measured) >= len(state.ranks)

    def _end(self) -> None:
        self._ending = True
        give_order(self._folder, "kill")


def overdue_reason(state: RunState, protocol: TrialProtocol, now: float) -> str:
    """Return a sentence why a trial in this state is given up; empty while it may go on."""
    launched, last = state.launched_t, state.last_step_t
    if launched is None:
        return ""
    if last is None:
        timeout = protocol.compiling_s if state.phase == "compiling" else protocol.first_step_s
        if now - launched < timeout:
            return ""
        seen = "" if state.ranks else " The observer did not report; maybe it cannot be loaded into this command."
        return f"It took no optimizer step in {timeout / 60:.0f} minutes.{seen or FIRST_STEP_HINT}"
    timeout = max(protocol.stalled_s, 5 * (state.rates.step_time_s or 0.0))
    timeout = protocol.compiling_s if state.phase == "compiling" else timeout
    idle = now - max(last, state.phase_since_t or last)
    return f"It made no progress for {idle:.0f} s." if idle >= timeout else ""


def end_run(folder: RunFolder) -> None:
    """End a trial, or another run that saves nothing, and wait for its end. It may be one that a killed tuner left.

    Raises `LaunchError` where processes are left that only another user can end.
    """
    status = read_status(folder)
    if status.kind in ("foreign", "broken") or not status.live:
        return
    give_order(folder, "kill")
    wait_ended(folder, "kill", lambda _: None)


def uninjectable_fields(situation: Situation) -> frozenset[str]:
    """Return the tuned fields that cannot be injected into this training; empty for other `apply` modes.

    With a Trainer, these are the ones that the observer reported; without one, all but those of a DataLoader.
    """
    job, state = situation.job, situation.state
    if not isinstance(job, CommandJob) or job.apply != "inject" or not state.in_effect:
        return frozenset()
    if state.accepts_orders or "n_gpu" in state.in_effect:  # a Trainer, whose arguments can be set
        return frozenset(state.not_injected) & frozenset(TUNED_FIELDS)
    return frozenset(TUNED_FIELDS) - LOADER_FIELDS

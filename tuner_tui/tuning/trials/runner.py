"""Runs one trial as a short run: launches it, waits, ends it when overdue, and reads its measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tuner_tui.advice.effective_settings import effective_settings
from tuner_tui.advice.situation import Situation, situation_of_run
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, TrialMeasured
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.restart import wait_supervisor_ended
from tuner_tui.runs.launch.start import adopt, launch
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.control import send_order
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.stop_escalation import StopTimeouts
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO, PERSISTENT, PIN, PREFETCH, TUNED_FIELDS, WORKERS
from tuner_tui.tuning.trial import Measurement, Trial
from tuner_tui.tuning.trials.measurement import FinishedTrial, measure_trial
from tuner_tui.tuning.trials.trial_protocol import TRIAL_VARIABLE, TrialProtocol

POLL_S = 0.5
"""How soon an order to abort, or a rank that has measured, is noticed. The end of a run is noticed at once."""
LOADER_FIELDS = frozenset({MICRO, WORKERS, PREFETCH, PIN, PERSISTENT})
"""What is injected into a DataLoader that a script builds itself."""
TRIAL_PATIENCE = StopTimeouts(stop_s=1.0, kill_s=2.0, saving_s=10.0, orphan_s=0.5)
"""A trial has nothing to save."""
FIRST_STEP_HINT = " A third of --most-minutes is what it may take for it, five minutes at least."
TRACKING_DISABLED = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "MLFLOW_TRACKING_URI": ""}
"""A trial is no experiment of the person's."""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """A trial's measurement, the settings it really had where nobody handed them over, and which it cannot take."""

    measurement: Measurement
    settings: Settings
    unreachable: frozenset[str] = frozenset()


def _never() -> bool:
    return False


def _ignore(folder: RunFolder) -> None:
    return None


@dataclass(frozen=True, slots=True)
class TrialCallbacks:
    """Whom the runner asks and tells: whether to abort, which run was launched. `deadline_t` is when it must end."""

    aborted: Callable[[], bool] = _never
    launched: Callable[[RunFolder], None] = _ignore
    deadline_t: float | None = None


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Runs the trials of one tuning. `base` is the launch of the training as it was asked for."""

    base: LaunchRequest
    protocol: TrialProtocol
    extra_environ: Mapping[str, str] = field(default_factory=lambda: dict(TRACKING_DISABLED))

    def run(self, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run it to its end. Raises `LaunchError` where the command cannot be started at all."""
        began = time.monotonic()
        folder = launch(prepare(self.request(trial.settings)))
        callbacks.launched(folder)
        waiting = _TrialMonitor(folder, self.protocol, callbacks)
        waiting.wait()
        view = waiting.reader.poll()
        situation = situation_of_run(folder, view)
        ended = FinishedTrial(
            run_id=folder.id,
            situation=situation,
            measured=tuple(waiting.measured.values()),
            seconds=time.monotonic() - began,
            given_up=waiting.given_up,
            aborted=waiting.aborted,
            disturbed=waiting.disturbed,
        )
        seen = effective_settings(trial.settings, situation.chosen, situation.state.in_effect)
        return TrialReport(measure_trial(ended, trial), seen, unreachable_settings(situation))

    def with_start(self, start: Settings) -> TrialRunner:
        """The same, where the start turned out to be `start`: what it has by itself is handed over by nobody."""
        return replace(self, base=replace(self.base, resolved=replace(self.base.resolved, settings=start)))

    def request(self, settings: Settings) -> LaunchRequest:
        """The launch of a trial with `settings`: what differs from the start counts as chosen by the tuning."""
        resolved = with_tuned_origins(self.base.resolved, settings)
        environ = {**self.base.environ, **self.extra_environ, TRIAL_VARIABLE: self.protocol.to_json()}
        job = self.base.job.model_copy(update={"fallback": 0})
        return replace(
            self.base, job=job, resolved=resolved, environ=environ, stop_timeouts=TRIAL_PATIENCE, parent=None
        )


def with_tuned_origins(start: Resolved, settings: Settings) -> Resolved:
    """`settings`, each with the origin it has in `start` or, where it differs, that of a tuning."""
    names = [name for name in Settings.model_fields if getattr(settings, name) != getattr(start.settings, name)]
    return Resolved(settings, {**start.origins, **dict.fromkeys(names, Origin(OriginKind.TUNED))})


class _TrialMonitor:
    """Waits for one run, and ends it where it should go on no longer."""

    def __init__(self, folder: RunFolder, protocol: TrialProtocol, callbacks: TrialCallbacks) -> None:
        self.reader = RunReader(folder)
        self.measured: dict[int, TrialMeasured] = {}
        self.given_up = ""
        self.aborted = ""
        self.disturbed = False
        self._folder = folder
        self._protocol = protocol
        self._callbacks = callbacks
        self._ordered = False

    def wait(self) -> None:
        """Until the run has ended and its supervisor has said how."""
        while not wait_supervisor_ended(self._folder, POLL_S):
            self._look(time.time())
        if read_status(self._folder).training_alive:  # its supervisor was killed; the training was not
            self.given_up, self.disturbed = "Its supervisor was killed, and it was ended.", True
            adopt(self._folder)
            self._end()
            self.wait()
        self._read()

    def _read(self) -> list[Event]:
        events = self.reader.events()
        self.measured |= {event.rank or 0: event for event in events if isinstance(event, TrialMeasured)}
        return events

    def _look(self, now: float) -> None:
        self._read()
        if self._ordered:
            return
        state = self.reader.state
        self.aborted = self._aborted(now)
        if not self.aborted and not self._all_measured(state):
            self.given_up = overdue_reason(state, self._protocol, now)
            self.disturbed = state.last_step_t is not None
        if self.aborted or self.given_up or self._all_measured(state):
            self._end()

    def _all_measured(self, state: RunState) -> bool:
        """A process that is alone ends by itself; of several, each waits for the others."""
        return len(state.ranks) > 1 and len(self.measured) >= len(state.ranks)

    def _aborted(self, now: float) -> str:
        if self._callbacks.aborted():
            return "Aborted."
        deadline = self._callbacks.deadline_t
        return "" if deadline is None or now < deadline else "The time for the tuning was over."

    def _end(self) -> None:
        self._ordered = True
        send_order(self._folder, "kill")


def overdue_reason(state: RunState, protocol: TrialProtocol, now: float) -> str:
    """Why a trial in this state goes on no longer, one sentence; empty while it may."""
    began, last = state.launched_t, state.last_step_t
    if began is None:
        return ""
    if last is None:
        patience = protocol.compiling_s if state.phase == "compiling" else protocol.first_step_s
        if now - began < patience:
            return ""
        seen = "" if state.ranks else " The observer was not seen in it: it may not get into this command."
        return f"It took no optimizer step in {patience / 60:.0f} minutes.{seen or FIRST_STEP_HINT}"
    patience = max(protocol.stalled_s, 5 * (state.rates.step_time_s or 0.0))
    patience = protocol.compiling_s if state.phase == "compiling" else patience
    idle = now - max(last, state.phase_since_t or last)
    return f"It stood still for {idle:.0f} s." if idle >= patience else ""


def end_run(folder: RunFolder) -> None:
    """End a trial that somebody left behind, and wait for its end."""
    found = read_status(folder)
    if found.kind in ("foreign", "broken") or not found.live:
        return
    if found.kind == "lost":
        adopt(folder)
    send_order(folder, "kill")
    while not wait_supervisor_ended(folder, POLL_S * 20):
        continue


def unreachable_settings(situation: Situation) -> frozenset[str]:
    """The tuned settings that cannot be injected into this training.

    With a Trainer, those that the observer found no place for; without one, all but those of a DataLoader. Empty for
    every other way of passing settings.
    """
    job, state = situation.job, situation.state
    if not isinstance(job, CommandJob) or job.apply != "inject" or not state.in_effect:
        return frozenset()
    if ACCUMULATION in state.in_effect:  # only a Trainer's arguments report it
        return frozenset(state.not_injected) & frozenset(TUNED_FIELDS)
    return frozenset(TUNED_FIELDS) - LOADER_FIELDS

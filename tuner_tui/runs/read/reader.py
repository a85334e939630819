"""Reads a run from its folder: all that the screen and the command line know of it, or its row in the list of runs."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tuner_tui.core.files import is_irregular
from tuner_tui.core.line_files import LineTail
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import History, HistoryBuilder, mean_rates, phase_at, seconds_left
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, Finished, Started, Steps
from tuner_tui.runs.read.event_sampling import END, HISTORY, NEWEST, RankClocks, Sampling, sampled_new_lines
from tuner_tui.runs.read.status import RunStatus, read_status
from tuner_tui.runs.store.codec import decode_events, decode_sample
from tuner_tui.runs.store.folder import RunFolder, read_supervisor_state
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record
from tuner_tui.runs.store.remedy_outcomes import VERDICT_WORDS, RemedyVerdict, recorded_verdict
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot

if TYPE_CHECKING:
    from tuner_tui.runs.log_parsing.log_follower import LogOnlyFollower

RECENT_SAMPLES = 300
"""Five minutes of samples, for sparklines."""
SAMPLES_TAIL_BYTES = 2 << 20
BRIEF_LOOK_BYTES = 64 << 10
"""Of the output of a run without observer, for its line in a list."""


class RunView(Struct, frozen=True):
    """A run at one moment. `record` is None, and `record_problem` a sentence, if `run.json` cannot be read.

    `sample` is the newest hardware sample, `samples` the recent ones, oldest first. They are of the supervisor's
    machine, `host`.
    """

    state: RunState
    history: History
    status: RunStatus
    sample: Sample | None = None
    samples: tuple[Sample, ...] = ()
    record: RunRecord | None = None
    record_problem: str | None = None
    host: str | None = None


class RunReader:
    """Follows one run. The first `poll` of a long run reads its story events, a sample of its counters, and its end."""

    def __init__(self, folder: RunFolder, sampling: Sampling = HISTORY, first_look_bytes: int | None = None) -> None:
        self.folder = folder
        self._sampling = sampling
        self._first_look_bytes = first_look_bytes
        self._clocks = RankClocks()
        self.state = RunState()
        """The state as of the last poll."""
        self._history = HistoryBuilder()
        self._tails: dict[Path, LineTail] = {}
        self._samples_tail = LineTail(folder.samples)
        self._samples: deque[Sample] = deque(maxlen=RECENT_SAMPLES)
        self._host: str | None = None  # the supervisor's, which does not change
        self._record: RunRecord | None = None
        self._log_follower: LogOnlyFollower | None = None
        self._observed = False
        self._unconfirmed: list[Event] = []

    def poll(self, with_samples: bool = True) -> RunView:
        """Read what is new and return the current view. Reads files: not for an event loop."""
        self.events()
        tail = self._samples_tail
        if tail.size() - tail.offset > SAMPLES_TAIL_BYTES:
            tail.skip_to(tail.size() - SAMPLES_TAIL_BYTES)  # the torn line there decodes to nothing
        lines = tail.lines() if with_samples else ()
        self._samples += (sample for line in lines if (sample := decode_sample(line)) is not None)
        record, problem = self.record()
        if self._host is None:
            supervisor = read_supervisor_state(self.folder.state)
            self._host = None if supervisor is None else supervisor.machine.host
        return RunView(
            state=self.state,
            history=self._history.history(),
            status=read_status(self.folder),
            sample=self._samples[-1] if self._samples else None,
            samples=tuple(self._samples),
            record=record,
            record_problem=problem,
            host=self._host,
        )

    def events(self) -> list[Event]:
        """The new events of all ranks, ordered by time and folded into the state; sampled where there are very many.

        An end is held back until the run has ended that way: the training writes to the same files.
        """
        paths = self.folder.event_files()
        tails = [self._tails.setdefault(path, LineTail(path)) for path in paths]
        lines = (line for tail in tails for line in sampled_new_lines(tail, len(tails), self._sampling))
        events = self._clocks.corrected(list(decode_events(lines)), time.time())
        events = self._without_false_ends(sorted((*self._unconfirmed, *events), key=lambda event: event.t))
        events = self._events_from_log(events) + events  # before the end, where that is among them
        self.state = fold_all(self.state, events)
        for event in events:
            self._history.add(event)
        return events

    def _without_false_ends(self, events: list[Event]) -> list[Event]:
        # Any process of the training can write to the event files. An end counts when the supervisor, by its state and
        # lock, says the same; while the run goes on it is held back and looked at again.
        ends = [event for event in events if isinstance(event, Finished)]
        if not ends:
            return events
        status = read_status(self.folder)
        goes_on = status.kind == "running" or status.training_alive
        self._unconfirmed = [*ends] if goes_on else []
        rejected = [event for event in ends if goes_on or status.outcome not in (None, event.outcome)]
        return [event for event in events if event not in rejected]

    def _events_from_log(self, events: list[Event]) -> list[Event]:
        """Events derived from the output, until the observer reports a step."""
        # The steps of runs without observer are read from their output and are in no event file.
        steps = (
            isinstance(event, Steps) or (isinstance(event, Finished) and event.step is not None) for event in events
        )
        self._observed = self._observed or any(steps)
        if self._observed or self.record()[0] is None:
            return []
        if self._log_follower is None:
            from tuner_tui.runs.log_parsing.log_follower import LogOnlyFollower  # most runs are observed

            self._log_follower = LogOnlyFollower(self.folder.output_log, self._first_look_bytes)
        over = self.state.finished is not None or any(isinstance(event, Finished) for event in events)
        started = bool(self.state.ranks) or any(isinstance(event, Started) for event in events)
        return self._log_follower.events(time.time(), over=over, observed=started)

    def record(self) -> tuple[RunRecord | None, str | None]:
        """The record, or None and a sentence that says what is wrong with it."""
        if self._record is None:
            try:
                self._record = read_record(self.folder)
            except RecordError as error:
                return None, str(error)
        return self._record, None


Readers = dict[Path, RunReader]
"""Of runs that go on, by their folder: who lists them again and again reads only what is new."""


def read_brief(folder: RunFolder, snapshot: ProcessSnapshot | None = None, readers: Readers | None = None) -> RunView:
    """The newest state of a run without its history and samples, for its line in a list.

    Of a run that ended only the end of its events is read, which says how far it came.
    """
    status = read_status(folder, snapshot=snapshot)
    reader = RunReader(folder, END if status.outcome is not None else NEWEST, BRIEF_LOOK_BYTES)
    if readers is not None and status.outcome is None:
        reader = readers.setdefault(folder.path, reader)
    reader.events()
    finished = reader.state.finished
    counted = finished is not None and (finished.step is None or reader.state.total_steps is not None)
    if status.outcome is not None and not counted:  # written by an older version, or not at all
        reader = RunReader(folder, NEWEST, BRIEF_LOOK_BYTES)
        reader.events()
    record, problem = reader.record()
    return RunView(reader.state, History(), status, record=record, record_problem=problem)


class RunRow(Struct, frozen=True):
    """One run of the list. `created_t` is in seconds since the epoch; `tuning` is the tuning whose trial it is.

    `age_s` is the time since the run was created, `duration_s` from its start to its end or, while it runs, to now.
    `steps_s` is the current speed of a live run, and the mean speed of an ended one. `title` is its preset or command.
    `damage` says which file of the run cannot be read; empty if all can. `remedy` says whether the remedy that it was
    started with did what was promised.
    """

    run: str
    status: str
    sentence: str
    path: str
    outcome: str | None = None
    pid: int | None = None
    phase: str | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_s: float | None = None
    age_s: float | None = None
    duration_s: float | None = None
    steps_s: float | None = None
    loss: float | None = None
    loss_problem: str = ""
    created_t: float | None = None
    ended_t: float | None = None
    preset: str | None = None
    command: tuple[str, ...] = ()
    parent: str | None = None
    tuning: str | None = None
    title: str = ""
    damage: str = ""
    remedy: RemedyVerdict | None = None

    @property
    def label(self) -> str:
        """What the run trains, whether its loss is a number, and what came of its remedy."""
        remedy = "" if self.remedy is None else f"remedy {VERDICT_WORDS[self.remedy]}"
        return " · ".join(filter(None, (self.title, self.loss_problem, remedy)))

    @property
    def ended_age_s(self) -> float | None:
        """The time since the end of the run; since it was created where its end is unknown."""
        lasted_s = _span(self.created_t, self.ended_t)
        return self.age_s if self.age_s is None or lasted_s is None else self.age_s - lasted_s


def list_run_or_damage(
    folder: RunFolder, now: float, snapshot: ProcessSnapshot | None = None, readers: Readers | None = None
) -> RunRow:
    """Return the row of a run; of one that cannot be read, a row that says so."""
    try:
        return list_run(folder, now, snapshot, readers)
    except Exception as error:  # noqa: BLE001  whatever is wrong with one run, the others are listed
        problem = f"{type(error).__name__}: {error}"
        return RunRow(folder.id, "broken", problem, str(folder.path), damage=damage_line(folder, problem))


def list_run(
    folder: RunFolder, now: float, snapshot: ProcessSnapshot | None = None, readers: Readers | None = None
) -> RunRow:
    """Return the row of a run at `now`, in seconds since the epoch."""
    view = read_brief(folder, snapshot, readers)
    state, record = view.state, view.record
    live = view.status.live
    created_t = None if record is None else record.created_t
    rates = state.rates if live else mean_rates(state.ranks.values())
    end_t = now if live else None if state.finished is None else state.finished.t
    supervision = read_supervisor_state(folder.state)
    started_t = created_t if supervision is None else supervision.started_t
    return RunRow(
        run=folder.id,
        status=view.status.kind,
        sentence=view.status.sentence,
        path=str(folder.path),
        outcome=view.status.outcome,
        pid=view.status.pid,
        phase=phase_at(state, now) if live else None,
        step=state.step,
        total_steps=state.total_steps,
        eta_s=seconds_left(state, now) if live else None,
        age_s=_span(created_t, now),
        duration_s=_span(started_t, end_t),
        steps_s=rates.steps_s,
        loss=state.loss,
        loss_problem=state.loss_problem,
        created_t=created_t,
        ended_t=None if live else end_t,
        preset=None if record is None else record.preset,
        command=() if record is None else record.argv,
        parent=None if record is None else record.parent,
        tuning=None if record is None else record.tuning,
        title="" if record is None else record.title,
        damage=_damage(folder, view),
        remedy=recorded_verdict(folder.id),
    )


def damage_line(folder: RunFolder, problem: str) -> str:
    return f"{folder.id} is damaged: {problem.removeprefix(f'{folder.path}/')}"


def _span(start_t: float | None, end_t: float | None) -> float | None:
    """Seconds between two times, 0 if a clock was set back; None if either is unknown."""
    return None if start_t is None or end_t is None else max(0.0, end_t - start_t)


def _damage(folder: RunFolder, view: RunView) -> str:
    """Return a sentence about files of the run that cannot be read; empty if all can."""
    files = (folder.record, folder.state, *folder.event_files(), folder.samples, folder.output_log, folder.control)
    for path in filter(is_irregular, (*files, folder.lock)):  # a folder, pipe, device or link
        return damage_line(folder, f"{path.name} is not a regular file.")
    if view.status.kind == "broken":
        return damage_line(folder, view.status.sentence)
    unwritten = view.status.kind == "starting" or view.status.outcome == "not-started"
    return "" if view.record_problem is None or unwritten else damage_line(folder, view.record_problem)

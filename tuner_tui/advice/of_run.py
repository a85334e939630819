"""The situation of a run, gathered from its folder."""

from __future__ import annotations

import time
from dataclasses import replace

from tuner_tui.advice.seen import seen_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.runs import excerpt
from tuner_tui.runs.events import Finished
from tuner_tui.runs.folder import RunFolder
from tuner_tui.runs.processes import this_machine
from tuner_tui.runs.reader import RunReader, RunView
from tuner_tui.runs.record import RunRecord
from tuner_tui.runs.state import RunState
from tuner_tui.settings.job import BuiltinJob


def situation_of_run(folder: RunFolder) -> Situation:
    """Everything a run folder holds, as of now; as of its end where it ended. Raises `OSError`.

    The inventory is of this box, and left out for a run of another one. Asks the driver, which may take seconds.
    """
    return situation_of_view(folder, RunReader(folder).poll())


def situation_of_view(folder: RunFolder, view: RunView) -> Situation:
    """The same for somebody who has read the run already."""
    state, record = view.state, view.record
    if state.finished is None and not view.status.live:
        state = replace(state, finished=Finished(t=state.last_event_t or 0.0, outcome="lost"))
    ended = state.finished is not None
    return replace(
        checked_situation(state, record),
        now_s=(state.last_event_t or time.time()) if ended else time.time(),
        inventory=read_inventory(folder.path) if record is not None and record.host == this_machine().host else None,
        samples=view.samples,
        log=excerpt.of_file(folder.output_log) if folder.output_log.exists() else (),
    )


def checked_situation(state: RunState, record: RunRecord | None) -> Situation:
    """As much of the situation as a run's state and record tell, which is all the checklist needs; reads nothing."""
    return Situation(
        state=state,
        now_s=state.last_event_t or 0.0,
        settings=None if record is None else seen_settings(record.resolved, record.job, state.in_effect),
        interpreter=None if record is None else Interpreter(record.interpreter, packages=record.versions),
        job=None if record is None else record.job,
        chosen=handed_over(record),
        resumed_from=None if record is None else record.resumed_from,
        not_applied=() if record is None else record.not_applied,
        memory_limit_bytes=None if record is None else record.memory_limit_bytes,
    )


def handed_over(record: RunRecord | None) -> frozenset[str] | None:
    """The settings that a launch handed to somebody else's command; None for the built-in job, which takes all."""
    return None if record is None or isinstance(record.job, BuiltinJob) else record.resolved.chosen

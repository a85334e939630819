"""Finds which run a run goes on from, and whether it does so faithfully."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tuner_tui.core.files import read_data_file
from tuner_tui.inspection.faithful_resume import STEPS, Part, RankHistory, ResumeCheck, compare_resumed
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.checkpoints import FILE, read_checkpoint, reported_checkpoints
from tuner_tui.runs.read.recorded_batches import read_batches, read_states
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import RunRecord, readable_record

MAX_PARENTS = 32
"""Newest runs that are asked for a checkpoint that a command names."""
SETTLED_STEPS = 4 * STEPS
"""After so many steps everything that is compared is written."""


def read_resume_check(folder: RunFolder, state: RunState) -> ResumeCheck | None:
    """Return what the first steps of a run say of how it resumed; None if it resumed from no run that is known.

    Read again only until `SETTLED_STEPS` steps were made, and at the end.
    """
    steps = max((counters.own_steps for counters in state.counters), default=0)
    if not steps:
        return None
    origin = _origin(folder)
    if origin is None:
        return None
    return _check(folder, *origin, state.accepts_orders, min(steps, SETTLED_STEPS), state.finished is not None)


@lru_cache(maxsize=4)
def _check(
    folder: RunFolder, parent: RunFolder, step: int, counts_on: bool, steps: int, ended: bool
) -> ResumeCheck | None:
    record = readable_record(folder)
    before, batches, earlier = readable_record(parent), read_batches(folder), read_batches(parent)
    parts: dict[Part, list[str]] = read_data_file(FILE)["settings_of_parts"]
    changed = frozenset(part for part, names in parts.items() if before and record and _differs(before, record, names))
    check = ResumeCheck(parent.id, step, min(STEPS, steps))
    ranks = _ranks(folder)
    if ranks != _ranks(parent):
        changed |= {"data", "random numbers", "loss"}  # other processes share the data in another way
    for rank in sorted(ranks):
        before_it, after_it = (
            RankHistory(read_states(run, rank), [batch for batch in recorded if batch.rank == rank])
            for run, recorded in ((parent, earlier), (folder, batches))
        )
        mismatches, compared = compare_resumed(before_it, after_it, step, counts_on=counts_on, changed=changed)
        check = ResumeCheck(parent.id, step, check.steps, mismatches, check.compared or compared)
        if mismatches:
            break
    return check


def _ranks(folder: RunFolder) -> set[int]:
    names = (path.stem.removeprefix("states-rank") for path in folder.path.glob("states-rank*.jsonl"))
    return {int(name) for name in names if name.isdecimal()}


def _differs(before: RunRecord, record: RunRecord, names: list[str]) -> bool:
    return any(
        getattr(before.resolved.settings, name, None) != getattr(record.resolved.settings, name, None) for name in names
    )


@lru_cache(maxsize=4)
def _origin(folder: RunFolder) -> tuple[RunFolder, int] | None:
    """The run that wrote the checkpoint that this one started from, and its step there."""
    record = readable_record(folder)
    if record is None:
        return None
    if record.resumed_from is not None:
        named = {Path(record.resumed_from)}
        parents = [folder.path.with_name(name) for name in reversed(record.lineage)]
    else:
        words = (word.rpartition("=")[2] for word in record.argv[1:])
        named = {path for word in words if "/" in word or "." in word if (path := Path(record.cwd, word)).exists()}
        parents = [run.path for run in list_runs(folder.path.parent) if run.path != folder.path][:MAX_PARENTS]
    for path in parents if named else ():
        run = RunFolder(path)
        for event in reversed(reported_checkpoints(run)):
            if event.step is not None and Path(event.path) in named:
                return run, event.step
    saved = read_checkpoint(Path(record.resumed_from)) if record.resumed_from is not None else None
    return None if saved is None or not parents else (RunFolder(parents[0]), saved.step)

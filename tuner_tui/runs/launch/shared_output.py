"""Finds live runs that write into the folder that a new run would write to: each overwrites what the other saves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner_tui.runs.read.checkpoints import named_outputs
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record


def shared_outputs(root: Path, argv: Sequence[str], cwd: Path, parent: RunFolder | None) -> tuple[str, ...]:
    """A sentence for each live run below `root` that writes where `argv`, run in `cwd`, would write.

    Folders are those that the commands name; two runs of one script without such a name share what one has saved.
    `parent`, the run that is resumed, is left out: it ends first.
    """
    mine = {os.path.realpath(path) for path in named_outputs(argv, cwd)}
    found = []
    for folder in list_runs(root):
        if (parent is not None and folder.path == parent.path) or not read_status(folder).live:
            continue
        try:
            record = read_record(folder)
        except RecordError:
            continue
        theirs = {os.path.realpath(path) for path in named_outputs(record.argv, Path(record.cwd))}
        shared = sorted(mine & theirs) or (sorted(_saved(folder, record, argv, cwd)) if not mine | theirs else [])
        if shared:
            found.append(f"run {folder.id} writes to {shared[0]} too")
    return tuple(found)


def _saved(folder: RunFolder, record: RunRecord, argv: Sequence[str], cwd: Path) -> Iterator[str]:
    """What a live run of the same script in the same folder has saved outside of its own output folder."""
    scripts = [word for word in argv if word.endswith(".py")][:1]
    if not scripts or Path(record.cwd) != cwd or scripts[0] not in record.argv:
        return
    state = RunReader(folder).poll().state
    for event in (state.saved, state.checkpoint):
        if event is not None and not Path(event.path).is_relative_to(record.output_dir):
            yield event.path

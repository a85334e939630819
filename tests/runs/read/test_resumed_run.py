"""Which run a run goes on from: named at the launch, or by the words of its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from tests.fakes.situations import training
from tests.inspection.test_faithful_resume import SAVED_AT, child, parent
from tests.runs.store.test_record import record
from tuner_tui.inspection.faithful_resume import RankHistory
from tuner_tui.runs.events.types import Saved
from tuner_tui.runs.read.recorded_batches import read_resume_check
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.store.record import write_record


def write_run(root: Path, history: RankHistory, **fields: Any) -> RunFolder:
    folder = create_folder(root)
    write_record(folder, record(id=folder.id, **fields))
    for name, lines in (("states-rank0.jsonl", history.states), ("batches-rank0.jsonl", history.batches)):
        (folder.path / name).write_text("".join(f"{json.dumps(to_builtins(line))}\n" for line in lines))
    return folder


@pytest.mark.parametrize("named_by", ["launch", "command", "nobody"])
def test_the_run_that_saved_the_checkpoint_is_the_parent(tmp_path: Path, named_by: str) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    checkpoint.touch()
    saved = write_run(tmp_path / "runs", parent(goes_on=True))
    event = Saved(t=1.0, rank=0, step=SAVED_AT, path=str(checkpoint), resumable=True)
    saved.events.write_bytes(encode_event(event))
    fields: dict[str, Any] = {"parent": saved.id, "lineage": (saved.id,), "resumed_from": str(checkpoint)}
    if named_by != "launch":
        fields = {"argv": ("python", "train.py", *(("--resume", "checkpoint.pt") if named_by == "command" else ()))}
    resumed = write_run(tmp_path / "runs", child(moments=False), cwd=str(tmp_path), **fields)
    check = read_resume_check(resumed, training())
    if named_by == "nobody":
        assert check is None
    else:
        assert check is not None
        assert (check.parent, check.step, check.mismatches[0].part) == (saved.id, SAVED_AT, "optimizer")


def test_ranks_of_another_number_have_other_data(tmp_path: Path) -> None:
    saved = write_run(tmp_path / "runs", parent(goes_on=True))
    event = Saved(t=1.0, rank=0, step=SAVED_AT, path="/saved/checkpoint.pt", resumable=True)
    saved.events.write_bytes(encode_event(event))
    moved = RankHistory(child().states, [replace(batch, rows=((60, 61),)) for batch in child().batches])
    resumed = write_run(tmp_path / "runs", moved, lineage=(saved.id,), resumed_from=event.path)
    (resumed.path / "states-rank1.jsonl").touch()
    check = read_resume_check(resumed, training())
    assert check is not None
    assert check.mismatches == ()


def test_what_was_changed_on_purpose_is_not_compared(tmp_path: Path) -> None:
    saved = write_run(tmp_path / "runs", parent(goes_on=True))
    event = Saved(t=1.0, rank=0, step=SAVED_AT, path="/saved/checkpoint.pt", resumable=True)
    saved.events.write_bytes(encode_event(event))
    resolved = record().resolved
    changed = replace(resolved, settings=resolved.settings.changed(learning_rate=0.5))
    fields: dict[str, Any] = {"lineage": (saved.id,), "resumed_from": event.path, "resolved": changed}
    resumed = write_run(tmp_path / "runs", child(learning_rate=0.5), **fields)
    check = read_resume_check(resumed, training())
    assert check is not None
    assert check.verdict == "faithful"

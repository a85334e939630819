"""Which checkpoints are complete, and the newest of a lineage."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.runs.store.test_record import record
from tuner_tui.runs.events.types import Checkpoint
from tuner_tui.runs.read.checkpoints import (
    SavedCheckpoint,
    complete_checkpoints,
    lineage_checkpoint,
    newest_checkpoint,
    read_checkpoint,
)
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.store.record import RecordError, write_record


def save(output: Path, step: int, *, without: str = "") -> Path:
    path = output / f"checkpoint-{step}"
    path.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt"):
        (path / name).write_bytes(b"x")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    if without:
        (path / without).unlink()
    return path


def test_newest_first_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (1000, 900, 20):
        save(tmp_path, step)
    assert [saved.step for saved in complete_checkpoints(tmp_path)] == [1000, 900, 20]


@pytest.mark.parametrize(
    "damage",
    [
        *({"trainer_state.json": state} for state in ("", "{", "[]", "null", '{"global_step": "ten"}', "{}", None)),
        {"model.safetensors": None},
        {"model.safetensors": ""},
        {"optimizer.pt": None, "scheduler.pt": None},
        {"checkpoint-is-incomplete.txt": ""},  # on SIGTERM
    ],
)
def test_an_incomplete_one_does_not_count(tmp_path: Path, damage: dict[str, str | None]) -> None:
    save(tmp_path, 10)
    path = save(tmp_path, 20)
    for name, content in damage.items():
        (path / name).unlink() if content is None else (path / name).write_text(content)
    assert read_checkpoint(path) is None
    assert [saved.step for saved in complete_checkpoints(tmp_path)] == [10]


def test_every_shard_has_to_be_there(tmp_path: Path) -> None:
    path = save(tmp_path, 10, without="model.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "model-1.safetensors").write_bytes(b"x")
    assert read_checkpoint(path) is None
    (path / "model-2.safetensors").write_bytes(b"x")
    assert read_checkpoint(path) is not None


def run(root: Path, **changes: Any) -> RunFolder:
    folder = create_folder(root)
    write_record(folder, replace(record(), **{"id": folder.id, "output_dir": str(folder.output), **changes}))
    return folder


def path_of(checkpoint: SavedCheckpoint | None) -> Path | None:
    return None if checkpoint is None else checkpoint.path


def test_the_lineage_is_searched_from_its_end(tmp_path: Path) -> None:
    first = run(tmp_path)
    second = run(tmp_path, lineage=(first.id,))
    third = run(tmp_path, lineage=(first.id, second.id))
    assert lineage_checkpoint(third) is None
    oldest = save(first.output, 500)
    assert path_of(lineage_checkpoint(third)) == oldest
    newer = save(second.output, 700)
    assert path_of(lineage_checkpoint(third)) == newer
    second.record.unlink()
    assert path_of(lineage_checkpoint(third)) == oldest
    third.record.unlink()
    with pytest.raises(RecordError):
        lineage_checkpoint(third)


@pytest.mark.parametrize("lightning", [False, True])  # whose checkpoints are files
def test_the_checkpoint_that_the_observer_reported(tmp_path: Path, lightning: bool) -> None:
    folder, paths = run(tmp_path), []
    for step in (10, 20):
        paths.append(tmp_path / f"step={step}.ckpt" if lightning else save(tmp_path / "out", step))
        if lightning:
            paths[-1].write_bytes(b"weights")
        with folder.events.open("ab") as file:
            file.write(encode_event(Checkpoint(t=time.time(), rank=0, step=step, path=str(paths[-1]))))
    assert newest_checkpoint(folder) == SavedCheckpoint(paths[1], 20, by_trainer=True)
    (paths[1] if lightning else paths[1] / "model.safetensors").unlink()
    assert newest_checkpoint(folder) == SavedCheckpoint(paths[0], 10, by_trainer=True)


@pytest.mark.parametrize("argv", [("x", "--output_dir", "out"), ("x", "--output-dir=out"), ("x", "output_dir=out")])
def test_the_folder_that_the_command_names(tmp_path: Path, argv: tuple[str, ...]) -> None:
    save(tmp_path / "out", 900)
    os.utime(tmp_path / "out/checkpoint-900/trainer_state.json", (1000.0, 1000.0))
    folder = run(tmp_path, argv=argv, cwd=str(tmp_path), created_t=2000.0)
    assert newest_checkpoint(folder) is None  # of an earlier run
    path = save(tmp_path / "out", 30)
    assert newest_checkpoint(folder) == SavedCheckpoint(path, 30, by_trainer=False)

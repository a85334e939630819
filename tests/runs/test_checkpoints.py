"""Which checkpoints are complete, and the newest of a lineage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.test_record import record
from tuner_tui.runs.checkpoints import complete_checkpoints, lineage_checkpoint, read_checkpoint
from tuner_tui.runs.folder import create_folder
from tuner_tui.runs.record import RecordError, write_record


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


@pytest.mark.parametrize("missing", ["model.safetensors", "trainer_state.json"])
def test_an_incomplete_one_does_not_count(tmp_path: Path, missing: str) -> None:
    save(tmp_path, 10)
    save(tmp_path, 20, without=missing)
    assert [saved.step for saved in complete_checkpoints(tmp_path)] == [10]


def test_without_an_optimizer_it_cannot_be_resumed(tmp_path: Path) -> None:
    path = save(tmp_path, 10, without="optimizer.pt")
    (path / "scheduler.pt").unlink()
    assert read_checkpoint(path) is None


@pytest.mark.parametrize("state", ["", "{", "[]", "null", '{"global_step": "ten"}', "{}"])
def test_a_damaged_state_is_incomplete(tmp_path: Path, state: str) -> None:
    path = save(tmp_path, 10)
    (path / "trainer_state.json").write_text(state)
    assert read_checkpoint(path) is None


def test_every_shard_has_to_be_there(tmp_path: Path) -> None:
    path = save(tmp_path, 10, without="model.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "model-1.safetensors").write_bytes(b"x")
    assert read_checkpoint(path) is None
    (path / "model-2.safetensors").write_bytes(b"x")
    assert read_checkpoint(path) is not None


def test_an_empty_model_file_was_torn(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    (path / "model.safetensors").write_bytes(b"")
    assert read_checkpoint(path) is None


def test_no_folder_no_checkpoints(tmp_path: Path) -> None:
    assert complete_checkpoints(tmp_path / "none") == []


def test_the_lineage_is_searched_from_its_end(tmp_path: Path) -> None:
    first, second, third = (create_folder(tmp_path) for _ in range(3))
    for folder, lineage in ((first, ()), (second, (first.id,)), (third, (first.id, second.id))):
        write_record(folder, replace(record(), id=folder.id, output_dir=str(folder.output), lineage=lineage))
    assert lineage_checkpoint(third) is None
    oldest = save(first.output, 500)
    assert lineage_checkpoint(third) == oldest
    newer = save(second.output, 700)
    assert lineage_checkpoint(third) == newer
    second.record.unlink()
    assert lineage_checkpoint(third) == oldest
    third.record.unlink()
    with pytest.raises(RecordError):
        lineage_checkpoint(third)

"""Checkpoints on disk: which are complete, and the newest of a lineage of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.runs.folder import RunFolder
from tuner_tui.runs.record import RecordError, read_record

CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
MODEL_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
OPTIMIZER_FILES = ("optimizer.pt", "optimizer.bin", "scheduler.pt")


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A complete checkpoint and the optimizer step it was taken at."""

    path: Path
    step: int


def complete_checkpoints(output_dir: Path) -> list[SavedCheckpoint]:
    """The complete checkpoints in a Trainer's output folder, newest step first."""
    found = [saved for path in _candidates(output_dir) if (saved := read_checkpoint(path)) is not None]
    return sorted(found, key=lambda saved: saved.step, reverse=True)


def read_checkpoint(path: Path) -> SavedCheckpoint | None:
    """The checkpoint in `path`, or None where it is incomplete.

    Trainer writes `trainer_state.json` last, after model and optimizer: a checkpoint that has all three, with a state
    that can be read, was written to its end. Every shard that an index names has to be there.
    """
    try:
        step = json.loads((path / "trainer_state.json").read_bytes())["global_step"]
        whole = type(step) is int and _has_model(path) and _has_optimizer(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return SavedCheckpoint(path, step) if whole else None


def lineage_checkpoint(folder: RunFolder) -> Path | None:
    """The newest complete checkpoint of a run, or else of the nearest run before it that has one.

    Raises `RecordError` where the run's own record cannot be read.
    """
    record = read_record(folder)
    for output_dir in _output_dirs(folder, record.output_dir, record.lineage):
        saved = complete_checkpoints(output_dir)
        if saved:
            return saved[0].path
    return None


def _output_dirs(folder: RunFolder, own: str, lineage: tuple[str, ...]) -> Iterator[Path]:
    yield Path(own)
    for name in reversed(lineage):
        try:
            yield Path(read_record(RunFolder(folder.path.with_name(name))).output_dir)
        except RecordError:
            continue


def _candidates(output_dir: Path) -> list[Path]:
    try:
        return [path for path in output_dir.iterdir() if CHECKPOINT_NAME.fullmatch(path.name) and path.is_dir()]
    except OSError:
        return []


def _has_model(path: Path) -> bool:
    present = [path / name for name in MODEL_FILES if (path / name).is_file()]
    return bool(present) and all(_shards_present(file) for file in present)


def _shards_present(file: Path) -> bool:
    if not file.name.endswith(".index.json"):
        return file.stat().st_size > 0
    shards = set(json.loads(file.read_bytes())["weight_map"].values())
    return all((file.parent / str(shard)).is_file() for shard in shards)


def _has_optimizer(path: Path) -> bool:
    """DeepSpeed and FSDP keep the optimizer in folders of their own."""
    return any((path / name).is_file() for name in OPTIMIZER_FILES) or any(
        one.is_dir() for pattern in ("global_step*", "optimizer_*") for one in path.glob(pattern)
    )

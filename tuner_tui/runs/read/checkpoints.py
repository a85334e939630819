"""Checkpoints on disk: which are complete, and the newest of a lineage of runs."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file, read_regular
from tuner_tui.core.line_files import LineTail
from tuner_tui.runs.events.types import Checkpoint, Event, Saved
from tuner_tui.runs.read.event_sampling import sampled_new_lines
from tuner_tui.runs.store.codec import decode_events
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import RunRecord, read_record, readable_record

CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
FILE = Path(__file__).with_name("checkpoints.yaml")
STATE_FILE = "trainer_state.json"
MAX_STATE_BYTES = 256 << 20
"""A log history of a million steps."""
UNFINISHED_FILE = "checkpoint-is-incomplete.txt"
"""Transformers keeps this file in a checkpoint written on SIGTERM until it is complete."""
OUTPUT_LINE = re.compile(r"^output_dir: *(\S.*?) *$", re.MULTILINE)
E = TypeVar("E", bound=Event)


class SavedCheckpoint(Struct, frozen=True):
    """A complete checkpoint and its optimizer step.

    `by_trainer`: the observer saw a Trainer write it, and can pass it to one. `weights_only`: a script saved it, with
    nothing but weights: only an option of its own can go on from it.
    """

    path: Path
    step: int
    by_trainer: bool = False
    weights_only: bool = False


def complete_checkpoints(output_dir: Path) -> list[SavedCheckpoint]:
    """The complete checkpoints in the output folder of a Trainer, newest step first."""
    checkpoints = [saved for path in _candidates(output_dir) if (saved := read_checkpoint(path)) is not None]
    return sorted(checkpoints, key=lambda saved: saved.step, reverse=True)


def read_checkpoint(path: Path) -> SavedCheckpoint | None:
    """The checkpoint in `path`, or None if it is incomplete.

    Trainer writes `trainer_state.json` last, after model and optimizer: a checkpoint that has all three, with a
    readable state, is complete. Every shard named by an index must exist.
    """
    try:
        step = json.loads(read_regular(path / STATE_FILE, MAX_STATE_BYTES, follow_links=True))["global_step"]
        whole = (
            type(step) is int and not (path / UNFINISHED_FILE).exists() and _has_model(path) and _has_optimizer(path)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return SavedCheckpoint(path, step) if whole else None


def lineage_checkpoint(folder: RunFolder, before: float = math.inf) -> SavedCheckpoint | None:
    """The newest complete checkpoint of a run, or else of its nearest ancestor that has one; of a step `before` that.

    Raises `RecordError` if the record of the run cannot be read.
    """
    record = read_record(folder)
    for run in (folder, *(RunFolder(folder.path.with_name(name)) for name in reversed(record.lineage))):
        newest = newest_checkpoint(run, before)
        if newest is not None:
            return newest
    return None


def newest_checkpoint(folder: RunFolder, before: float = math.inf) -> SavedCheckpoint | None:
    """The newest complete checkpoint that this run wrote: as reported by its events, in its own output folder, in a
    folder named by its command, or saved by the script itself. None if there is none or the record cannot be read."""
    # A report of the observer is the best evidence, as it was written by this run and completely. A folder that the
    # command names may hold checkpoints of other runs: only what was written since the launch counts. The folder of the
    # run itself holds nothing else. What a script saved by `torch.save` is the last resort, since only its own option
    # can read it.
    record = readable_record(folder)
    if record is None:
        return None
    reported = _reported(folder, Checkpoint)
    for event in reversed(reported):
        path = Path(event.path)
        is_file = os.path.isfile(path)  # noqa: PTH113  Path.is_file raises for what may not be looked at
        saved = SavedCheckpoint(path, event.step) if is_file else read_checkpoint(path)
        if saved is not None and saved.step < before:
            return replace(saved, by_trainer=True)
    shared = {*named_dirs(folder, record), *(Path(event.path).parent for event in reported[-1:])}
    mine = [saved for path in shared for saved in complete_checkpoints(path) if _written_since(saved, record.created_t)]
    mine += complete_checkpoints(Path(record.output_dir))
    newest = max((saved for saved in mine if saved.step < before), key=lambda saved: saved.step, default=None)
    return _saved_by_script(folder, before) if newest is None else replace(newest, by_trainer=bool(reported))


def _saved_by_script(folder: RunFolder, before: float) -> SavedCheckpoint | None:
    """The newest that a script saved itself and that is still there; weights alone if there is nothing else."""
    reported = [event for event in _reported(folder, Saved) if os.path.exists(event.path)]  # noqa: PTH110  Path.exists raises
    newest_of = {event.path: event for event in reported}  # a file may be written over and over
    saved = [
        checkpoint
        for checkpoint in reported
        if newest_of[checkpoint.path] is checkpoint and (checkpoint.step is None or checkpoint.step < before)
    ]
    newest = max(reversed(saved), key=lambda event: event.resumable, default=None)
    if newest is None or newest.step is None:
        return None
    return SavedCheckpoint(Path(newest.path), newest.step, weights_only=not newest.resumable)


def reported_checkpoints(folder: RunFolder) -> list[Checkpoint | Saved]:
    """What a run reported to have saved: the script's own files, then the checkpoints of a Trainer."""
    return [*_reported(folder, Saved), *_reported(folder, Checkpoint)]


def _reported(folder: RunFolder, kind: type[E]) -> list[E]:
    """The events of one kind, in order."""
    # Story events survive every sampling; looking for the word first saves parsing the counters in between.
    word = f'"{kind.kind}"'.encode()
    lines = (line for path in folder.event_files() for line in sampled_new_lines(LineTail(path)) if word in line)
    return [event for event in decode_events(lines) if isinstance(event, kind)]


def named_outputs(argv: Sequence[str], cwd: Path) -> Iterator[Path]:
    """The output folders that a command line names."""
    for index, word in enumerate(argv):
        name, equals, value = word.lstrip("-").partition("=")
        if name.replace("-", "_") in read_data_file(FILE)["output_options"]:
            yield cwd / (value if equals else argv[index + 1] if index + 1 < len(argv) else "")


def named_dirs(folder: RunFolder, record: RunRecord) -> Iterator[Path]:
    """The output folders named by the command line or the configuration file; other runs may write there too."""
    cwd = Path(record.cwd)
    yield from named_outputs(record.argv, cwd)
    try:
        match = OUTPUT_LINE.search(read_regular(folder.config).decode("utf-8", "replace"))
    except OSError:
        return
    if match:
        yield cwd / match[1].strip("'\"")


def _written_since(saved: SavedCheckpoint, t: float) -> bool:
    """Whether the checkpoint was written after `t`: a folder may hold those of other runs."""
    try:
        return (saved.path / STATE_FILE).stat().st_mtime >= t
    except OSError:
        return False


def _candidates(output_dir: Path) -> list[Path]:
    try:
        return [path for path in output_dir.iterdir() if CHECKPOINT_NAME.fullmatch(path.name) and path.is_dir()]
    except (OSError, ValueError):  # a null byte
        return []


def _has_model(path: Path) -> bool:
    present = [path / name for name in read_data_file(FILE)["model_files"] if (path / name).is_file()]
    return bool(present) and all(_shards_present(file) for file in present)


def _shards_present(file: Path) -> bool:
    if not file.name.endswith(".index.json"):
        return file.stat().st_size > 0
    shards = set(json.loads(read_regular(file, MAX_STATE_BYTES, follow_links=True))["weight_map"].values())
    return all((file.parent / str(shard)).is_file() for shard in shards)


def _has_optimizer(path: Path) -> bool:
    """DeepSpeed and FSDP store the optimizer in folders."""
    return any((path / name).is_file() for name in read_data_file(FILE)["optimizer_files"]) or any(
        folder.is_dir() for pattern in ("global_step*", "optimizer_*") for folder in path.glob(pattern)
    )

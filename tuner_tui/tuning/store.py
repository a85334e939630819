"""Tuning folders, `<state>/tunings/<id>/`: their files, locks and `tuning.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tuner_tui.core.file_locks import acquire_lock, is_locked
from tuner_tui.core.files import read_regular, write_atomic
from tuner_tui.core.json_struct import AbsolutePath, GpuUuid, Identifier, ProgramPath, Time
from tuner_tui.core.numbered_folders import NumberedFolders
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.folder import FolderFile, StateFolder, state_dir
from tuner_tui.runs.store.record import read_launched
from tuner_tui.settings.job import Job
from tuner_tui.settings.model import Resolved
from tuner_tui.tuning.trial import DEFAULT_MINUTES, Objective

TUNINGS = NumberedFolders("t", "tuning")
ABORT = "abort"
MACHINE_LOCK = "lock"
WHY_EXCLUSIVE = "two at once would disturb each other"


class AlreadyTuningError(LaunchError):
    """Another tuning is running on this machine; the message names it."""


class TuningFolder(StateFolder, frozen=True):
    """The files of one tuning, whose process is the tuner."""

    record = FolderFile("tuning.json")
    trials = FolderFile("trials.jsonl")
    """The log: one JSON object per line, append-only."""
    preset = FolderFile("winner.yaml")
    """The winner's preset as it is checked, before it is saved among the user's."""
    log = FolderFile("tuner.log")
    """Standard error of the tuner process."""

    @property
    def live(self) -> bool:
        """Whether the tuner process is alive. Raises `OSError`."""
        return is_locked(self.lock)

    @property
    def machine_lock(self) -> Path:
        """Lock shared by all tunings of a state directory."""
        return self.path.parent / MACHINE_LOCK

    def abort(self) -> None:
        """Ask the tuner process to end its trial and stop; its measurements are kept. Raises `OSError`."""
        write_atomic(self.control, ABORT + "\n")

    def aborted(self) -> bool:
        try:
            return read_regular(self.control).decode("ascii", "replace").strip() == ABORT
        except OSError:
            return False


def tunings_dir(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "tunings"


def list_tunings(root: Path) -> list[TuningFolder]:
    """Return all tuning folders in `root`, newest first."""
    return [TuningFolder(path) for path in TUNINGS.newest_first(root)]


def ensure_no_other_tuning(root: Path, exempt: TuningFolder | None = None) -> None:
    """Raise `AlreadyTuningError` if a tuning other than `exempt` is running. Raises `OSError`."""
    for folder in list_tunings(root):
        if folder != exempt and folder.live:
            raise AlreadyTuningError(f"Tuning {folder.id} is running on this machine; {WHY_EXCLUSIVE}.")


def acquire_locks(folder: TuningFolder) -> tuple[int, int]:
    """Acquire the locks of `folder` and of the machine and return their file descriptors.

    The folder's lock comes first, so that the tuning that holds the machine can be named. Raises `LockedError` and
    `OSError`.
    """
    tuning_lock = acquire_lock(folder.lock)
    return tuning_lock, acquire_lock(folder.machine_lock)


def find_tuning(name: str, root: Path) -> TuningFolder:
    """Return the tuning `name`: its id, also without letter or zeros. Raises `FolderNotFoundError`."""
    return TuningFolder(TUNINGS.find(name, root))


Cluster = Literal["ray"]
NO_RAY = "--on ray needs the package ray, here and on all nodes: pip install ray."


class TuningOptions(Struct, frozen=True, kw_only=True):
    """How to tune.

    Attributes:
        free_batch: Whether the effective batch may change.
        most_minutes: The time that the tuning may take.
        save_as: Name of the winner's preset; None to derive it from the preset or the command.
        objective: What is made faster: the whole job where its length is known, or its steady throughput.
        GPUs: UUIDs of the GPUs on which trials run side by side; empty for one trial at a time, and on a cluster.
        on: Where trials run: "ray", on the workers of a Ray cluster; None for this machine.
        most_gpus: The most workers of a cluster that are used at once; None for all that are free.
    """

    free_batch: bool = False
    most_minutes: float = DEFAULT_MINUTES
    save_as: str | None = None
    objective: Objective = "job"
    gpu_uuids: tuple[GpuUuid, ...] = ()
    on: Cluster | None = None
    most_gpus: int | None = None


class TuningRecord(TuningOptions, frozen=True, kw_only=True):
    """What is tuned, from which settings on, and how, with secrets redacted. Written once."""

    id: Identifier
    title: str
    created_t: Time
    job: Job
    resolved: Resolved
    cwd: AbsolutePath
    interpreter: ProgramPath | None = None
    preset: str | None = None
    memory_limit_bytes: int | None = None


def read_tuning_record(folder: TuningFolder) -> TuningRecord:
    """Read `tuning.json`. Raises `RecordError` if it is missing, damaged, or of a newer version."""
    return read_launched(folder.record, TuningRecord)

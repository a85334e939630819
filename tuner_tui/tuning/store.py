"""Tuning folders, `<state>/tunings/<id>/`: their files, locks and `tuning.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner_tui.core.atomic_file import write_atomic
from tuner_tui.core.locks import acquire_lock, is_locked
from tuner_tui.core.numbered_folders import NumberedFolders
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.folder import state_dir
from tuner_tui.runs.store.record import RecordError, resolved_from_json
from tuner_tui.settings.job import Job
from tuner_tui.settings.origin import Resolved

TUNINGS = NumberedFolders("t")
ABORT = "abort"
BOX_LOCK = "lock"
WHY_EXCLUSIVE = "two at once would measure each other"


class TuningNotFoundError(LookupError):
    """No tuning answers to a name; the message says which there are."""


class AlreadyTuningError(LaunchError):
    """A tuning is under way on this box; the message says which."""


@dataclass(frozen=True, slots=True)
class TuningFolder:
    """The files of one tuning."""

    path: Path

    @property
    def id(self) -> str:
        """The tuning's name, such as `t003`."""
        return self.path.name

    @property
    def record(self) -> Path:
        """What is tuned; written once, before the first trial."""
        return self.path / "tuning.json"

    @property
    def trials(self) -> Path:
        """Every trial and how the tuning ended, a JSON line each; append-only."""
        return self.path / "trials.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the process that tunes while it lives."""
        return self.path / "lock"

    @property
    def control(self) -> Path:
        """What somebody asks of the tuning: one word."""
        return self.path / "control"

    @property
    def log(self) -> Path:
        """What the process had to say; empty when all went well."""
        return self.path / "tuner.log"

    @property
    def live(self) -> bool:
        """Whether somebody works on it. Raises `OSError`."""
        return is_locked(self.lock)

    @property
    def turn(self) -> Path:
        """Held by whoever tunes on this box: one file for all tunings of a state directory."""
        return self.path.parent / BOX_LOCK

    def abort(self) -> None:
        """Ask the process to end its trial and stop; what was measured stays. Raises `OSError`."""
        write_atomic(self.control, ABORT + "\n")

    def aborted(self) -> bool:
        """Whether that was asked for."""
        try:
            return self.control.read_text("ascii", "replace").strip() == ABORT
        except OSError:
            return False


def tunings_dir(environ: Mapping[str, str]) -> Path:
    """Where tuning folders are."""
    return state_dir(environ) / "tunings"


def create_tuning_folder(root: Path) -> TuningFolder:
    """A new empty tuning folder in `root`, private to the user. Raises `OSError`."""
    return TuningFolder(TUNINGS.create(root))


def list_tunings(root: Path) -> list[TuningFolder]:
    """All tuning folders in `root`, newest first."""
    return [TuningFolder(path) for path in TUNINGS.newest_first(root)]


def ensure_no_other_tuning(root: Path, but: TuningFolder | None = None) -> None:
    """Raise `AlreadyTuningError` where a tuning other than `but` is worked on. Raises `OSError`."""
    for folder in list_tunings(root):
        if folder != but and folder.live:
            raise AlreadyTuningError(f"Tuning {folder.id} is under way on this box; {WHY_EXCLUSIVE}.")


def acquire_locks(folder: TuningFolder) -> tuple[int, int]:
    """The descriptors of the locks that make the caller the one who tunes, and who works on `folder`.

    Its own lock first: whoever has the turn can be named. Raises `LockedError`, `OSError`.
    """
    own = acquire_lock(folder.lock)
    return own, acquire_lock(folder.turn)


def find_tuning(name: str, root: Path) -> TuningFolder:
    """The tuning named `name`: its id, or that without zeros or its letter. Raises `TuningNotFoundError`."""
    found = TUNINGS.find(name, root)
    if found is not None:
        return TuningFolder(found)
    known = ", ".join(folder.id for folder in list_tunings(root)[:5])
    raise TuningNotFoundError(
        f"There is no tuning {name!r}. " + (f"The newest are {known}." if known else "None was started yet.")
    )


TUNING_RECORD_VERSION = 1


class TuningRecord(BaseModel):
    """One tuning. `settings` and `origins` are those of the start, see `resolved`.

    `free_batch`: the effective batch may change. `most_minutes` is the time that it may take. `save_as` is the name of
    the preset that the winner becomes; None for one made up of the preset's or the command's.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    v: int = TUNING_RECORD_VERSION
    id: str
    title: str
    created_t: float
    job: Job
    settings: dict[str, Any]
    origins: dict[str, tuple[str, str]] = {}
    cwd: str
    interpreter: str | None = None
    preset: str | None = None
    memory_limit_bytes: int | None = None
    free_batch: bool = False
    most_minutes: float
    save_as: str | None = None

    @property
    def resolved(self) -> Resolved:
        """The settings of the start with their origins."""
        return resolved_from_json(self.settings, self.origins)


def write_tuning_record(folder: TuningFolder, record: TuningRecord) -> None:
    """Write it, atomically. Raises `OSError`."""
    write_atomic(folder.record, record.model_dump_json(indent=1) + "\n")


def read_tuning_record(folder: TuningFolder) -> TuningRecord:
    """Read it. Raises `RecordError` where it is missing, damaged, or of a newer program."""
    try:
        data = json.loads(folder.record.read_bytes())
        if isinstance(data, dict) and isinstance(data.get("v"), int) and data["v"] > TUNING_RECORD_VERSION:
            raise RecordError(f"{folder.record} was written by a newer tuner-tui.")
        return TuningRecord.model_validate(data)
    except OSError as error:
        raise RecordError(f"{folder.record}: {error.strerror}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, ValidationError) as error:
        raise RecordError(f"{folder.record} is damaged: {str(error).splitlines()[0]}.") from error

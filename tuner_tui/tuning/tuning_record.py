"""`tuning.json`: what is tuned and how, with secrets hidden. Written once."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner_tui.runs.store.record import RecordError, resolved_from_json
from tuner_tui.settings.job import Job
from tuner_tui.settings.origin import Resolved
from tuner_tui.tuning.tuning_folder import TuningFolder

RECORD_VERSION = 1


class TuningRecord(BaseModel):
    """One tuning. `settings` and `origins` are those of the start, see `resolved`.

    `free_batch`: the effective batch may change. `most_minutes` is the time that it may take. `save_as` is the name of
    the preset that the winner becomes; None for one made up of the preset's or the command's.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    v: int = RECORD_VERSION
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


def write_tuning(folder: TuningFolder, record: TuningRecord) -> None:
    """Write it, atomically. Raises `OSError`."""
    fresh = folder.record.with_suffix(".new")
    fresh.write_text(record.model_dump_json(indent=1) + "\n", "utf-8")
    fresh.chmod(0o600)
    fresh.replace(folder.record)


def read_tuning(folder: TuningFolder) -> TuningRecord:
    """Read it. Raises `RecordError` where it is missing, damaged, or of a newer program."""
    try:
        data = json.loads(folder.record.read_bytes())
        if isinstance(data, dict) and isinstance(data.get("v"), int) and data["v"] > RECORD_VERSION:
            raise RecordError(f"{folder.record} was written by a newer tuner-tui.")
        return TuningRecord.model_validate(data)
    except OSError as error:
        raise RecordError(f"{folder.record}: {error.strerror}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, ValidationError) as error:
        raise RecordError(f"{folder.record} is damaged: {str(error).splitlines()[0]}.") from error

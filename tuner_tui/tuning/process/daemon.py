"""The detached process that tunes: `python -m tuner_tui.tuning.process.daemon DIR`, and how it is started."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tuner_tui.core.locks import is_locked
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.record import RecordError
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import Job
from tuner_tui.tuning.detached_process import detach, start_detached
from tuner_tui.tuning.store import (
    WHY_EXCLUSIVE,
    AlreadyTuningError,
    TuningFolder,
    acquire_locks,
    ensure_no_other_tuning,
)
from tuner_tui.tuning.trials.trial_protocol import DEFAULT_MINUTES

MODULE = "tuner_tui.tuning.process.daemon"


@dataclass(frozen=True, slots=True)
class TunerSpec:
    """What the process is handed on its standard input, secrets and all: written nowhere.

    `job` as it was asked for; `environ` the environment of whoever asked; `minutes` the time it has from now.
    """

    job: Job
    environ: Mapping[str, str] = field(default_factory=dict)
    minutes: float = DEFAULT_MINUTES

    def dump(self) -> bytes:
        """As JSON."""
        job = self.job.model_dump(mode="json")
        return json.dumps({"job": job, "environ": dict(self.environ), "minutes": self.minutes}).encode("ascii")

    @staticmethod
    def load(data: bytes) -> TunerSpec:
        """From JSON. Raises `ValueError`."""
        values = json.loads(data)
        try:
            job: Job = TypeAdapter(Job).validate_python(values["job"])
            return TunerSpec(job, values["environ"], float(values["minutes"]))
        except (KeyError, TypeError, ValidationError) as error:
            raise ValueError(f"The orders are damaged: {error}") from error


def start_tuning(folder: TuningFolder, orders: TunerSpec) -> None:
    """Have somebody work on the tuning in `folder`, from its beginning or from where it is.

    Raises `LaunchError` where the process does not come up, and `AlreadyTuningError` where another tuning is under way,
    or began in the same moment: a folder that nobody ever worked on is then removed.
    """
    try:
        ensure_no_other_tuning(folder.path.parent, folder)
        folder.control.unlink(missing_ok=True)
        _start_process(folder, orders)
    except AlreadyTuningError:
        if not folder.trials.exists():
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _start_process(folder: TuningFolder, orders: TunerSpec) -> None:
    """Start the process. Where it did not come up because another one has the turn, that is what is raised."""
    try:
        start_detached(MODULE, folder.path, orders.dump(), folder.log, "The tuner")
    except LaunchError as error:
        ensure_no_other_tuning(folder.path.parent, folder)
        if is_locked(folder.turn):
            raise AlreadyTuningError(f"Another tuning is beginning on this box; {WHY_EXCLUSIVE}.") from error
        raise


def main(argv: list[str]) -> None:
    """Tune in the folder `argv[0]`; says `ok` or one sentence, then lets go of whoever started it."""
    folder = TuningFolder(Path(argv[0]))
    orders, locks = detach(lambda data: (TunerSpec.load(data), acquire_locks(folder)))
    try:
        run_tuner(folder, orders)
    finally:
        for lock in locks:
            os.close(lock)


def run_tuner(folder: TuningFolder, orders: TunerSpec) -> None:
    """Tune, and write down how it ended. Everything of weight is imported here, after the one who asked has left."""
    from tuner_tui.tuning.process.trial_log import TrialLog, TuningEnded
    from tuner_tui.tuning.process.tuner import tune

    log = TrialLog(folder)
    try:
        ended = tune(folder, orders, log)
    except (LaunchError, SettingsError, RecordError) as error:
        ended = TuningEnded(t=time.time(), status="failed", sentence=str(error))
    except Exception as error:  # noqa: BLE001  who looks at the folder has to learn that nobody works on it
        traceback.print_exc()
        sentence = f"The tuner failed: {type(error).__name__}: {error}. More is in {folder.log}."
        ended = TuningEnded(t=time.time(), status="failed", sentence=sentence)
    log.add(ended)


if __name__ == "__main__":
    main(sys.argv[1:])

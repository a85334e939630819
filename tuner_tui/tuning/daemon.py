"""The detached process that tunes: `python -m tuner_tui.tuning.daemon DIR`.

It needs no screen and no terminal. Its folder holds all of its state: others read it there, abort it there, and a tuner
that was killed is started again from it without repeating a trial.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.detached_process import detach
from tuner_tui.runs.store.record import RecordError
from tuner_tui.settings.errors import SettingsError
from tuner_tui.tuning.create import TunerSpec
from tuner_tui.tuning.store import TuningFolder, acquire_locks
from tuner_tui.tuning.trial_log import TrialLog, TuningEnded
from tuner_tui.tuning.tuner import tune


def main(argv: list[str]) -> None:
    """Tune in the folder `argv[0]`."""
    folder = TuningFolder(Path(argv[0]))
    spec, locks = detach(lambda data: (TunerSpec.load(data), acquire_locks(folder)))
    try:
        run_tuner(folder, spec)
    finally:
        for lock in locks:
            os.close(lock)


def run_tuner(folder: TuningFolder, spec: TunerSpec) -> None:
    """Tune, and log how it ended."""
    # Imported after the parent has its answer, because it takes a while.
    log = TrialLog(folder)
    try:
        ended = tune(folder, spec, log)
    except (LaunchError, SettingsError, RecordError) as error:
        ended = TuningEnded(t=time.time(), status="failed", sentence=str(error))
    except Exception as error:  # noqa: BLE001  the log must say that the tuning has ended
        traceback.print_exc()
        sentence = f"The tuner failed: {type(error).__name__}: {error}. See {folder.log}."
        ended = TuningEnded(t=time.time(), status="failed", sentence=sentence)
    log.add(ended)


if __name__ == "__main__":
    main(sys.argv[1:])

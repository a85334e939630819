"""The run folder: where runs are stored, the files of a run, and run ids."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
from msgspec import Struct

from tuner_tui.core.files import NumberedFolders

RUNS = NumberedFolders("r")


class RunNotFoundError(LookupError):
    """No run, or several, match a name; the message says which."""


class FolderFile:
    """An attribute of a folder: the path of its file `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, owner: type | None = None) -> Path:
        path: Path = folder.path / self._name
        return path


class StateFolder(Struct, frozen=True):
    """The folder of a run or tuning, which a detached process owns."""

    path: Path

    @property
    def id(self) -> str:
        """Its name, such as `r007`."""
        return self.path.name

    @property
    def argument(self) -> str:
        """The word that names it in a command: its id, or its path if it is in another state directory."""
        return self.id if self.path.parent.parent == state_dir() else shlex.quote(str(self.path))

    lock = FolderFile("lock")
    """Locked by the process while it lives."""
    control = FolderFile("control")
    """The order to the process: one word."""


class RunFolder(StateFolder, frozen=True):
    """The files of one run, whose process is its supervisor."""

    record = FolderFile("run.json")
    """`run.json`: what was launched; written once, before the training starts."""
    events = FolderFile("events.jsonl")
    """Story events, and the counters of rank 0."""
    samples = FolderFile("samples.jsonl")
    """Hardware samples, one a second."""
    output_log = FolderFile("output.log")
    """Standard output and error of the training."""
    state = FolderFile("state.json")
    """Processes and outcome, written by the supervisor."""
    queue = FolderFile("queue.json")
    """What the run waits or waited for; only of a run that was queued."""
    agreed = FolderFile("agreed")
    """The order and the step at which all ranks follow it, written by rank 0."""
    fallback_lock = FolderFile("fallback.lock")
    """Locked by the fallback process until it has continued the run after an out-of-memory, or decided not to."""
    config = FolderFile("config.yaml")
    """The configuration file passed to the command, if it takes one."""
    supervisor_log = FolderFile("supervisor.log")
    """Messages of the supervisor; empty when all went well."""
    replay = FolderFile("replay.json")
    """What the last replay found of a loss that is not finite."""
    output = FolderFile("output")
    """The default output folder of the training."""

    def event_files(self) -> list[Path]:
        """The existing event files, rank 0 first."""
        return [self.events, *sorted(self.path.glob("events-rank*.jsonl"))]


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The state directory: `TUNER_STATE_DIR`, or the platform's (`~/.local/state/tuner-tui` on Linux).

    Absolute, because the supervisor and the training run in other folders.
    """
    chosen = environ.get("TUNER_STATE_DIR")
    return (Path(chosen) if chosen else platformdirs.user_state_path("tuner-tui", appauthor=False)).absolute()


def runs_dir(environ: Mapping[str, str] = os.environ) -> Path:
    return state_dir(environ) / "runs"


def create_folder(root: Path) -> RunFolder:
    """Create an empty run folder in `root`, mode 0700. Raises `OSError`."""
    return RunFolder(RUNS.create(root))


def next_folder(root: Path) -> RunFolder:
    """The folder that the next run in `root` will get if no other is launched before it."""
    return RunFolder(RUNS.next(root))


def list_runs(root: Path) -> list[RunFolder]:
    """All run folders in `root`, newest first."""
    return [RunFolder(path) for path in RUNS.newest_first(root)]


def find_run(name: str, root: Path) -> RunFolder:
    """The run called `name`: its id, the id without zeros or without `r`, or the path of a run folder.

    Raises `RunNotFoundError` with a sentence that lists the newest runs.
    """
    path = RUNS.find(name, root)
    if path is not None:
        return RunFolder(path)
    none = (
        f"There is no run folder {name}, or you have no permission to read it"
        if "/" in name
        else f"There is no run {name!r}"
    )
    newest = ", ".join(folder.id for folder in list_runs(root)[:5])
    raise RunNotFoundError(f"{none}. " + (f"The newest are {newest}." if newest else "There are no runs yet."))

"""The run folder: where runs are stored, the files of a run, and run ids.

Of its files this module has `state.json`, which the supervisor writes, and `control`, one word that asks it to
checkpoint or stop.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import select
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import platformdirs
from msgspec import Struct

from tuner_tui.core.files import closing_descriptor, open_regular, overwrite, read_json, write_atomic
from tuner_tui.core.json_struct import ExitCode, SignalNumber, Time, from_json, to_json
from tuner_tui.core.numbered_folders import NumberedFolders
from tuner_tui.core.procfs import Machine, ProcessId, is_alive, send_signal, this_machine

RUNS = NumberedFolders("r", "run")


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

    record: ClassVar[FolderFile]
    """What was launched; written once, before anything is started."""
    lock = FolderFile("lock")
    """Locked by the process while it lives."""
    control = FolderFile("control")
    """The order to the process: one word."""


class RunFolder(StateFolder, frozen=True):
    """The files of one run, whose process is its supervisor."""

    record = FolderFile("run.json")
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
        of_ranks = fnmatch.filter(os.listdir(self.path), "events-rank*.jsonl") if self.path.is_dir() else []  # noqa: PTH208
        return [self.events, *(self.path / name for name in sorted(of_ranks))]


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


def list_runs(root: Path) -> list[RunFolder]:
    """All run folders in `root`, newest first."""
    return [RunFolder(path) for path in RUNS.newest_first(root)]


def find_run(name: str, root: Path) -> RunFolder:
    """The run called `name`: its id, the id without zeros or without `r`, or the path of a run folder.

    Raises `FolderNotFoundError` with a sentence that lists the newest runs.
    """
    return RunFolder(RUNS.find(name, root))


STATE_VERSION = 1
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, an exhausted quota and a limit on the size of files."""
PADDED_BYTES = 8192
"""The file is padded to this size, so that on a full disk the outcome can still be written over the old content."""


class SupervisorState(Struct, frozen=True):
    """Processes of a run and how it ended. `outcome` is None while it runs; `problems` are sentences.

    `order_ns` is the time of the newest order that the supervisor has taken: that of the file `control`. After
    `stop_after_s` seconds the run is stopped. `apart` are processes of the training that only this record ties to it.
    """

    machine: Machine
    supervisor: ProcessId
    started_t: Time
    training: ProcessId | None = None
    ended_t: Time | None = None
    exit_code: ExitCode | None = None
    signal: SignalNumber | None = None
    outcome: str | None = None
    sentence: str = ""
    problems: tuple[str, ...] = ()
    order_ns: int | None = None
    stop_after_s: float | None = None
    apart: tuple[ProcessId, ...] = ()


def read_supervisor_state(path: Path) -> SupervisorState | None:
    """Read the file; None if it is missing or invalid."""
    data = read_json(path)
    try:
        return from_json(SupervisorState, data) if data.get("v") == STATE_VERSION else None
    except ValueError:
        return None


def write_supervisor_state(path: Path, supervision: SupervisorState) -> None:
    """Replace the file atomically; on a full disk, overwrite its content in place. Raises `OSError`."""
    text = json.dumps({"v": STATE_VERSION} | to_json(supervision), indent=1).encode("ascii")
    content = text.ljust(PADDED_BYTES - 1) + b"\n"
    try:
        write_atomic(path, content)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        # An atomic write needs room for a second file. Overwriting needs none, as the file is as large already; a
        # reader that looks in between finds no JSON and takes the state as unknown until the next look.
        overwrite(path, content)


def wait_supervisor_ended(folder: RunFolder, timeout_s: float) -> bool:
    """Wait at most `timeout_s` seconds for the run's supervisor to end. True if it ended or there is none."""
    supervision = read_supervisor_state(folder.state)
    if supervision is None or supervision.machine != this_machine() or not is_alive(supervision.supervisor):
        return True
    # A descriptor of the process becomes readable when it ends, whoever its parent is, and stays that of this process
    # even if the pid is used again; whether it was opened in time is checked afterwards.
    try:
        with closing_descriptor(os.pidfd_open(supervision.supervisor.pid)) as descriptor:
            return not is_alive(supervision.supervisor) or bool(select.select([descriptor], [], [], timeout_s)[0])
    except ProcessLookupError:
        return True


Order = Literal["checkpoint", "stop", "terminate", "kill"]
"""Checkpoint now; checkpoint and stop after this step; SIGTERM now; SIGTERM, then SIGKILL after a short timeout."""
ORDER_BYTES = 64
"""The file has this size from the launch on, so that an order needs no disk space."""
ORDERS: tuple[Order, ...] = get_args(Order)


def send_order(folder: RunFolder, order: Order) -> None:
    """Write an order and wake the supervisor. Raises `OSError`."""
    write_order(folder.control, order)
    state = read_supervisor_state(folder.state)
    if state is not None and state.machine == this_machine():
        send_signal(state.supervisor, signal.SIGUSR1)  # it checks once a second anyway


def write_order(path: Path, order: Order) -> None:
    """Write an order over an earlier one, in place. Raises `OSError`."""
    content = f"{order:<{ORDER_BYTES - 1}}\n".encode("ascii")
    try:
        overwrite(path, content)
    except FileNotFoundError:
        write_atomic(path, content)


def reserve_control(folder: RunFolder) -> None:
    """Create the files of orders with their full size, so that an order needs no disk space. Raises `OSError`."""
    for path in (folder.control, folder.agreed):
        write_atomic(path, b"\n".rjust(ORDER_BYTES))


def read_order(path: Path) -> tuple[Order, int] | None:
    """The order and the time it was written (nanoseconds), or None. The same order written twice has two times."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            word = file.read(ORDER_BYTES).decode("ascii", "replace").strip()
            moment = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
    return (word, moment) if word in ORDERS else None

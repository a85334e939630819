"""The training process: how the supervisor starts, adopts and ends it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from tuner_tui.core.files import closing_descriptor, open_to_append
from tuner_tui.core.json_struct import VariableName, Word, from_json
from tuner_tui.core.procfs import ProcessId, identify_process, is_alive
from tuner_tui.runs.store.folder import ORDERS, Order


class StopTimeouts(Struct, frozen=True):
    """Seconds to wait at each stage."""

    stop_s: float = 60.0
    """After asking a training to save and stop: at least this, or five steps. An evaluation, which has to end before
    the training can obey, gets as long as a save."""
    kill_s: float = 10.0
    """Between SIGTERM and SIGKILL, if `kill` was ordered."""
    saving_s: float = 300.0
    """For a checkpoint that is being written; a longer save counts as hung."""
    orphan_s: float = 5.0
    """After a failed training, for its remaining processes to exit; then they get SIGTERM."""


DEFAULT_TIMEOUTS = StopTimeouts()


class StopEscalation:
    """Decides which signal is due. A later order can only be stronger."""

    def __init__(self, timeouts: StopTimeouts) -> None:
        self._timeouts = timeouts
        self.order: Order | None = None
        """The strongest order so far; a checkpoint is none."""
        self._ordered_s = 0.0
        self._terminated_s: float | None = None
        self._killed = False

    def request(self, order: Order, now: float) -> bool:
        """Take an order; return whether it changes anything."""
        if order == "checkpoint" or (self.order is not None and ORDERS.index(order) <= ORDERS.index(self.order)):
            return False
        self.order, self._ordered_s = order, now
        return True

    # stage        sent when                                                          next stage after
    # control      a stop is ordered and the training obeys the control file          stop_s, 5 steps, an evaluation
    # SIGTERM      a stop is ordered and it does not obey, or the stage before failed  kill_s, if `kill` was ordered
    # SIGKILL      `kill` was ordered and the process ignored SIGTERM                 -
    #
    # Without `kill` a training that ignores SIGTERM is left alone: it may be about to write its last checkpoint. For
    # the same reason a save delays every signal but those of `kill`.

    def due(
        self,
        now: float,
        obeys: bool,
        saving_since: float | None = None,
        step_time_s: float | None = None,
        evaluating: bool = False,
    ) -> signal.Signals | None:
        """The signal to send at `now`, in monotonic seconds, or None; it counts as sent. `obeys`: the training saves
        and stops when asked to."""
        saves = saving_since is not None and now - saving_since < self._timeouts.saving_s
        if self.order is None or (saves and self.order != "kill"):
            return None
        if self._terminated_s is None:
            evaluation_s = self._timeouts.saving_s if evaluating else 0.0
            grace_s = max(self._timeouts.stop_s, 5 * (step_time_s or 0.0), evaluation_s)
            if self.order == "stop" and obeys and now - self._ordered_s < grace_s:
                return None
            self._terminated_s = now
            return signal.SIGTERM
        late = now - max(self._terminated_s, self._ordered_s) >= self._timeouts.kill_s
        if self.order == "kill" and late and not self._killed:
            self._killed = True
            return signal.SIGKILL
        return None


class ExitStatus(Struct, frozen=True):
    """How a process ended; both None if this process was not its parent."""

    exit_code: int | None = None
    signal: int | None = None


class SupervisedTraining:
    """A running training, of which `process` is the identity.

    This one was adopted: it is no child of this process, so that its exit status is unknown, and its orphans go to
    init. `subreaper` is the process that gets them where it has supervised the training from its start.
    """

    subreaper: int | None = None

    def __init__(self, process: ProcessId) -> None:
        self.process = process

    def collect(self) -> ExitStatus | None:
        """How it ended, here an empty status; None while it runs."""
        return None if is_alive(self.process) else ExitStatus()


class StartedTraining(SupervisedTraining):
    """A training started by this process in its own session, with its output redirected to a file."""

    def __init__(self, spec: LaunchSpec, log: Path) -> None:
        """Start it. Raises `OSError` if the command or its folder does not exist."""
        with closing_descriptor(open_to_append(log)) as descriptor, _data_limit(spec.data_limit_bytes):
            self._child = subprocess.Popen(
                spec.argv,
                cwd=spec.cwd,
                env=dict(spec.env),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        super().__init__(identify_process(self._child.pid) or ProcessId(self._child.pid, 0))
        self.subreaper = os.getpid()

    def collect(self) -> ExitStatus | None:
        """Reap all ended children, including orphans of the training; return the status of the training itself."""
        # `Popen.poll` would reap only the training. As the subreaper, this process gets every orphan as a child, and
        # those that nobody reaps stay zombies, which look as if the run had processes left. `Popen` gets the code
        # here, else it waits for a process that no longer exists.
        code = None
        with suppress(ChildProcessError):  # none is left
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                if child[0] == self.process.pid:
                    self._child.returncode = code = os.waitstatus_to_exitcode(child[1])
        if code is None:
            return None
        return ExitStatus(exit_code=code) if code >= 0 else ExitStatus(signal=-code)


@contextmanager
def _data_limit(limit_bytes: int | None) -> Iterator[None]:
    """Limit the private writable memory (`RLIMIT_DATA`) of what is started meanwhile."""
    # The limit is inherited. Setting it between fork and exec would run Python in a half-copied process.
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if limit_bytes is not None:
        most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_DATA, (min(limit_bytes, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class LaunchSpec(Struct, frozen=True):
    """A command to supervise. `env` is the whole environment; `data_limit_bytes` caps the private memory.

    The command is ended once the process `ends_with` is gone; None: it outlives whoever started it. It is asked to save
    and stop after `stop_after_s` seconds.
    """

    argv: tuple[Word, ...]
    cwd: Word
    env: Mapping[VariableName, Word] = field(default_factory=dict)
    data_limit_bytes: int | None = None
    stop_timeouts: StopTimeouts = DEFAULT_TIMEOUTS
    ends_with: ProcessId | None = None
    stop_after_s: float | None = None


def load_launch_spec(data: bytes) -> LaunchSpec:
    """Parse the JSON of a specification. Raises `ValueError`."""
    try:
        return from_json(LaunchSpec, json.loads(data), strict=True)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The launch specification is damaged: {error}") from error

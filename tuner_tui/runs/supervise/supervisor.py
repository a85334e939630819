"""The supervisor: `python -m tuner_tui.runs.supervisor DIR [--adopt]`. Starts or adopts a training and watches it to
its end."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Self

from tuner_tui.core.clock import ClockReading
from tuner_tui.core.locks import LockedError, acquire_lock
from tuner_tui.core.procfs import ProcessId, identify_process, this_machine
from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.sampler import Sampler, open_sampler
from tuner_tui.runs.events.types import Finished, Launched
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import SupervisorState, read_supervisor_state
from tuner_tui.runs.supervise.launch_spec import LaunchSpec, load_launch_spec
from tuner_tui.runs.supervise.monitor import TrainingMonitor
from tuner_tui.runs.supervise.notify import start_notifying
from tuner_tui.runs.supervise.orphans import become_subreaper
from tuner_tui.runs.supervise.run_writer import RunWriter, log_line
from tuner_tui.runs.supervise.stop_escalation import DEFAULT_TIMEOUTS, StopTimeouts
from tuner_tui.runs.supervise.training_process import AdoptedTraining, StartedTraining, SupervisedTraining


class Wakeups:
    """Signals that end a wait. Use as a context manager, in the main thread.

    SIGCHLD: a child ended. SIGUSR1: somebody wrote an order. SIGHUP: a terminal went away, which means nothing here.
    SIGTERM and SIGINT set `terminated`. All are handled rather than ignored, because a started process would inherit
    being deaf to them.
    """

    def __init__(self) -> None:
        self.terminated = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        """Handle the signals from here on."""
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, self._nothing)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._terminate)
        return self

    def __exit__(self, *error: object) -> None:
        """Close the pipe; the signals keep their handlers, since the process ends now."""
        signal.set_wakeup_fd(-1)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, seconds: float) -> None:
        """Until a signal arrives or the time is up."""
        if select.select([self._reading], [], [], seconds)[0]:
            os.read(self._reading, 4096)

    def _nothing(self, number: int, frame: FrameType | None) -> None:
        """Waking up is all."""

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True


TICK_S = 1.0


def main(argv: list[str]) -> None:
    """Supervise the run in the folder `argv[0]`; says `ok` or one sentence on standard output, then lets go of it."""
    folder = RunFolder(Path(argv[0]))
    plan_bytes = b"" if "--adopt" in argv else sys.stdin.buffer.read()
    if os.fork():
        os._exit(0)  # the one who asked waits for this process only; the supervisor is nobody's child
    with Wakeups() as wakeups:
        try:
            lock = acquire_lock(folder.lock)
            plan = None if "--adopt" in argv else load_launch_spec(plan_bytes)
            training, journal = _adopt(folder) if plan is None else _start(folder, plan)
        except (OSError, ValueError, LockedError) as error:
            _answer(_sentence(error))
            sys.exit(1)
        _answer("ok")
        _supervise(folder, training, journal, DEFAULT_TIMEOUTS if plan is None else plan.patience, wakeups)
        os.close(lock)
        start_notifying(folder, os.environ if plan is None else plan.env)


def _start(folder: RunFolder, plan: LaunchSpec) -> tuple[SupervisedTraining, RunWriter]:
    become_subreaper()
    journal = RunWriter(folder, SupervisorState(this_machine(), _this_process(), time.time()))
    try:
        training = StartedTraining(plan, folder.output_log)
    except OSError as error:
        _never_started(journal, f"The command could not be started: {_sentence(error)}.")
        raise
    journal.event(Launched(t=time.time(), pid=training.process.pid, argv=redact_argv(plan.argv)))
    journal.update(lambda known: replace(known, training=training.process, group=training.group))
    return training, journal


def _never_started(journal: RunWriter, sentence: str) -> None:
    now = time.time()
    journal.event(Finished(t=now, outcome="failed", sentence=sentence))
    journal.update(lambda known: replace(known, ended_t=now, outcome="failed", sentence=sentence))


def _adopt(folder: RunFolder) -> tuple[SupervisedTraining, RunWriter]:
    known = read_supervisor_state(folder.state)
    if known is None or known.training is None or known.outcome is not None:
        raise ValueError("There is no training to adopt.")
    if known.machine != this_machine():
        raise ValueError(f"The training belongs to {known.machine.host}.")
    training = AdoptedTraining(known.training, known.group or known.training.pid)
    return training, RunWriter(folder, replace(known, supervisor=_this_process()))


def _supervise(
    folder: RunFolder, training: SupervisedTraining, journal: RunWriter, patience: StopTimeouts, wakeups: Wakeups
) -> None:
    sampler = open_sampler(folder.path)
    watch = TrainingMonitor(folder, training, journal, patience)
    next_sample = 0.0
    try:
        while not watch.done(ClockReading.now()):
            now = time.monotonic()
            if now >= next_sample:
                _sample(sampler, watch.pids(), journal)
                next_sample = max(next_sample + TICK_S, now)
            wakeups.wait(max(0.0, next_sample - time.monotonic()))
            if wakeups.terminated:
                watch.terminate(ClockReading.now())
    finally:
        sampler.close()


def _sample(sampler: Sampler, pids: list[int], journal: RunWriter) -> None:
    try:
        journal.sample(sampler.sample(pids))
    except Exception as error:  # noqa: BLE001  no figure of the hardware is worth losing the supervision
        journal.problem(f"The hardware cannot be read: {type(error).__name__}: {error}.")


def _this_process() -> ProcessId:
    return identify_process(os.getpid()) or ProcessId(os.getpid(), 0)


def _answer(text: str) -> None:
    """Tell the launcher, then let go of its pipes."""
    try:
        os.write(1, text.encode("utf-8", "replace"))
    except OSError as error:
        log_line(f"nobody took the answer {text!r}: {error}")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _sentence(error: Exception) -> str:
    if isinstance(error, LockedError):
        return "This run already has a supervisor."
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}" if error.filename else f"{error.strerror}"
    return str(error)


if __name__ == "__main__":
    main(sys.argv[1:])

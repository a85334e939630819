"""The supervisor: `python -m tuner_tui.runs.supervise.supervisor DIR [--adopt | --lock FD --gpus UUIDS]`.

It starts a training, or adopts one whose supervisor died, follows it, executes stop orders and records the outcome. It
is detached from every terminal, holds the lock of the run, and stays small: it imports neither the settings nor the UI.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.clock import ClockReading
from tuner_tui.core.file_locks import LockedError, acquire_lock
from tuner_tui.core.procfs import ProcessId, identify_process, is_alive, this_machine
from tuner_tui.core.redaction import redact_argv
from tuner_tui.core.signals import Signals
from tuner_tui.core.units import format_duration
from tuner_tui.hardware.sampler import Sampler, open_sampler
from tuner_tui.runs.events.types import Finished, Launched
from tuner_tui.runs.queue.queued_run import revive_waiter
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, read_supervisor_state, write_order
from tuner_tui.runs.supervise.monitor import RunWriter, TrainingMonitor
from tuner_tui.runs.supervise.notify import start_notifying
from tuner_tui.runs.supervise.run_processes import become_subreaper, describe_failure, detach
from tuner_tui.runs.supervise.training_process import (
    DEFAULT_TIMEOUTS,
    LaunchSpec,
    StartedTraining,
    StopTimeouts,
    SupervisedTraining,
    load_launch_spec,
)

TICK_S = 1.0
RECORD_S, STARTS_S = 5.0, 60.0
"""Between two looks for processes that have left the training, which read the whole process table; in the first
`STARTS_S` seconds, in which launchers start their ranks, each tick takes one."""


def main(argv: list[str]) -> None:
    """Supervise the run in folder `argv[0]`; writes `ok` or an error to standard output, then closes it.

    A run whose turn came in the queue gets the open file of its lock, which is locked, and its GPUs.
    """
    folder = RunFolder(Path(argv[0]))
    options = dict(zip(argv[1::2], argv[2::2], strict=False))
    # SIGCHLD: a child ended. SIGUSR1: an order was written. SIGHUP: a terminal closed, which is nothing to it.
    with Signals(signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP) as signals:
        lock, spec, training, writer = detach(partial(_prepare, folder, options, adopts="--adopt" in argv))
        timeouts = DEFAULT_TIMEOUTS if spec is None else spec.stop_timeouts
        _supervise(folder, training, writer, timeouts, signals, None if spec is None else spec.ends_with)
        os.close(lock)
        with suppress(OSError):  # the next run may take its place
            revive_waiter(folder.path.parent)
        start_notifying(folder, os.environ if spec is None else spec.env)


def _prepare(
    folder: RunFolder, options: Mapping[str, str], spec_bytes: bytes, *, adopts: bool
) -> tuple[int, LaunchSpec | None, SupervisedTraining, RunWriter]:
    """Lock the run, then start its training or adopt it."""
    try:
        # The kernel releases the lock however this process ends: who can take it knows that there is no supervisor.
        lock = int(options["--lock"]) if "--lock" in options else acquire_lock(folder.lock, needed=False)
        os.set_inheritable(lock, False)
        if adopts:
            return lock, None, *_adopt(folder)
    except LockedError as error:
        raise ValueError("This run already has a supervisor.") from error
    spec = load_launch_spec(spec_bytes)
    if "--gpus" in options:
        spec = replace(spec, env={**spec.env, "CUDA_VISIBLE_DEVICES": options["--gpus"]})
    return lock, spec, *_start(folder, spec)


def _start(folder: RunFolder, spec: LaunchSpec) -> tuple[SupervisedTraining, RunWriter]:
    become_subreaper()  # before the training exists: an orphan of the first moments would belong to init
    state = SupervisorState(this_machine(), _this_process(), time.time(), stop_after_s=spec.stop_after_s)
    writer = RunWriter(folder, state)
    try:
        training = StartedTraining(spec, folder.output_log)
    except OSError as error:
        now, sentence = time.time(), f"The command could not be started: {describe_failure(error)}."
        writer.event(Finished(t=now, outcome="failed", sentence=sentence))
        writer.update(ended_t=now, outcome="failed", sentence=sentence)
        raise
    writer.event(Launched(t=time.time(), pid=training.process.pid, argv=redact_argv(spec.argv)))
    writer.update(training=training.process)
    return training, writer


def _adopt(folder: RunFolder) -> tuple[SupervisedTraining, RunWriter]:
    supervision = read_supervisor_state(folder.state)
    if supervision is None or supervision.training is None or supervision.outcome is not None:
        raise ValueError("There is no training to supervise.")
    if supervision.machine != this_machine():
        raise ValueError(f"The training belongs to {supervision.machine.host}.")
    if is_alive(supervision.supervisor):  # somebody deleted its lock
        raise LockedError(str(folder.lock))
    training = SupervisedTraining(supervision.training)
    return training, RunWriter(folder, replace(supervision, supervisor=_this_process()))


def _supervise(
    folder: RunFolder,
    training: SupervisedTraining,
    writer: RunWriter,
    timeouts: StopTimeouts,
    signals: Signals,
    starter: ProcessId | None,
) -> None:
    """Supervise until the training has ended; once the process `starter` is gone, it is ended."""
    sampler = open_sampler(folder.path)
    monitor = TrainingMonitor(folder, training, writer, timeouts)
    started = time.monotonic()
    next_sample = next_record = 0.0
    state = writer.supervision
    left_s = None if state.stop_after_s is None else state.started_t + state.stop_after_s - time.time()
    stop_at = None if left_s is None else time.monotonic() + left_s
    try:
        while not monitor.done(ClockReading.now()):
            now = time.monotonic()
            if now >= next_sample:
                _sample(sampler, monitor.pids(), writer)
                next_sample = next_tick(next_sample, now)
                if not folder.state.exists():  # somebody deleted it
                    writer.update()
                if now + TICK_S / 2 >= next_record:
                    monitor.record_apart()
                    monitor.look_for_observer()
                    next_record = now + (TICK_S if now < started + STARTS_S else RECORD_S)
                monitor.look_for_stall(ClockReading.now())
                if starter is not None and not is_alive(starter):
                    monitor.terminate(ClockReading.now())
                if stop_at is not None and now >= stop_at:
                    stop_at = None
                    _stop_in_time(folder, monitor, writer)
            signals.wait(max(0.0, next_sample - time.monotonic()))
            if signals.terminated or signals.interrupts:
                monitor.terminate(ClockReading.now())
    finally:
        sampler.close()


def next_tick(planned_s: float, now_s: float) -> float:
    """Return when to sample after a sample that was due at `planned_s`.

    Half a tick after it at least: the kernel counts CPU time in steps of 10 ms, so that a load over some milliseconds
    is 0, 50 or 100 %, whatever the machine does.
    """
    return max(planned_s, now_s - TICK_S / 2) + TICK_S


def _stop_in_time(folder: RunFolder, monitor: TrainingMonitor, writer: RunWriter) -> None:
    """Give the order that `tuner-tui stop` gives."""
    writer.problem(f"It was asked to stop after {format_duration(writer.supervision.stop_after_s)} (--stop-after).")
    try:
        write_order(folder.control, "stop")
    except OSError:
        monitor.terminate(ClockReading.now())


def _sample(sampler: Sampler, pids: list[int], writer: RunWriter) -> None:
    try:
        writer.sample(sampler.sample(pids))
    except Exception as error:  # noqa: BLE001  no figure of the hardware is worth losing the supervision
        writer.problem(f"The hardware cannot be read: {type(error).__name__}: {error}.")


def _this_process() -> ProcessId:
    return identify_process(os.getpid()) or ProcessId(os.getpid(), 0)


if __name__ == "__main__":
    main(sys.argv[1:])

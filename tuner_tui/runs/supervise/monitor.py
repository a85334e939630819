"""Follows one training to its end and records it: its events, stop orders, its exit, and the processes it leaves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tuner_tui.core.clock import ClockReading
from tuner_tui.core.line_files import LineAppender, LineTail
from tuner_tui.core.procfs import ProcessStat, all_processes, descendants_in, end_group, is_alive
from tuner_tui.core.redaction import redact_text
from tuner_tui.hardware.processes import LOADER_WORKER
from tuner_tui.hardware.sample import Sample
from tuner_tui.inspection.hang import Hang
from tuner_tui.runs.events.fold import fold, fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, Exited, Finished, StopRequested, Unobserved
from tuner_tui.runs.log_parsing.log_follower import PrintedMetrics
from tuner_tui.runs.store.codec import decode_events, encode_event, encode_sample
from tuner_tui.runs.store.folder import NO_SPACE, Order, RunFolder, SupervisorState, read_order, write_supervisor_state
from tuner_tui.runs.supervise import outcome
from tuner_tui.runs.supervise.run_processes import (
    ApartProcesses,
    RunProcesses,
    find_processes,
    left_out_observer,
    signal_processes,
)
from tuner_tui.runs.supervise.stall import StallWatch, inspect_run
from tuner_tui.runs.supervise.training_process import ExitStatus, StopEscalation, StopTimeouts, SupervisedTraining


class RunWriter:
    """Writes events, samples and state of one run. Methods do not raise if a file cannot be written.

    Secrets in sentences are hidden: they may quote an exception or the command of a leftover process. `lacks_space`:
    some of it could not be written, so that the events of the training have gaps, too.
    """

    # If the folder of a live run is deleted, another run may get its name, and nothing may be written there. The open
    # descriptor of the folder tells them apart: its inode is not used again while it is open. Files that are open
    # already need no such check, since they still are those of the deleted folder.

    def __init__(self, folder: RunFolder, supervision: SupervisorState) -> None:
        """Write the first state. Raises `OSError`."""
        self._folder = folder
        self._folder_fd = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files: dict[Path, LineAppender] = {}
        self.lacks_space = False
        self.supervision = supervision
        write_supervisor_state(folder.state, supervision)

    @property
    def in_place(self) -> bool:
        """Whether the folder is still the one in which the run started."""
        try:
            return os.path.samestat(os.fstat(self._folder_fd), self._folder.path.stat())
        except OSError:
            return False

    def event(self, event: Event) -> None:
        """Append an event of the supervisor, its sentence without secrets."""
        if isinstance(event, Finished):
            event = replace(event, sentence=redact_text(event.sentence))
        self._append(self._folder.events, encode_event(event), "events")

    def sample(self, sample: Sample) -> None:
        self._append(self._folder.samples, encode_sample(sample), "samples")

    def update(self, **changes: Any) -> None:
        """Change fields of the state and write it."""
        changed = replace(self.supervision, **changes)
        problems = tuple(map(redact_text, changed.problems))
        self.supervision = replace(changed, sentence=redact_text(changed.sentence), problems=problems)
        if not self.in_place:
            log_line(f"{self._folder.path} was deleted; the end of the run is not recorded.")
            return
        try:
            write_supervisor_state(self._folder.state, self.supervision)
        except OSError as error:
            log_line(f"state.json: {error}")

    def problem(self, sentence: str) -> None:
        """Record a problem, once."""
        sentence = redact_text(sentence)
        if sentence not in self.supervision.problems:
            self.update(problems=(*self.supervision.problems, sentence))

    def _append(self, path: Path, line: bytes, content: str) -> None:
        try:
            if path not in self._files:
                if not self.in_place:
                    return
                self._files[path] = LineAppender(path)
            self._files[path].append(line)
        except OSError as error:
            self.lacks_space = self.lacks_space or error.errno in NO_SPACE
            self.problem(f"{path.name}: {os.strerror(error.errno or 0)}; {content} are missing from now on.")


def log_line(text: str) -> None:
    """Write a line to the supervisor's log, if possible."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class TrainingMonitor:
    """Follows one supervised training. Call `done` at least once a second and after every wakeup."""

    def __init__(
        self, folder: RunFolder, training: SupervisedTraining, writer: RunWriter, timeouts: StopTimeouts
    ) -> None:
        self._folder = folder
        self._training = training
        self._writer = writer
        self._timeouts = timeouts
        self._escalation = StopEscalation(timeouts)
        self._apart = ApartProcesses(folder.path, training.process)
        self._exit_examiner = outcome.ExitExaminer(folder.output_log)
        self._printed = PrintedMetrics(folder.output_log)
        self._last_order_ns: int | None = None
        self._tails: dict[str, LineTail] = {}
        self._state = RunState()
        self._exit: ExitStatus | None = None
        self._ended = ClockReading(0.0, 0.0)
        self._terminated: set[int] = set()
        self._terminated_orphans_s: float | None = None
        self._saving: tuple[float | None, float] | None = None
        self._stall_watch = StallWatch(self._look_into)

    def pids(self) -> list[int]:
        """The processes to sample, together with all their descendants."""
        return [self._training.process.pid] if self._exit is None else sorted(self._observed())

    def record_apart(self) -> None:
        """Record the processes that a stop after the death of the supervisor would not find otherwise."""
        if self._exit is None and self._training.subreaper is not None:
            apart = self._apart.look()
            if apart != self._writer.supervision.apart:
                self._writer.update(apart=apart)

    def look_for_observer(self) -> None:
        """Record that the training is not observed, where it leaves out what starts the observer."""
        if self._exit is not None or self._state.ranks or self._state.unobserved is not None:
            return
        root = self._training.process.pid
        pids = [root, *(process.pid for process in descendants_in(all_processes(), [root]))]
        reason = next(filter(None, map(left_out_observer, pids)), None)
        if reason is not None:
            self._record(Unobserved(t=time.time(), reason=reason))

    def look_for_stall(self, now: ClockReading) -> None:
        """Record why the training makes no steps, if it does not."""
        if self._exit is None and self._writer.in_place:
            hung = self._stall_watch.check(self._state, now)
            if hung is not None:
                self._record(hung)

    def _look_into(self, state: RunState) -> Hang:
        processes = self._processes()
        host = self._writer.supervision.machine.host
        return inspect_run((*processes.members, *processes.detached), state, host, time.time()).hang

    def terminate(self, now: ClockReading) -> None:
        """Stop the training because the supervisor was asked to end; it is supervised until it has ended."""
        self._ordered("terminate", now)

    def done(self, now: ClockReading) -> bool:
        """Check everything once; True when the run is over and recorded."""
        if self._writer.in_place:
            self._follow()
            self._read_output(now, over=False)
            self._take_orders(now)
        self._escalate(now)
        ended = self._training.collect()
        if self._exit is None:
            if ended is None:
                return False
            self._exit, self._ended = ended, now
        orphans = self._processes()
        if self._runs_in_background(orphans):
            return False
        # The exit is examined at once, while the kernel log and the cgroup's counter are fresh. The outcome waits until
        # the processes that were left have ended, as their events and output may say why the training failed.
        if self._state.exited is None:
            self._record(self._exit_examiner.examine(self._training.process.pid, self._exit, self._ended.wall_s))
        return not self._waits_for_orphans(orphans, now) and self._finish(orphans, now)

    def _follow(self) -> None:
        # Any process of the training can write to the event files. One that writes `exited` or `finished` must not end
        # the run, or turn its failure into a success: while this process is the parent, it sees the exit itself.
        for path in self._folder.event_files():
            tail = self._tails.setdefault(path.name, LineTail(path))
            ours = (Exited, Finished) if self._training.subreaper is not None else ()
            events = (event for event in decode_events(tail.lines()) if not isinstance(event, ours))
            self._state = fold_all(self._state, events)

    def _read_output(self, now: ClockReading, over: bool) -> None:
        """Record what the training prints of its loss and metrics; they come back with the other events."""
        for event in self._printed.events(self._state, now, over=over):
            self._writer.event(event)

    def _take_orders(self, now: ClockReading) -> None:
        # The time of the file tells a repeated order from one that was taken already; its confirmation in `state.json`
        # is what `launch.orders` waits for.
        received = read_order(self._folder.control)
        if received is None or received[1] == self._last_order_ns:
            return
        order, self._last_order_ns = received
        self._ordered(order, now)
        self._writer.update(order_ns=self._last_order_ns)

    def _ordered(self, order: Order, now: ClockReading) -> None:
        if self._escalation.request(order, now.monotonic_s) or order == "checkpoint":
            self._record(StopRequested(t=now.wall_s, how=order))

    def _processes(self) -> RunProcesses:
        """The living processes of the run; a stop means those that detached themselves too."""
        run = self._folder.path if self._writer.in_place else None
        processes = find_processes(
            run,
            self._training.process,
            self._observed(),
            self._training.subreaper,
            recorded=self._writer.supervision.apart,
        )
        return processes.with_tied() if self._escalation.order is not None else processes

    def _observed(self) -> frozenset[int]:
        return self._state.pids_on(self._writer.supervision.machine.host)

    def _escalate(self, now: ClockReading) -> None:
        state = self._state
        saving_since = self._saving_since(now) if self._exit is None else None
        evaluating = state.phase == "evaluating"
        due = self._escalation.due(
            now.monotonic_s, state.accepts_orders, saving_since, state.rates.step_time_s, evaluating
        )
        if due is not None:
            self._signal(due)

    def _saving_since(self, now: ClockReading) -> float | None:
        """When the current save was first seen, by the monotonic clock; the event has wall time, which may be set."""
        if self._state.phase != "saving":
            self._saving = None
        elif self._saving is None or self._saving[0] != self._state.phase_since_t:
            self._saving = (self._state.phase_since_t, now.monotonic_s)
        return None if self._saving is None else self._saving[1]

    def _signal(self, number: signal.Signals) -> None:
        # SIGTERM goes to the session of the launcher first: processes that it started in sessions of their own are
        # terminated by the launcher, and by the supervisor only after it is gone. Loader workers are left to their
        # trainer, which needs their batches if it saves on SIGTERM. SIGKILL goes to the group of the leader in one
        # call, so that a launcher cannot start a replacement in between, and then to everybody else.
        leader = self._training.process
        alive = self._exit is None and is_alive(leader)
        if alive and number == signal.SIGKILL:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(leader.pid) == leader.pid:  # unless its identity in the file is damaged
                    end_group(leader.pid)
        processes = self._processes().members
        if alive and number != signal.SIGKILL:
            processes = tuple(
                process for process in processes if process.session == leader.pid and process.comm != LOADER_WORKER
            )
        self._send(processes, number)

    def _send(self, processes: Iterable[ProcessStat], number: signal.Signals) -> None:
        """Signal each process, but none with SIGTERM twice: trainers take the second as a demand to exit at once."""
        chosen = [process for process in processes if number != signal.SIGTERM or process.pid not in self._terminated]
        self._terminated |= {process.pid for process in chosen}
        signal_processes(chosen, number)

    def _runs_in_background(self, orphans: RunProcesses) -> bool:
        """Whether the command returned but left the training running, such as a script that ends with `&`."""
        if not orphans.members or self._exit != ExitStatus(exit_code=0) or self._escalation.order is not None:
            return False
        self._writer.problem(f"The command exited, but its training continues: {orphans.names()}.")
        return True

    def _waits_for_orphans(self, orphans: RunProcesses, now: ClockReading) -> bool:
        """Whether to wait for processes that an ended training left: first for their own exit, then after SIGTERM."""
        if not orphans.members:
            return False
        # A loader worker whose trainer is gone has nothing to save, and torch would notice only after five seconds.
        pids = {process.pid for process in orphans.members}
        self._send(
            (process for process in orphans.members if process.comm == LOADER_WORKER and process.parent not in pids),
            signal.SIGTERM,
        )
        if self._terminated_orphans_s is not None:
            return now.monotonic_s - self._terminated_orphans_s < 2 * self._timeouts.orphan_s
        if now.monotonic_s - self._ended.monotonic_s >= self._timeouts.orphan_s:
            self._terminated_orphans_s = now.monotonic_s
            self._send(orphans.members, signal.SIGTERM)
        return True

    def _finish(self, orphans: RunProcesses, now: ClockReading) -> bool:
        if self._writer.in_place:
            self._follow()
            self._read_output(now, over=True)
            self._follow()  # what the last lines of the output say
        exited = self._state.exited or Exited(t=now.wall_s)
        succeeded = exited.exit_code == 0
        # On a full disk the last step that was recorded is not the one at which the training ended.
        state = replace(self._state, step=None) if self._writer.lacks_space else self._state
        log = outcome.NO_LOG if succeeded else outcome.read_exit_log(self._folder.output_log)
        judged = outcome.determine_outcome(state, exited, log)
        if judged.outcome in ("stopped", "failed"):
            judged = outcome.slurm_end(state, self._folder.path, log.failed_node) or judged
        names = orphans.names()
        sentence = judged.sentence + (f" Processes still running: {names}." if names else "")
        if self._writer.lacks_space:
            step = self._state.step
            last = "" if step is None else f": nothing is recorded after step {step:,}"
            sentence += f" The disk of the state folder was full{last}."
        judged = replace(judged, sentence=sentence)
        self._record(outcome.finished_event(now.wall_s, judged, state))
        self._writer.update(
            ended_t=exited.t,
            exit_code=exited.exit_code,
            signal=exited.signal,
            outcome=judged.outcome,
            sentence=sentence,
        )
        return True

    def _record(self, event: Event) -> None:
        """Folds the event at once as well: on a full disk it is never read back. Folding it twice changes nothing."""
        self._writer.event(event)
        self._state = fold(self._state, event)

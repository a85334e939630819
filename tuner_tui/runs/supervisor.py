"""The supervisor: `python -m tuner_tui.runs.supervisor DIR [--adopt]`.

It starts the training, or adopts one whose supervisor died, watches it, carries out stop orders and writes down how it
ended. It is detached from every terminal, holds the run's lock while it lives, and stays small: it imports neither the
settings nor the screen.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tuner_tui.hardware.sampler import Sampler, open_sampler
from tuner_tui.runs.events import Finished, Launched
from tuner_tui.runs.folder import RunFolder
from tuner_tui.runs.journal import Journal, say
from tuner_tui.runs.ladder import DEFAULT_PATIENCE, Patience
from tuner_tui.runs.leftovers import become_foster_parent
from tuner_tui.runs.lock import LockedError, acquire
from tuner_tui.runs.moment import Moment
from tuner_tui.runs.notify import start_notifying
from tuner_tui.runs.plan import Plan, load_plan
from tuner_tui.runs.processes import ProcessId, identify, this_machine
from tuner_tui.runs.redact import redact_argv
from tuner_tui.runs.supervision import Supervision, read_supervision
from tuner_tui.runs.training import AdoptedTraining, StartedTraining, Training
from tuner_tui.runs.wakeups import Wakeups
from tuner_tui.runs.watch import Watch

TICK_S = 1.0


def main(argv: list[str]) -> None:
    """Supervise the run in the folder `argv[0]`; says `ok` or one sentence on standard output, then lets go of it."""
    folder = RunFolder(Path(argv[0]))
    plan_bytes = b"" if "--adopt" in argv else sys.stdin.buffer.read()
    if os.fork():
        os._exit(0)  # the one who asked waits for this process only; the supervisor is nobody's child
    with Wakeups() as wakeups:
        try:
            lock = acquire(folder.lock)
            plan = None if "--adopt" in argv else load_plan(plan_bytes)
            training, journal = _adopt(folder) if plan is None else _start(folder, plan)
        except (OSError, ValueError, LockedError) as error:
            _answer(_sentence(error))
            sys.exit(1)
        _answer("ok")
        _supervise(folder, training, journal, DEFAULT_PATIENCE if plan is None else plan.patience, wakeups)
        os.close(lock)
        start_notifying(folder, os.environ if plan is None else plan.env)


def _start(folder: RunFolder, plan: Plan) -> tuple[Training, Journal]:
    become_foster_parent()
    journal = Journal(folder, Supervision(this_machine(), _self(), time.time()))
    try:
        training = StartedTraining(plan, folder.output_log)
    except OSError as error:
        _never_started(journal, f"The command could not be started: {_sentence(error)}.")
        raise
    journal.event(Launched(t=time.time(), pid=training.process.pid, argv=redact_argv(plan.argv)))
    journal.update(lambda known: replace(known, training=training.process, group=training.group))
    return training, journal


def _never_started(journal: Journal, sentence: str) -> None:
    now = time.time()
    journal.event(Finished(t=now, outcome="failed", sentence=sentence))
    journal.update(lambda known: replace(known, ended_t=now, outcome="failed", sentence=sentence))


def _adopt(folder: RunFolder) -> tuple[Training, Journal]:
    known = read_supervision(folder.state)
    if known is None or known.training is None or known.outcome is not None:
        raise ValueError("There is no training to adopt.")
    if known.machine != this_machine():
        raise ValueError(f"The training belongs to {known.machine.host}.")
    training = AdoptedTraining(known.training, known.group or known.training.pid)
    return training, Journal(folder, replace(known, supervisor=_self()))


def _supervise(folder: RunFolder, training: Training, journal: Journal, patience: Patience, wakeups: Wakeups) -> None:
    sampler = open_sampler(folder.path)
    watch = Watch(folder, training, journal, patience)
    next_sample = 0.0
    try:
        while not watch.done(Moment.now()):
            now = time.monotonic()
            if now >= next_sample:
                _sample(sampler, watch.pids(), journal)
                next_sample = max(next_sample + TICK_S, now)
            wakeups.wait(max(0.0, next_sample - time.monotonic()))
            if wakeups.terminated:
                watch.terminate(Moment.now())
    finally:
        sampler.close()


def _sample(sampler: Sampler, pids: list[int], journal: Journal) -> None:
    try:
        journal.sample(sampler.sample(pids))
    except Exception as error:  # noqa: BLE001  no figure of the hardware is worth losing the supervision
        journal.problem(f"The hardware cannot be read: {type(error).__name__}: {error}.")


def _self() -> ProcessId:
    return identify(os.getpid()) or ProcessId(os.getpid(), 0)


def _answer(text: str) -> None:
    """Tell the launcher, then let go of its pipes."""
    try:
        os.write(1, text.encode("utf-8", "replace"))
    except OSError as error:
        say(f"nobody took the answer {text!r}: {error}")
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

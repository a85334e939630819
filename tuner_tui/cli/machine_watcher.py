"""Runs `tuner-tui watch`: the screen, the table or JSON lines.

Imports no Typer, which would take more memory than the rest.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from tuner_tui.cli.console import DONE, INTERRUPTED, TERMINATED, exit_on_interrupt, fail, find_run_or_exit, print_line
from tuner_tui.cli.startup_memory import reduce_startup_memory

if TYPE_CHECKING:
    from tuner_tui.cli.interrupts import Interrupts
    from tuner_tui.runs.read.machine_monitor import MachineMonitor, MachineView

PERIOD_S = 1.0
BRIEF_PERIOD_S, BRIEF_BYTES_PER_S = 5.0, 1500
"""Period of the lines for another machine; a line that is too long for the rate makes it longer."""
MAX_RUN_NUMBER = 9999
FIRST_ANSWER_S = 5.0
"""A sleeping GPU wakes up in a second or two; one that does not answer is left out of the first sample."""


def watch_machine(
    what: str | None = None,
    once: bool = False,
    as_json: bool = False,
    ascii_only: bool = False,
    brief: bool = False,
) -> NoReturn:
    """Watch the machine, or only the job of `what`, a process id or a run; exits the program."""
    if brief and not as_json:
        fail("--brief shortens JSON: use it with --json.")
    pid = None if what is None else _pid_of(what)
    if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise SystemExit(_print(pid, once, as_json, brief))
    _open_screen(pid, what, ascii_only)


def _pid_of(what: str) -> int:
    """Return the process id of `what`: a number is a process, anything else the name or folder of a run."""
    if what.isdecimal():
        from tuner_tui.core.procfs import identify_process

        if identify_process(int(what)) is None:
            fail(f"No process {what}. For a run, use its name from `tuner-tui ps`, such as {_similar_run_name(what)}.")
        return int(what)
    from tuner_tui.runs.read.status import read_status

    found = read_status(find_run_or_exit(what))
    if found.pid is None:
        fail(f"{what}: {found.sentence} It has no process here; `tuner-tui {what}` shows it.")
    return found.pid


def _similar_run_name(number: str) -> str:
    """Return the name of the run that a number may mean, or an example of a name."""
    return f"r{int(number):03d}" if 1 <= int(number) <= MAX_RUN_NUMBER else "r007"


def _print(pid: int | None, once: bool, as_json: bool, brief: bool) -> int:
    """Print a sample once, or again and again until the job ends, the pipe is closed or a signal arrives."""
    from tuner_tui.cli.interrupts import Interrupts
    from tuner_tui.runs.read.machine_monitor import open_machine_monitor
    from tuner_tui.runs.store.folder import runs_dir

    machine = open_machine_monitor(runs_dir())
    try:
        with Interrupts() as interrupts:
            _discard_first_sample(machine, pid, interrupts)
            while not (interrupts.interrupts or interrupts.terminated):
                view = machine.look(pid)
                if brief:
                    from tuner_tui.hosts.report import brief_line, recently_ended

                    text = brief_line(view, recently_ended(runs_dir(), time.time()))
                else:
                    text = _text(view, as_json, indent=2 if once else None) + ("" if once or as_json else "\n")
                print_line(text)
                if once or (pid is not None and not view.jobs and not brief):
                    return DONE
                if not brief:
                    interrupts.wait(PERIOD_S)
                    continue
                # The rate of a slow line is kept by longer pauses. Jobs are read at every second call, so that one
                # more in the middle keeps them as fresh as the load.
                half_s = max(BRIEF_PERIOD_S, len(text.encode()) / BRIEF_BYTES_PER_S) / 2
                interrupts.wait(half_s)
                machine.look(pid)
                interrupts.wait(half_s)
    except BrokenPipeError:
        if once:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to flush into the closed pipe
        return DONE
    finally:
        machine.close()
    return TERMINATED if interrupts.terminated else INTERRUPTED


def _discard_first_sample(machine: MachineMonitor, pid: int | None, interrupts: Interrupts) -> None:
    """Take the first sample, which is not shown: load is the difference between two."""
    machine.wait_ready(FIRST_ANSWER_S)
    machine.look(pid)
    interrupts.wait(PERIOD_S)


def _text(view: MachineView, as_json: bool, indent: int | None = None) -> str:
    """Return the table, or JSON on one line, or on several with an `indent`."""
    if as_json:
        import json

        return json.dumps(asdict(view), indent=indent, separators=None if indent else (",", ":"))
    from tuner_tui.cli.render.watch import watch_report

    return "\n".join(watch_report(view))


def _open_screen(pid: int | None, what: str | None, ascii_only: bool) -> NoReturn:
    exit_on_interrupt()
    reduce_startup_memory()
    from tuner_tui.runs.read.machine_monitor import open_machine_monitor
    from tuner_tui.runs.store.folder import runs_dir
    from tuner_tui.ui.theme import wants_colour
    from tuner_tui.ui.watch_app import WatchApp

    app = WatchApp(
        lambda: open_machine_monitor(runs_dir()), pid, what, colour=wants_colour(os.environ), ascii_only=ascii_only
    )
    app.run()
    raise SystemExit(app.return_code or 0)

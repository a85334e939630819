"""What `tuner-tui watch` does: the screen, the table, the lines of JSON. No command-line library here, which would take
more memory than all the rest of the watching."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from tuner_tui.cli.lean import be_lean
from tuner_tui.cli.output import DONE, INTERRUPTED, TERMINATED, fail, line

if TYPE_CHECKING:
    from tuner_tui.cli.interrupts import Interrupts
    from tuner_tui.runs.read.box_monitor import BoxMonitor, BoxView

PERIOD_S = 1.0
MOST_RUNS = 9999
FIRST_ANSWER_S = 5.0
"""A sleeping card wakes in a second or two; a dead one is left out of the first look."""


def watch_box(what: str | None = None, once: bool = False, as_json: bool = False, ascii_only: bool = False) -> NoReturn:
    """Watch the box, or the one job that `what` (a pid or a run) names; ends the program with its exit code."""
    pid = None if what is None else _pid_of(what)
    if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise SystemExit(_print(pid, once, as_json))
    _open_screen(pid, what, ascii_only)


def _pid_of(what: str) -> int:
    """The process that a number or a run's name means; ends with 2 where there is none.

    A number is a process; a run is named by `r007` or its folder.
    """
    if what.isdecimal():
        from tuner_tui.core.procfs import identify_process

        if identify_process(int(what)) is None:
            fail(f"There is no process {what}; a run is named as in `tuner-tui ps`, such as {_run_like(what)}.")
        return int(what)
    from tuner_tui.cli.find import run_named
    from tuner_tui.runs.read.status import read_status

    found = read_status(run_named(what))
    if found.pid is None:
        fail(f"{what}: {found.sentence} There is nothing to watch.")
    return found.pid


def _run_like(number: str) -> str:
    """The run that the number may have meant; any name where no box comes to so many runs."""
    return f"r{int(number):03d}" if 1 <= int(number) <= MOST_RUNS else "r007"


def _print(pid: int | None, once: bool, as_json: bool) -> int:
    from tuner_tui.cli.interrupts import Interrupts
    from tuner_tui.runs.read.box_monitor import open_box_monitor
    from tuner_tui.runs.store.folder import runs_dir

    box = open_box_monitor(runs_dir())
    try:
        with Interrupts() as interrupts:
            _first_look(box, pid, interrupts)
            return _once(box, pid, as_json) if once else _stream(box, pid, as_json, interrupts)
    finally:
        box.close()


def _first_look(box: BoxMonitor, pid: int | None, interrupts: Interrupts) -> None:
    """Load is a difference of two looks: the first is not shown."""
    box.wait_ready(FIRST_ANSWER_S)
    box.look(pid)
    interrupts.wait(PERIOD_S)


def _once(box: BoxMonitor, pid: int | None, as_json: bool) -> int:
    view = box.look(pid)
    if as_json:
        from tuner_tui.cli.output import document

        document(_plain(view))
    else:
        line("\n".join(_table(view)))
    return DONE


def _stream(box: BoxMonitor, pid: int | None, as_json: bool, interrupts: Interrupts) -> int:
    """A look a second until the job ends, the reader of the pipe goes, or somebody interrupts."""
    try:
        while not (interrupts.interrupts or interrupts.terminated):
            view = box.look(pid)
            line(_json_line(view) if as_json else "\n".join([*_table(view), ""]))
            if pid is not None and not view.jobs:
                return DONE
            interrupts.wait(PERIOD_S)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to flush into the closed pipe
        return DONE
    return TERMINATED if interrupts.terminated else INTERRUPTED


def _table(view: BoxView) -> list[str]:
    from tuner_tui.cli.watch_text import report

    return report(view)


def _json_line(view: BoxView) -> str:
    import json

    return json.dumps(_plain(view), separators=(",", ":"))


def _plain(view: BoxView) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(view)


def _open_screen(pid: int | None, what: str | None, ascii_only: bool) -> NoReturn:
    be_lean()
    from tuner_tui.cli.opening import colour_wanted
    from tuner_tui.runs.read.box_monitor import open_box_monitor
    from tuner_tui.runs.store.folder import runs_dir
    from tuner_tui.ui.watch_app import WatchApp

    app = WatchApp(
        lambda: open_box_monitor(runs_dir()), pid, what, colour=colour_wanted(os.environ), ascii_only=ascii_only
    )
    app.run()
    raise SystemExit(app.return_code or 0)

"""Runs `tuner-tui watch`: the screen, the table or JSON lines, of this machine or of several hosts.

Imports no Typer, which would take more memory than the rest.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, json_text, print_line, report_width, row_lines
from tuner_tui.cli.watch_opener import open_machine_screen, run_watch_app
from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.core.procfs import identify_process
from tuner_tui.core.signals import Signals
from tuner_tui.runs.read.machine_monitor import open_machine_monitor
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import find_run, runs_dir

if TYPE_CHECKING:
    from tuner_tui.hosts import HostsWatcher
    from tuner_tui.runs.read.machine_monitor import MachineView
    from tuner_tui.view.cells import Line

T = TypeVar("T")

PERIOD_S = 1.0
FIRST_ANSWER_S = 5.0
"""A sleeping GPU wakes up in a second or two; one that does not answer is left out of the first sample."""
HOSTS_ANSWER_S = 30.0
"""With `--once`: longer than a connection, the start of Python and the first sample of a slow host take."""
_RUN_ID = re.compile(r"r\d+", re.ASCII)


def open_watch(
    words: Sequence[str] = (), once: bool = False, as_json: bool = False, theme: str = "dark", ascii_only: bool = False
) -> NoReturn:
    """Watch the machine, the job of a process id or run, or the hosts in `words`; exits the program."""
    prints = once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty())
    here = [word for word in words if _is_here(word)]
    if here and len(words) > 1:
        fail(f"{here[0]} is on this machine: watch it alone, or only hosts.")
    if words and not here:
        _watch_hosts(words, prints, once, as_json, theme, ascii_only)
    target = next(iter(here), None)
    pid = None if target is None else _pid_of(target)
    if prints:
        raise SystemExit(_print_machine(pid, once, as_json))
    open_machine_screen(pid, target, theme, ascii_only)


def _is_here(word: str) -> bool:
    """True for a process id and for a run, also one that does not exist; False for what may be a host."""
    if word.isdecimal() or "/" in word or _RUN_ID.fullmatch(word):
        return True

    try:
        find_run(word, runs_dir())
    except FolderNotFoundError:
        return False
    return True


def _pid_of(target: str) -> int:
    """Return the process id of `target`: a number is a process, anything else the name or folder of a run."""
    if target.isdecimal():
        if identify_process(int(target)) is None:
            fail(f"No process {target}. For a run, use its name from `tuner-tui ps`, such as r007.")
        return int(target)

    status = read_status(find_run_or_exit(target))
    if status.pid is None:
        fail(f"{target}: {status.sentence} It has no process here; `tuner-tui {shlex.quote(target)}` shows it.")
    return status.pid


def _print_machine(pid: int | None, once: bool, as_json: bool) -> int:
    """Print the machine until the job ends, the pipe is closed or a signal arrives."""
    from tuner_tui.view.watch_rows import snapshot_rows

    machine = open_machine_monitor(runs_dir())

    def next_view() -> tuple[MachineView, bool]:
        view = machine.look(pid)
        return view, pid is not None and not view.jobs

    try:
        with Signals() as interrupts:
            machine.wait_ready(FIRST_ANSWER_S)
            machine.look(pid)  # not shown: load is the difference between two samples
            interrupts.wait(PERIOD_S)
            return _print_views(next_view, None if as_json else snapshot_rows, once, interrupts)
    finally:
        machine.close()


def _print_views(
    next_view: Callable[[], tuple[T, bool]],
    draw: Callable[[T, int], Sequence[Line]] | None,
    once: bool,
    interrupts: Signals,
) -> int:
    """Print views until one comes with True, the pipe is closed or a signal arrives; return the exit code.

    They are printed as the rows that `draw` returns for a width, or as JSON.
    """
    try:
        while not (interrupts.interrupts or interrupts.terminated):
            view, last = next_view()
            if draw is None:
                print_line(json_text(view, 2 if once else None))
            else:
                print_line("\n".join(row_lines(draw(view, report_width()))) + "\n" * (not once))
            if once or last:
                return ExitCode.DONE
            interrupts.wait(PERIOD_S)
    except BrokenPipeError:
        if once:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to flush into the closed pipe
        return ExitCode.DONE
    return ExitCode.TERMINATED if interrupts.terminated else ExitCode.INTERRUPTED


def _watch_hosts(
    words: Sequence[str], prints: bool, once: bool, as_json: bool, theme: str, ascii_only: bool
) -> NoReturn:
    """Watch the hosts in `words` on a screen, or print them."""
    from tuner_tui.hosts import HostsWatcher, parse_host
    from tuner_tui.settings.presets import preset_names

    preset = next((word for word in words if word in preset_names()), None)
    if preset is not None:
        fail(f"{preset} is a preset, no run, process or host: `tuner-tui {preset}` opens it.")
    try:
        watcher = HostsWatcher([parse_host(word) for word in dict.fromkeys(words)])
    except ValueError as error:
        fail(f"{error} There is no run of that name either.")
    watcher.start()
    try:
        if prints:
            raise SystemExit(_print_hosts(watcher, once, as_json))
        from tuner_tui.ui.screens.hosts import HostsScreen

        raise SystemExit(run_watch_app(iter(watcher.look, ()), HostsScreen, theme, ascii_only))
    finally:
        watcher.close()


def _print_hosts(watcher: HostsWatcher, once: bool, as_json: bool) -> int:
    """Print all hosts until the pipe is closed or a signal arrives; with `once`, 1 if no host has answered."""
    from tuner_tui.view.hosts_rows import hosts_rows
    from tuner_tui.view.sample_history import WINDOWS

    draw = None if as_json else lambda views, width: hosts_rows(views, {}, WINDOWS[0], None, width)
    with Signals() as interrupts:
        ends_s = time.monotonic() + (HOSTS_ANSWER_S if once else FIRST_ANSWER_S)
        while time.monotonic() < ends_s and not (interrupts.interrupts or interrupts.terminated):
            if all(view.machine or view.problem for view in watcher.look()):
                break
            interrupts.wait(0.1)
        code = _print_views(lambda: (watcher.look(), False), draw, once, interrupts)
    silent = once and code == ExitCode.DONE and not any(view.machine for view in watcher.look())
    return ExitCode.FAILED if silent else code

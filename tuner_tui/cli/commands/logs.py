"""`tuner-tui logs`: the output of a training, safe for a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, json_text, print_line, print_note
from tuner_tui.cli.options import RunName
from tuner_tui.cli.run_follower import attach, print_events
from tuner_tui.core.signals import Signals
from tuner_tui.runs.read.log_reader import LogReader, LogWindow
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder

LINES_AT_ONCE = 500
LINES_BEFORE_FOLLOWING = 100
LOOK_EVERY_S = 0.5


def logs(
    run: RunName = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Show the last 100 lines and follow until the run ends.")
    ] = False,
    events: Annotated[
        bool, typer.Option("--events", help="Print what happened and, with -f, the progress, instead of the output.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines: events, or anchor (byte offset), text, unfinished.")
    ] = False,
) -> None:
    """Print the output of a run, or its events.

    Progress bars show their last state only, and escape sequences are removed. With -f --events the exit code is that
    of the run; Ctrl-C stops following, not the run.
    """
    folder = find_run_or_exit(run)
    if events:
        if follow:
            raise typer.Exit(attach(folder, as_json))
        print_events(RunReader(folder).events(), as_json)
        return
    status = read_status(folder)
    if status.kind == "waiting":
        print_note(f"{folder.id} has not started. {status.sentence}")
    printer = LogPrinter(LogReader(folder.output_log), as_json)
    if not follow:
        printer.print_rest(last=True)
        return
    printer.anchor = printer.reader.tail(LINES_BEFORE_FOLLOWING).start
    raise typer.Exit(_follow(folder, printer))


def _follow(folder: RunFolder, printer: LogPrinter) -> int:
    """Print until the run ends or a signal arrives, and return the exit code."""
    with Signals() as interrupts:
        while not (interrupts.interrupts or interrupts.terminated):
            status = read_status(folder)
            printer.print_rest(last=not status.live)
            if status.kind == "broken":  # the folder was deleted meanwhile
                fail(status.sentence, ExitCode.FAILED)
            if not status.live and status.kind != "waiting":
                return ExitCode.DONE
            interrupts.wait(LOOK_EVERY_S)
    return ExitCode.TERMINATED if interrupts.terminated else ExitCode.INTERRUPTED


class LogPrinter:
    """Prints a growing log: each finished line once, an unfinished line whenever it changes."""

    def __init__(self, reader: LogReader, as_json: bool) -> None:
        self.reader = reader
        self.anchor = 0
        self._as_json = as_json
        self._unfinished: tuple[int, str] | None = None

    def print_rest(self, last: bool) -> None:
        """Print the lines not printed yet; with `last` also an unfinished line as final."""
        while True:
            window = self.reader.window(self.anchor, LINES_AT_ONCE)
            self._print(window, last)
            if window.at_end:
                return

    def _print(self, window: LogWindow, last: bool) -> None:
        finished = len(window.lines) - window.unfinished
        lines = [
            self._line(anchor, text, False)
            for anchor, text in zip(window.anchors[:finished], window.lines, strict=False)
            if (anchor, text) != self._unfinished
        ]
        if lines:
            print_line("\n".join(lines))
        self.anchor = window.end
        if window.unfinished:
            self.anchor, text = unfinished = window.anchors[-1], window.lines[-1]
            if text and unfinished != self._unfinished:
                self._unfinished = unfinished
                print_line(self._line(self.anchor, text, not last))

    def _line(self, anchor: int, text: str, unfinished: bool) -> str:
        return json_text({"anchor": anchor, "text": text, "unfinished": unfinished}, None) if self._as_json else text

"""Follows a run to its end: events as JSON lines, or plain progress lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Literal

from tuner_tui.cli.console import DONE, FAILED, INTERRUPTED, OUT_OF_MEMORY, TERMINATED, print_line, print_note
from tuner_tui.cli.interrupts import Interrupts
from tuner_tui.cli.render.run_progress import event_line, progress_line
from tuner_tui.core.clock import ClockReading
from tuner_tui.core.terminal_sequences import terminal_notification
from tuner_tui.runs.events.types import Event, Finished
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import RunStatus, continuation_of, read_status, wait_for_fallback
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import Order

POLL_S = 0.5
PROGRESS_EVERY_S = 5.0
INTERRUPT_ORDERS: tuple[tuple[Order, str], ...] = (
    ("stop", "Saving and stopping after this step; Ctrl-C again to terminate."),
    ("terminate", "Terminating; Ctrl-C again to kill."),
    ("kill", "Killing."),
)


def follow_run(folder: RunFolder, json: bool, on_interrupt: Literal["stop", "leave"] = "stop") -> int:
    """Print events and progress until the run ends, and return its exit code.

    A run that the automatic fallback continues is followed into the next. Interrupted, it stops the run, harder each
    time (`stop`), or leaves it alone and returns (`leave`).
    """
    with Interrupts() as interrupts:
        return _follow_all(folder, json, on_interrupt, interrupts)


def launch_and_follow(start: Callable[[], RunFolder], json: bool) -> int:
    """Launch with `start`, then follow. An interrupt during the launch stops the launched run.

    Raises `LaunchError`.
    """
    with Interrupts() as interrupts:
        folder = start()
        print_note(f"Run {folder.id}, output in {folder.output_log}")
        return _follow_all(folder, json, "stop", interrupts)


def _follow_all(folder: RunFolder, json: bool, on_interrupt: Literal["stop", "leave"], interrupts: Interrupts) -> int:
    """Follow the run and the runs that continue it."""
    while True:
        follower = _RunFollower(folder, json, on_interrupt, interrupts)
        code = follower.follow()
        following = follower.following()
        if following is None:
            if code in (FAILED, OUT_OF_MEMORY) and not json:
                _print_cause(folder)
            return code
        folder = following
        print_note(f"Run {folder.id}, output in {folder.output_log}")


def _print_cause(folder: RunFolder) -> None:
    """Print why the run failed with the first remedy, and the command that says more."""
    from tuner_tui.advice.crash.cause import crash_findings
    from tuner_tui.advice.situation import situation_of_run

    try:
        finding = next(iter(crash_findings(situation_of_run(folder))), None)
    except OSError:
        return
    if finding is not None:
        print_note(f"{finding.sentence}.")
        for remedy in finding.remedies[:1]:
            expected = f" ({remedy.expectation})" if remedy.expectation else ""
            print_note(f"Remedy: {remedy.title}{expected}.")
    print_note(f"`tuner-tui diagnose {folder.id}` says more.")


def exit_code(outcome: str | None, interrupted: bool = False) -> int:
    """Return the exit code for the outcome of a run."""
    if outcome == "stopped":
        return INTERRUPTED if interrupted else TERMINATED
    return {"completed": DONE, "out-of-memory": OUT_OF_MEMORY}.get(outcome or "", FAILED)


class _RunFollower:
    """Follows one run from its first line to its exit code."""

    def __init__(
        self, folder: RunFolder, json: bool, on_interrupt: Literal["stop", "leave"], interrupts: Interrupts
    ) -> None:
        self._folder = folder
        self._reader = RunReader(folder)
        self._json = json
        self._leaves = on_interrupt == "leave"
        self._signals = interrupts
        self._pressed = 0
        self._terminated = False
        self._next_progress_s = 0.0

    def follow(self) -> int:
        while True:
            now_status = read_status(self._folder)  # before the events: what an ended run wrote is then all there
            self._print(self._reader.events())
            if self._reader.state.finished is not None:
                self._tell(self._reader.state.finished.sentence)
                return exit_code(self._reader.state.outcome, interrupted=self._pressed > 0)
            if not now_status.live:
                return self._without_end(now_status)
            self._print_progress(ClockReading.now())
            if self._act():
                return INTERRUPTED
            self._signals.wait(POLL_S)

    def following(self) -> RunFolder | None:
        """Wait until the fallback has decided, print its events, and return the run that continues this one, if any."""
        if self._reader.state.finished is None:
            return None
        wait_for_fallback(self._folder)
        self._print(self._reader.events())
        return continuation_of(self._folder, self._reader.state)

    def _tell(self, sentence: str) -> None:
        """Send a terminal notification."""
        if sys.stderr.isatty():
            sys.stderr.write(terminal_notification(f"{self._folder.id}: {sentence}", os.environ))
            sys.stderr.flush()

    def _print(self, events: list[Event]) -> None:
        for event in events:
            text = encode_event(event).decode("ascii").rstrip() if self._json else event_line(event)
            if text is not None:
                print_line(text)

    def _print_progress(self, now: ClockReading) -> None:
        if not self._json and now.monotonic_s >= self._next_progress_s and self._reader.state.step is not None:
            self._next_progress_s = now.monotonic_s + PROGRESS_EVERY_S
            print_line(progress_line(self._reader.state, now.wall_s))

    def _act(self) -> bool:
        """Turn interrupts into orders to the run; return True if they mean to stop following."""
        if self._leaves and (self._signals.interrupts or self._signals.terminated):
            print_note(f"Run {self._folder.id} continues; `tuner-tui attach {self._folder.id}` follows it again.")
            return True
        while self._pressed < min(self._signals.interrupts, len(INTERRUPT_ORDERS)):
            order, sentence = INTERRUPT_ORDERS[self._pressed]
            self._pressed += 1
            print_note(sentence)
            self._give(order)
        if self._signals.terminated and not self._terminated:
            self._terminated = True
            self._give("terminate")
        return False

    def _give(self, order: Order) -> None:
        from tuner_tui.runs.launch.command import LaunchError
        from tuner_tui.runs.launch.orders import give_order

        try:
            give_order(self._folder, order, print_note)
        except (LaunchError, OSError) as error:
            print_note(f"The request could not be sent: {error}")

    def _without_end(self, found: RunStatus) -> int:
        """Return the exit code of a run whose last event was never written: full disk, killed supervisor."""
        state = self._reader.state
        if found.outcome is not None:
            last = Finished(
                t=time.time(), outcome=found.outcome, sentence=found.sentence, step=state.step,
                total_steps=state.total_steps,
            )  # fmt: skip
            self._print([last])
        else:
            print_note(found.sentence)
        return exit_code(found.outcome, interrupted=self._pressed > 0)

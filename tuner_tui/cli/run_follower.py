"""Follows a run to its end, as JSON lines or plain progress lines, for `run` and `logs --events`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.cli.console import ExitCode, control_terminal, print_line, print_note, wrapped
from tuner_tui.core.clock import ClockReading
from tuner_tui.core.signals import Signals
from tuner_tui.core.text import first_line, format_observed, terminal_notification
from tuner_tui.core.units import format_rough_duration, format_share
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.progress import phase_at, seconds_left
from tuner_tui.runs.events.run_state import RunState, strip_allocator_message
from tuner_tui.runs.events.types import Event, Finished
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.orders import give_order
from tuner_tui.runs.launch.start import adopt
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import RunStatus, await_slurm, continuation_of, read_status, wait_for_fallback
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import Order, RunFolder
from tuner_tui.view.run_rows import steps_text

RANK_0_ONLY = (ev.Plan, ev.Evaluated, ev.InEffect, ev.Injected)


def attach(folder: RunFolder, as_json: bool) -> int:
    """Follow a run that was started elsewhere, and return its exit code. Ctrl-C stops following, not the run."""
    await_slurm([folder])
    _supervise_again(folder)
    with Signals() as interrupts:
        return follow(folder, as_json, interrupts, leaves=True)


def print_events(events: Iterable[Event], as_json: bool) -> None:
    """Print events, as JSON lines or in words."""
    for event in events:
        if as_json:
            print_line(encode_event(event).decode("ascii").rstrip())
        elif event.rank in (None, 0) or not isinstance(event, RANK_0_ONLY):
            render = _LINES.get(type(event))
            text = None if render is None else render(event)
            if text is not None:
                print_line(wrapped(text, sys.stdout))


def _supervise_again(folder: RunFolder) -> None:
    """Start a new supervisor for a training that has lost its own, so that its end is recorded."""
    status = read_status(folder)
    if status.kind != "lost" or not status.training_alive:
        return
    print_note(status.sentence)
    try:
        adopt(folder)
    except (LaunchError, OSError) as error:
        print_note(f"No new supervisor could be started: {error}")


def progress_line(state: RunState, now: float) -> str:
    """Return phase, step, speed, loss and time left at `now` (seconds since the epoch), without unknown values."""
    rates, left = state.rates, seconds_left(state, now)
    done = f" ({format_share(state.step / state.total_steps)})" if state.step is not None and state.total_steps else ""
    parts = [
        f"{phase_at(state, now):<10}",
        steps_text(state) + done,
        _figure(rates.steps_s, "{:.3g} steps/s"),
        _figure(rates.samples_s, "{:,.4g} samples/s"),
        _figure(state.loss, "loss {:.4g}"),
        _figure(state.learning_rate, "LR {:.2e}"),
        "" if left is None else f"{format_rough_duration(left)} left",
        f"(read from: {state.source})" if state.source else "",
    ]
    return "  ".join(part for part in parts if part)


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _plan(event: ev.Plan) -> str | None:
    if event.total_steps is None:
        return None
    resumed = f", from step {event.first_step:,}" if event.first_step else ""
    basis = "the script's variables" if event.source is None else "what it prints"
    guessed = f", a guess from {basis}" if event.guessed else ""
    return f"plan        {event.total_steps:,} steps{resumed}{guessed}"


def _started(event: ev.Started) -> str:
    versions = [f"torch {event.torch}" if event.torch else "", f"on {event.device}" if event.device else ""]
    rank = f"rank {event.rank}, " if event.world_size > 1 else ""
    return "started     " + rank + " ".join([f"process {event.pid}", *filter(None, versions)])


def _evaluated(event: ev.Evaluated) -> str:
    figures = "  ".join(f"{name} {value:.4g}" for name, value in event.results.items())
    return f"evaluated   step {event.step:,}  {figures}".rstrip()


def _in_effect(event: ev.InEffect) -> str | None:
    return f"in effect   {_pairs(event.values)}" if event.values else None


def _injected(event: ev.Injected) -> str:
    left = f"  not found: {', '.join(event.not_found)}" if event.not_found else ""
    return f"injected    {_pairs(event.values)}{left}"


def _finished(event: ev.Finished) -> str:
    problem = (
        "" if event.not_finite_since is None else f" The loss is not finite since step {event.not_finite_since:,}."
    )
    return f"finished    {strip_allocator_message(event.sentence) or event.outcome}{problem}"


def _pairs(values: Mapping[str, Any]) -> str:
    pairs = (f"{name} {format_observed(value)}" for name, value in values.items() if value is not None)
    return first_line(", ".join(pairs))


_LINES: dict[type[ev.Event], Callable[[Any], str | None]] = {
    ev.Launched: lambda event: f"launched    process {event.pid}",
    ev.Started: _started,
    ev.Plan: _plan,
    ev.Evaluated: _evaluated,
    ev.Checkpoint: lambda event: f"checkpoint  step {event.step:,}  {event.path}",
    ev.Saved: lambda event: f"saved       {'' if event.step is None else f'step {event.step:,}  '}{event.path}",
    ev.InEffect: _in_effect,
    ev.Injected: _injected,
    ev.StopRequested: lambda event: f"requested   {event.how}",
    ev.OutOfMemory: lambda event: f"memory      {first_line(event.message)}",
    ev.Profiled: lambda event: f"profiled    {event.sentence}",
    ev.Hung: lambda event: f"stalled     {event.sentence}",
    ev.Raised: lambda event: f"raised      {event.type}: {first_line(event.message)}",
    ev.FellBack: lambda event: f"retry       {event.number} of {event.most}: {event.sentence}",
    ev.FallbackEnded: lambda event: f"no retry    {event.sentence}",
    ev.Finished: _finished,
}


POLL_S = 0.5
PROGRESS_EVERY_S = 5.0
INTERRUPT_ORDERS: tuple[tuple[Order, str], ...] = (
    ("stop", "Stopping after this step; Ctrl-C again to terminate."),
    ("terminate", "Terminating; Ctrl-C again to kill."),
    ("kill", "Killing."),
)


def follow(folder: RunFolder, json: bool, interrupts: Signals, leaves: bool = False) -> int:
    """Print events and progress until the run, and the runs that continue it, have ended; return the exit code.

    Interrupted, it stops the run, harder each time, or leaves it alone and returns.
    """
    while True:
        follower = _RunFollower(folder, json, interrupts, leaves)
        code = follower.follow()
        following = follower.following()
        if following is None:
            if code in (ExitCode.FAILED, ExitCode.OUT_OF_MEMORY) and not json:
                _print_cause(folder)
            return code
        folder = following
        print_note(f"Run {folder.id}, output in {folder.output_log}")


def _print_cause(folder: RunFolder) -> None:
    """Print why the run failed with the first remedy, and the command that says more."""
    try:
        finding = next(iter(crash_findings(situation_of_run(folder))), None)
    except OSError:
        return
    if finding is not None:
        print_note(f"{finding.headline}.")
        for remedy in finding.remedies[:1]:
            expected = f" ({remedy.expectation})" if remedy.expectation else ""
            print_note(f"Remedy: {remedy.title}{expected}.")
    print_note(f"`tuner-tui diagnose {folder.argument}` says more.")


def exit_code(outcome: str | None, interrupted: bool = False) -> int:
    if outcome == "stopped":
        return ExitCode.INTERRUPTED if interrupted else ExitCode.TERMINATED
    return {"completed": ExitCode.DONE, "out-of-memory": ExitCode.OUT_OF_MEMORY}.get(outcome or "", ExitCode.FAILED)


class _RunFollower:
    """Follows one run from its first line to its exit code."""

    def __init__(self, folder: RunFolder, json: bool, interrupts: Signals, leaves: bool) -> None:
        self._folder = folder
        self._reader = RunReader(folder)
        self._json = json
        self._leaves = leaves
        self._signals = interrupts
        self._pressed = 0
        self._terminated = False
        self._waits = self._progress = ""
        self._next_progress_s = 0.0

    def follow(self) -> int:
        while True:
            # Before the events: what a run that has ended by now wrote is then read below, its last event included.
            now_status = read_status(self._folder)
            print_events(self._reader.events(), self._json)
            if self._reader.state.finished is not None:
                self._tell(self._reader.state.finished.sentence)
                return exit_code(self._reader.state.outcome, interrupted=self._pressed > 0)
            if not now_status.live and now_status.kind != "waiting":
                return self._without_end(now_status)
            self._print_waiting(now_status)
            now = ClockReading.now()
            if not self._json and now.monotonic_s >= self._next_progress_s and self._reader.state.step is not None:
                self._next_progress_s = now.monotonic_s + PROGRESS_EVERY_S
                before, self._progress = self._progress, progress_line(self._reader.state, now.wall_s)
                if self._progress != before:  # while it evaluates or saves there is nothing new
                    print_line(wrapped(self._progress, sys.stdout))
            if self._act():
                return ExitCode.INTERRUPTED
            self._signals.wait(POLL_S)

    def following(self) -> RunFolder | None:
        """Wait until the fallback or Slurm has decided, and return the run that continues this one, if any."""
        if self._reader.state.finished is None:
            return None
        wait_for_fallback(self._folder)
        while (status := read_status(self._folder)).kind == "pending":  # its Slurm job will continue it
            self._print_waiting(status)
            if self._act():
                return None
            self._signals.wait(POLL_S)
        print_events(self._reader.events(), self._json)
        return continuation_of(self._folder, self._reader.state)

    def _tell(self, sentence: str) -> None:
        if sys.stderr.isatty():
            control_terminal(terminal_notification(f"{self._folder.id}: {sentence}", os.environ))

    def _print_waiting(self, status: RunStatus) -> None:
        """Say why a run waits in the queue or in that of Slurm, each time that this changes."""
        if status.kind in ("waiting", "pending") and status.sentence != self._waits:
            self._waits = status.sentence
            print_note(status.sentence)

    def _act(self) -> bool:
        """Turn interrupts into orders to the run; return True if they mean to stop following."""
        if self._leaves and (self._signals.interrupts or self._signals.terminated):
            again = f"`tuner-tui logs -f --events {self._folder.argument}` follows it again"
            print_note(f"Run {self._folder.id} continues; {again}.")
            return True
        # Ctrl-C reaches this process only: the training has a session of its own. Each press becomes an order in the
        # run folder, and the supervisor sends the signals. Presses that came during the launch are worked off here as
        # well.
        while self._pressed < min(self._signals.interrupts, len(INTERRUPT_ORDERS)):
            order, sentence = INTERRUPT_ORDERS[self._pressed]
            self._pressed += 1
            saves = order == "stop" and self._reader.state.accepts_orders
            print_note(f"Saving a checkpoint; {sentence[0].lower()}{sentence[1:]}" if saves else sentence)
            self._give(order)
        if self._signals.terminated and not self._terminated:
            self._terminated = True
            self._give("terminate")
        return False

    def _give(self, order: Order) -> None:
        try:
            give_order(self._folder, order, print_note)
        except (LaunchError, OSError) as error:
            print_note(f"The request could not be sent: {error}")

    def _without_end(self, status: RunStatus) -> int:
        """Return the exit code of a run whose last event was never written: full disk, killed supervisor."""
        state = self._reader.state
        if status.outcome is not None:
            last = Finished(
                t=time.time(), outcome=status.outcome, sentence=status.sentence, step=state.step,
                total_steps=state.total_steps, loss=state.loss,
            )  # fmt: skip
            print_events([last], self._json)
        else:
            print_note(status.sentence)
        return exit_code(status.outcome, interrupted=self._pressed > 0)

"""Events and progress of a run as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner_tui.core.text import format_observed
from tuner_tui.core.units import format_rough_duration, format_share
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.progress import eta, phase_at
from tuner_tui.runs.events.run_state import RunState, strip_allocator_message

RANK_0_ONLY = (ev.Plan, ev.Evaluated, ev.InEffect, ev.Injected)


def event_line(event: ev.Event) -> str | None:
    """Return an event as a line; None for events without a text and for those that only rank 0 reports."""
    if event.rank not in (None, 0) and isinstance(event, RANK_0_ONLY):
        return None
    render = _LINES.get(type(event))
    return None if render is None else render(event)


def progress_line(state: RunState, now: float) -> str:
    """Return phase, step, speed, loss and time left at `now` (seconds since the epoch), without unknown values."""
    rates, left = state.rates, eta(state, now)
    parts = [
        f"{phase_at(state, now):<10}",
        _step(state),
        _figure(rates.steps_s, "{:.3g} steps/s"),
        _figure(rates.samples_s, "{:,.4g} samples/s"),
        _figure(state.loss, "loss {:.4g}"),
        _figure(state.learning_rate, "lr {:.2e}"),
        "" if left is None else f"{format_rough_duration(left.seconds)} left",
        f"(seen in: {state.source})" if state.source else "",
    ]
    return "  ".join(part for part in parts if part)


def _step(state: RunState) -> str:
    if state.step is None:
        return ""
    if not state.total_steps:
        batch = "" if state.position is None else "  batch {:,} of {:,}".format(*state.position)
        return f"step {state.step:,}{batch}"
    total = "~" * state.total_guessed + f"{state.total_steps:,}"
    return f"step {state.step:,}/{total} ({format_share(state.step / state.total_steps)})"


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
    figures = "  ".join(f"{name} {value:.4g}" for name, value in event.metrics.items() if _is_metric(name))
    return f"evaluated   step {event.step:,}  {figures}".rstrip()


def _is_metric(name: str) -> bool:
    return not name.endswith(("_runtime", "_per_second", "epoch"))


def _in_effect(event: ev.InEffect) -> str | None:
    return f"in effect   {_pairs(event.values)}" if event.values else None


def _injected(event: ev.Injected) -> str:
    left = f"  not found: {', '.join(event.not_found)}" if event.not_found else ""
    return f"injected    {_pairs(event.values)}{left}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {format_observed(value)}" for name, value in values.items())[:200]


_LINES: dict[type[ev.Event], Callable[[Any], str | None]] = {
    ev.Launched: lambda event: f"launched    process {event.pid}",
    ev.Started: _started,
    ev.Plan: _plan,
    ev.Evaluated: _evaluated,
    ev.Checkpoint: lambda event: f"checkpoint  step {event.step:,}  {event.path}",
    ev.Saved: lambda event: f"saved       step {event.step:,}  {event.path}",
    ev.InEffect: _in_effect,
    ev.Injected: _injected,
    ev.StopRequested: lambda event: f"asked       {event.how}",
    ev.OutOfMemory: lambda event: f"memory      {event.message.strip().partition(chr(10))[0][:200]}",
    ev.Raised: lambda event: f"raised      {event.type}: {event.message.strip().partition(chr(10))[0][:200]}",
    ev.FellBack: lambda event: f"fell back   {event.number} of {event.most}: {event.sentence}",
    ev.FallbackEnded: lambda event: f"no fallback {event.sentence}",
    ev.Finished: lambda event: f"finished    {strip_allocator_message(event.sentence) or event.outcome}",
}

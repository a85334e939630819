"""Folds events into the state of a run.

Pure: any order, any lost line and any suffix of a run give a consistent state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.progress import Figure, rates_of, with_counters
from tuner_tui.runs.events.run_state import NO_MINIMA, LossTrend, RankState, RunState, with_value

MAX_EVALUATIONS = 400
"""Every second one is dropped beyond this; a plot has fewer columns."""
RECENT_EVALUATIONS = 16
"""Among so many of the newest ones an evaluation is looked for that another source has reported already."""
RECENT_OUTPUT = 64
"""Evaluations whose output is known by where it begins and ends; more than a loop makes in a few seconds."""
RECENT_PRINTED_STEPS = 256
"""Steps after which something was printed; lines are read within two seconds."""
LATE_S = 3.0
"""A printed line is read so late at most; evaluations of two sources within this time are one that both report."""
MAX_STARTUP = 64
"""Phases of a start that are kept: a script may load hundreds of models and data sets."""
BEFORE_TRAINING = ("starting", "loading-model", "loading-data", "compiling", "skipping")

# Three facts about the files decide how the functions below are written:
# - Ranks write to files of their own, and their clocks differ: events come in any order.
# - Of a long file the story events, a sample of the counters and the end are read: nothing may count lines.
# - The supervisor folds what it records at once and then reads it from the file: an event folded twice changes nothing.


def fold(state: RunState, event: ev.Event) -> RunState:
    return fold_all(state, (event,))


def fold_all(state: RunState, events: Iterable[ev.Event]) -> RunState:
    """The state after all of `events`, in order.

    Rates are computed once at the end: they look at all ranks, which at every event of 64 ranks would take minutes.
    """
    ranks, last_event_t = state.ranks, state.last_event_t
    for event in events:
        state = _folded(state, event)
        last_event_t = _greater(last_event_t, event.t)
    rates = state.rates if state.ranks is ranks else rates_of(state.ranks.values())
    return replace(state, last_event_t=last_event_t, rates=rates)


KEPT_IN: Mapping[type[ev.Event], str] = {
    ev.Checkpoint: "checkpoint", ev.Saved: "saved", ev.OutOfMemory: "out_of_memory", ev.Hung: "hung",
    ev.Profiled: "profiled", ev.FellBack: "fell_back", ev.FallbackEnded: "fallback_ended", ev.Unobserved: "unobserved",
}  # fmt: skip
"""The fields that have the newest event of a type."""


def _folded(state: RunState, event: ev.Event) -> RunState:
    """The state after one event, without its rates."""
    if fold_event := FOLDS.get(type(event)):
        return fold_event(state, event)
    if kept_in := KEPT_IN.get(type(event)):
        return replace(state, **{kept_in: event})
    match event:
        case ev.Launched():
            state = replace(state, launched_t=event.t, pid=event.pid, phase="starting", phase_since_t=event.t)
            state = _with_startup(state, "importing", event.t)
        case ev.InEffect():
            state = replace(state, in_effect={**state.in_effect, **event.values})
        case ev.Options():
            state = replace(state, options=event.options, switches=event.switches)
        case ev.Raised() if state.raised is None or event.t < state.raised.t:
            state = replace(state, raised=event)  # when a rank fails, the others soon raise because it is gone
        case ev.TrialMeasured():
            state = _with_rank(state, event.rank, trial=event)
        case ev.StopRequested() if event.how != "checkpoint":
            ordered = state.stop_requested if event.how == ev.SIGNALLED else None  # an order sends the signal itself
            state = replace(state, stop_requested=ordered or event.how)
        case ev.NotFinite():
            first = event.step if state.not_finite_since is None else min(event.step, state.not_finite_since)
            state = replace(state, not_finite_since=first)
        case ev.Exited():
            state = replace(_enter(state, "ending", event.t), exited=event)
    return state


def _with_rank(state: RunState, number: int | None, **changes: Any) -> RunState:
    """The state with changes of a rank; a rank that is not known yet begins with them."""
    number = number or 0
    rank = replace(state.ranks.get(number, RankState(rank=number)), **changes)
    return replace(state, ranks={**state.ranks, number: rank})


def _finished(state: RunState, event: ev.Finished) -> RunState:
    step = state.step if event.step is None else _greater(state.step, event.step)
    total = event.total_steps if state.total_steps is None else state.total_steps
    guessed = state.total_guessed and event.outcome != "completed"
    if state.total_guessed and not guessed:  # what was counted corrects the guess at the end at the latest
        total = step
    loss = state.loss if event.loss is None else event.loss
    since = state.not_finite_since if event.not_finite_since is None else event.not_finite_since
    return replace(
        _enter(state, "ended", event.t), finished=event, step=step, total_steps=total, total_guessed=guessed, loss=loss,
        not_finite_since=since,
    )  # fmt: skip


def _started(state: RunState, event: ev.Started) -> RunState:
    rank = event.rank or 0
    versions = {"python": event.python, "torch": event.torch, "transformers": event.transformers}
    installed = {name: version for name, version in versions.items() if version is not None}
    ranks = {**state.ranks, rank: RankState(rank=rank, pid=event.pid, host=event.host, independent=event.independent)}
    # An elastic launcher such as torchrun starts a failed rank again: its exception did not end the run.
    restarted = state.raised is not None and state.raised.rank == event.rank and state.raised.t <= event.t
    raised = None if restarted else state.raised
    size = max(event.world_size, state.world_size or 0)
    state = replace(state, ranks=ranks, world_size=size, versions={**state.versions, **installed}, raised=raised)
    return state if rank else _with_startup(state, "starting", event.t)


def _phase(state: RunState, event: ev.Phase) -> RunState:
    if not state.follows_rank(event.rank):
        return state
    if event.phase == "ending" and _others_train(state, event.rank):
        return state
    state = _with_startup(state, event.phase, event.t)
    return replace(_enter(_with_evaluation_output(state, event), event.phase, event.t), generates=event.generates)


def _with_startup(state: RunState, phase: str, t: float) -> RunState:
    """The state with a phase of the start; after the first step there are none."""
    if state.first_step_t is not None or len(state.startup) >= MAX_STARTUP:
        return state
    return replace(state, startup=tuple(sorted({*state.startup, (t, phase)})))


def _with_evaluation_output(state: RunState, event: ev.Phase) -> RunState:
    ranges = state.evaluation_output
    if event.phase == "evaluating" and event.output is not None:
        ranges = (*ranges[1 - RECENT_OUTPUT :], (event.output, None, None))
    else:  # where it began or ended may be unknown
        began = ranges[-1][0] if ranges and ranges[-1][1] is None else event.output
        ranges = tuple(ended for ended in ranges[1 - RECENT_OUTPUT :] if ended[1] is not None)
        if began is not None and (event.output, event.output_until) != (None, None):
            ranges = (*ranges, (began, began if event.output is None else event.output, event.output_until))
    return replace(state, evaluation_output=ranges)


def _plan(state: RunState, event: ev.Plan) -> RunState:
    # A guess by the names of variables never replaces a length that a Trainer stated, and what is printed never
    # replaces what the observer found. Independent ranks plan their own parts, which add up.
    certain = state.total_steps is not None and not state.total_guessed
    if event.guessed and certain and (event.source is not None or state.total_source is None):
        return state
    total = event.total_steps
    if event.guessed and total is None and event.epochs is None and state.total_source is None:  # taken back
        return replace(state, total_steps=None, total_guessed=False, planned_epochs=None)
    if total is not None and event.rank is not None:
        state = _with_rank(state, event.rank, planned_steps=total)
        if state.independent:
            total = sum(rank.planned_steps or 0 for rank in state.ranks.values())
    figures = {
        "total_steps": total,
        "planned_epochs": event.epochs,
        "parameters": event.parameters,
        "trainable_parameters": event.trainable_parameters,
    }
    changed: dict[str, Any] = {name: value for name, value in figures.items() if value is not None}
    if total is not None:
        changed |= {"total_guessed": event.guessed, "total_source": event.source}
    accepts_orders = state.accepts_orders or event.obeys
    if event.source is None:  # maybe of another model
        changed["loss_trend"] = LossTrend()
    if event.obeys and not event.rank and not state.independent and state.step is not None:
        # After another Trainer in the same process, whose loss and rate say nothing of this one.
        changed |= {"step": event.first_step, "loss": None, "learning_rate": None}
    first_step = event.first_step if total is not None or event.obeys else state.first_step
    return replace(state, first_step=first_step, accepts_orders=accepts_orders, **changed)


def _others_train(state: RunState, rank: int | None) -> bool:
    others = (rank_state for number, rank_state in state.ranks.items() if number != (rank or 0))
    return state.independent and any(not rank_state.ended for rank_state in others)


def _evaluated(state: RunState, event: ev.Evaluated) -> RunState:
    if not state.follows_rank(event.rank):
        return state
    # One evaluation is often reported three times: by the observer that saw it begin, by the logger that the script
    # calls and by the line that it prints. They arrive within seconds and are merged into one, with the metrics of all.
    earlier = state.evaluations
    last = len(earlier) - 1
    # Another value of the same step is of the best weights, loaded again after the training, or of other data.
    for newest in earlier[-1:]:
        if (newest.step, newest.source) == (event.step, event.source) and newest.metrics.keys() & event.metrics.keys():
            return state
    for index in range(last, max(-1, last - RECENT_EVALUATIONS), -1):
        # A logger may get one metric at a time; the next training has the same steps.
        before, is_other = earlier[index], earlier[index].source != event.source
        # Two sources give the metrics of one evaluation, which a program may number from 0 in one of them.
        is_again = is_other and before.metrics and event.metrics and abs(event.t - before.t) <= LATE_S
        if (index == last or is_other) and (before.step == event.step or (index == last and is_again)):
            best, lesser = sorted(
                (before, event),
                key=lambda evaluation: (bool(evaluation.metrics), ev.trust(evaluation.source)),
                reverse=True,
            )
            merged = replace(best, metrics={**lesser.metrics, **best.metrics}, seconds=best.seconds or lesser.seconds)
            return replace(state, evaluations=(*earlier[:index], merged, *earlier[index + 1 :]))
    index = len(earlier)
    # It was before another one, and only its line was read after it; a new training begins at 0 again.
    while index and event.step < earlier[index - 1].step and abs(event.t - earlier[index - 1].t) <= LATE_S:
        index -= 1
    kept = (*earlier[:index], event, *earlier[index:])
    if len(kept) > MAX_EVALUATIONS:
        kept = (*kept[:-1:2], kept[-1])
    return replace(state, evaluations=kept)


def _injected(state: RunState, event: ev.Injected) -> RunState:
    """Several places may take settings; what remains in `not_injected` was taken by none."""
    injected = {**state.injected, **event.values}
    missing = (name for name in dict.fromkeys((*state.not_injected, *event.not_found)) if name not in injected)
    limits = {**state.injection_limits, **event.limits}
    return replace(state, injected=injected, not_injected=tuple(missing), injection_limits=limits)


def _ended(state: RunState, event: ev.Ended) -> RunState:
    after = _with_rank(state, event.rank, ended=True, exit_code=event.exit_code)
    return after if _others_train(after, event.rank) else _enter(after, "ending", event.t)


def _steps(state: RunState, event: ev.Steps) -> RunState:
    if state.source is not None and event.source is None and state.total_source is not None:
        # The observer counts from here on: what was taken for the training's bar may have been that of its data.
        state = replace(state, total_steps=None, total_guessed=False, total_source=None)
    number = event.rank or 0
    before = state.ranks.get(number) or RankState(rank=number)
    after = with_counters(before, event)
    first = len(after.recent) == 1 and after.recent[0] is event  # of the rank, or of its new process
    allocated, anonymous = (NO_MINIMA, NO_MINIMA) if first else (after.allocated_minima, after.anonymous_minima)
    after = replace(
        after,
        allocated_minima=with_value(allocated, event.own_steps, event.allocated_bytes),
        anonymous_minima=with_value(anonymous, event.own_steps, event.anonymous_bytes),
    )
    step = _step(state, before, event)
    changed: dict[str, Any] = {"ranks": {**state.ranks, number: after}, "step": step, "source": event.source}
    if state.total_guessed and state.total_steps is not None and step > state.total_steps:
        # By one step it is a loop that counts from 0 to the last.
        wrong = {"total_steps": None, "total_guessed": False, "planned_epochs": None}
        changed |= {"total_steps": step} if step == state.total_steps + 1 else wrong
    if event.printed and state.follows_rank(event.rank):
        printed = sorted({*state.printed, *event.printed}, key=lambda loss: loss[::-1])
        changed["printed"] = tuple(printed[-RECENT_PRINTED_STEPS:])
    if before.latest is None or event.own_steps > before.latest.own_steps or first:
        changed |= _stepped(state, event)
    return replace(state, **changed)


def _stepped(state: RunState, event: ev.Steps) -> dict[str, Any]:
    if event.own_steps < 1:
        return {}
    since = event.t if state.training_since_t is None else state.training_since_t
    changed: dict[str, Any] = {"last_step_t": _greater(state.last_step_t, event.t), "training_since_t": since}
    if state.hung is not None and event.t > state.hung.t:
        changed["hung"] = None
    if state.first_step_t is None:
        changed["first_step_t"] = event.t
    return changed | ({"phase": "training", "phase_since_t": event.t} if state.phase in BEFORE_TRAINING else {})


def _metrics(state: RunState, event: ev.Metrics) -> RunState:
    if not state.follows_rank(event.rank):
        return state
    names = ("loss", "learning_rate", "grad_norm", "epoch")
    changed: dict[str, Any] = {name: value for name in names if (value := getattr(event, name)) is not None}
    if event.learning_rate is not None and event.source in (None, ev.BACKWARD):  # one that is printed may be rounded
        since = state.zero_rate_since
        changed["zero_rate_since"] = None if event.learning_rate else event.step if since is None else since
    trust = ev.trust(event.source, event.summary, event.part)
    name = "backward_parts" if event.source == ev.BACKWARD else "logged_parts"
    changed[name] = {**getattr(state, name), **event.parts}
    parts = max(changed[name], state.loss_parts, key=len)
    of_optimizers = event.source == ev.BACKWARD and bool(event.parts)
    if (of_optimizers and state.loss_trust <= 0) or (state.loss_trust < 0 and len(parts) > 1):
        changed |= {"loss": None, "loss_trend": LossTrend(), "loss_trust": 0}  # it was one of them
    elif (state.loss is not None and trust < state.loss_trust) or (event.part and len(parts) > 1):
        changed.pop("loss", None)
    if changed.get("loss") is not None:
        changed |= {"loss_trust": trust, "loss_trend": state.loss_trend.with_loss(changed["loss"])}
        changed["not_finite_since"] = _not_finite_since(state, event.step, math.isfinite(changed["loss"]))
    return replace(state, **changed)


def _not_finite_since(state: RunState, step: int, is_finite: bool) -> int | None:
    """From which step on the loss is not finite, after that of `step`. Without an observer its first value says it."""
    since = state.not_finite_since
    if is_finite:
        return None if since is None or step > since else since  # a line may be read late
    was_finite = state.loss is not None and math.isfinite(state.loss)
    return step if since is None and was_finite and state.source is not None else since


def _enter(state: RunState, phase: str, t: float) -> RunState:
    if state.phase == phase:
        return state
    since = t if phase == "training" and state.training_since_t is None else state.training_since_t
    return replace(state, phase=phase, phase_since_t=t, training_since_t=since)


def _step(state: RunState, before: RankState, event: ev.Steps) -> int:
    """The step of the run: that of the rank that is ahead, or of one that started again; independent ones add up."""
    if state.independent:
        others = (rank.latest for number, rank in state.ranks.items() if number != before.rank)
        return event.step + sum(latest.step for latest in others if latest is not None)
    restarted = before.latest is not None and event.own_steps < before.latest.own_steps
    return event.step if restarted else _greater(state.step, event.step)


def _greater(current: Figure | None, value: Figure) -> Figure:
    return value if current is None else max(current, value)


FOLDS: Mapping[type[ev.Event], Callable[[RunState, Any], RunState]] = {
    ev.Steps: _steps, ev.Metrics: _metrics, ev.Started: _started, ev.Phase: _phase, ev.Plan: _plan,
    ev.Evaluated: _evaluated, ev.Injected: _injected, ev.Ended: _ended, ev.Finished: _finished,
}  # fmt: skip
"""Events that have a function of their own; others change a field or two."""

"""The restart after out of memory: the next smaller settings that leave the training the same, or none. Pure.

The training stays the same if every optimizer step sees the same samples and computes the same up to rounding. So the
effective batch is held exactly; shorter sequences, adapters or another optimizer are left to the user.
`fallback_process` carries out the decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner_tui.advice.batch_scaling import smaller_micro_batches
from tuner_tui.advice.crash.cause import crash_findings
from tuner_tui.advice.effective_settings import chosen_settings, effective_settings
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.non_finite import LOSS_IGNORES_ACCUMULATION
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.supervise.outcome import OUT_OF_MEMORY_CAUSES
from tuner_tui.settings.fields import FIELDS, Value, format_value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved
from tuner_tui.tuning.search.space import ACCUMULATION, CHECKPOINTING, MICRO, PERSISTENT, PIN, PREFETCH, WORKERS

EVAL_BATCH = "per_device_eval_batch_size"
SAME_TRAINING = frozenset({MICRO, ACCUMULATION, CHECKPOINTING, EVAL_BATCH, WORKERS, PREFETCH, PERSISTENT, PIN})
"""Fields that do not change the result of the training."""


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """Continue with `resolved`, which differs by `change` from what the run had."""

    resolved: Resolved
    change: Mapping[str, Value]
    number: int
    sentence: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No restart helps; `sentence` says why."""

    sentence: str


def decide_fallback(
    situation: Situation,
    resolved: Resolved,
    max_steps: int,
    used: int = 0,
    unreachable: frozenset[str] = frozenset(),
) -> FallbackStep | GiveUp | None:
    """Return what follows the ended run of `situation`, which was launched with `resolved`.

    None if the run did not run out of memory. At most `max_steps` restarts are made, of which `used` were made already.
    Remedies that change fields in `unreachable` are left out, because these do not reach the training.
    """
    finding = out_of_memory_finding(situation)
    if finding is None:
        return None
    if used >= max_steps:
        retries = "1 retry" if max_steps == 1 else f"{max_steps} retries"
        return GiveUp(f"Out of memory again after {retries}, the most allowed.")
    in_effect = situation.state.in_effect
    present = effective_settings(resolved.settings, chosen_settings(resolved, situation.job), in_effect)
    remedies = remedies_for(finding.cause, replace(situation, settings=present), finding.where)
    usable = (one for one in remedies if _is_usable(one, finding, situation, present, unreachable))
    remedy = next(usable, None)
    where = f" ({finding.where})" if finding.where else ""
    if remedy is None:
        return GiveUp(f"Out of memory{where}, and {_nothing_left(remedies, situation)}.")
    change = _at_least_halved(remedy.change, present) if used else remedy.change
    origin = Origin(OriginKind.REMEDY, finding.cause)
    after = Resolved(present.changed(**change), {**resolved.origins, **dict.fromkeys(change, origin)})
    description = describe_change(change, present, after.settings)
    return FallbackStep(after, change, used + 1, f"Out of memory{where}: {description}")


def out_of_memory_finding(situation: Situation) -> Finding | None:
    """Return the finding that the run ran out of memory, or None. A bare SIGKILL is not enough evidence."""
    state = situation.state
    if state.outcome not in ("out-of-memory", "failed", "lost"):
        return None
    for finding in crash_findings(situation):
        if finding.cause in OUT_OF_MEMORY_CAUSES and finding.confidence != "possible":
            return finding
    if state.outcome != "out-of-memory":
        return None
    return Finding("gpu-oom", "failed", "The run ended out of memory", (), "likely")


def describe_change(change: Mapping[str, Value], before: Settings, after: Settings) -> str:
    """Return the change as text, with the effective batch if the micro batch changes."""
    parts = [
        f"{FIELDS[name].label} {_format(name, getattr(before, name))} → {_format(name, value)}"
        for name, value in change.items()
    ]
    held = f" (effective batch stays {after.effective_batch()} per device)" if MICRO in change else ""
    return ", ".join(parts) + held


def _at_least_halved(change: Mapping[str, Value], present: Settings) -> Mapping[str, Value]:
    """The change with at most half the micro batch, because every restart costs a start and the steps lost."""
    if MICRO not in change:
        return change
    micro, accumulation = present.per_device_train_batch_size, present.gradient_accumulation_steps
    half = next((size for size in smaller_micro_batches(micro, accumulation) if 2 * size <= micro), None)
    return change if half is None else {**change, MICRO: half, ACCUMULATION: micro * accumulation // half}


def _is_usable(
    remedy: Remedy, finding: Finding, situation: Situation, present: Settings, unreachable: frozenset[str]
) -> bool:
    names = remedy.change.keys()
    if not names or not names <= SAME_TRAINING or names & unreachable:
        return False
    if EVAL_BATCH in names and finding.where not in ("evaluation", None):
        return False
    return MICRO not in names or _holds_effective_batch(remedy, situation, present)


def _holds_effective_batch(remedy: Remedy, situation: Situation, present: Settings) -> bool:
    """Whether the effective batch, the steps of an epoch and the gradient stay exactly the same."""
    state, in_effect = situation.state, situation.state.in_effect
    if present.changed(**remedy.change).effective_batch() != present.effective_batch():
        return False
    # Without the last incomplete batch, another micro batch drops other samples.
    if in_effect.get("dataloader_drop_last") or in_effect.get(LOSS_IGNORES_ACCUMULATION):
        return False
    known = state.accepts_orders and MICRO in in_effect and ACCUMULATION in in_effect
    return isinstance(situation.job, BuiltinJob) or known


def _nothing_left(remedies: tuple[Remedy, ...], situation: Situation) -> str:
    manual = [one.title for one in remedies if not one.change or not one.change.keys() <= SAME_TRAINING]
    sentence = "no other change keeps the training the same"
    if situation.state.in_effect.get(LOSS_IGNORES_ACCUMULATION):
        sentence += " (this model's gradients would grow with accumulation)"
    return f"{sentence}; by hand: {', '.join(manual[:3])}" if manual else sentence


def _format(name: str, value: Value) -> str:
    return format_value(name, value) or "none"

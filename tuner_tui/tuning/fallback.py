"""The restart after out of memory: the next smaller settings that leave the training the same, or none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tuner_tui.advice.batch_scaling import smaller_micro_batches
from tuner_tui.advice.crash.cause import crash_findings
from tuner_tui.advice.effective_settings import chosen_settings, effective_settings
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.non_finite import LOSS_IGNORES_ACCUMULATION
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.supervise.exit_evidence import OUT_OF_MEMORY_CAUSES
from tuner_tui.settings.fields import Value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved

MICRO, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
LOADER = frozenset({
    "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers", "dataloader_pin_memory",
})  # fmt: skip
SAME_TRAINING = LOADER | {MICRO, ACCUMULATION, "gradient_checkpointing", "per_device_eval_batch_size"}


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """Go on with `resolved`, which differs from what the run had by `change`; `sentence` tells why and what."""

    resolved: Resolved
    change: Mapping[str, Value]
    number: int
    sentence: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run is out of memory and stays so; `sentence` tells why."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """At most `most` steps for one training, `used` of them taken."""

    most: int
    used: int = 0

    def decide(
        self, situation: Situation, resolved: Resolved, unreachable: frozenset[str] = frozenset()
    ) -> FallbackStep | GiveUp | None:
        """What follows the ended run of `situation`, which had `resolved`; None where it did not run out of memory.

        `unreachable` names the settings that do not reach this training: their rungs are left out.
        """
        finding = out_of_memory_finding(situation)
        if finding is None:
            return None
        if self.used >= self.most:
            times = "once" if self.most == 1 else f"{self.most} times"
            return GiveUp(f"Out of memory again; it has fallen back {times}, as often as it may.")
        chosen_names = chosen_settings(resolved, situation.job)
        seen = effective_settings(resolved.settings, chosen_names, situation.state.in_effect)
        rungs = remedies_for(finding.cause, replace(situation, settings=seen), finding.where)
        fitting = (rung for rung in rungs if is_usable(rung, finding, situation, seen, unreachable))
        chosen = next(fitting, None)
        if chosen is None:
            return GiveUp(f"Out of memory{_at(finding)}, and {_nothing_left(rungs, situation)}.")
        change = self._bolder(chosen.change, seen)
        origin = Origin(OriginKind.REMEDY, finding.cause)
        after = Resolved(seen.changed(**change), {**resolved.origins, **dict.fromkeys(change, origin)})
        return FallbackStep(
            after,
            change,
            self.used + 1,
            f"Out of memory{_at(finding)}: {describe_change(change, seen, after.settings)}",
        )

    def _bolder(self, change: Mapping[str, Value], seen: Settings) -> Mapping[str, Value]:
        """From the second time on at least half the micro batch: each time costs a start and the steps lost."""
        if not self.used or MICRO not in change:
            return change
        micro, accumulation = seen.per_device_train_batch_size, seen.gradient_accumulation_steps
        half = next((size for size in smaller_micro_batches(micro, accumulation) if 2 * size <= micro), None)
        return change if half is None else {**change, MICRO: half, ACCUMULATION: micro * accumulation // half}


def out_of_memory_finding(situation: Situation) -> Finding | None:
    """The finding that the run ended for want of memory; a mere guess from a bare SIGKILL is none."""
    state = situation.state
    if state.outcome not in ("out-of-memory", "failed", "lost"):
        return None
    for finding in crash_findings(situation):
        if finding.cause in OUT_OF_MEMORY_CAUSES and finding.confidence != "possible":
            return finding
    if state.outcome != "out-of-memory":
        return None
    return Finding("gpu-oom", "failed", "The run ended out of memory", (), "likely")


def is_usable(
    rung: Remedy, finding: Finding, situation: Situation, seen: Settings, unreachable: frozenset[str]
) -> bool:
    """Whether a rung changes something that helps, reaches the training, and leaves it the same."""
    names = rung.change.keys()
    if not names or not names <= SAME_TRAINING or names & unreachable:
        return False
    if "per_device_eval_batch_size" in names and finding.where not in ("evaluation", None):
        return False
    return MICRO not in names or _holds_effective_batch(rung, situation, seen)


def describe_change(change: Mapping[str, Value], before: Settings, after: Settings) -> str:
    """The change in words, with the effective batch where that could be asked."""
    labels = {MICRO: "micro batch", ACCUMULATION: "accumulation"}
    parts = [
        f"{labels.get(name, name.removeprefix('dataloader_').replace('_', ' '))} "
        f"{_format_value(getattr(before, name))} → {_format_value(value)}"
        for name, value in change.items()
    ]
    held = f" (effective batch stays {after.effective_batch()} a device)" if MICRO in change else ""
    return ", ".join(parts) + held


def _holds_effective_batch(rung: Remedy, situation: Situation, seen: Settings) -> bool:
    """Exactly; every epoch has the same steps, which dropping its last batch would change; so does the gradient."""
    after = seen.changed(**rung.change)
    known = situation.state.in_effect
    if (
        after.effective_batch() != seen.effective_batch()
        or known.get("dataloader_drop_last")
        or known.get(LOSS_IGNORES_ACCUMULATION)
    ):
        return False
    return isinstance(situation.job, BuiltinJob) or (
        situation.state.accepts_orders and all(name in situation.state.in_effect for name in (MICRO, ACCUMULATION))
    )


def _nothing_left(rungs: tuple[Remedy, ...], situation: Situation) -> str:
    others = [rung.title for rung in _manual_remedies(rungs)]
    nothing = "nothing is left to try that keeps the training the same"
    if situation.state.in_effect.get(LOSS_IGNORES_ACCUMULATION):
        nothing += " (this model's gradient would grow with the accumulation)"
    return f"{nothing}; by hand: {', '.join(others[:3])}" if others else nothing


def _manual_remedies(rungs: tuple[Remedy, ...]) -> Iterator[Remedy]:
    return (rung for rung in rungs if not rung.change.keys() <= SAME_TRAINING or not rung.change)


def _at(finding: Finding) -> str:
    return f" ({finding.where})" if finding.where else ""


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)

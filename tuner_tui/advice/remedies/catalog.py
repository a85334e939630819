"""The remedies for each cause, least harmful first, filtered by what the run supports and already has set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs
from msgspec.structs import replace

from tuner_tui.advice.batch_scaling import effective_batch_note
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy, speed_words
from tuner_tui.advice.remedies import specific_errors
from tuner_tui.advice.remedies.computed import climb
from tuner_tui.advice.remedies.table import has_ladder, names_of, remedy
from tuner_tui.advice.settings_check import unreachable_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_limit
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome
from tuner_tui.settings.job import CommandJob

Ladder = Callable[[Situation, str | None], tuple[Remedy, ...]]

RELATIVE_FIELDS = frozenset({
    "per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size", "max_length",
    "learning_rate", "eval_steps", "save_steps",
})  # fmt: skip
"""Settings whose new value is computed from the old one."""
LOADER_FIELDS = frozenset({
    "per_device_train_batch_size", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
    "dataloader_persistent_workers",
})  # fmt: skip
"""Settings that the observer sets in a DataLoader."""
CODE_FIELDS = LOADER_FIELDS | {
    "per_device_eval_batch_size", "learning_rate", "max_grad_norm", "precision", "tf32", "torch_compile",
}  # fmt: skip
"""Settings with a counterpart in any training loop. The others, such as adapters, gradient checkpointing or
accumulation, need code that a loop of one's own does not have."""


TRIED = "tried"
SAVES_MEMORY = frozenset({"gpu-oom", "gpu-memory-near-limit"})
"""Causes whose remedies all lead to less memory than now."""


def remedies_for(
    cause: str, situation: Situation, where: str | None = None, topic: str | None = None, role: str | None = None
) -> tuple[Remedy, ...]:
    """The applicable remedies for `cause` at `where`, least harmful first; empty for an unknown cause.

    The `topic` of a crash pattern, if any, names remedies that take the place of the cause's; the `role` of the code
    that failed chooses among them.

    A remedy that does not fit the GPU's memory is left out, unless it is one of those that save memory and none does
    alone.
    """
    # A remedy is built for the situation, then filtered: it must change something, start from a value that the training
    # really uses, reach it, and lead to a peak that fits. Where memory is short and no step fits alone, all are shown,
    # as two together may.
    name = topic if topic is not None and (topic in COMPUTED or has_ladder(topic)) else cause
    climbed = climb(name, situation, where, role) if has_ladder(name) else ()
    offers = COMPUTED[name](situation, where) if name in COMPUTED else climbed
    now = {} if situation.settings is None else structs.asdict(situation.settings)
    remedies = [
        corrected(
            replace(reached, peak=expected_peak(situation, offer.change), batch_note=_batch_note(situation, offer)),
            situation.outcomes,
            situation.run,
        )
        for offer in offers
        if not (now and offer.change and offer.change.items() <= now.items())
        and all(map(situation.is_known, offer.change.keys() & RELATIVE_FIELDS))
        and (reached := reachable(offer, situation)) is not None
    ]
    fitting = tuple(offer for offer in remedies if offer.peak is None or offer.peak.verdict != "too large")
    alone = any(offer.peak is not None for offer in fitting)
    shown = tuple(remedies) if cause in SAVES_MEMORY and not alone else fitting
    return tuple(sorted(shown, key=lambda offer: offer.effect.startswith(TRIED)))


def corrected(remedy: Remedy, outcomes: Sequence[RemedyOutcome], run: str | None = None) -> Remedy:
    """The remedy with what it did on this machine in place of what its documents promise of the speed.

    One that was tried after this `run` and did not help is not offered again, but says so; nor is one more step of a
    kind with which this run needs as much memory as the run before it.
    """
    same = [each for each in outcomes if each.names == (remedy.name,)]
    tried = [each for each in same if (each.before, each.title) == (run, remedy.title) and not each.speed]
    useless = [each for each in same if each.same_memory and each.after == run]
    if failed := [each for each in (*tried, *useless) if each.verdict == "not kept"]:
        before = "" if failed[0].title == remedy.title else f" as {failed[0].title}"
        return Remedy(remedy.title, remedy.why, effect=f"{TRIED}{before}: {failed[0].sentence}", name=remedy.name)
    measured = [outcome for outcome in same if outcome.speed is not None]
    ratios = [outcome.speed for outcome in measured if outcome.speed is not None]
    if not ratios or not remedy.can_apply:
        return remedy
    mean = statistics.geometric_mean(ratio for ratio, _, _ in ratios)
    runs = ", ".join(f"{outcome.before} → {outcome.after}" for outcome in measured[-3:])
    here = f"{speed_words(mean)} here ({runs})"
    effect = f"{here}; documents say: {remedy.effect}" if remedy.speed is not None else f"{remedy.effect}; {here}"
    bounds = min(low for _, low, _ in ratios), max(high for _, _, high in ratios)
    return replace(remedy, effect=effect.removeprefix("; "), rests_on="measured on this machine", speed=bounds)


def _batch_note(situation: Situation, offer: Remedy) -> str:
    before = situation.settings
    if before is None or not situation.is_known("per_device_train_batch_size"):
        return ""
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    changes = {name: offer.change[name] for name in names if name in offer.change}
    return effective_batch_note(before, before.changed(**changes), situation.replicas)


def _out_of_memory(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The remedies for out-of-memory at `where`: training, evaluation, loading, optimizer-step, checkpoint or None."""
    settings = situation.settings
    if settings is None:
        return climb("gpu-oom-in-words", situation, where)
    is_known = situation.is_known("per_device_train_batch_size")
    half = not is_known and "smaller-micro-batch" in names_of("gpu-oom", situation, where)
    may_halve = not is_known or settings.per_device_train_batch_size > 1
    fallback = situation.job is not None and not situation.job.fallback and not situation.has_own_loop and may_halve
    return (
        *(climb("halve-batch" if situation.has_own_loop else "halve", situation) if half else ()),
        *climb("gpu-oom", situation, where),
        *((remedy("automatic-fallback"),) if fallback else ()),
    )


def _host_memory(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Fewer loader processes, which multiply host memory. Without a GPU, the GPU memory remedies apply as well."""
    limit = situation.host_memory_limit_bytes
    more = climb("raise-memory-limit" if limit is None else "raise-limit", situation, limit=format_limit(limit or 0))
    if where in {"training", "evaluation", "optimizer-step"} and situation.has_gpu is False:
        return (*_out_of_memory(situation, where), *more)
    if where in {"loading", "checkpoint"}:
        return (*more, remedy("low-memory-loading"))
    kept = climb("metrics-in-parts", situation) if where == "evaluation" else ()
    fewer = climb("host-memory", situation)
    has_loader = situation.settings is not None or any("workers" in line or "DataL" in line for line in situation.log)
    return (*kept, *fewer, *more) if has_loader else (*kept, *more)


def _contended_cores(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Fewer threads, unless the training computes with no more of them than cores are free, which `where` counts."""
    threads = situation.state.in_effect.get("cpu_threads")
    is_few = isinstance(threads, int) and where is not None and threads <= int(where)
    return climb("end-others" if is_few else "cpu-contended", situation, where)


def reachable(remedy: Remedy, situation: Situation) -> Remedy | None:
    """The remedy as far as it can reach the training.

    Without its change where the value can only be set by hand; None where the training has no place for it.
    """
    job = situation.job
    if not remedy.change or not isinstance(job, CommandJob):
        return remedy
    names = frozenset(remedy.change)
    own_loop = situation.has_own_loop
    if own_loop and job.apply in ("inject", "none") and not names <= CODE_FIELDS:
        return None
    by_hand = names & unreachable_settings(situation)
    if job.apply == "placeholders":
        given = (name for name in names if name not in job.aliases)
        by_hand |= {name for name in given if not any(f"{{{name}}}" in word for word in job.command)}
    elif job.apply == "inject" and own_loop:
        by_hand |= names - LOADER_FIELDS
    if not by_hand:
        return remedy
    where = f"Set it in the script or its options: {', '.join(sorted(by_hand))} cannot be passed at launch"
    return replace(remedy, change={}, why=f"{remedy.why}. {where}")


COMPUTED: Mapping[str, Ladder] = {
    "gpu-oom": _out_of_memory,
    "gpu-memory-near-limit": _out_of_memory,
    "host-oom": _host_memory,
    "host-memory-near-limit": _host_memory,
    "swapping": _host_memory,
    "killed": _host_memory,
    "cpu-contended": _contended_cores,
    "precision-unsupported": specific_errors.precision,
    "missing-package": specific_errors.package,
    "broken-package": specific_errors.broken_package,
    "package-versions": specific_errors.matching_releases,
    "bad-arguments": specific_errors.argument_ladder,
    "port-in-use": specific_errors.port_ladder,
}
"""Ladders that depend on more than the place, by cause or topic; the others are in `remedies.yaml`."""

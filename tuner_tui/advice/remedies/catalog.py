"""The remedies for each cause, least harmful first, filtered by what the run supports and already has set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies import (
    gpu,
    host,
    out_of_memory,
    specific_errors,
    training_loop,
    unsupported_features,
)
from tuner_tui.advice.settings_check import unreachable_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.job import CommandJob

Ladder = Callable[[Situation, str | None], tuple[Remedy, ...]]

RELATIVE_FIELDS = frozenset({
    "per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size", "max_length",
    "learning_rate", "eval_steps", "save_steps",
})  # fmt: skip
"""Settings whose new value is computed from the old one."""
LADDERS: Mapping[str, Ladder] = {
    "gpu-oom": out_of_memory.ladder,
    "gpu-memory-near-limit": out_of_memory.ladder,
    "slow-rank": host.slow_rank,
    "cpu-contended": host.contended_cores,
    "host-oom": host.memory,
    "host-memory-near-limit": host.memory,
    "swapping": host.memory,
    "shm": host.shared_memory,
    "shm-near-limit": host.shared_memory,
    "disk-full": host.disk,
    "disk-nearly-full": host.disk,
    "checkpoint-io": host.checkpoint,
    "data-wait": host.data_wait,
    "too-many-workers": host.too_many_workers,
    "gpu-underused": gpu.underused,
    "gpu-memory-unused": gpu.spare_memory,
    "launch-bound": gpu.launch_bound,
    "slow-kernels": gpu.busy_and_slow,
    "throttled": lambda situation, where: (gpu.COOLING,),
    "gpu-error": lambda situation, where: (gpu.DEBUG_KERNELS,) if where == "program" else (gpu.RESET_CARD,),
    "other-process": lambda situation, where: (gpu.CLOSE_OTHERS,),
    "compiling": lambda situation, where: (gpu.FIRST_EPOCH,),
    "precision-unsupported": unsupported_features.precision,
    "attention-unsupported": unsupported_features.attention,
    "fused-unsupported": unsupported_features.fused,
    "compile-failed": unsupported_features.compiler,
    "missing-package": unsupported_features.package,
    "broken-package": unsupported_features.broken_package,
    "nan": training_loop.non_finite,
    "diverged": training_loop.divergence,
    "worker-crash": training_loop.worker_crash,
    "killed-worker": host.memory,
    "package-versions": specific_errors.matching_releases,
    "evaluation-share": training_loop.evaluation_share,
    "save-share": training_loop.save_share,
    "padding": training_loop.padding,
    "loss-scale": training_loop.loss_scale,
    "device-assert": lambda situation, where: (training_loop.CHECK_INDEXES,),
    "illegal-access": lambda situation, where: (training_loop.PLAIN_KERNELS,),
    "collective-timeout": lambda situation, where: (training_loop.FIRST_RANK,),
    "bad-arguments": specific_errors.argument_ladder,
    "port-in-use": specific_errors.port_ladder,
    "offline": lambda situation, where: (training_loop.GO_ONLINE, training_loop.DOWNLOAD_FIRST),
    "not-in-effect": lambda situation, where: (
        (training_loop.PASS_SETTINGS,) if where == "unreachable" else (training_loop.FIND_OVERRIDE,)
    ),
    "no-fallback": lambda situation, where: (training_loop.START_SMALL,),
    "stalled": lambda situation, where: (training_loop.WAIT_OR_STOP,),
    "between-steps": lambda situation, where: (training_loop.LESS_OFTEN, training_loop.FIND_LINE),
    "memory-grows": lambda situation, where: (
        training_loop.KEEP_NUMBERS,
        training_loop.FIND_HOLDER_ON_CARD if where == "gpu" else training_loop.FIND_HOLDER_ON_HOST,
    ),
}
"""The ladder of each cause: its remedies in the order to try them, given the situation and the finding's location."""


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


SAVES_MEMORY = frozenset({"gpu-oom", "gpu-memory-near-limit"})
"""Causes whose remedies all lead to less memory than now."""


def remedies_for(
    cause: str, situation: Situation, where: str | None = None, topic: str | None = None
) -> tuple[Remedy, ...]:
    """The applicable remedies for `cause` at `where`, least harmful first; empty for an unknown cause.

    The `topic` of a crash pattern, if any, names remedies that take the place of the cause's.

    A remedy that does not fit the GPU's memory is left out, unless it is one of those that save memory and none does
    alone.
    """
    # A remedy is built for the situation, then filtered: it must change something, start from a value that the training
    # really uses, reach it, and lead to a peak that fits. Where memory is short and no step fits alone, all are shown,
    # as two together may.
    ladder = LADDERS.get(topic or "") or LADDERS.get(cause)
    specific = specific_errors.remedies_of_topic(topic or "")
    remedies = [
        replace(remedy, peak=expected_peak(situation, offered.change))
        for offered in specific or (() if ladder is None else ladder(situation, where))
        if changes_something(offered, situation)
        and starts_from_known_values(offered, situation)
        and (remedy := reachable(offered, situation)) is not None
    ]
    fitting = tuple(remedy for remedy in remedies if remedy.peak is None or remedy.peak.verdict != "too large")
    alone = any(remedy.peak is not None for remedy in fitting)
    return tuple(remedies) if cause in SAVES_MEMORY and not alone else fitting


def starts_from_known_values(remedy: Remedy, situation: Situation) -> bool:
    """Whether the remedy is computed from the training's own values, not from defaults that a command may not use."""
    return all(situation.is_known(name) for name in remedy.change.keys() & RELATIVE_FIELDS)


def changes_something(remedy: Remedy, situation: Situation) -> bool:
    """Whether the remedy changes the current settings; True for advice without a change."""
    if situation.settings is None or not remedy.change:
        return True
    now = situation.settings.model_dump()
    return any(now.get(name) != value for name, value in remedy.change.items())


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
    listed = ", ".join(sorted(by_hand))
    return replace(
        remedy, change={}, why=f"{remedy.why}. Set it in the script or its options: {listed} cannot be passed at launch"
    )

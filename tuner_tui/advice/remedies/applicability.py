"""Which settings can reach a training: those that it has a place for, and that its launch passes to it."""

from __future__ import annotations

from dataclasses import replace

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.settings_check import unreachable_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.job import CommandJob

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
FRAMEWORK_LINES = ("transformers/trainer.py", "trl/trainer/", "lightning/pytorch/", "pytorch_lightning/")
"""Parts of the traceback of a training that failed before its first step."""


def has_own_loop(situation: Situation) -> bool:
    """Whether the command trains in a loop of its own, with no Trainer; False while that is unknown."""
    state = situation.state
    if not isinstance(situation.job, CommandJob) or state.accepts_orders or "n_gpu" in state.in_effect:
        return False  # `n_gpu` is a field of TrainingArguments
    if "optimizer" in state.in_effect:
        return True
    traceback = state.outcome is not None and any(line.startswith("Traceback (most") for line in situation.log)
    return traceback and not any(part in line for line in situation.log for part in FRAMEWORK_LINES)


def reachable(remedy: Remedy, situation: Situation) -> Remedy | None:
    """The remedy as far as it can reach the training.

    Without its change where the value can only be set by hand; None where the training has no place for it.
    """
    job = situation.job
    if not remedy.change or not isinstance(job, CommandJob):
        return remedy
    names = frozenset(remedy.change)
    own_loop = has_own_loop(situation)
    if own_loop and job.apply in ("inject", "none") and not names <= CODE_FIELDS:
        return None
    by_hand = names & unreachable_settings(situation)
    if job.apply == "placeholders":
        by_hand |= {name for name in names if not any(f"{{{name}}}" in word for word in job.command)}
    elif job.apply == "inject" and own_loop:
        by_hand |= names - LOADER_FIELDS
    if not by_hand:
        return remedy
    listed = ", ".join(sorted(by_hand))
    return replace(
        remedy, change={}, why=f"{remedy.why}. Set it in the script or its options: {listed} cannot be passed at launch"
    )

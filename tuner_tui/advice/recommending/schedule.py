"""Learning rate, warmup and the order of samples."""

from __future__ import annotations

from tuner_tui.advice.recommending.draft import Draft
from tuner_tui.advice.recommending.workload import Workload
from tuner_tui.advice.scaling import linear, scaled
from tuner_tui.advice.thresholds import NOTES_3070_8BIT, NOTES_3090, NOTES_UTILISATION
from tuner_tui.settings.job import BuiltinJob

BASE_LEARNING_RATE, BASE_BATCH = 2e-5, 8
LARGEST_NOTED_BATCH = 128
ADAPTER_LEARNING_RATE = 2e-4
WARMUP_SHARE = 0.06


def learning_rate(draft: Draft, workload: Workload) -> None:
    """The notes' rate, scaled with the effective batch; none where they have no figure."""
    effective = draft.settings.effective_batch(draft.target.replicas)
    if not isinstance(draft.target.job, BuiltinJob):
        draft.note(f"The learning rate is your command's own; here is the effective batch it belongs to: {effective}.")
    elif draft.settings.peft_method != "none":
        source = "LoRA (Hu et al. 2021), QLoRA (Dettmers et al. 2023)"
        draft.advise("learning_rate", ADAPTER_LEARNING_RATE, "what adapters are usually trained with", source)
    elif workload.language_model or not workload.model.pretrained:
        what = "a language model" if workload.language_model else "a model that starts from random weights"
        why = f"the notes have no figure for {what}: left as it is, for an effective batch of {effective}"
        draft.reject("learning_rate", BASE_LEARNING_RATE, why, NOTES_UTILISATION)
    else:
        _scaled(draft, effective)


def _scaled(draft: Draft, effective: int) -> None:
    ratio = min(effective, LARGEST_NOTED_BATCH) / BASE_BATCH
    rate, rule = scaled(BASE_LEARNING_RATE, ratio, draft.settings.optim)
    other = linear(BASE_LEARNING_RATE, ratio)
    beyond = f"; not scaled beyond {LARGEST_NOTED_BATCH}, the notes' largest" if effective > LARGEST_NOTED_BATCH else ""
    reason = (
        f"{BASE_LEARNING_RATE:.0e} at batch {BASE_BATCH}, {rule} to effective batch {effective}{beyond}; "
        f"linear scaling would give {other:.1e}"
    )
    source = f"{NOTES_UTILISATION}; Malladi et al. 2022"
    draft.advise("learning_rate", float(f"{rate:.2g}"), reason, source)


def warmup(draft: Draft) -> None:
    """A share of all steps."""
    if draft.settings.lr_scheduler_type != "constant":
        reason = "6 % of the steps, within the usual 3–10 %: the notes' choice for about 20,000 samples"
        draft.advise("warmup_steps", WARMUP_SHARE, reason, NOTES_3070_8BIT)


def sampling(draft: Draft) -> None:
    """Samples of like length together, where batches are padded."""
    job = draft.target.job
    if isinstance(job, BuiltinJob) and job.task == "classification":
        reason = "samples of like length share a batch: less padding, 15–30 % in the notes' estimate"
        draft.advise("train_sampling_strategy", "group_by_length", reason, NOTES_3090)

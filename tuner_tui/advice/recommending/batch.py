"""Micro batch, accumulation and evaluation batch: the notes' ladder by memory, scaled to the job."""

from __future__ import annotations

from tuner_tui.advice.recommending.draft import Draft
from tuner_tui.advice.recommending.memory import largest_batch
from tuner_tui.advice.recommending.target import GIB
from tuner_tui.advice.recommending.workload import Workload
from tuner_tui.advice.scaling import rebalance
from tuner_tui.advice.thresholds import NOTES_UTILISATION
from tuner_tui.settings.job import BuiltinJob

BY_MEMORY = ((80, 128), (40, 64), (24, 48), (16, 32))
"""GiB as sold, and the batch of the notes for classification of 128 tokens."""
SOLD_SHARE = 0.9
"""Cards report less than they are sold with: a T4 15.0 of 16 GiB, an A10 22.5 of 24."""
SMALLEST = (16, 2)
ANYWHERE = (8, 4)
NOTES_TOKENS = 128
SMALL_CARD_GIB = 7.0
MOST_EFFECTIVE = 256
LEAST_STEPS = 50
START = "a starting point, to be measured"


def batch(draft: Draft, workload: Workload) -> None:
    """How many samples at once, and how many behind one step."""
    wanted, rule = by_memory(draft)
    limit, scaled = limit_of(draft, workload, wanted)
    share = share_of(draft, wanted, limit)
    micro = _micro(draft, share, limit, f"{rule}{scaled}", workload)
    _accumulation(draft, share, micro)
    _evaluation(draft, workload)


def by_memory(draft: Draft) -> tuple[int, str]:
    """The notes' effective batch of one card, and the rule in words."""
    target, memory = draft.target, draft.target.memory_bytes
    if not target.on_gpu:
        return ANYWHERE[0] * ANYWHERE[1], "no GPU: 8, which the notes say works everywhere"
    if memory is None:
        return ANYWHERE[0] * ANYWHERE[1], "the memory of the card is not known: 8, which works everywhere"
    for gib, size in BY_MEMORY:
        if memory >= gib * SOLD_SHARE * GIB:
            return size, f"{gib} GB and more: {size}"
    return SMALLEST[0] * SMALLEST[1], "below 16 GB: 16"


def limit_of(draft: Draft, workload: Workload, wanted: int) -> tuple[int, str]:
    """The largest micro batch to start with, and in words what it was scaled by."""
    memory = draft.target.memory_bytes
    limit = ANYWHERE[0] if memory is None else min(wanted, SMALLEST[0]) if wanted == 32 and _small(memory) else wanted
    words: list[str] = []
    if memory is not None and memory < SMALL_CARD_GIB * GIB:
        limit = max(1, int(limit * memory / (8 * GIB)))
        words.append(f"{memory / GIB:.1f} GiB")
    if workload.tokens > NOTES_TOKENS:
        limit = max(1, limit * NOTES_TOKENS // workload.tokens)
        words.append(f"{workload.tokens:,} tokens")
    fits = largest_batch(draft, workload)
    if fits is not None and fits < limit:
        limit = max(1, fits)
        words.append(f"{_model(workload)} ({fits} fit by estimate)")
        if fits == 0:
            draft.note(
                f"By estimate not even one sample of {_model(workload)} fits: a smaller model, LoRA, or more cards."
            )
    return limit, f" at {NOTES_TOKENS} tokens; scaled to {', '.join(words)}" if words else ""


def share_of(draft: Draft, wanted: int, limit: int) -> int:
    """Samples one card adds to a step: the notes' batch, less where many cards or few samples make it too much."""
    target = draft.target
    share = min(wanted, max(1, MOST_EFFECTIVE // target.replicas))
    samples = target.job.max_samples if isinstance(target.job, BuiltinJob) else None
    if samples is not None:
        share = min(share, max(1, samples // (LEAST_STEPS * target.replicas)))
    return share


def _micro(draft: Draft, share: int, limit: int, rule: str, workload: Workload) -> int:
    split = rebalance(share, 1, draft.target.replicas, min(limit, share)).split
    source = f"{NOTES_UTILISATION}, for 128-token classification by a model of BERT's size"
    guess = f"; the size of {workload.model.words} is not known" if workload.model.guessed else ""
    few = f"; {share} a card keep the effective batch at bay" if share < limit else ""
    draft.advise("per_device_train_batch_size", split.micro, f"{rule}{guess}{few}; {START}", source)
    return draft.settings.per_device_train_batch_size


def _accumulation(draft: Draft, share: int, micro: int) -> None:
    replicas = draft.target.replicas
    steps = max(1, round(share / micro))
    cards = f" × {replicas} cards" if replicas > 1 else ""
    reason = f"{micro} × {steps}{cards} = effective batch {micro * steps * replicas}"
    if steps == 1:
        reason += ": accumulation only where memory asks for it"
    draft.advise("gradient_accumulation_steps", steps, reason, NOTES_UTILISATION)


def _evaluation(draft: Draft, workload: Workload) -> None:
    micro = draft.settings.per_device_train_batch_size
    if workload.language_model and workload.logit_bytes > workload.sample_bytes(True, False) / 3:
        reason = "as the micro batch: the logits of a language model weigh as much in evaluation"
        draft.advise("per_device_eval_batch_size", micro, reason, "estimate")
    else:
        source = f"all field notes; {NOTES_UTILISATION}"
        draft.advise("per_device_eval_batch_size", 2 * micro, "twice the micro batch: no gradients are kept", source)


def _small(memory: int) -> bool:
    return memory < BY_MEMORY[-1][0] * SOLD_SHARE * GIB


def _model(workload: Workload) -> str:
    return f"{workload.model.words} of {workload.model.parameters / 1e6:,.0f} M parameters"

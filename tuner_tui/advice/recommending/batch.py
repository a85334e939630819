"""Micro batch, accumulation and evaluation batch: the notes' ladder by memory, scaled to the job."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.advice.recommending.draft import Draft
from tuner_tui.advice.recommending.memory import largest_batch
from tuner_tui.advice.recommending.target import GIB, Target
from tuner_tui.advice.recommending.workload import Workload
from tuner_tui.advice.scaling import rebalance
from tuner_tui.advice.thresholds import NOTES_3070, NOTES_3070_8BIT, NOTES_T4, NOTES_UTILISATION
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.job import BuiltinJob

SOLD_SHARE = 0.9
"""Cards report less than they are sold with: a T4 15.0 of 16 GiB, an A10 22.5 of 24."""
NOTES_TOKENS = 128
SMALL_GIB = 8
MOST_EFFECTIVE = 256
LEAST_STEPS = 50
MOST = int(FIELDS["per_device_eval_batch_size"].maximum or 0)
START = "a starting point, to be measured"


@dataclass(frozen=True, slots=True)
class Rung:
    """The notes' batch for one card: samples at once, samples behind a step, for which cards, the most that fitted."""

    micro: int
    share: int
    words: str
    most: int | None = None


BY_MEMORY = (
    (80, Rung(128, 128, "80 GB, where the notes end, and more: 128", 256)),
    (40, Rung(64, 64, "40 GB and more: 64", 128)),
    (24, Rung(48, 48, "24 GB and more: 48", 80)),
    (16, Rung(32, 32, "16 GB and more: 32", 48)),
    (11, Rung(16, 32, "below 16 GB: 16 × 2", 24)),
    (0, Rung(16, 32, "below 16 GB: 16 × 2")),
)
"""GiB as sold, and what the notes use for classification of 128 tokens."""
NO_GPU = Rung(8, 32, "no GPU: 8 × 4, which works everywhere")
MEMORY_UNKNOWN = Rung(8, 32, "the free memory of the card is not known: 8 × 4, which works everywhere")


def batch(draft: Draft, workload: Workload) -> None:
    """How many samples at once, and how many behind one step."""
    rung = rung_of(draft.target)
    limit, scaled = limit_of(draft, workload, rung.micro)
    share = share_of(draft.target, rung.share)
    _micro(draft, share, limit, f"{rung.words}{scaled}", workload)
    if rung.most is not None and not scaled:
        why = "the most the notes got onto such a card: no room for a longer batch or another model"
        draft.reject("per_device_train_batch_size", rung.most, why, NOTES_UTILISATION)
    _accumulation(draft, share)
    _evaluation(draft, workload)


def rung_of(target: Target) -> Rung:
    """The notes' batch for the card with the least memory."""
    if not target.on_gpu:
        return NO_GPU
    memory = target.memory_bytes
    if memory is None:
        return MEMORY_UNKNOWN
    return next(rung for gib, rung in BY_MEMORY if memory >= gib * SOLD_SHARE * GIB)


def limit_of(draft: Draft, workload: Workload, micro: int) -> tuple[int, str]:
    """The largest micro batch to start with, and in words what the notes' was scaled by."""
    memory, words = draft.target.memory_bytes, []
    if memory is not None and memory < SMALL_GIB * SOLD_SHARE * GIB:
        micro = max(1, int(micro * memory / (SMALL_GIB * GIB)))
        words.append(f"{memory / GIB:.1f} GiB")
    if workload.tokens > NOTES_TOKENS:
        micro = max(1, micro * NOTES_TOKENS // workload.tokens)
        words.append(f"{workload.tokens:,} tokens")
    fits = largest_batch(draft, workload)
    if fits is not None and fits < micro:
        micro = max(1, fits)
        words.append(f"{_model(workload)} ({fits} fit by estimate)")
    if fits == 0:
        draft.note(f"By estimate not one sample of {_model(workload)} fits: take a smaller model, LoRA or more cards.")
    return micro, f" at {NOTES_TOKENS} tokens, scaled to {', '.join(words)}" if words else ""


def share_of(target: Target, wanted: int) -> int:
    """Samples one card adds to a step: the notes' batch, less where many cards or few samples make it too much."""
    share = min(wanted, max(1, MOST_EFFECTIVE // target.replicas))
    samples = target.job.max_samples if isinstance(target.job, BuiltinJob) else None
    if samples is not None:
        share = min(share, max(1, samples // (LEAST_STEPS * target.replicas)))
    return share


def _micro(draft: Draft, share: int, limit: int, rule: str, workload: Workload) -> None:
    split = rebalance(share, 1, draft.target.replicas, min(limit, share)).split
    source = f"{NOTES_UTILISATION}, for 128-token classification"
    guess = f"; the size of {workload.model.words} is not known" if workload.model.guessed else ""
    few = f"; {share} a card keep the effective batch sensible" if share < limit else ""
    draft.advise("per_device_train_batch_size", split.micro, f"{rule}{guess}{few}; {START}", source)


def _accumulation(draft: Draft, share: int) -> None:
    micro, replicas = draft.settings.per_device_train_batch_size, draft.target.replicas
    steps = max(1, share // micro)
    cards = f" × {replicas} cards" if replicas > 1 else ""
    reason = f"{micro} × {steps}{cards} = effective batch {micro * steps * replicas}"
    if steps == 1:
        reason += "; accumulation only where memory asks for it"
    draft.advise("gradient_accumulation_steps", steps, reason, NOTES_UTILISATION)


def _evaluation(draft: Draft, workload: Workload) -> None:
    micro = draft.settings.per_device_train_batch_size
    if workload.language_model and workload.logits_weigh:
        reason = "as the micro batch: the logits of a language model weigh as much in evaluation"
        draft.advise("per_device_eval_batch_size", micro, reason, "estimate")
    else:
        source = f"{NOTES_3070}, {NOTES_T4}, {NOTES_3070_8BIT}"
        draft.advise(
            "per_device_eval_batch_size", min(2 * micro, MOST), "twice the micro batch: no gradients are kept", source
        )


def _model(workload: Workload) -> str:
    return f"{workload.model.words} of {workload.model.parameters / 1e6:,.0f} M parameters"

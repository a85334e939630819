"""Recommended settings for a machine, an interpreter and a job, each with its reason and source; nothing here is
measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommend import batch_and_learning_rate, data_loading, memory_savings, precision
from tuner_tui.advice.recommend.batch_and_learning_rate import recommend_batch
from tuner_tui.advice.recommend.draft import RecommendationDraft, RecommendedValue, RejectedValue
from tuner_tui.advice.recommend.sample_lengths import SampleLengths
from tuner_tui.advice.recommend.target import describe_cards, other_processes_bytes, select_cards, target_of
from tuner_tui.advice.recommend.workload import Workload, workload_of
from tuner_tui.core.units import GIB, format_size
from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.interpreter.probe import Interpreter, find_incompatibilities
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.memory.estimate import estimate
from tuner_tui.settings.distributed import AccelerateConfig, best_kind, is_same_kind
from tuner_tui.settings.fields import FIELDS, Value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved

SLOW_ON_A_PROCESSOR = 5e8
"""Parameters from which a step takes a processor minutes; judgement."""
DEFAULT_JOB = BuiltinJob(task="classification", model="bert-base-uncased")
"""The job of the field notes, assumed if none is named."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Recommended values in the order of the settings, rejected values, and notes.

    `settings` combines defaults, recommended and given values. `replicas` is the number of GPUs or processes that share
    a step, `cards` the names of the visible GPUs.
    """

    advised: tuple[RecommendedValue, ...]
    rejected: tuple[RejectedValue, ...]
    notes: tuple[str, ...]
    settings: Settings
    replicas: int
    cards: tuple[str, ...]

    @property
    def values(self) -> Mapping[str, Value]:
        """The recommended values only."""
        return {one.name: one.value for one in self.advised}

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reason for each recommended value."""
        return {one.name: one.reason for one in self.advised}

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.settings.effective_batch(self.replicas)


def recommend(
    inventory: Inventory,
    interpreter: Interpreter | None,
    job: BuiltinJob | CommandJob = DEFAULT_JOB,
    given: Mapping[str, Value] | None = None,
    accelerate: AccelerateConfig | None = None,
    lengths: SampleLengths | None = None,
) -> Recommendation:
    """Recommends settings for a training on this machine. `given` values stay, and the rest is fitted to them.

    `accelerate` is the configuration found for `accelerate launch`, `lengths` those of the data's samples.
    """
    draft = RecommendationDraft(target_of(inventory, interpreter, job, accelerate), given or {})
    _note_environment(draft)
    workload = workload_of(job, draft.settings.max_length)
    precision.precision(draft)
    precision.tf32(draft)
    precision.attention(draft)
    precision.compilation(draft)
    memory_savings.adapter(draft, workload)
    memory_savings.optimizer(draft, workload)
    memory_savings.checkpointing(draft, workload)
    recommend_batch(draft, workload)
    data_loading.recommend_data_loading(draft)
    batch_and_learning_rate.learning_rate(draft, workload)
    batch_and_learning_rate.warmup(draft)
    batch_and_learning_rate.sampling(draft, lengths)
    if lengths is not None:
        batch_and_learning_rate.note_lengths(draft, lengths)
    _note_processor(draft, workload)
    advised = tuple(draft.advised[name] for name in FIELDS if name in draft.advised)
    return Recommendation(
        advised,
        tuple(draft.rejected),
        tuple(draft.notes),
        draft.settings,
        draft.target.replicas,
        tuple(card.name for card in draft.target.cards),
    )


def with_recommended(
    resolved: Resolved, inventory: Inventory, interpreter: Interpreter | None, job: BuiltinJob | CommandJob
) -> Resolved:
    """`resolved` with recommended values in place of defaults, each with its reason as origin.

    Earlier recommendations are recomputed, so that they fit the chosen values. A command keeps its own defaults:
    nothing is filled in for it.
    """
    if isinstance(job, CommandJob):
        return resolved
    given = resolved.given
    found = recommend(inventory, interpreter, job, given)
    origins = {one.name: Origin(OriginKind.RECOMMENDED, one.reason) for one in found.advised}
    return Resolved(found.settings, {**origins, **{name: resolved.origins[name] for name in given}})


def _note_environment(draft: RecommendationDraft) -> None:
    _note_interpreter(draft)
    _note_gpus(draft)
    _note_shared_gpus(draft)


def _note_interpreter(draft: RecommendationDraft) -> None:
    interpreter = draft.target.interpreter
    if interpreter is None:
        draft.note("The training interpreter is unknown: only settings that work with every torch are recommended.")
        return
    if interpreter.problem is not None:
        draft.note(interpreter.problem)
    for problem in find_incompatibilities(draft.target.inventory, interpreter):
        draft.note(f"{problem.sentence} {problem.advice}")
    build = draft.target.machine.version_text("torch") or ""
    if not draft.target.on_gpu and ("rocm" in build or "xpu" in build):
        draft.note(
            f"torch {build} may use a card that this program cannot see; the recommended settings work without one."
        )


def _note_gpus(draft: RecommendationDraft) -> None:
    target = draft.target
    inventory = target.inventory
    visible = visible_cards(inventory)
    if target.cards and any(not is_same_kind(card, visible[0]) for card in visible):
        _note_unequal_gpus(draft, visible)
    if target.replicas > 1 and target.processes == 1 and not isinstance(target.job, CommandJob):
        draft.note(
            f"One process splits each batch over {target.replicas} GPUs. One process per GPU is faster: "
            f"`--launcher torchrun --processes {target.replicas}`."
        )
    if not target.spread_known and all(is_same_kind(card, visible[0]) for card in visible):
        count = len(target.cards)
        draft.note(
            "The batch is for one GPU. If the command uses a Trainer, its single process splits each step "
            f"over {count} GPUs and the effective batch is that many times larger; the first steps show it. "
            f"One process per GPU is faster: `tuner-tui run --launcher torchrun --processes {count} -- …`, or "
            f"`torchrun --nproc_per_node {count} …`."
        )
    if inventory.gpus and not target.cards and inventory.cuda_visible_devices is not None:
        draft.note(
            f"CUDA_VISIBLE_DEVICES={inventory.cuda_visible_devices} hides every GPU: these settings are for the CPU."
        )
    for card in target.cards:
        if card.mig:
            draft.note(
                f"{card.name} is partitioned (MIG): the driver reports the memory of the whole GPU, not of the slice."
            )
        elif " MIG " in card.name:
            draft.note(
                f"{card.name} is a MIG slice; these values are for its memory. A CUDA process sees one slice: "
                f"{select_cards([card])}."
            )
        elif card.memory_total_bytes is None:
            draft.note(f"The driver does not report the memory of {card.name}, which may share it with the CPU.")


def _note_processor(draft: RecommendationDraft, workload: Workload) -> None:
    """Notes on a training without a GPU: whether it fits the machine's memory, and whether it is worth its time."""
    target, model = draft.target, workload.model
    if target.on_gpu or not isinstance(target.job, BuiltinJob) or model.guessed:
        return
    asked = draft.settings.changed(max_length=max(8, workload.tokens))
    found = estimate(model.shape, asked, target.device, target.processes)
    if found.verdict == "too large":
        size, has = format_size(found.total_bytes), format_size(target.inventory.memory.usable_bytes)
        draft.note(f"Estimate: the training needs {size}, and this machine has {has}. Use a smaller model.")
    elif model.parameters > SLOW_ON_A_PROCESSOR:
        draft.note(
            f"On the CPU, a step of {model.label} takes minutes. `tuner-tui recommend --on 3090` plans for a GPU."
        )


def _note_unequal_gpus(draft: RecommendationDraft, visible: tuple[Gpu, ...]) -> None:
    best = best_kind(visible)
    others = [card for card in visible if card not in best]
    if not others:
        names = ", ".join(sorted({card.name for card in visible}))
        draft.note(f"The GPUs differ ({names}): the weakest sets the precision, the smallest sets the batch.")
        return
    least = min(others, key=lambda card: card.memory_total_bytes or 0)
    why = (
        f"each step would wait for the slowest GPU, and the {(least.memory_total_bytes or 0) / GIB:.0f} "
        f"GiB of {describe_cards([least])} would limit every batch"
    )
    if len(draft.target.cards) < len(visible):
        draft.note(f"The GPUs differ. The training uses {describe_cards(best[:1])} alone: {why}.")
    else:
        draft.note(
            f"The GPUs differ. Train on {describe_cards(best)} alone ({select_cards(best)}): {why}. The "
            "values below fit all of them."
        )


def _note_shared_gpus(draft: RecommendationDraft) -> None:
    for card in draft.target.cards:
        held = other_processes_bytes(card)
        if held and card.memory_total_bytes is not None:
            total = card.memory_total_bytes / GIB
            draft.note(
                f"Other programs use {held / GIB:.1f} of {total:.1f} GiB of GPU {card.index}; the batch is sized "
                "for the rest. Close other notebooks."
            )

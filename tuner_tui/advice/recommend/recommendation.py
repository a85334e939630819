"""Recommended settings for a box, an interpreter and a job, each with its reason and source; nothing here is
measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommend import (
    batch_and_learning_rate,
    data_loading,
    environment_notes,
    memory_savings,
    precision,
)
from tuner_tui.advice.recommend.batch_and_learning_rate import recommend_batch
from tuner_tui.advice.recommend.draft import RecommendationDraft, RecommendedValue, RejectedValue
from tuner_tui.advice.recommend.target import target_of
from tuner_tui.advice.recommend.workload import workload_of
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.fields import FIELDS, Value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved

DEFAULT_JOB = BuiltinJob(task="classification", model="bert-base-uncased")
"""What the notes trained: the job that is meant where none is named."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What is recommended, in the order of the settings; what was considered and left; what one must know besides.

    `settings` are defaults, recommended and given values together; `replicas` the cards or processes a step is shared
    by, `cards` the names of the cards the training will see.
    """

    advised: tuple[RecommendedValue, ...]
    rejected: tuple[RejectedValue, ...]
    notes: tuple[str, ...]
    settings: Settings
    replicas: int
    cards: tuple[str, ...]

    @property
    def values(self) -> Mapping[str, Value]:
        """The recommended values alone."""
        return {one.name: one.value for one in self.advised}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why, by setting."""
        return {one.name: one.reason for one in self.advised}

    @property
    def effective_batch(self) -> int:
        """Samples behind one step."""
        return self.settings.effective_batch(self.replicas)


def recommend(
    inventory: Inventory,
    interpreter: Interpreter | None,
    job: BuiltinJob | CommandJob = DEFAULT_JOB,
    given: Mapping[str, Value] | None = None,
    accelerate: AccelerateConfig | None = None,
) -> Recommendation:
    """Settings for a training here. `given` are values already chosen: they stay, the rest is made to fit them.

    `accelerate` is what files say of how accelerate starts the job.
    """
    draft = RecommendationDraft(target_of(inventory, interpreter, job, accelerate), given or {})
    environment_notes.note_environment(draft)
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
    batch_and_learning_rate.sampling(draft)
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
    """The settings with what is recommended here in place of defaults, each with its reason as origin.

    What was recommended before is worked out anew, so that it follows the values that somebody chose. Another's command
    keeps what it says itself: nothing is filled in for it.
    """
    if isinstance(job, CommandJob):
        return resolved
    given = resolved.given
    found = recommend(inventory, interpreter, job, given)
    origins = {one.name: Origin(OriginKind.RECOMMENDED, one.reason) for one in found.advised}
    return Resolved(found.settings, {**origins, **{name: resolved.origins[name] for name in given}})

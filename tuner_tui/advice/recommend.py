"""Settings for this box, this interpreter and this job, each with its reason and source.

The rules are those of the field notes the presets come from, with their errors put right, and with limits of card,
torch, cores, memory and `/dev/shm` that the notes never met. Nothing here is measured: a recommendation is where a
measurement begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommending import loading, memory, notes, schedule, speed
from tuner_tui.advice.recommending.batch import batch
from tuner_tui.advice.recommending.draft import Advised, Draft, Rejected
from tuner_tui.advice.recommending.target import target_of
from tuner_tui.advice.recommending.workload import workload_of
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.fields import FIELDS, Value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved

__all__ = ["NOTES_JOB", "Advised", "Recommendation", "Rejected", "recommend", "with_recommended"]

NOTES_JOB = BuiltinJob(task="classification", model="bert-base-uncased")
"""What the notes trained: the job that is meant where none is named."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What is recommended, in the order of the settings; what was considered and left; what one must know besides.

    `settings` are defaults, recommended and given values together; `replicas` the cards or processes a step is shared
    by, `cards` the names of the cards the training will see.
    """

    advised: tuple[Advised, ...]
    rejected: tuple[Rejected, ...]
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
    job: BuiltinJob | CommandJob = NOTES_JOB,
    given: Mapping[str, Value] | None = None,
    accelerate: AccelerateConfig | None = None,
) -> Recommendation:
    """Settings for a training here. `given` are values already chosen: they stay, the rest is made to fit them.

    `accelerate` is what files say of how accelerate starts the job.
    """
    draft = Draft(target_of(inventory, interpreter, job, accelerate), given or {})
    notes.notes(draft)
    workload = workload_of(job, draft.settings.max_length)
    speed.precision(draft)
    speed.tf32(draft)
    speed.attention(draft)
    speed.compilation(draft)
    memory.adapter(draft, workload)
    memory.optimizer(draft, workload)
    memory.checkpointing(draft, workload)
    batch(draft, workload)
    loading.loading(draft)
    schedule.learning_rate(draft, workload)
    schedule.warmup(draft)
    schedule.sampling(draft)
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

"""The search space: limits of memory and data, and the values that each knob can take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner_tui.advice.batch_scaling import divisors
from tuner_tui.memory.fit import PeakModel
from tuner_tui.settings.fields import FIELDS, Value
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.check import find_problems
from tuner_tui.settings.rules.problem import Problem, RuleContext
from tuner_tui.tuning.search.batch_search import RESERVE
from tuner_tui.tuning.trial import SkippedChange

MICRO, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
MAX_BATCH_DEFICIT = 0.25
"""Micro batches that a step may lack to the effective batch before one more is added."""
MAX_MICRO = int(FIELDS[MICRO].maximum or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """What a tuning may try.

    `capacity_bytes` is what the training may take of a card, or of the host where there is none; None where no bound is
    known, and then no larger micro batch than the start's is tried. `reserve` is the share of it that stays free.
    `processes` are the copies of the model that share a step, `cores` the usable ones of each. `prior` is the estimate
    of memory made before any run. `candidates` holds, by field, the values that can run here besides the start's own;
    `rejected` those that cannot. `unreachable` names the fields that do not reach the job.
    """

    box: RuleContext = field(default_factory=RuleContext)
    capacity_bytes: int | None = None
    reserve: float = RESERVE
    dataset_size: int | None = None
    processes: int = 1
    cores: int | None = None
    hold_effective_batch: bool = True
    prior: PeakModel | None = None
    candidates: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()
    rejected: tuple[SkippedChange, ...] = ()

    @property
    def limit_bytes(self) -> float | None:
        """What a trusted trial may take; None where memory has no known bound."""
        return None if self.capacity_bytes is None else self.capacity_bytes * (1 - self.reserve)

    @property
    def on_gpu(self) -> bool:
        """Whether the training runs on cards."""
        return bool(self.box.gpus) and not self.box.no_gpu

    @property
    def most_micro(self) -> int:
        """The largest micro batch that the data allow: never more samples at once than there are."""
        if self.dataset_size is None:
            return MAX_MICRO
        return max(1, min(MAX_MICRO, self.dataset_size // self.processes))

    def micro_batches(self, start: Settings) -> tuple[int, ...] | None:
        """The micro batches that hold the start's effective batch exactly, ascending; None where any may be tried."""
        if not self.hold_effective_batch:
            return None
        return tuple(size for size in divisors(start.effective_batch()) if size <= self.most_micro)

    def with_micro(self, settings: Settings, start: Settings, micro: int) -> Settings:
        """`settings` with another micro batch, and the accumulation that holds the start's effective batch.

        Where nothing holds it exactly, it grows rather than shrinks: more optimizer steps would cost time.
        """
        accumulation = max(1, math.ceil(start.effective_batch() / micro - MAX_BATCH_DEFICIT))
        return settings.changed(**{MICRO: micro, ACCUMULATION: accumulation})

    def within_data(self, start: Settings) -> Settings:
        """The start, with a smaller micro batch where it takes more samples at once than there are."""
        if start.per_device_train_batch_size <= self.most_micro:
            return start
        sizes = self.micro_batches(start)
        return self.with_micro(start, start, self.most_micro if sizes is None else max(sizes))

    def refusal(self, settings: Settings, change: Mapping[str, Value]) -> str | None:
        """Why `change` cannot be put into `settings` here; None where it can.

        What is wrong with the settings already is nobody's reason to leave a knob alone.
        """
        before = {problem.sentence for problem in self._problems(settings)}
        new = [one for one in self._problems(settings.changed(**change)) if one.sentence not in before]
        concerned = [one.sentence for one in new if one.severity == "error" or set(one.fields) & set(change)]
        return concerned[0] if concerned else None

    def _problems(self, settings: Settings) -> tuple[Problem, ...]:
        box = self.box
        return find_problems(settings, gpus=box.gpus, interpreter=box.interpreter, job=box.job, cores=self.cores)

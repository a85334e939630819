"""Whether a run goes on exactly where its parent saved the checkpoint, and which part of the state it does not.

Pure: the recorded states and steps of both in, what differs out. The reference is what the parent did after the
checkpoint; where it stopped there, only what it saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.units import format_share
from tuner_tui.inspection.suspect_batches import StepBatch, name_rows

Part = Literal[
    "step count", "weights", "optimizer", "learning rate", "gradient scaler", "epoch", "data", "random numbers", "loss"
]

STEPS = 8
"""Steps of the resumed run that are compared."""
RATE_TOLERANCE = 1e-4
STOPPED_RATE_TOLERANCE = 0.2
"""A script may save before its scheduler steps: so much a rate may change in one step."""
WEIGHT_TOLERANCE = 1e-7
"""Sums of the same weights differ by rounding only."""
SAME_LOSS = 1e-3
"""Relative: the same computation on a GPU differs by less."""
NOISE_TIMES, LEAST_SHARE = 3.0, 0.05
"""A loss is another one if it differs by that many times the change from step to step, and by that share."""
NOISE_WINDOW = 25
AMBIGUOUS_COUNTERS = frozenset({"step", "steps", "it", "iteration"})
"""Names that may count the batches of an epoch."""


class TrainingState(Struct, frozen=True):
    """What a rank carried after so many steps: see the observer's `counters/training_state.py`."""

    after: int
    at: Literal["start", "step", "checkpoint"]
    learning_rate: float | None = None
    schedule: int | None = None
    optimizer_steps: float | None = None
    moments: bool | None = None
    random_states: Mapping[str, int] = field(default_factory=dict)
    restored: tuple[int, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    epoch_batch: int | None = None
    epoch_batches: int | None = None
    scale: float | None = None
    first_scale: float | None = None
    weights: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


class RankHistory(Struct, frozen=True):
    """What one rank of a run recorded, in order."""

    states: Sequence[TrainingState]
    batches: Sequence[StepBatch]


class Mismatch(Struct, frozen=True):
    """A part of the state that the run did not take over."""

    part: Part
    sentence: str


class ResumeCheck(Struct, frozen=True):
    """What was found of a run that goes on after `step` steps of `parent`, over its first `steps`.

    `compared` are the parts that were compared, those of `mismatches` included; of the others nothing is known.
    """

    parent: str
    step: int
    steps: int
    mismatches: tuple[Mismatch, ...] = ()
    compared: tuple[Part, ...] = ()

    @property
    def verdict(self) -> Literal["faithful", "not faithful", "unknown"]:
        if self.mismatches:
            return "not faithful"
        return "faithful" if {"weights", "data", "loss"}.intersection(self.compared) else "unknown"

    @property
    def sentence(self) -> str:
        start = f"step {self.step:,} of {self.parent}"
        if self.verdict == "unknown":
            return f"Whether it resumed faithfully from {start} is unknown: too little of both runs is recorded"
        if self.verdict == "not faithful":
            return f"It did not resume faithfully from {start}: {self.mismatches[0].sentence}"
        return f"It resumed faithfully from {start}: {', '.join(self.compared)} agree over {self.steps} steps"


def compare_resumed(
    parent: RankHistory, child: RankHistory, step: int, *, counts_on: bool, changed: frozenset[Part] = frozenset()
) -> tuple[tuple[Mismatch, ...], tuple[Part, ...]]:
    """Return what differs, causes before effects, and which parts were compared.

    `step` counts as the parent does; `counts_on`: the run reports its step of the whole training too, as a Trainer
    does. `changed` are parts whose settings were changed on purpose.
    """
    first = next((state for state in child.states if state.at == "start"), None)
    if first is None:
        return (), ()
    shift = step - first.after
    states = [replace(state, after=state.after + shift) for state in child.states]
    batches = [replace(batch, step=batch.step + shift) for batch in child.batches]
    comparison = _Comparison(parent, RankHistory(states, batches), step)
    mismatches, compared = comparison.mismatches, list[Part]()
    if counts_on and shift:
        mismatches["step count"] = f"the step count starts at {first.after:,} instead of {step:,}"
    judges: dict[Part, Callable[[], str | None]] = {
        "step count": comparison.count_steps,
        "weights": comparison.weights,
        "optimizer": comparison.optimizer,
        "learning rate": comparison.learning_rate,
        "gradient scaler": comparison.scaler,
        "epoch": comparison.epoch,
        "data": comparison.data,
        "random numbers": comparison.random_numbers,
        "loss": comparison.losses,
    }
    for part, judge in judges.items():
        sentence = None if part in changed else judge()
        if sentence is not None:
            compared.append(part)
        if sentence:
            mismatches.setdefault(part, sentence)
    if comparison.shuffled and "random numbers" in mismatches:  # which explain the order of the data
        mismatches["data"] = mismatches.pop("data")
    return tuple(Mismatch(part, sentence) for part, sentence in mismatches.items()), tuple(compared)


class _Comparison:
    """Judges each part by a sentence on how it differs, empty if it does not; None if it cannot be judged.

    `_saved` is the parent's state at the checkpoint, `_followed` those before its next steps, if it made any.
    `shuffled`: the data comes in an order that the parent did not have.
    """

    def __init__(self, parent: RankHistory, child: RankHistory, step: int) -> None:
        self._step = step
        self.shuffled = False
        self.mismatches: dict[Part, str] = {}
        self._next = {state.after: state for state in child.states if state.at != "checkpoint"}
        self._first = self._next[step]
        self._begun = next((state for state in parent.states if state.at == "start"), None)
        at_step = (state for state in parent.states if (state.after, state.at) == (step, "checkpoint"))
        self._saved = next(at_step, None)
        self._followed = {state.after: state for state in parent.states if state.at != "checkpoint"}
        self._reference = self._followed.get(step) or self._saved or TrainingState(step, "checkpoint")
        trained = [batch for batch in parent.batches if not batch.unfinished]
        self._earlier = [batch for batch in trained if batch.step <= step]
        self._later = {batch.step: batch for batch in trained if batch.step > step}
        batches = [batch for batch in child.batches if batch.step > step and not batch.unfinished][:STEPS]
        self._batches = _without_skipped(batches, self._earlier[-1:])

    def _is_behind(self, here: int, there: int) -> bool:
        """Whether a counter of the run differs; by one it may where the parent stopped while it was saving."""
        return here != there if self._step in self._followed else here <= there - 2

    def count_steps(self) -> str | None:
        begun, there, here = self._begun, self._reference, self._first.counters
        if begun is None:
            return None
        made = self._step - begun.after
        one_epoch = there.epoch_batch in (None, made) and not there.counters.get("epoch", 0)
        for name in sorted(there.counters.keys() & here.keys() & begun.counters.keys() - {"epoch"}):
            if name in AMBIGUOUS_COUNTERS and one_epoch and "epoch" in there.counters:
                continue
            if abs(there.counters[name] - begun.counters[name] - made) <= 1:
                starts = f"the step count ({name}) starts at {here[name]:,} instead of {there.counters[name]:,}"
                return starts if self._is_behind(here[name], there.counters[name]) else ""
        return None

    def weights(self) -> str | None:
        here, saved = self._first.weights, self._saved
        if saved is None or not here or len(here) != len(saved.weights):
            return None
        shares = [abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in zip(here, saved.weights, strict=True)]
        differing = sum(share > WEIGHT_TOLERANCE for share in shares)
        if not differing:
            return ""
        worst = shares.index(max(shares))
        name = saved.names[worst] if len(saved.names) == len(here) else f"tensor {worst + 1}"
        most = f"{name} by {format_share(shares[worst], digits=1)}"
        return f"the weights are not those of the checkpoint: {differing} of {len(here)} differ, {most}"

    def optimizer(self) -> str | None:
        here, there = self._first, self._reference
        steps = here.optimizer_steps, there.optimizer_steps
        if here.moments is None or there.moments is None:
            return None
        if there.moments and not here.moments:
            return "optimizer moments are empty"
        if None not in steps and steps[0] != steps[1]:
            return f"the optimizer counts {steps[0]:g} steps instead of {steps[1]:g}"
        return ""

    def learning_rate(self) -> str | None:
        there, here, begun = self._reference, self._first, self._begun
        if here.learning_rate is None or there.learning_rate is None:
            return None
        rates = f"{here.learning_rate:.3g} instead of {there.learning_rate:.3g}"
        tolerance = RATE_TOLERANCE if self._step in self._followed else STOPPED_RATE_TOLERANCE
        if not math.isclose(here.learning_rate, there.learning_rate, rel_tol=tolerance):
            first = math.nan if begun is None or begun.learning_rate is None else begun.learning_rate
            started_over = math.isclose(here.learning_rate, first, rel_tol=RATE_TOLERANCE)
            return f"the learning rate {'schedule started over:' if started_over else 'is'} {rates}"
        if here.schedule is not None and there.schedule is not None and self._is_behind(here.schedule, there.schedule):
            return f"the learning rate schedule is at step {here.schedule:,} instead of {there.schedule:,}"
        return ""

    def scaler(self) -> str | None:
        here, there = self._first, self._reference
        if there.scale is None or here.first_scale is None:
            return None
        if there.scale in (here.scale, here.first_scale):
            return ""
        return f"gradient scaler back at {here.first_scale:,.6g} instead of {there.scale:,.6g}"

    def epoch(self) -> str | None:
        here, there = self._first.counters.get("epoch"), self._reference.counters.get("epoch")
        if here is None or there is None:
            return None
        return f"the epoch starts at {here:,} instead of {there:,}" if here < there else ""

    def data(self) -> str | None:
        drawn = [batch.rows_of(None) for batch in self._batches]
        if not drawn or not drawn[0]:
            return None
        pairs = [
            (batch.rows_of(None), self._later[batch.step].rows_of(None))
            for batch in self._batches
            if batch.step in self._later
        ]
        if pairs and pairs[0][1]:
            if len(pairs[0][0]) != len(pairs[0][1]):
                return None  # another effective batch
            here, there = next(((a, b) for a, b in pairs if a != b), ((), ()))
            if not here:
                return ""
            began = self._began_at(here) if here is pairs[0][0] else None
            self.shuffled = began != 0 or self._epoch_is_complete()
            order = f"{name_rows(here[:4])} … instead of {', '.join(map(str, there[:4]))} …"
            return self._starts_again(began) or f"the data comes in another order: {order}"
        used = self._used_rows()
        if not used:
            return None
        rows = [row for batch in drawn for row in batch]
        again = f"{sum(row in used for row in rows)} of its first {len(rows)} rows"
        if used.isdisjoint(drawn[0]):
            return ""
        return self._starts_again(self._began_at(drawn[0])) or f"the data repeats {again} of the epoch"

    def _began_at(self, rows: tuple[int, ...]) -> int | None:
        """The samples before the step in which the parent had these rows; None if it had them in none."""
        steps = [batch.rows_of(None) for batch in self._earlier]
        if rows not in steps or self._earlier[0].step != 1:
            return None
        return sum(map(len, steps[: steps.index(rows)]))

    def _starts_again(self, samples: int | None) -> str | None:
        seen = sum(len(batch.rows_of(None)) for batch in self._earlier)
        return None if samples is None else f"the data starts again at sample {samples:,} instead of {seen:,}"

    def _epoch_is_complete(self) -> bool:
        saved, later = self._saved, self._later.get(self._step + 1)
        if saved is None or None in (saved.epoch_batches, saved.epoch_batch):
            return later is None or later.epoch is None or later.epoch != self._earlier[-1].epoch
        return saved.epoch_batch == saved.epoch_batches

    def _used_rows(self) -> set[int]:
        """The rows of the epoch that the parent stopped in; none if that was complete or they are not known."""
        used = self._saved and self._saved.epoch_batch
        batches = [rows for batch in self._earlier for rows in batch.rows or ()]
        if not used or self._epoch_is_complete() or len(batches) < used:
            return set()
        return {row for rows in batches[-used:] for row in rows}

    def random_numbers(self) -> str | None:
        # Only generators that the training draws from count. One that was restored may have been drawn from since, by a
        # loader that starts; and losses that agree did not need the same numbers.
        here, there, begun = self._first.random_states, self._followed.get(self._step), self._begun
        saved = {} if self._saved is None else self._saved.random_states
        restored = {name for name, state in saved.items() if state in (here.get(name), *self._first.restored)}
        state, drawn = there or begun, {"torch"} if self.shuffled else set[str]()
        if state is not None and (after := self._followed.get(state.after + 1)) is not None:
            drawn |= {name for name, value in state.random_states.items() if after.random_states.get(name) != value}
        is_judged = there is not None or bool(drawn & restored)
        drawn = (drawn - restored) & here.keys()
        if there is not None:
            differing = [name for name in sorted(drawn) if here[name] != there.random_states.get(name)]
            pairs = self._pairs_of_losses()
            losses_agree = bool(pairs) and all(math.isclose(a, b, rel_tol=SAME_LOSS) for a, b in pairs)
            if differing and not losses_agree:
                return f"random numbers of {' and '.join(differing)} are not those after the checkpoint"
        elif begun is not None and begun.after < self._step:
            again = [name for name in sorted(drawn) if here[name] == begun.random_states.get(name)]
            if again:
                return f"random numbers of {' and '.join(again)} start over as at the first step"
        return "" if is_judged else None

    def _pairs_of_losses(self) -> list[tuple[float, float]]:
        pairs = ((batch.loss, self._later[batch.step].loss) for batch in self._batches if batch.step in self._later)
        return [(a, b) for a, b in pairs if a is not None and b is not None]

    def losses(self) -> str | None:
        before = [batch.loss for batch in self._earlier if batch.loss is not None][-NOISE_WINDOW:]
        around = [batch.loss for batch in self._later.values() if batch.loss is not None][:NOISE_WINDOW]
        changes = [abs(b - a) for a, b in pairwise([*before, *around])]
        pairs, first = self._pairs_of_losses(), [batch.loss for batch in self._batches if batch.loss is not None]
        if not changes or {"data", "epoch"}.intersection(self.mismatches):
            return None
        if pairs:
            (here, there), distance = pairs[0], median(abs(a - b) for a, b in pairs[:4])
            sentence = f"the loss differs at the first step: {here:.4g} against {there:.4g}"
        elif first and len(before) >= STEPS:
            here, there = median(first[:4]), median(before[-STEPS:])
            distance = (here - there) / 2  # the batches differ; and a loss that falls is no reason to complain
            sentence = f"the loss is {here:.4g} after {there:.4g} before the checkpoint"
        else:
            return None
        return sentence if distance > max(NOISE_TIMES * median(changes), LEAST_SHARE * abs(there)) else ""


def _without_skipped(batches: list[StepBatch], before: list[StepBatch]) -> list[StepBatch]:
    """Without the batches that a loop reads over before its first step, by those of its second or of the parent."""
    usual = len((batches[1:] or before or batches)[0].rows or ()) if batches else 0
    if not usual or batches[0].rows is None:
        return batches
    return [replace(batches[0], rows=batches[0].rows[-usual:]), *batches[1:]]

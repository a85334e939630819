"""Where a value of a training first was not finite, from the reports of the ranks of its replay. Pure.

The observer's [finite_check.py](../observer/site/_tuner_observer/finite_check.py) writes the reports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.redaction import redact_text
from tuner_tui.core.text import single_line
from tuner_tui.inspection.suspect_batches import StepBatch, name_rows

LOSS_TOLERANCE = 0.01
"""Share by which the losses of the same step may differ: a GPU adds in another order each time (judgement)."""
PHASES = ("forward", "backward", "update")
UNDEFINED = ("log", "exp", "div", "reciprocal", "sqrt", "pow", "norm", "acos", "asin", "atanh", "softmax", "std", "var")
"""Operators, and names of autograd, without a finite value for some inputs."""
LARGE = 1e18
"""Squares of larger numbers are infinite in float32 and bfloat16."""

REPEATABLE = "a training repeats its losses only with a fixed seed, set before the model and the data are made"

Role = Literal["overflow", "undefined", "exploding", "rows"]


class TensorRange(Struct, frozen=True):
    """A tensor: the range of its finite values, and which and how many of the `others` there are."""

    dtype: str
    shape: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    others: int = 0

    @property
    def largest(self) -> float:
        """The largest absolute value of those that are finite."""
        return max(abs(self.min or 0.0), abs(self.max or 0.0))

    def __str__(self) -> str:
        finite = None if self.min is None or self.max is None else f"{self.min:.3g} to {self.max:.3g}"
        others = f"{self.others:,} of {math.prod(self.shape):,} {' and '.join(self.kinds)}" if self.others else None
        return f"{', '.join(filter(None, (finite, others)))} in {self.dtype}"


class Operation(Struct, frozen=True):
    """The first operator whose result is not finite; `node` is autograd's name of the step backward it belongs to.

    `entered`: an input was not finite before any operator saw it: `data`, or a parameter or buffer by its name. The
    operator is None where none was seen, as in a compiled model.
    """

    phase: str
    module: str | None = None
    operator: str | None = None
    inputs: tuple[TensorRange, ...] = ()
    output: TensorRange | None = None
    node: str | None = None
    entered: str | None = None
    micro_batch: int | None = None
    learning_rate: float | None = None

    @property
    def is_from_data(self) -> bool:
        """Whether the batch itself was not finite; a constant in the code is no batch."""
        return self.entered == "data" and self.operator != "aten.lift_fresh"

    @property
    def sentence(self) -> str:
        """Where it was, and what went in and came out."""
        node = f" ({self.node})" if self.node else ""
        where = ", ".join(filter(None, (self.module, self.phase, f"{self.operator or 'unknown operator'}{node}")))
        if self.is_from_data:
            values = " and ".join(str(tensor) for tensor in self.inputs if tensor.others)
            return single_line(f"the batch itself is not finite{': ' * bool(values)}{values}; it enters {where}")
        ranges = [f"inputs {'; '.join(map(str, self.inputs))}"] if self.inputs else []
        ranges += [f"result {self.output}"] if self.output else []
        ranges += [f"learning rate {self.learning_rate:g}"] if self.learning_rate is not None else []
        if self.entered:
            ranges.append(f"{'a constant' if self.entered == 'data' else self.entered} was not finite before")
        return single_line(f"first not finite: {where}" + (f": {', '.join(ranges)}" if ranges else ""))

    @property
    def role(self) -> Role | None:
        """What kind of cause this is, which chooses the remedies; None if it is none of the usual ones."""
        dtypes = {tensor.dtype for tensor in (*self.inputs, *([self.output] if self.output else []))}
        largest = max((tensor.largest for tensor in self.inputs), default=0.0)
        names = f"{self.operator} {self.node or ''}".lower()
        if self.is_from_data:
            return "rows"
        if "float16" in dtypes and self.output is not None and "nan" not in self.output.kinds:
            return "overflow"
        if largest > LARGE or (self.entered and self.entered != "data"):
            return "exploding"
        if any(word in names for word in UNDEFINED):
            return "undefined"
        return "exploding" if self.phase == "update" else None


class ReplayReport(Struct, frozen=True):
    """What one rank saw; `consequence` is what was not finite in the end. `cause`: None if all was finite.

    `texts`: what rows of its dataset hold.
    """

    rank: int
    step: int
    consequence: str = ""
    cause: Operation | None = None
    texts: Mapping[int, str] = field(default_factory=dict)


class Replay(Struct, frozen=True):
    """The steps before `step` trained again, from the checkpoint at `resumed_at`, and the first rank with a cause.

    `differs`: step, loss and loss of the replay where these began to differ. `compared`: losses that were compared.
    `texts`: what rows hold, by rank and row.
    """

    step: int
    resumed_at: int = 0
    compared: int = 0
    differs: tuple[int, float, float] | None = None
    report: ReplayReport | None = None
    rows: tuple[int, ...] = ()
    problem: str | None = None
    texts: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    @property
    def role(self) -> Role | None:
        """What chooses the remedies; None if the cause is not known to be that of the run."""
        cause = None if self.report is None or self.differs is not None else self.report.cause
        return None if cause is None else cause.role

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        cause = None if self.report is None else self.report.cause
        if self.differs is not None:
            step, before, now = self.differs
            return f"Not reproduced: the losses differ from step {step:,} on ({before:.6g}, in the replay {now:.6g})."
        if self.report is None:
            return self.problem or "Unknown: no rank of the replay checked the steps."
        if cause is None:
            return f"Not reproduced: all values are finite in the replay up to step {self.report.step:,}."
        rank = f" of rank {self.report.rank}" if self.report.rank else ""
        return f"In step {self.report.step:,}{rank}, {cause.sentence}."

    @property
    def facts(self) -> tuple[str, ...]:
        start = f"the checkpoint at step {self.resumed_at:,}" if self.resumed_at else "the start"
        compared = f"{self.compared:,} losses since {start} are those of the run" if self.compared else ""
        facts = (
            compared if self.differs is None else REPEATABLE,
            single_line(self.report.consequence) if self.report else "",
            name_rows(self.rows) if self.rows else "",
        )
        return tuple(filter(None, facts))


def judge_replay(
    step: int, resumed_at: int, reports: Sequence[ReplayReport], before: Sequence[StepBatch], again: Sequence[StepBatch]
) -> Replay:
    """Compare the losses before `step` of the run and its replay, and choose the rank where it began."""
    causes = [report for report in reports if report.cause is not None]
    first = min(causes, key=_order, default=next(iter(reports), None))
    end = step if first is None or first.cause is None else min(step, first.step)
    replayed = {(batch.rank, batch.step): batch.loss for batch in again}
    pairs = [
        (batch.step, batch.loss, now)
        for batch in before
        if batch.step < end and (now := replayed.get((batch.rank, batch.step))) is not None and batch.loss is not None
    ]
    differs = next((pair for pair in pairs if not math.isclose(*pair[1:], rel_tol=LOSS_TOLERANCE)), None)
    rows: tuple[int, ...] = ()
    if first is not None and first.cause is not None:
        same = [batch for batch in before if (batch.rank, batch.step) == (first.rank, first.step)]
        rows = same[0].rows_of(first.cause.micro_batch) if same else ()
    if first is not None:
        first = replace(first, texts={})
    texts = {
        report.rank: {row: redact_text(single_line(text)) for row, text in report.texts.items()} for report in reports
    }
    return Replay(step, resumed_at, len(pairs), differs, first, rows, texts=texts)


def _order(report: ReplayReport) -> tuple[int, int, bool, int]:
    """Forward before backward in a step; what a rank gets from another one is no cause."""
    assert report.cause is not None
    phase = PHASES.index(report.cause.phase) if report.cause.phase in PHASES else len(PHASES)
    return report.step, phase, report.cause.entered == "data", report.rank

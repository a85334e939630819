"""Which rows of the data explain a loss that is not finite, a loss that jumps, or a step that failed.

Pure: steps with their rows and losses in, suspects out. Rows are those of the dataset that the loader was given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain, groupby
from statistics import median
from typing import Literal

from msgspec import Struct

WINDOW = 25
"""Steps before and after one that say which loss is usual there."""
MIN_NEIGHBOURS = 8
SPIKE_DEVIATIONS = 8.0
"""A spike is that many times as far above the losses around it as these are from each other (judgement)."""
SPIKE_SHARE = 0.5
"""And at least that share of the loss itself above them (judgement)."""
HIGH_SHARE, TIMES_HIGH = 0.95, 2.0
"""And that many times as far above them as the 95th percentile is: losses of single samples have long tails."""
MIN_COMMON = 2
"""Spikes that a row must have been in to be named alone."""
MIN_GUILTY_SHARE = 0.8
"""Of the steps that a row was in: in so many of them the loss was a spike."""
MOST_BY_CHANCE = 0.01
"""Rows that as many of the spikes would share if batches were random: with more the rows in common say nothing."""
MOST_SPIKES = 50
"""More are the long tail of the losses, which hard rows are in, and no exception that a row would explain."""
ROSE, LAST_STEPS, FEW_STEPS = 2.0, 3, 3
"""A loss that is so many times the usual one in one of the last steps before it is not finite has risen (judgement)."""
SAME_LOSS = 1e-3
"""Relative difference within which two ranks have the same loss (judgement): kernels of a GPU add in any order."""
ROWS_SHOWN = 16

Kind = Literal["not finite", "spike", "unfinished"]


class StepBatch(Struct, frozen=True):
    """The micro batches of one optimizer step of a rank; `losses` are those that `backward()` was called on.

    `rows` is None if the sampler drew no numbers, as for a stream, and holds an empty tuple for too many of them.
    `shape` is that of the last tensor. `unfinished`: loaded for a step that never came.
    """

    step: int
    rank: int = 0
    epoch: int | None = None
    losses: tuple[float, ...] = ()
    rows: tuple[tuple[int, ...], ...] | None = None
    shape: tuple[int, ...] = ()
    unfinished: bool = False

    @property
    def loss(self) -> float | None:
        """The mean of the micro batches, None where it is not known."""
        return sum(self.losses) / len(self.losses) if self.losses else None

    def rows_of(self, micro_batch: int | None) -> tuple[int, ...]:
        """The rows of a micro batch, or of all."""
        rows = self.rows or ()
        if micro_batch is None or len(rows) != len(self.losses):
            return tuple(row for batch in rows for row in batch)
        return rows[micro_batch]


class Suspect(Struct, frozen=True):
    """A step, why it is suspected, and its rows; of an accumulated step those of the micro batch that stands out.

    `prominence` of a spike: how many times as high as it must be at least.
    """

    kind: Kind
    batch: StepBatch
    rows: tuple[int, ...]
    loss: float | None
    usual_loss: float | None = None
    prominence: float = 0.0

    @property
    def sentence(self) -> str:
        """What happened in the step, with its rows."""
        step, rows = f"step {self.batch.step:,}", name_rows(self.rows)
        rank = f" of rank {self.batch.rank}" if self.batch.rank else ""
        if self.kind == "not finite":
            return f"the loss is {self.loss} first in {step}{rank}: {rows}"
        if self.kind == "spike":
            return f"the loss is {self.loss:.4g} in {step}{rank}, about {self.usual_loss:.4g} around it: {rows}"
        shape = f" ({' × '.join(map(str, self.batch.shape))})" if self.batch.shape else ""
        return f"{step}{rank}, which failed, was made of{shape} {rows}"


class Suspects(Struct, frozen=True):
    """`common_rows`: rows that several spikes share and hardly any other step had, more than chance explains.

    `rose`: the loss had risen before it was not finite, or may have in the few steps before. `repeated_steps`: in so
    many steps, and in all that several ranks recorded, all ranks had the same rows.
    """

    suspects: tuple[Suspect, ...] = ()
    common_rows: tuple[int, ...] = ()
    rose: bool = False
    repeated_steps: int = 0

    @property
    def sharing(self) -> tuple[Suspect, ...]:
        """The spikes that had the common rows."""
        return tuple(batch for batch in self.of_kind("spike") if not set(self.common_rows).isdisjoint(batch.rows))

    @property
    def common_names(self) -> str:
        """The common rows in words: `rows 4, 5` if each sharing spike had all of them, else `one of rows 4, 5`."""
        is_all = all(set(self.common_rows) <= set(batch.rows) for batch in self.sharing)
        return f"{'' if is_all else 'one of '}{name_rows(self.common_rows)}"

    def of_kind(self, kind: Kind) -> tuple[Suspect, ...]:
        return tuple(suspect for suspect in self.suspects if suspect.kind == kind)


NO_SUSPECTS = Suspects()


def name_rows(rows: Sequence[int]) -> str:
    """Return the numbers of rows in words, the first of many."""
    if not rows:
        return "rows not recorded"
    if len(rows) > 2 and list(rows) == list(range(rows[0], rows[-1] + 1)):
        return f"rows {rows[0]} to {rows[-1]}"
    more = f" and {len(rows) - ROWS_SHOWN:,} more" if len(rows) > ROWS_SHOWN else ""
    return f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:ROWS_SHOWN]))}{more}"


def find_suspects(batches: Sequence[StepBatch], failed: bool) -> Suspects:
    """Return the first step whose loss is not finite, the spikes before it, the highest first, and the step that never
    came if the run `failed`."""
    # Ranks that nothing gives different data had the same step, not two.
    different = {
        (batch.step, batch.rank if batch.rows is None else batch.rows, batch.losses): batch
        for batch in sorted(batches, key=lambda batch: -batch.rank)
    }
    in_order = sorted(different.values(), key=lambda batch: (batch.step, batch.rank))
    first = next((batch for batch in in_order if _broken(batch) is not None), None)
    healthy = [batch for batch in in_order if first is None or batch.step < first.step]
    finished = [batch for batch in healthy if not batch.unfinished]
    ranks = sorted({batch.rank for batch in finished})
    spikes = chain.from_iterable(_spikes([batch for batch in finished if batch.rank == rank]) for rank in ranks)
    highest = sorted(spikes, key=lambda suspect: -suspect.prominence)
    suspects = highest[:MOST_SPIKES]
    common = _common_rows(suspects, healthy) if suspects == highest else ()
    if first is not None:
        at = _broken(first)
        suspects.insert(0, Suspect("not finite", first, first.rows_of(at), None if at is None else first.losses[at]))
    unfinished = (batch for batch in in_order if batch.unfinished and failed)
    suspects += (Suspect("unfinished", batch, batch.rows_of(None), None) for batch in unfinished)
    rose = first is not None and _rises(healthy, first.step - LAST_STEPS)
    return Suspects(tuple(suspects), common, rose, _repeated_steps(batches))


def _repeated_steps(batches: Sequence[StepBatch]) -> int:
    """The steps of several ranks, if all ranks had the same rows in each of them; else 0.

    Rows have the same numbers in parts of the data that each rank has loaded for itself, but not the same losses.
    """
    recorded = (batch for batch in sorted(batches, key=lambda batch: batch.step) if batch.rows_of(None))
    steps = (list(ranks) for _, ranks in groupby(recorded, key=lambda batch: batch.step))
    shared = [ranks for ranks in steps if len(ranks) > 1]
    pairs = [(first, other) for first, *others in shared for other in others]
    losses = (each for first, other in pairs for each in zip(first.losses, other.losses, strict=False))
    same = all(first.rows == other.rows for first, other in pairs)
    return len(shared) if same and all(math.isclose(*each, rel_tol=SAME_LOSS) for each in losses) else 0


def _rises(batches: Sequence[StepBatch], from_step: int) -> bool:
    """Whether a loss is far above the usual one in `from_step` or later."""
    losses = [(batch.step, batch.loss) for batch in batches if batch.loss is not None]
    high = ROSE * median(loss for _, loss in losses) if losses else math.inf
    few = 0 < len({step for step, _ in losses}) < FEW_STEPS
    return few or any(loss >= high for step, loss in losses if step >= from_step)


def _broken(batch: StepBatch) -> int | None:
    """The first micro batch whose loss is not finite."""
    return next((number for number, loss in enumerate(batch.losses) if not math.isfinite(loss)), None)


def _spikes(batches: Sequence[StepBatch]) -> list[Suspect]:
    """Losses far above those of the steps around them."""
    losses = [max(batch.losses) if batch.losses else None for batch in batches]
    spikes = []
    for number, (batch, loss) in enumerate(zip(batches, losses, strict=True)):
        around = losses[max(0, number - WINDOW) : number] + losses[number + 1 : number + 1 + WINDOW]
        near = sorted(neighbour for neighbour in around if neighbour is not None)
        if loss is None or len(near) < MIN_NEIGHBOURS:
            continue
        usual, high = median(near), near[int(HIGH_SHARE * len(near))]
        deviation = median(abs(neighbour - usual) for neighbour in near)
        least = max(SPIKE_DEVIATIONS * deviation, SPIKE_SHARE * abs(usual), TIMES_HIGH * (high - usual))
        if loss - usual > least:
            rows = batch.rows_of(batch.losses.index(loss))
            spikes.append(Suspect("spike", batch, rows, loss, usual, (loss - usual) / least if least else math.inf))
    return spikes


def _common_rows(suspects: Sequence[Suspect], batches: Sequence[StepBatch]) -> tuple[int, ...]:
    """Rows that were in several suspects and, as good as, in no other step."""
    in_suspects = Counter(row for suspect in suspects for row in set(suspect.rows))
    in_all = Counter(row for batch in batches for row in set(batch.rows_of(None)))
    share = in_suspects.total() / max(1, len(suspects) * len(in_all))
    guilty = [
        row
        for row, count in in_suspects.items()
        if count >= max(MIN_COMMON, MIN_GUILTY_SHARE * in_all[row])
        and len(in_all) * math.comb(len(suspects), count) * math.pow(share, count) < MOST_BY_CHANCE
    ]
    most = max((in_suspects[row] for row in guilty), default=0)
    return tuple(sorted(row for row in guilty if in_suspects[row] == most))

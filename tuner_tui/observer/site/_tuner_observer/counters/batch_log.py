"""Which rows of the dataset each optimizer step was made of, and its loss: `batches-rank0.jsonl` of the run folder.

The rows are the indices that the batch sampler drew, read in the process that iterates over the loader; its workers
need not be asked. A line is a step: `step`, `epoch`, `losses` and `rows` (a number and a list for each micro batch) and
`shape`. What was loaded for a step that never came is marked `"unfinished": true`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..session import Session
from .batch_stats import IteratorStats
from .memory_peaks import HostCopy, copy_to_host

if TYPE_CHECKING:
    Step = tuple[int, int, list[Any], Any, Any]
    """Calls of `backward` so far, the step, what the sampler drew for each micro batch, epoch and shape."""

MAX_BYTES = 1 << 20
"""Of a file; the one before it is kept too, so that the newest thousands of steps can be asked for."""
MAX_ROWS = 4096
"""Rows of a step that are written; of more only that it had more."""
MAX_LOSSES = 8192
"""Losses held until they are written, about a second later."""


class BatchLog:
    """Written when the counters are. The losses of a GPU are copied together and read when the copy has arrived.

    `losses`: the call of `backward` (as in `RecordBuffer.backwards`) and the loss that it was called on.
    """

    def __init__(self, torch: Any, session: Session) -> None:
        self._torch = torch
        self._session = session
        self.losses: deque[tuple[int, Any]] = deque(maxlen=MAX_LOSSES)
        self.reset()

    def reset(self) -> None:
        self.losses.clear()
        self._steps: list[Step] = []
        self._copied: tuple[list[int], HostCopy, list[Step]] | None = None
        self._backwards = 0
        self._is_finite = True

    def step_done(self, step: int, backwards: int, iterators: Sequence[IteratorStats]) -> None:
        """Note the batches of a step, after so many calls of `backward`."""
        self._steps.append(_step(step, backwards, iterators))

    def resumed(self, first_step: int) -> None:
        """Number the steps so far, which are not written yet, after those of the processes before."""
        self._steps = [(each[0], each[1] + first_step, *each[2:]) for each in self._steps]

    def write(self) -> None:
        """Write the steps whose losses are known."""
        if self._copied is not None:
            calls, copied, steps = self._copied
            if not copied.has_arrived():
                return
            self._copied = None
            self._write(steps, dict(zip(calls, copied.values())))  # noqa: B905 - Python 3.8
        steps, self._steps = self._steps, []
        if not steps:
            return
        losses = []
        while self.losses and self.losses[0][0] <= steps[-1][0]:
            losses.append(self.losses.popleft())
        on_gpu = [(call, loss) for call, loss in losses if type(loss) is not float]
        if not on_gpu:
            self._write(steps, dict(losses))
            return
        together = [loss.reshape(()).float() for _, loss in on_gpu if loss.is_cuda]
        copy = copy_to_host(self._torch, self._torch.stack(together)) if together else None
        if copy is None:
            self._write(steps, {})
        else:
            self._copied = [call for call, _ in on_gpu], copy, steps

    def write_last(self, step: int, pending: Sequence[IteratorStats]) -> None:
        """Write what is left at the end of the process, and the batches that no step has followed."""
        if self._copied is not None:
            self._copied[1].values()
            self.write()
        self._write(self._steps, {call: float(loss) for call, loss in self.losses})
        if any(each.rows_taken for each in pending):
            line = f'{_line(_step(step + 1, 0, pending), [])[:-1]},"unfinished":true}}'
            self._session.append("batches", [line], MAX_BYTES)
        self._steps = []

    def _write(self, steps: list[Step], losses: dict[int, float]) -> None:
        lines = []
        for each in steps:
            values = [losses[call] for call in range(self._backwards + 1, each[0] + 1) if call in losses]
            self._backwards = max(self._backwards, each[0])
            was_finite = self._is_finite
            if values:  # a step whose loss is not known says nothing
                self._is_finite = all(map(math.isfinite, values))
            if was_finite and not self._is_finite:
                self._session.report("not-finite", step=each[1])
            lines.append(_line(each, values))
        if lines:
            self._session.append("batches", lines, MAX_BYTES)


def _step(step: int, backwards: int, iterators: Sequence[IteratorStats]) -> Step:
    """What is kept of a step until it is written."""
    rows = [batch for iterator in iterators for batch in iterator.rows_taken]
    epoch, shape = (iterators[0].epoch, iterators[0].shape) if iterators else (None, None)
    return backwards, step, rows, epoch, shape


def _line(step: Step, losses: Sequence[float]) -> str:
    """The JSON of a step: formatted here, as the general encoder takes as long as the rest of the step's overhead."""
    _, number, drawn, epoch, shape = step
    parts = [f'{{"step":{number}']
    if epoch:
        parts.append(f'"epoch":{epoch}')
    rows = list(map(_row_numbers, drawn))
    if rows and None not in rows:
        parts.append(f'"rows":{rows if sum(len(batch or ()) for batch in rows) <= MAX_ROWS else []}')
    if shape:
        parts.append(f'"shape":{list(map(int, shape))}')
    if losses:
        values = [f"{loss:.6g}" if math.isfinite(loss) else f'"{loss}"' for loss in losses]
        parts.append(f'"losses":[{",".join(values)}]')
    return ",".join(parts).replace(" ", "") + "}"


def _row_numbers(batch: Any) -> list[int] | None:
    """The indices that a sampler drew for a batch, or for a sample; None if they are no numbers, as of a stream."""
    if type(batch) is list and set(map(type, batch)) == {int}:
        return batch
    try:
        return [int(index) for index in (batch if hasattr(batch, "__iter__") else (batch,))]
    except (TypeError, ValueError):
        return None

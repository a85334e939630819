"""Loss and metrics that an observed plain loop prints, at the steps that the observer counts.

The supervisor reads them while they are printed, so that each belongs to a step and every screen shows the same.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner_tui.core.clock import ClockReading
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Evaluated, Event, Metrics, Plan
from tuner_tui.runs.log_parsing.progress_lines import (
    FIGURE_WORDS,
    LABEL_ALONE,
    LOG,
    ProgressRecord,
    parse_line,
    parse_output,
)

INTERVAL_S = 1.0
MAX_BYTES = 16 << 10
"""Output of a second that is read as a whole."""
LAST_BYTES = 4 << 10
"""Of more output than that, as much of its end is read: lines are lost anyway, and these hold as many losses."""
MAX_LINES = 6
"""Lines parsed in a second, of a training and of evaluations; a parsed line takes up to a tenth of a millisecond."""

MAX_POSITIONS = 2
"""Lines with a position in the training that are parsed in a second while its length is not known."""
MAX_LINE_BYTES = 1000

_FIGURES = tuple(word.encode() for word in FIGURE_WORDS)
_LABEL_ALONE = re.compile(LABEL_ALONE.encode())
_POSITION = re.compile(rb"\d\s{0,2}(?:/|of)\s{0,2}\d")
_LOSS = re.compile(rb"^(?!\s*\|\s*\w+_loss\s*\|).*(?:loss|cost)", re.IGNORECASE)
"""Not a row of a table with a part of the loss, such as Stable-Baselines3's `value_loss`."""
_EVALUATION = (b"val", b"test", b"dev", b"acc@", b"accuracy of", b"accuracy on", b"'accuracy'")


class PrintedMetrics:
    """Reads the output `log` of one training once a second."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self._rest = b""
        self._read_s = float("-inf")
        self._step = 0
        self._evaluated: Evaluated | None = None
        self._last: Mapping[str, float] = {}
        self._stated: int | None = None
        self._epoch: float | None = None
        self._evaluations = EvaluationSteps()

    def events(self, state: RunState, now: ClockReading, *, over: bool) -> list[Event]:
        """What was printed since the last call. Nothing before the observer has seen a step, or where a Trainer
        reports."""
        due = over or now.monotonic_s - self._read_s >= INTERVAL_S
        if not due or not state.step or state.accepts_orders or state.source is not None:
            return []
        # A line says a loss, but seldom its step. The output of a second was printed between the step counted last time
        # and the one counted now: a line gets the step at its share of that output. A line that states its step is
        # believed where the observer saw an evaluation there.
        self._read_s = now.monotonic_s
        lines = self._lines(state, over)
        first, self._step = min(self._step, state.step), state.step
        found: list[Event] = []
        evaluates = False
        for share, line in _thinned(lines):
            step = first + round((state.step - first) * share)
            records = list(parse_output(line.decode("utf-8", "replace")))
            trains = any(record.loss is not None for record in records)
            for record in records:
                if trains and record.evaluation and self._repeats(record.evaluation, state, found):
                    continue
                evaluates = evaluates or bool(record.evaluation)
                stated = stated_step(record, state, first)
                if stated in self._evaluations.stated:  # `Steps: 75` may say how many steps an epoch has
                    stated = None
                found += self._events_of(record, step, now.wall_s, stated)
        found += self._plan(lines, state, first, now.wall_s)
        if over or not evaluates:  # an evaluation may print many lines, of which the last one counts
            found += self._take_evaluation()
        evaluated = [event for event in found if isinstance(event, Evaluated)]
        others = [event for event in found if not isinstance(event, Evaluated)]
        newest = None if self._stated is not None else self._evaluated
        return [*others, *self._evaluations.placed(evaluated, newest, state, over=over)]

    def _events_of(self, record: ProgressRecord, step: int, t: float, stated: int | None) -> list[Event]:
        found: list[Event] = []
        if record.loss is not None:
            found += self._take_evaluation()
            found.append(
                Metrics(
                    t=t, source=record.source, step=step, loss=record.loss, learning_rate=record.learning_rate,
                    grad_norm=record.grad_norm, epoch=record.epoch,
                )
            )  # fmt: skip
        if record.evaluation:
            of_other_epoch = self._epoch is not None and record.epoch is not None and record.epoch != self._epoch
            if of_other_epoch or (stated is not None and self._stated not in (None, stated)):
                found += self._take_evaluation()
            self._epoch = record.epoch
            self._stated = self._stated if stated is None else stated
            step = step if self._stated is None else self._stated
            earlier = {} if self._evaluated is None else self._evaluated.metrics
            self._last = {**earlier, **record.evaluation}
            self._evaluated = Evaluated(t=t, source=record.source, step=step, metrics=self._last)
        return found

    def _repeats(self, metrics: Mapping[str, float], state: RunState, found: Sequence[Event]) -> bool:
        """Whether these are the last metrics again, maybe rounded, as LitGPT prints them with each loss.

        They are not if an evaluation that the observer saw has not printed any yet.
        """
        printed = (self._evaluated is not None) + sum(isinstance(event, Evaluated) for event in found)
        if self._evaluations.unprinted(state) > printed:
            return False
        last = self._last.values()
        return all(any(math.isclose(value, each, rel_tol=1e-3) for each in last) for value in metrics.values())

    def _plan(self, lines: Sequence[bytes], state: RunState, first: int, t: float) -> list[Event]:
        """The length of the training by the newest printed position, unless it is known already."""
        if state.total_steps is not None:
            return []
        counts_epochs = state.planned_epochs is not None
        positions = [line for line in lines if _POSITION.search(line) or (counts_epochs and b"poch" in line)]
        for line in positions[: -MAX_POSITIONS - 1 : -1]:
            text = line[-MAX_LINE_BYTES:].decode("utf-8", "replace")
            position = next(parse_output(text), None) if "%|" in text else parse_line(text)
            total = None if position is None else planned_steps(position, state, first)
            if total is not None and total >= (state.step or 0):
                return [Plan(t=t, source=LOG, total_steps=total, first_step=state.first_step, guessed=True)]
        return []

    def _take_evaluation(self) -> list[Event]:
        found, self._evaluated = self._evaluated, None
        if self._stated is not None:
            self._evaluations.stated.add(self._stated)
            self._stated = None
        return [] if found is None else [found]

    def _lines(self, state: RunState, over: bool) -> Sequence[bytes]:
        """The whole lines, or states of a progress bar, since the last call; those of an evaluation begin so."""
        data = self._rest + self._read()
        end = max(data.rfind(b"\r"), data.rfind(b"\n"), data.rfind(b"\b")) + 1
        if over or data.rstrip().endswith(b"]"):  # a bar is whole before the next one begins
            end = len(data)
        self._rest = data[end:][-MAX_BYTES:]
        # The observer reports where in the output an evaluation began and ended. A line in between, such as `loss 0.5`,
        # gets a label that makes the parser take its figures for those of an evaluation.
        text = data[:end].replace(b"\r", b"\n").replace(b"\b", b"\n")
        start = self._offset - len(data)
        for began, ended in reversed(state.evaluation_output):
            first, last = max(0, began - start), end if ended is None else max(0, ended - start)
            own = text[first:last].splitlines(keepends=True)
            text = text[:first] + b"".join(b"Test: " + line for line in own) + text[max(first, last) :]
        return _LABEL_ALONE.sub(rb"\1 ", text).split(b"\n")

    def _read(self) -> bytes:
        try:
            descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            size = os.fstat(descriptor).st_size
            if not self._offset <= size <= self._offset + MAX_BYTES:  # truncated, or more than can be read
                self._offset, self._rest = max(0, size - LAST_BYTES), b""
            data = os.pread(descriptor, size - self._offset, self._offset)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
        self._offset += len(data)
        return data


class EvaluationSteps:
    """Gives printed evaluations the steps at which the observer saw them.

    Those of the steps in `stated` are certain: their lines say the step.
    """

    # Output is read as it comes, but the counters that say after which steps the loop evaluated arrive once a second: a
    # printed evaluation without a step waits for the next look. Not all evaluations print, so printed ones are matched
    # with the newest steps that were seen, in order; one that finds no step by the next look keeps its estimated one.

    def __init__(self) -> None:
        self.stated: set[int] = set()
        self._waiting: list[Evaluated] = []
        self._taken = 0
        self._was_evaluating = False

    def unprinted(self, state: RunState) -> int:
        """How many evaluations the observer saw after the last one that was placed, without those that wait."""
        return sum(step > self._taken for step in state.evaluation_steps) - len(self._waiting)

    def placed(
        self, found: Sequence[Evaluated], newest: Evaluated | None, state: RunState, *, over: bool
    ) -> list[Evaluated]:
        """The evaluations that need not wait any longer, of those that waited and of the newly `found` ones.

        `newest` has printed lines after them, and may print more.
        """
        certain = [event for event in found if event.step in self.stated]
        self._taken = max([self._taken, *(event.step for event in certain)])
        waited, printed = len(self._waiting), [*self._waiting, *(event for event in found if event not in certain)]
        count = len(printed) + (newest is not None)  # `newest` will need a step of its own
        steps = [step for step in state.evaluation_steps if step > self._taken]
        if state.phase == "evaluating" and len(steps) > count:
            steps.pop()  # it has not printed anything
        steps = steps[-count:][: len(printed)] if count else []
        if printed and not steps and self._was_evaluating:
            steps = [self._taken]  # the rest of an evaluation that had printed some of its lines
        self._was_evaluating = state.phase == "evaluating"
        self._taken = max([self._taken, *steps])
        ready = len(printed) if over else max(len(steps), waited)
        self._waiting = printed[ready:]
        seen = [replace(event, step=step) for event, step in zip(printed, steps, strict=False)]
        return [*certain, *seen, *printed[len(steps) : ready]]


def stated_step(record: ProgressRecord, state: RunState, first: int) -> int | None:
    """The step on the line of an evaluation if the observer saw one there: it may count from 0 or from 1.

    An evaluation before the training is seen by nobody; its line is in the first output that is read.
    """
    step = record.evaluation_step
    if not record.evaluation or step is None or step + 1 < first:
        return None
    seen = next((each for each in state.evaluation_steps if step <= each <= step + 1), None)
    return 0 if seen is None and step == first == 0 else seen


def planned_steps(position: ProgressRecord, state: RunState, first: int) -> int | None:
    """The optimizer steps of the whole training by a printed `position`, which was printed after step `first`.

    An epoch has the batches that the line says, or else those of the loader. A line that does not say the number of
    epochs is of as many as the script plans.
    """
    # `75/300` may count optimizer steps, batches, or epochs of a script that steps once an epoch. It counts optimizer
    # steps if it was at or ahead of the observer's count of the last look and not beyond the one of now. A count below
    # 2, or more than twice the steps, could keep up by chance.
    epochs = position.epochs or state.planned_epochs
    batches = state.position[1] if state.position is not None else None
    if position.per_epoch:
        batches = position.total_steps or batches
    elif position.step is None or position.total_steps != batches:
        of_epochs = position.step is None
        count, total = (position.epoch, epochs) if of_epochs else (position.step, position.total_steps)
        keeps_up = count is not None and first - 1 <= count <= (state.step or 0) + 1 and 2 * first >= count > 1
        if keeps_up and total is not None:
            return int(total)
    if epochs is None or batches is None:
        return None
    counters = None if state.first_rank is None else state.first_rank.latest
    accumulation = 1 if counters is None else max(1, round(counters.micro_steps / max(1, counters.own_steps)))
    return int(epochs) * -(-batches // accumulation)


def _thinned(lines: Sequence[bytes]) -> list[tuple[float, bytes]]:
    """Of the lines that may have figures, some of evaluations and of training, with their share of all.

    An evaluation may first print its result, and then many lines, or last, after a line for each batch.
    """
    found = [(line, lower) for line in lines if any(map((lower := line.lower()).__contains__, _FIGURES))]
    of_evaluation = [any(map(lower.__contains__, _EVALUATION)) for _, lower in found]
    chosen = [index for index, evaluates in enumerate(of_evaluation) if evaluates]
    chosen = [*chosen[:2], *chosen[2:][2 - MAX_LINES :]]
    others = [index for index, evaluates in enumerate(of_evaluation) if not evaluates and _LOSS.search(found[index][0])]
    spacing = max(1, -(-len(others) // MAX_LINES))
    chosen = sorted({*chosen, *others[::-spacing]})
    return [((index + 1) / len(found), found[index][0]) for index in chosen]

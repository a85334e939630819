"""Follows what a training prints and makes events of it: the one reader of printed progress.

An observed plain loop prints its loss and metrics at the steps that the observer counts: the supervisor reads them
while they are printed (`PrintedMetrics`), so that each belongs to a step and every screen shows the same. Of a training
without observer (`python -I`, a container, a compiled program, no PyTorch) steps too come from its output
(`LogOnlyFollower`); whoever looks reads them. Events name their source. The training is not changed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.clock import ClockReading
from tuner_tui.core.files import opened_regular
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Evaluated, Event, Metrics, Phase, Plan, Steps
from tuner_tui.runs.log_parsing.progress_lines import (
    FIGURE_WORDS,
    LABEL_ALONE,
    LOG,
    ProgressRecord,
    parse_line,
    parse_output,
)

MAX_REST_BYTES = 64 << 10
"""Kept of a line that has not ended."""


class OutputTail:
    """What is new in a log: whole lines, or states of a progress bar. Of more than `most` new bytes the last `kept`."""

    def __init__(self, log: Path, most: int, kept: int) -> None:
        self._log = log
        self._most = most
        self._kept = kept
        self._rest = b""
        self.offset = 0
        """Where the file is read next."""

    def read(self, ends: bytes, over: bool) -> tuple[int, bytes]:
        """The text up to the last of the characters `ends`, and its offset; all of it once the training is `over`."""
        data = self._rest + self._new_bytes()
        start = self.offset - len(data)
        end = max(data.rfind(bytes([character])) for character in ends) + 1
        if over or data.rstrip().endswith(b"]"):  # a bar is whole before the next one begins
            end = len(data)
        self._rest = data[end:][-MAX_REST_BYTES:]
        return start, data[:end]

    def _new_bytes(self) -> bytes:
        try:
            with opened_regular(self._log) as descriptor:
                size = os.fstat(descriptor).st_size
                if not self.offset <= size <= self.offset + self._most:  # truncated, or more than can be read
                    self.offset, self._rest = max(0, size - self._kept), b""
                data = os.pread(descriptor, size - self.offset, self.offset)
        except OSError:
            return b""
        self.offset += len(data)
        return data


def _metrics(record: ProgressRecord, step: int, t: float) -> Metrics:
    return Metrics(
        t=t, source=record.source, step=step, loss=record.loss, part=record.part, parts=record.parts,
        learning_rate=record.learning_rate, grad_norm=record.grad_norm, epoch=record.epoch,
    )  # fmt: skip


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
_SUMMARY = re.compile(rb'"\w+": \{\s*\n[^{}]{0,4000}\}')
"""A part of a JSON document, such as the results of all epochs, has no figures of this moment."""
_POSITION = re.compile(rb"\d\s{0,2}(?:/|of)\s{0,2}\d")
_LOSS = re.compile(rb"^(?!\s*\|\s*\w+_loss\s*\|).*(?:loss|cost)", re.IGNORECASE)
"""Not a row of a table with a part of the loss, such as Stable-Baselines3's `value_loss`."""
_EVALUATION = (b"val", b"test", b"dev", b"acc@", b"accuracy of", b"accuracy on", b"'accuracy'")


class PrintedMetrics:
    """Reads the output `log` of one training once a second."""

    def __init__(self, log: Path) -> None:
        self._output = OutputTail(log, MAX_BYTES, LAST_BYTES)
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
        events: list[Event] = []
        evaluates = False
        for share, line in _thinned(lines):
            step = first + round((state.step - first) * share)
            records = list(parse_output(line.decode("utf-8", "replace")))
            trains = any(record.loss is not None for record in records)
            for record in records:
                if trains and record.evaluation and self._repeats(record.evaluation, state, events):
                    continue
                evaluates = evaluates or bool(record.evaluation)
                stated = stated_step(record, state, first)
                if stated in self._evaluations.stated:  # `Steps: 75` may say how many steps an epoch has
                    stated = None
                events += self._events_of(record, step, now.wall_s, stated)
        events += self._plan(lines, state, first, now.wall_s)
        if over or not evaluates:  # an evaluation may print many lines, of which the last one counts
            events += self._take_evaluation()
        evaluated = [event for event in events if isinstance(event, Evaluated)]
        others = [event for event in events if not isinstance(event, Evaluated)]
        newest = None if self._stated is not None else self._evaluated
        return [*others, *self._evaluations.placed(evaluated, newest, state, over=over)]

    def _events_of(self, record: ProgressRecord, step: int, t: float, stated: int | None) -> list[Event]:
        events: list[Event] = []
        if record.loss is not None:
            events += self._take_evaluation()
            events.append(_metrics(record, step, t))
        if record.evaluation:
            of_other_epoch = self._epoch is not None and record.epoch is not None and record.epoch != self._epoch
            if of_other_epoch or (stated is not None and self._stated not in (None, stated)):
                events += self._take_evaluation()
            self._epoch = record.epoch
            self._stated = self._stated if stated is None else stated
            step = step if self._stated is None else self._stated
            earlier = {} if self._evaluated is None else self._evaluated.metrics
            self._last = {**earlier, **record.evaluation}
            self._evaluated = Evaluated(t=t, source=record.source, step=step, metrics=self._last)
        return events

    def _repeats(self, metrics: Mapping[str, float], state: RunState, events: Sequence[Event]) -> bool:
        """Whether these are the last metrics again, maybe rounded, as LitGPT prints them with each loss.

        They are not if an evaluation that the observer saw has not printed any yet.
        """
        printed = (self._evaluated is not None) + sum(isinstance(event, Evaluated) for event in events)
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
        evaluated, self._evaluated = self._evaluated, None
        if self._stated is not None:
            self._evaluations.stated.add(self._stated)
            self._stated = None
        return [] if evaluated is None else [evaluated]

    def _lines(self, state: RunState, over: bool) -> Sequence[bytes]:
        """The whole lines, or states of a progress bar, since the last call; those of an evaluation begin so."""
        start, text = self._output.read(b"\r\n\b", over)
        end = len(text)
        # The observer reports where in the output an evaluation began and ended. A line in between, such as `loss 0.5`,
        # gets a label that makes the parser take its figures for those of an evaluation.
        text = text.replace(b"\r", b"\n").replace(b"\b", b"\n")
        for began, ended in reversed(state.evaluation_output):
            first, last = max(0, began - start), end if ended is None else max(0, ended - start)
            evaluation_lines = text[first:last].splitlines(keepends=True)
            text = text[:first] + b"".join(b"Test: " + line for line in evaluation_lines) + text[max(first, last) :]
        return _LABEL_ALONE.sub(rb"\1 ", _SUMMARY.sub(b"", text)).split(b"\n")


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
        self, evaluations: Sequence[Evaluated], newest: Evaluated | None, state: RunState, *, over: bool
    ) -> list[Evaluated]:
        """The evaluations that need not wait any longer, of those that waited and of the new `evaluations`.

        `newest` has printed lines after them, and may print more.
        """
        certain = [event for event in evaluations if event.step in self.stated]
        self._taken = max([self._taken, *(event.step for event in certain)])
        waited = len(self._waiting)
        printed = [*self._waiting, *(event for event in evaluations if event not in certain)]
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
    figures = [(line, lower) for line in lines if any(map((lower := line.lower()).__contains__, _FIGURES))]
    of_evaluation = [any(map(lower.__contains__, _EVALUATION)) for _, lower in figures]
    chosen = [index for index, evaluates in enumerate(of_evaluation) if evaluates]
    chosen = [*chosen[:2], *chosen[2:][2 - MAX_LINES :]]
    others = [
        index for index, evaluates in enumerate(of_evaluation) if not evaluates and _LOSS.search(figures[index][0])
    ]
    spacing = max(1, -(-len(others) // MAX_LINES))
    chosen = sorted({*chosen, *others[::-spacing]})
    return [((index + 1) / len(figures), figures[index][0]) for index in chosen]


MAX_EPOCH_BAR = 1000
"""A bar of at most this length that has not moved when a longer one appears counts epochs."""


class LogEventBuilder:
    """Makes events of progress records: adds up bars that restart each epoch, and separates evaluation from training.

    `advanced`: whether a step was completed, or a loss printed; `bars_alone`: whether only progress bars say so.
    """

    def __init__(self) -> None:
        self.advanced = False
        self.bars_alone = True
        self._bar_total: int | None = None
        self._bar_done = 0
        self._before_steps = 0
        self._before_s = 0.0
        self._elapsed_s = 0.0
        self._epochs: int | None = None
        self._epoch: float | None = None
        self._step: int | None = None
        self._source = ""
        self._first_step: int | None = None
        self._first_t = 0.0
        self._plan: int | None = None
        self._evaluating = False

    # A bar counts from 0 again in every epoch, and an evaluation draws a bar of its own between those of the training.
    # The state that tells them apart: `_bar_total` is the length of the training's bar, `_bar_done` its last position,
    # `_before_steps` and `_before_s` are the steps and seconds of the epochs before the current bar. The step of the
    # run is `_before_steps + _bar_done`. A bar of another length is an evaluation's while the training's has not ended.

    def events(self, records: Iterable[ProgressRecord], now: float) -> list[Event]:
        """The events of records read at `now` (seconds since the epoch): every metric, and the newest counters."""
        events: list[Event] = []
        before = (self._step, self._elapsed_s)
        for record in records:
            events += self._events_of(record, now)
        if self._step is not None and (self._step, self._elapsed_s) != before:
            events.append(self._counters(now))
        return events

    def _events_of(self, record: ProgressRecord, now: float) -> list[Event]:
        evaluates = record.evaluating or (record.bar and not self._is_main(record))
        events: list[Event] = self._phase(evaluates, record, now)
        if evaluates:
            return events
        if record.bar or (record.per_epoch and record.total_steps is not None):
            self._follow_bar(record, now)
            self._set_step(self._before_steps + self._bar_done, record.source, now)
        elif record.step is not None:
            self._set_step(record.step, record.source, now)
            self._elapsed_s = now - self._first_t if record.elapsed_s is None else record.elapsed_s
        self._epochs = record.epochs or self._epochs
        events += self._plan_events(record, now)
        step = self._step or 0
        if record.evaluation:
            events.append(Evaluated(t=now, source=record.source, step=step, metrics=record.evaluation))
        if record.loss is not None:
            self.advanced, self.bars_alone = True, False
            events.append(_metrics(record, step, now))
        return events

    def _is_main(self, record: ProgressRecord) -> bool:
        """Whether a bar is that of the training, not of an evaluation within it."""
        if self._bar_total is None or record.total_steps == self._bar_total:
            return True
        longer = (record.total_steps or 0) > self._bar_total
        ended = self._bar_done >= self._bar_total
        # `for epoch in tqdm(range(3)): for batch in tqdm(loader)`: the outer bar is drawn first and stays at 0.
        if longer and self._bar_done == 0 and self._bar_total <= MAX_EPOCH_BAR:
            self._epochs = self._bar_total
            return True
        return longer and ended

    def _follow_bar(self, record: ProgressRecord, now: float) -> None:
        """Add up the epochs of a bar, or of a printed counter, which need not reach its end."""
        done, total = record.step or 0, record.total_steps
        if total != self._bar_total:
            self._bar_total, self._bar_done, self._before_steps, self._before_s = total, 0, 0, 0.0
            self._step, self._first_step = None, None
        elif done < self._bar_done or (not record.bar and record.epoch != self._epoch):
            self._before_steps += self._bar_done if record.bar else (total or 0) * self._epochs_since(record)
            self._before_s = self._elapsed_s
        self._bar_done, self._epoch = done, record.epoch
        self._epochs = record.epochs or self._epochs
        if record.bar and record.elapsed_s is not None:
            self._elapsed_s = self._before_s + record.elapsed_s
        elif self._first_step is not None:
            self._elapsed_s = now - self._first_t

    def _epochs_since(self, record: ProgressRecord) -> int:
        """Epochs ended since the last record."""
        return 1 if record.epoch is None or self._epoch is None else max(1, int(record.epoch - self._epoch))

    def _set_step(self, step: int, source: str, now: float) -> None:
        if self._first_step is None or step < self._first_step:
            self._first_step, self._first_t = step, now
        self.advanced = self.advanced or step > 0
        self._step, self._source = step, source

    def _plan_events(self, record: ProgressRecord, now: float) -> list[Event]:
        total = record.total_steps
        if total is not None and record.bar:
            total = max(total * (self._epochs or 1), self._before_steps + total)
        elif record.per_epoch:
            total = None if total is None or record.epochs is None else total * record.epochs
        if total is None or total == self._plan:
            return []
        self._plan = total
        return [Plan(t=now, source=record.source, total_steps=total)]

    def _phase(self, evaluates: bool, record: ProgressRecord, now: float) -> list[Event]:
        trains = record.bar and not evaluates
        if evaluates == self._evaluating or not (evaluates or trains):
            return []
        self._evaluating = evaluates
        return [Phase(t=now, source=record.source, phase="evaluating" if evaluates else "training", step=self._step)]

    def _counters(self, now: float) -> Steps:
        step = self._step or 0
        own_steps = step if self._bar_total is not None else step - (self._first_step or 0)
        return Steps(t=now, source=self._source, step=step, own_steps=own_steps, train_s=self._elapsed_s)


FIRST_LOOK_BYTES = 4 << 20
GRACE_S = 3.0
"""Seconds after the first sign of a step in which events are held back. An observer would report within a second."""
BAR_GRACE_S = 60.0
"""The same where an observer has started and only a progress bar moved, which may be that of the data."""


class LogOnlyFollower:
    """Reads what is new in `log`; of a long one, only the last `first_look_bytes` at first."""

    def __init__(self, log: Path, first_look_bytes: int = FIRST_LOOK_BYTES) -> None:
        self._output = OutputTail(log, first_look_bytes, first_look_bytes)
        self._builder = LogEventBuilder()
        self._held: list[Event] = []
        self._advanced_t: float | None = None
        self._released = False

    def events(self, now: float, *, over: bool, observed: bool = False) -> list[Event]:
        """The new events at `now` (seconds since the epoch); held back at first unless the run is `over`.

        `observed`: an observer has started in the training, and may still report steps.
        """
        _, text = self._output.read(b"\r\n", over)
        self._held += self._builder.events(parse_output(text.decode("utf-8", "replace")), now)
        if self._builder.advanced and self._advanced_t is None:
            self._advanced_t = now
        grace_s = BAR_GRACE_S if observed and self._builder.bars_alone else GRACE_S
        self._released = self._released or (
            self._advanced_t is not None and (over or now - self._advanced_t >= grace_s)
        )
        if not self._released:
            return []
        events, self._held = self._held, []
        return events

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
from itertools import accumulate, islice
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
    MIN_COLUMNS,
    ProgressRecord,
    Table,
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

    def read(self, ends: bytes, over: bool, until: int | None = None) -> tuple[int, bytes]:
        """The text up to the last of the characters `ends`, and its offset; all of it once the training is `over`.

        What is printed after byte `until` is left for the next time.
        """
        data = self._rest + self._new_bytes()
        start = self.offset - len(data)
        last = len(data) if until is None else max(0, until - start)
        end = max(data.rfind(bytes([character]), 0, last) for character in ends) + 1
        if over or data[:last].rstrip().endswith(b"]"):  # a bar is whole before the next one begins
            end = min(last, len(data))
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
MAX_WAIT_S = 30.0
"""Seconds without counters for which lines wait for them."""
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
_VALIDATES, _TESTS = re.compile(rb"(?i)(?<![a-z])val"), re.compile(rb"(?i)(?<![a-z])test")
_EVALUATION = (b"val", b"test", b"dev", b"acc@", b"accuracy of", b"accuracy on", b"'accuracy'")


EVALUATION_LABEL = b"Eval: "
_LABELLED_FIGURE = re.compile(rb"Eval: .*\d\.\d")
"""The label alone is no figure: a traceback that follows an evaluation has it in each of its lines."""


class PrintedMetrics:
    """Reads the output `log` of one training once a second."""

    def __init__(self, log: Path) -> None:
        self._output = OutputTail(log, MAX_BYTES, LAST_BYTES)
        self._read_s = float("-inf")
        self._step = 0
        self._trained, self._summarized = False, -2
        self._validates = False
        self._evaluations = PrintedEvaluations()
        self._table = Table()

    def events(self, state: RunState, now: ClockReading, *, over: bool) -> list[Event]:
        """What was printed since the last call. Nothing before the observer has seen a step, or where a Trainer
        reports."""
        due = over or now.monotonic_s - self._read_s >= INTERVAL_S
        if not due or not state.step or state.accepts_orders or state.source is not None:
            return []
        # A line says a loss, but seldom its step. The counters say how much was printed by each step, up to a second
        # late: lines wait for them. What they do not cover, as at the end, is of the newest step.
        self._read_s = now.monotonic_s
        counted = not over and now.wall_s - (state.last_step_t or 0.0) < MAX_WAIT_S
        counted = counted and (state.rates.step_time_s or 0.0) < INTERVAL_S  # slower steps are counted at once
        until = state.printed[-1][1] if state.printed else None if state.step > state.first_step + 1 else 0
        lines = self._lines(state, over, until if counted else None)
        first, self._step = max(state.first_step, min(self._step, state.step)), state.step
        counts_steps = _steps_of(2, state) > 1  # with accumulation a printed step may be that of a micro batch
        events: list[Event] = []
        for end, line in _thinned(lines):
            marked = next((step for step, until in state.printed if end <= until), state.step)
            records = list(parse_output(line.decode("utf-8", "replace")))
            trains = any(record.loss is not None for record in records)
            evaluates = any(record.evaluation for record in records)
            for record in records:
                named = None if record.per_epoch or not counts_steps else record.step
                step = named if named and abs(named - marked) <= 1 else max(marked, state.first_step + 1)
                is_mean = evaluates or record.is_mean
                if is_mean and record.loss is not None and self._trained:
                    self._trained, self._summarized = False, step
                # A mean, such as that of an epoch, after losses of steps is none of their series.
                if record.loss is not None and not (is_mean and step <= self._summarized + 1):
                    self._trained = self._trained or not is_mean
                    events.append(_metrics(record, step, now.wall_s))
                if record.evaluation:
                    step, metrics = max(marked, state.first_step), self._of_set(record.evaluation, line)
                    event = Evaluated(t=now.wall_s, source=record.source, step=step, metrics=metrics)
                    self._evaluations.lines.append((event, trains))
        events += self._plan([line for _, line in lines], state, first, now.wall_s)
        return events + self._evaluations.complete(state, over=over)

    def _of_set(self, metrics: Mapping[str, float], line: bytes) -> Mapping[str, float]:
        """The metrics by the names of their set: those of a test are none of the series of a validation."""
        validates = _VALIDATES.search(line) is not None
        self._validates = self._validates or validates
        if validates or not self._validates or _TESTS.search(line) is None:
            return metrics
        return {f"test_{name.removeprefix('eval_')}": value for name, value in metrics.items()}

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

    def _lines(self, state: RunState, over: bool, until: int | None) -> Sequence[tuple[int, bytes]]:
        """The whole lines, or states of a progress bar, since the last call, and where in the output each ends.

        Those of an evaluation begin so.
        """
        start, text = self._output.read(b"\r\n\b", over, until)
        end = len(text)
        # The observer reports where in the output an evaluation began and ended. A line in between, such as `loss 0.5`,
        # gets a label that makes the parser take its figures for those of an evaluation.
        text = _LABEL_ALONE.sub(rb"\n\1", text.replace(b"\r", b"\n").replace(b"\b", b"\n"))
        ends = accumulate((len(line) + 1 for line in text.split(b"\n")), initial=start)
        for began, ended, until in reversed(state.evaluation_output):
            first = max(0, began - start)
            last = end if ended is None else max(first, ended - start)
            after = max(last, (until or 0) - start)
            labelled = [EVALUATION_LABEL + line for line in text[first:last].splitlines(keepends=True)]
            # After it, a line without a loss tells its metrics: no step has computed any.
            lines = text[last:after].splitlines(keepends=True)
            # A bar may have no end of its line yet: the rest of its line is empty.
            labelled += [line if _LOSS.search(line) or not line.strip() else EVALUATION_LABEL + line for line in lines]
            text = text[:first] + b"".join(labelled) + text[after:]
        text = _SUMMARY.sub(lambda match: b"\n" * match[0].count(b"\n"), text)
        return list(zip(islice(ends, 1, None), map(self._labelled, text.split(b"\n")), strict=False))

    def _labelled(self, line: bytes) -> bytes:
        """The line, with the names of its columns if it is a row of a table."""
        if line.count(b"  ") + line.count(b"|") < MIN_COLUMNS - 1 or b"=" in line or b"%|" in line:
            return line
        label = EVALUATION_LABEL if line.startswith(EVALUATION_LABEL) else b""
        row = line.removeprefix(label)[-MAX_LINE_BYTES:].decode("utf-8", "replace")
        return label + self._table.labelled(row).encode()


class PrintedEvaluations:
    """Adds up the `lines` of each evaluation, of which each has a flag whether it also has a loss of the training."""

    def __init__(self) -> None:
        self.lines: list[tuple[Evaluated, bool]] = []
        self._waited = self._taken = 0
        self._last: Mapping[str, float] = {}

    def complete(self, state: RunState, *, over: bool) -> list[Evaluated]:
        """The evaluations that print nothing more: a step was made after them, or nothing came since the last look."""
        goes_on = not over and (state.phase == "evaluating" or len(self.lines) != self._waited)
        by_step: dict[int, list[tuple[Evaluated, bool]]] = {}
        for line in self.lines:
            by_step.setdefault(line[0].step, []).append(line)
        self.lines = by_step.pop(state.step or 0, []) if goes_on else []
        self._waited = len(self.lines)
        groups = ((step, self._added_up(group, state)) for step, group in by_step.items())
        return [replace(by_step[step][-1][0], metrics=metrics) for step, metrics in groups if metrics]

    def _added_up(self, lines: Sequence[tuple[Evaluated, bool]], state: RunState) -> Mapping[str, float]:
        """The last metrics of each name, without those that lines of training repeat, maybe rounded, as LitGPT's do."""
        step, seen, metrics = lines[-1][0].step, dict(self._last), dict[str, float]()
        for event, trains in lines:
            repeated = (
                any(math.isclose(value, earlier, rel_tol=1e-3) for earlier in seen.values())
                for value in event.metrics.values()
            )
            if not (trains and all(repeated)):
                metrics.update(event.metrics)
                seen.update(event.metrics)
        if not metrics and any(step == evaluation.step > self._taken for evaluation in state.evaluations):
            metrics.update(lines[-1][0].metrics)  # the observer has seen one, with the same result
        if step == self._taken:
            metrics = {name: value for name, value in metrics.items() if name not in self._last}
        if metrics:
            self._taken, self._last = step, {**(self._last if step == self._taken else {}), **metrics}
        return metrics


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
    return int(epochs) * _steps_of(batches, state)


def _steps_of(batches: int, state: RunState) -> int:
    """The optimizer steps of an epoch of so many batches."""
    counters = None if state.first_rank is None else state.first_rank.latest
    accumulation = 1 if counters is None else max(1, round(counters.micro_steps / max(1, counters.own_steps)))
    return -(-batches // accumulation)


def _thinned(lines: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Of the lines that may have figures, some of evaluations and of training, with their ends.

    An evaluation may first print its result, and then many lines, or last, after a line for each batch.
    """
    bare = ((end, line, line.removeprefix(EVALUATION_LABEL).lower()) for end, line in lines)
    figures = [
        (end, line) for end, line, text in bare if any(map(text.__contains__, _FIGURES)) or _LABELLED_FIGURE.match(line)
    ]
    of_evaluation = [any(map(line.lower().__contains__, _EVALUATION)) for _, line in figures]
    chosen = [index for index, evaluates in enumerate(of_evaluation) if evaluates]
    chosen = [*chosen[:2], *chosen[2:][2 - MAX_LINES :]]
    losses = [index for index, (_, line) in enumerate(figures) if not of_evaluation[index] and _LOSS.search(line)]
    spacing = max(1, -(-len(losses) // MAX_LINES))
    chosen = sorted({*chosen, *losses[::-spacing]})
    return [figures[index] for index in chosen]


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
            own_steps = self._step - (0 if self._bar_total is not None else self._first_step or 0)
            counters = Steps(t=now, source=self._source, step=self._step, own_steps=own_steps, train_s=self._elapsed_s)
            events.append(counters)
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
        # `for epoch in tqdm(range(3)): for batch in tqdm(loader)`: the outer bar is drawn first and stays at 0.
        if longer and self._bar_done == 0 and self._bar_total <= MAX_EPOCH_BAR:
            self._epochs = self._bar_total
            return True
        return longer and self._bar_done >= self._bar_total

    def _follow_bar(self, record: ProgressRecord, now: float) -> None:
        """Add up the epochs of a bar, or of a printed counter, which need not reach its end."""
        done, total = record.step or 0, record.total_steps
        if total != self._bar_total:
            self._bar_total, self._bar_done, self._before_steps, self._before_s = total, 0, 0, 0.0
            self._step, self._first_step = None, None
        elif done < self._bar_done or (not record.bar and record.epoch != self._epoch):
            epochs = 1 if record.epoch is None or self._epoch is None else max(1, int(record.epoch - self._epoch))
            self._before_steps += self._bar_done if record.bar else (total or 0) * epochs
            self._before_s = self._elapsed_s
        self._bar_done, self._epoch = done, record.epoch
        if record.bar and record.elapsed_s is not None:
            self._elapsed_s = self._before_s + record.elapsed_s
        elif self._first_step is not None:
            self._elapsed_s = now - self._first_t

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


FIRST_LOOK_BYTES = 4 << 20
GRACE_S = 3.0
"""Seconds after the first sign of a step in which events are held back. An observer would report within a second."""
BAR_GRACE_S = 60.0
"""The same where an observer has started and only a progress bar moved, which may be that of the data."""


class LogOnlyFollower:
    """Reads what is new in `log`; of a long one, only the last `first_look_bytes` at first."""

    def __init__(self, log: Path, first_look_bytes: int | None = None) -> None:
        most = first_look_bytes or FIRST_LOOK_BYTES
        self._output = OutputTail(log, most, most)
        self._builder, self._table = LogEventBuilder(), Table()
        self._held: list[Event] = []
        self._advanced_t: float | None = None
        self._released = False

    def events(self, now: float, *, over: bool, observed: bool = False) -> list[Event]:
        """The new events at `now` (seconds since the epoch); held back at first unless the run is `over`.

        `observed`: an observer has started in the training, and may still report steps.
        """
        _, text = self._output.read(b"\r\n", over)
        self._held += self._builder.events(parse_output(text.decode("utf-8", "replace"), self._table), now)
        if self._builder.advanced and self._advanced_t is None:
            self._advanced_t = now
        grace_s = BAR_GRACE_S if observed and self._builder.bars_alone else GRACE_S
        advances = self._advanced_t is not None and (over or now - self._advanced_t >= grace_s)
        self._released = self._released or advances
        if not self._released:
            return []
        events, self._held = self._held, []
        return events

"""From news to events: bars that begin anew each epoch are added up, evaluations are told from training."""

from __future__ import annotations

from collections.abc import Iterable

from tuner_tui.runs.events import Evaluated, Event, Metrics, Phase, Plan, Steps
from tuner_tui.runs.outside.told import Told

MOST_OUTER = 1000
"""A bar of at most so many that has not moved when a longer one appears counts the epochs around it."""


class Story:
    """The events of one training that is told from outside. `advanced` says whether any step was seen to be done."""

    def __init__(self) -> None:
        self.advanced = False
        self._bar_total: int | None = None
        self._bar_done = 0
        self._before_steps = 0
        self._before_s = 0.0
        self._elapsed_s = 0.0
        self._epochs: int | None = None
        self._step: int | None = None
        self._source = ""
        self._first_step: int | None = None
        self._first_t = 0.0
        self._plan: int | None = None
        self._evaluating = False

    def events(self, news: Iterable[Told], now: float) -> list[Event]:
        """The events of `news`, which came at `now` (seconds since the epoch): every metric, the newest counters."""
        found: list[Event] = []
        before = (self._step, self._elapsed_s)
        for told in news:
            found += self._taken(told, now)
        if self._step is not None and (self._step, self._elapsed_s) != before:
            found.append(self._counters(now))
        return found

    def _taken(self, told: Told, now: float) -> list[Event]:
        evaluates = told.evaluating or (told.bar and not self._is_main(told))
        found: list[Event] = self._phase(evaluates, told, now)
        if evaluates:
            return found
        if told.bar:
            self._follow_bar(told)
            self._moved(self._before_steps + self._bar_done, told.source, now)
        elif told.step is not None:
            self._moved(told.step, told.source, now)
            self._elapsed_s = now - self._first_t if told.elapsed_s is None else told.elapsed_s
        found += self._planned(told, now)
        step = self._step or 0
        if told.evaluation:
            found.append(Evaluated(t=now, source=told.source, step=step, metrics=told.evaluation))
        if told.loss is not None:
            found.append(
                Metrics(
                    t=now, source=told.source, step=step, loss=told.loss, learning_rate=told.learning_rate,
                    grad_norm=told.grad_norm, epoch=told.epoch,
                )
            )  # fmt: skip
        return found

    def _is_main(self, told: Told) -> bool:
        """Whether a bar is the training's, not that of an evaluation within it."""
        if self._bar_total is None or told.total_steps == self._bar_total:
            return True
        longer = (told.total_steps or 0) > self._bar_total
        ended = self._bar_done >= self._bar_total
        if longer and self._bar_done == 0 and self._bar_total <= MOST_OUTER:
            self._epochs = self._bar_total
            return True
        return longer and ended

    def _follow_bar(self, told: Told) -> None:
        done, total = told.step or 0, told.total_steps
        if total != self._bar_total:
            self._bar_total, self._bar_done, self._before_steps, self._before_s = total, 0, 0, 0.0
            self._step, self._first_step = None, None
        elif done < self._bar_done:
            self._before_steps += self._bar_done
            self._before_s = self._elapsed_s
        self._bar_done = done
        self._epochs = told.epochs or self._epochs
        self._elapsed_s = self._before_s + (told.elapsed_s or 0.0)

    def _moved(self, step: int, source: str, now: float) -> None:
        if self._first_step is None or step < self._first_step:
            self._first_step, self._first_t = step, now
        self.advanced = self.advanced or step > 0
        self._step, self._source = step, source

    def _planned(self, told: Told, now: float) -> list[Event]:
        total = told.total_steps
        if total is not None and told.bar:
            total = max(total * (self._epochs or 1), self._before_steps + total)
        if total is None or total == self._plan:
            return []
        self._plan = total
        return [Plan(t=now, source=told.source, total_steps=total)]

    def _phase(self, evaluates: bool, told: Told, now: float) -> list[Event]:
        trains = told.bar and not evaluates
        if evaluates == self._evaluating or not (evaluates or trains):
            return []
        self._evaluating = evaluates
        return [Phase(t=now, source=told.source, phase="evaluating" if evaluates else "training", step=self._step)]

    def _counters(self, now: float) -> Steps:
        step = self._step or 0
        own = step if self._bar_total is not None else step - (self._first_step or 0)
        return Steps(t=now, source=self._source, step=step, own_steps=own, train_s=self._elapsed_s)

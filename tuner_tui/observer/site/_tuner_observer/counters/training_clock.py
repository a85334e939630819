"""Splits the wall time of a training into training, evaluation and saving; all times are of perf_counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .step_gap import covered_s

if TYPE_CHECKING:
    from ..session import Session

RESUMABLE_PHASES = ("starting", "skipping", "ending")
"""Phases that a pause returns to; from all others it returns to training."""


class TrainingClock:
    """Training time runs from the first batch, step by step, and stands still in pauses.

    `runs` is False before the first batch and in a pause.
    """

    def __init__(self, session: Session, on_pause: Callable[[float], None]) -> None:
        """`on_pause` is called, with the time, when a pause was told as a new phase."""
        self._session = session
        self._on_pause = on_pause
        self.runs = False
        self._paused: tuple[str, float, str] | None = None
        self._since_s: float | None = None
        self._evaluated: list[tuple[float, float]] = []
        self._pauses: list[tuple[float, float]] = []
        self._between_s: float | None = None
        self._stepped_s = 0.0
        self._train_s = self._eval_s = self._save_s = self._slowest_s = 0.0

    @property
    def train_s(self) -> float:
        """Seconds of training up to the last step."""
        return self._train_s

    def run(self, now: float) -> None:
        """The training begins, or goes on after a pause."""
        if self._paused is not None:
            self._end_pause(now)
        if self._since_s is None:
            self._since_s = now
            if self._session.phase == "starting":
                self._session.enter("training")
        self.runs = True

    def restart(self, now: float) -> None:
        """What passed since the last step is not counted."""
        if self._since_s is not None:
            self._since_s = now

    def halt(self) -> None:
        """The training is over; if another one follows in this process, its first batch begins it."""
        self._since_s = None
        self.runs = False

    def step(self, now: float, resumes: bool) -> None:
        """A step is done. `resumes`: it ends a pause that nobody ended."""
        if self._paused is not None and resumes:
            self._end_pause(now)
        if self._since_s is not None and self._paused is None:
            seconds = now - self._since_s - self._stood_s(self._since_s, now)
            self._eval_s += self._evaluated_s(self._since_s, now)
            self._train_s += seconds
            if seconds > self._slowest_s:
                self._slowest_s = seconds
        self._since_s = now
        self._evaluated.clear()
        self._pauses.clear()
        if self._paused is None:
            self.runs = True
            if self._session.phase != "training":
                self._session.enter("training")

    def was_evaluation(self, began_s: float, ended_s: float) -> None:
        """Time since the last step that proves to have been an evaluation. It may overlap others, and pauses."""
        self._evaluated.append((began_s, ended_s))

    def stepped_too(self, now: float) -> None:
        """Another optimizer of the same step is done: until then it was no time of the loop's own."""
        self._stepped_s = now

    def asked(self, now: float) -> None:
        """The training's first batch since the last step was asked for; told once all evaluations are known."""
        if self._since_s is not None and self._since_s < now:
            from_s = max(self._since_s, self._stepped_s)
            own_s = max(0.0, now - from_s - self._stood_s(from_s, now))
            self._between_s = own_s + (self._between_s or 0.0)

    def _stood_s(self, from_s: float, to_s: float) -> float:
        """Seconds in pauses and evaluations."""
        return covered_s(self._evaluated + self._pauses, from_s, to_s) if self._evaluated or self._pauses else 0.0

    def _evaluated_s(self, from_s: float, to_s: float) -> float:
        """Seconds in evaluations that were no pauses: those were counted as they ended."""
        return self._stood_s(from_s, to_s) - covered_s(self._pauses, from_s, to_s) if self._evaluated else 0.0

    def pause(self, phase: str, now: float) -> bool:
        """Training stands still for an evaluation or a checkpoint. Returns whether it had not been paused already."""
        if self._paused is not None:
            self._session.settle_phase()
            return False
        self._paused = (phase, now, self._session.phase)
        self.runs = False
        if self._session.enter(phase):
            self._on_pause(now)
        return True

    def paused_s(self, now: float) -> float | None:
        """Seconds of the present pause so far; None while training runs."""
        return None if self._paused is None else now - self._paused[1]

    def end_pause(self, now: float) -> None:
        """What the training was paused for is done."""
        if self._paused is not None:
            self._end_pause(now)
            self.runs = self._since_s is not None

    def _end_pause(self, now: float) -> None:
        assert self._paused is not None
        phase, since, before = self._paused
        self._add(phase, now - since)
        self._paused = None
        self._pauses.append((since, now))
        self._session.enter(before if before in RESUMABLE_PHASES else "training")

    def _add(self, phase: str, seconds: float) -> None:
        if phase == "saving":
            self._save_s += seconds
        else:
            self._eval_s += seconds

    def fields(self, now: float) -> dict[str, float | None]:
        """Time fields of a `steps` line, an open pause included; the slowest step is of this line alone."""
        open_s = self.paused_s(now) or 0.0
        saving = self._paused is not None and self._paused[0] == "saving"
        fields = {
            "train_s": round(self._train_s, 6),
            "eval_s": round(self._eval_s + (0.0 if saving else open_s), 6),
            "between_s": None if self._between_s is None else round(self._between_s, 6),
            "save_s": round(self._save_s + (open_s if saving else 0.0), 6),
            "slowest_step_s": round(self._slowest_s, 6) or None,
        }
        self._slowest_s = 0.0
        return fields

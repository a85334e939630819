"""Splits the wall time of a training into training, evaluation and saving; all times are of perf_counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..session import Session
from .evaluation import covered_s

RESUMABLE_PHASES = ("starting", "skipping", "ending")
"""Phases that continue after a pause; any other phase is followed by training."""
MIN_SHOWN_S = 0.2
"""Where the last pause of its kind was shorter, a pause is shown once it has lasted so long."""


# Two kinds of time are not training. Pauses are known while they last: a framework's evaluation, a model in eval mode,
# a call of `torch.save`. Evaluations recognised only at the next step (`StepGapClassifier`) are subtracted then. They
# may overlap each other and pauses, so that seconds are those covered by all spans, not their sum (`covered_s`).
class TrainingClock:
    """Training time runs from the first batch, is added up at each step, and stops during pauses.

    `is_running` is False before the first batch and in a pause; `train_s` are the seconds up to the last step.
    """

    def __init__(
        self, session: Session, on_pause: Callable[[float], None], reports: Callable[[], bool] = lambda: True
    ) -> None:
        """`on_pause` is called with the time when a pause was reported as a new phase. `reports`: whether a Trainer
        reports its evaluations."""
        self._session = session
        self._reports = reports
        self._on_pause = on_pause
        self.is_running = False
        self._paused: tuple[str, float, str] | None = None
        self._pause_is_shown = False
        self._lasted_s: dict[str, float] = {}
        self._evaluated_step: int | None = None
        self._evaluated_s = 0.0
        self._since_s: float | None = None
        self._evaluated: list[tuple[float, float]] = []
        self._pauses: list[tuple[float, float]] = []
        self._between_s: float | None = None
        self._stepped_s = 0.0
        self.train_s = self._eval_s = self._save_s = self._slowest_s = self._written_s = 0.0

    def start(self, now: float) -> None:
        """Start training, or resume it after a pause."""
        self.end_pause(now)
        if self._since_s is None:
            self._since_s = now
            if self._session.phase == "starting":
                self._session.enter_phase("training")
        self.is_running = True

    def restart(self, now: float) -> None:
        """Discard the time since the last step."""
        if self._since_s is not None:
            self._since_s = now

    def stop(self) -> None:
        """Stop at the end of training. The first batch of another training starts the clock again."""
        self._since_s = None
        self.is_running = False

    def step(self, now: float, resumes: bool) -> None:
        """Add the time of a step, unless it compiled. `resumes`: it ends a pause that is still open."""
        if resumes:
            self.end_pause(now)
        if self._since_s is not None and self._paused is None and self._session.phase != "compiling":
            seconds = now - self._since_s
            if self._evaluated or self._pauses:
                # Pauses were added to `_eval_s` or `_save_s` when they ended; the others are added here.
                excluded_s = self._excluded_s(self._since_s, now)
                recognised_s = excluded_s - covered_s(self._pauses, self._since_s, now)
                seconds -= excluded_s
                self._eval_s += recognised_s
                self._evaluated_s += recognised_s
            self.train_s += seconds
            if seconds > self._slowest_s:
                self._slowest_s = seconds
        self._report_evaluation()
        self._since_s = now
        self._evaluated.clear()
        self._pauses.clear()
        if self._paused is None:
            self.is_running = True
            if self._session.phase != "training":
                self._session.enter_phase("training")

    def add_evaluation(self, began_s: float, ended_s: float, step: int) -> None:
        """Exclude an evaluation after `step`, the last one, recognised afterwards. May overlap others and pauses."""
        self._evaluated.append((began_s, ended_s))
        self._evaluated_step = step

    def optimizer_stepped(self, now: float) -> None:
        """Another optimizer of the same step has stepped: time before `now` is not the loop's own."""
        self._stepped_s = now

    def batch_requested(self, now: float) -> None:
        """Add the time from the last step to the request of the next batch, evaluations excluded."""
        if self._since_s is not None and self._since_s < now:
            from_s = max(self._since_s, self._stepped_s)
            own_s = max(0.0, now - from_s - self._excluded_s(from_s, now))
            self._between_s = own_s + (self._between_s or 0.0)

    def _excluded_s(self, from_s: float, to_s: float) -> float:
        """Seconds of pauses and evaluations."""
        return covered_s(self._evaluated + self._pauses, from_s, to_s) if self._evaluated or self._pauses else 0.0

    def pause(self, phase: str, now: float) -> bool:
        """Pause for an evaluation or a checkpoint. Returns whether training was running."""
        if self._paused is not None:
            # Nested, such as a save within a framework's checkpoint: the outermost pause counts.
            if now - self._paused[1] >= MIN_SHOWN_S:
                self._show(self._session.show_phase(), now)
            return False
        self._paused = (phase, now, self._session.phase)
        self.is_running = False
        if phase == "evaluating":
            self._evaluated_step = self._session.step
        self._begin(phase, now)
        return True

    def _begin(self, phase: str, now: float) -> None:
        # Whether a pause will be long is not known. Most are as long as the last one, and nobody sees a short one; but
        # what is printed in it must not be taken for figures of the training.
        shown = self._session.marks_output or self._lasted_s.get(phase, MIN_SHOWN_S) >= MIN_SHOWN_S
        self._pause_is_shown = False
        self._show(self._session.enter_phase(phase, shown), now)

    def _show(self, written: bool, now: float) -> None:
        if written:
            self._pause_is_shown = True
            self._on_pause(now)

    def drop_evaluation(self) -> None:
        """Count what was taken for an evaluation after the last step as training time."""
        self._eval_s -= self._evaluated_s
        self._evaluated_step, self._evaluated_s = None, 0.0
        self._pauses.clear()

    def report_last_evaluation(self, now: float) -> None:
        """Report an evaluation that ends the run now."""
        if self.paused_phase == "evaluating":
            self._evaluated_s += self.paused_s(now) or 0.0
        self._report_evaluation()

    def _report_evaluation(self) -> None:
        """Report the evaluation after the last step, all its pauses together."""
        step, seconds, self._evaluated_step, self._evaluated_s = self._evaluated_step, self._evaluated_s, None, 0.0
        if step and not self._reports() and (self._pause_is_shown or self._session.take_token()):
            self._session.report("evaluated", step=step, seconds=round(seconds, 6))
            self._pause_is_shown = False

    def save_after_evaluation(self, now: float) -> bool:
        """Turn a pause for an evaluation into one for a checkpoint. Returns whether there was one."""
        if self.paused_phase != "evaluating":
            return False
        self._paused = ("saving", now, self._close_pause(now))
        self._begin("saving", now)
        return True

    @property
    def paused_phase(self) -> str | None:
        """The phase of the open pause, None without one."""
        return None if self._paused is None else self._paused[0]

    def has_paused_since(self) -> bool:
        """Whether there was a pause since the last call of `fields`, or still is."""
        return self._paused is not None or self._eval_s + self._save_s > self._written_s

    def paused_s(self, now: float) -> float | None:
        """Seconds of the open pause so far, None without one."""
        return None if self._paused is None else now - self._paused[1]

    def end_pause(self, now: float) -> None:
        """Resume after a pause, if there is one."""
        if self._paused is not None:
            before = self._close_pause(now)
            self._session.enter_phase(before if before in RESUMABLE_PHASES else "training")
            self.is_running = self._since_s is not None

    def _close_pause(self, now: float) -> str:
        """Add the time of the open pause. Returns the phase before it."""
        assert self._paused is not None
        (phase, since, before), self._paused = self._paused, None
        self._pauses.append((since, now))
        self._lasted_s[phase] = seconds = now - since
        if phase == "saving":
            self._save_s += seconds
        else:
            self._eval_s += seconds
            self._evaluated_s += seconds
        return before

    def fields(self, now: float) -> dict[str, Any]:
        """Time fields of a `steps` event, an open pause included. Resets those of the time since the last event."""
        open_s = self.paused_s(now) or 0.0
        saving = self.paused_phase == "saving"
        fields = {
            "train_s": round(self.train_s, 6),
            "eval_s": round(self._eval_s + (0.0 if saving else open_s), 6),
            "between_s": None if self._between_s is None else round(self._between_s, 6),
            "save_s": round(self._save_s + (open_s if saving else 0.0), 6),
            "slowest_step_s": round(self._slowest_s, 6) or None,
        }
        self._slowest_s = 0.0
        self._written_s = self._eval_s + self._save_s
        return fields

"""SIGTERM: save a checkpoint after the step at hand and end. A second SIGTERM ends at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from transformers import TrainerCallback

EXIT_CODE = 128 + signal.SIGTERM


class EvaluationStopped(Exception):
    """An evaluation was broken off because the training is to stop."""


class StopOnTerm(TrainerCallback):  # type: ignore[misc]  # Transformers is not typed
    """Turns SIGTERM into a checkpoint and an orderly end.

    Transformers has `enable_jit_checkpoint` since 5.0 for this; it waits three seconds first, may save with
    gradients half accumulated, and lets an evaluation run to its end. This one works with every version.
    """

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGTERM as a request while the block runs."""
        before = signal.signal(signal.SIGTERM, self._request)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After an optimizer step: save and stop, and do not start an evaluation that was due."""
        if self.requested:
            self._stop(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The epoch that a stop cuts short is not evaluated either."""
        if self.requested:
            self._stop(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Within an evaluation: leave it."""
        if self.requested:
            raise EvaluationStopped

    def _stop(self, control: Any) -> None:
        control.should_evaluate = False
        control.should_save = True
        control.should_training_stop = True

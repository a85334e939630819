"""SIGTERM: save a checkpoint after the step at hand and end. A second SIGTERM ends at once."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from transformers import TrainerCallback

EXIT_CODE = 128 + signal.SIGTERM


class EvaluationStopped(Exception):
    """An evaluation was broken off because the training is to stop."""


class StopOnTerm(TrainerCallback):  # type: ignore[misc]  # Transformers is not typed
    """Turns SIGTERM into a checkpoint and an orderly end.

    Transformers has `enable_jit_checkpoint` since 5.0 for this; it waits three seconds first, may save with gradients
    half accumulated, and lets an evaluation run to its end. This one works with every version.
    """

    def __init__(self) -> None:
        self.requested = False

    def install(self) -> None:
        """Listen for SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After an optimizer step: save and stop, and do not start an evaluation that was due."""
        if self.requested:
            self.stop(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The epoch that a stop cuts short is not evaluated either."""
        if self.requested:
            self.stop(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Within an evaluation: leave it."""
        if self.requested:
            raise EvaluationStopped

    def stop(self, control: Any) -> None:
        """Ask the Trainer to save and stop."""
        control.should_evaluate = False
        control.should_save = True
        control.should_training_stop = True

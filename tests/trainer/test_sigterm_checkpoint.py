from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.late_module import late_module

transformers = late_module("transformers")
sigterm_checkpoint = late_module("tuner_tui.trainer.sigterm_checkpoint")


def terminated() -> Any:
    """A callback that has had its SIGTERM, outside of the block in which it listens."""
    term = sigterm_checkpoint.CheckpointOnSigterm()
    with term.listening():
        os.kill(os.getpid(), signal.SIGTERM)
    return term


def test_sigterm_is_a_request_and_the_second_is_left_to_the_system() -> None:
    term, before = sigterm_checkpoint.CheckpointOnSigterm(), signal.getsignal(signal.SIGTERM)
    with term.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert term.requested
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before


def test_after_the_step_it_saves_and_stops_and_does_not_evaluate() -> None:
    control = transformers.TrainerControl(should_evaluate=True)
    terminated().on_step_end(None, None, control)
    assert (control.should_save, control.should_training_stop, control.should_evaluate) == (True, True, False)


def test_an_evaluation_is_left_at_its_next_batch() -> None:
    with pytest.raises(sigterm_checkpoint.EvaluationInterrupted):
        terminated().on_prediction_step(None, None, transformers.TrainerControl())


def test_without_a_signal_nothing_changes() -> None:
    control = transformers.TrainerControl(should_evaluate=True)
    term = sigterm_checkpoint.CheckpointOnSigterm()
    term.on_step_end(None, None, control)
    term.on_epoch_end(None, None, control)
    term.on_prediction_step(None, None, control)
    assert control == transformers.TrainerControl(should_evaluate=True)

"""On SIGTERM, save a checkpoint after the current step and end; a second SIGTERM ends at once."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed
import torch.distributed as distributed
from transformers import TrainerCallback


def is_distributed() -> bool:
    """Whether this process is one rank of several."""
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def leave_process_groups() -> None:
    """Leave the process groups while Python is still alive; nothing where there are none.

    gloo's threads hold what they last worked on, Python objects too. One that lets go of them while Python ends is
    ended in the middle of it, and aborts the process of a finished training (seen with torch 2.13 in 5 of 75 short
    trainings of two ranks). The groups' threads end with the last object that holds a group, such as the model
    that DDP wraps: callers have let go of it, but for reference cycles.
    """
    if is_distributed():
        gc.collect()
        distributed.destroy_process_group()


EXIT_CODE = 128 + signal.SIGTERM

SAME_REQUEST_S = 5.0
"""With several ranks, signals that follow one another closer than this are one request: whoever stops a job may signal
each rank, and the launcher that it signals too hands it on."""


class EvaluationInterrupted(Exception):
    """An evaluation was broken off because the training is to stop."""


class CheckpointOnSigterm(TrainerCallback):  # type: ignore[misc]  # Transformers is not typed
    """Turns SIGTERM into a checkpoint and an orderly end.

    Transformers has `enable_jit_checkpoint` since 5.0 for this; it waits three seconds first, may save with
    gradients half accumulated, lets an evaluation run to its end, and stops each rank on its own. This one works with
    every version.

    `requested`: this process was told; `stopping`: all of them know it.
    """

    def __init__(self) -> None:
        self.requested = False
        self.stopping = False
        self._requested_s = 0.0
        self._group: Any = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGTERM as a request while the block runs."""
        before = signal.signal(signal.SIGTERM, self._request)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if not is_distributed():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        elif self.requested and time.monotonic() - self._requested_s > SAME_REQUEST_S:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        if not self.requested:
            self.requested, self._requested_s = True, time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A group of its own for the question: it is asked on the CPU, whatever the gradients travel by."""
        if is_distributed():
            self._group = torch.distributed.new_group(backend="gloo")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After an optimizer step: save and stop, and do not start an evaluation that was due."""
        if self._agreed():
            self._stop(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The epoch that a stop cuts short is not evaluated either."""
        if self.stopping or (self._group is None and self._agreed()):
            self._stop(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Within an evaluation: leave it."""
        if self._agreed():
            raise EvaluationInterrupted

    def _agreed(self) -> bool:
        """Whether any rank was told; every rank asks at the same places and gets the same answer."""
        if self._group is not None and not self.stopping:
            told = torch.tensor(self.requested, dtype=torch.int32)
            torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX, self._group)
            self.stopping = bool(told)
        elif self._group is None:
            self.stopping = self.requested
        return self.stopping

    def _stop(self, control: Any) -> None:
        control.should_evaluate = False
        control.should_save = True
        control.should_training_stop = True


class IgnoreSigtermInWorker:
    """Prepares a loader worker so that a SIGTERM to the whole group leaves it at work: the step at hand needs it.

    It ends when its loader or its trainer does; nobody has to terminate it, for its batches take no time.
    """

    def __init__(self, own: Any = None) -> None:
        """`own` is the `worker_init_fn` that the loader had."""
        self._own = own

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._own is not None:
            self._own(worker)

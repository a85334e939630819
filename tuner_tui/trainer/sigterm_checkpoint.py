"""On SIGTERM, saves a checkpoint after the current step and ends; a second SIGTERM ends at once.

Ranks receive signals at different times, and one that stopped alone would leave the others waiting for its gradients.
So after each step, and after each batch of an evaluation, all ranks agree on whether any of them got the signal.
"""

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
import torch.distributed as dist
from transformers import TrainerCallback


def is_distributed() -> bool:
    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def leave_process_groups() -> None:
    """Destroy the process groups before Python exits; does nothing without any.

    Threads of gloo hold the Python objects they last worked on. One that releases them while Python exits aborts the
    process of a finished training (seen with torch 2.13 in 5 of 75 short trainings of two ranks). The threads end with
    the last object that holds a group, such as a model wrapped by DDP, hence the garbage collection.
    """
    if is_distributed():
        gc.collect()
        dist.destroy_process_group()


EXIT_CODE = 128 + signal.SIGTERM

SAME_REQUEST_S = 5.0
"""With several ranks, signals within this time are one request: a job may be stopped by signals to each rank and to
the launcher, which forwards its own."""


class EvaluationInterrupted(Exception):
    """An evaluation was interrupted because the training stops."""


class CheckpointOnSigterm(TrainerCallback):  # type: ignore[misc]  # Transformers is not typed
    """Saves a checkpoint and stops the training on SIGTERM, with any version of Transformers.

    `enable_jit_checkpoint` of Transformers 5 waits three seconds first, may save with gradients half accumulated, lets
    an evaluation run to its end, and stops each rank on its own.

    `requested`: this process got the signal; `stopping`: all ranks know of it.
    """

    def __init__(self) -> None:
        self.requested = False
        self.stopping = False
        self._requested_s = 0.0
        self._group: Any = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGTERM as a request to stop within the context."""
        before = signal.signal(signal.SIGTERM, self._request)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        # One process: the next SIGTERM ends it at once. Several ranks: the launcher forwards its own SIGTERM to ranks
        # that got one already, so a second signal counts as a second request only after SAME_REQUEST_S.
        if not is_distributed():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        elif self.requested and time.monotonic() - self._requested_s > SAME_REQUEST_S:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        if not self.requested:
            self.requested, self._requested_s = True, time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Create a gloo group, so that ranks agree on the CPU whatever backend the gradients use."""
        if is_distributed():
            self._group = dist.new_group(backend="gloo")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save and stop after this optimizer step, without an evaluation that is due."""
        if self._agreed():
            self._stop(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Do not evaluate an epoch that a stop cuts short."""
        if self.stopping or (self._group is None and self._agreed()):
            self._stop(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Interrupt the evaluation. Raises `EvaluationInterrupted`."""
        if self._agreed():
            raise EvaluationInterrupted

    def _agreed(self) -> bool:
        """Whether any rank got SIGTERM. A collective call: every rank makes it at the same points."""
        # all_reduce waits for every rank: were one to skip it after a stop, the others would hang. All set `stopping`
        # in the same call, so all skip it from then on.
        if self._group is not None and not self.stopping:
            requested = torch.tensor(self.requested, dtype=torch.int32)
            dist.all_reduce(requested, dist.ReduceOp.MAX, self._group)
            self.stopping = bool(requested)
        elif self._group is None:
            self.stopping = self.requested
        return self.stopping

    def _stop(self, control: Any) -> None:
        control.should_evaluate = False
        control.should_save = True
        control.should_training_stop = True


class IgnoreSigtermInWorker:
    """A `worker_init_fn` that makes loader workers ignore SIGTERM: the current step still needs their batches.

    A worker ends with its loader or its trainer.
    """

    def __init__(self, worker_init_fn: Any = None) -> None:
        """`worker_init_fn` is the one that the loader has."""
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)

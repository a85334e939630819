"""Resuming: the checkpoint that the launch names is given to a Trainer whose script asks for none."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from .importing import call_safely

if TYPE_CHECKING:
    from .session import Session

KEY = "resume_from_checkpoint"
CKPT_PATH_PLACE = 4
"""Of `fit(model, train_dataloaders, val_dataloaders, datamodule, ckpt_path)`."""


def watch(module: Any, session: Session) -> None:
    """Let the first `Trainer.train` of this process resume from `TUNER_RESUME`. Without that, touch nothing."""
    checkpoint = os.environ.get("TUNER_RESUME")
    if not checkpoint:
        return
    original = module.Trainer.train
    waiting = [checkpoint]

    @functools.wraps(original)
    def train(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        if waiting:
            path = waiting.pop()
            if not resume_from_checkpoint:
                resume_from_checkpoint = path
                call_safely(_tell, session, path)
        return original(self, resume_from_checkpoint, *args, **kwargs)

    module.Trainer.train = train
    _keep_batch(module.Trainer)


def watch_lightning(module: Any, session: Session) -> None:
    """The same for the first `fit` of a Lightning Trainer; its checkpoint is a file."""
    checkpoint = os.environ.get("TUNER_RESUME")
    if not checkpoint or not os.path.isfile(checkpoint):
        return
    original = module.Trainer.fit
    waiting = [checkpoint]

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if waiting:
            path = waiting.pop()
            if len(args) <= CKPT_PATH_PLACE and not kwargs.get("ckpt_path"):
                kwargs["ckpt_path"] = path
                call_safely(_tell, session, path)
        return original(self, *args, **kwargs)

    module.Trainer.fit = fit


def _keep_batch(trainer_class: Any) -> None:
    """Until Transformers 5, a resumed Trainer takes the micro batch of its checkpoint, whatever it was told."""
    original = trainer_class.get_train_dataloader

    @functools.wraps(original)
    def get_train_dataloader(self: Any) -> Any:
        call_safely(_told_batch, self)
        return original(self)

    trainer_class.get_train_dataloader = get_train_dataloader


def _told_batch(trainer: Any) -> None:
    if not getattr(trainer.args, "auto_find_batch_size", False):
        trainer._train_batch_size = trainer.args.train_batch_size


def _tell(session: Session, path: str) -> None:
    session.open()
    session.tell("injected", values={KEY: path}, not_found=[])

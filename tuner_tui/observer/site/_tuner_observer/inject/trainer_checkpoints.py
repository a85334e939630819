"""Checkpoints that the user asked for: a Trainer resumes from TUNER_RESUME, and saves on SIGTERM. Opt-in."""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from .. import process_role
from ..import_hooks import call_before, call_safely
from .injection import InjectionLog, inject_training_arguments

if TYPE_CHECKING:
    from ..session import Session

RESUME_FIELD = "resume_from_checkpoint"
CKPT_PATH_POSITION = 4
"""Position in `fit(model, train_dataloaders, val_dataloaders, datamodule, ckpt_path)`."""

SIGTERM_VARIABLE = "TUNER_SAVE_ON_TERM"
SIGTERM_FIELD = "enable_jit_checkpoint"
"""Transformers' own way to save a checkpoint on SIGTERM, where the version has it."""


def hook_trainer_resume(module: Any, session: Session) -> None:
    """Have the first `Trainer.train` of this process resume from `TUNER_RESUME`, if that is set."""
    checkpoint = os.environ.get("TUNER_RESUME")
    if checkpoint:
        _hook_first_call(module.Trainer, "train", RESUME_FIELD, 0, checkpoint, session)
        call_before(module.Trainer, "get_train_dataloader", _restore_batch_size)


def hook_lightning_resume(module: Any, session: Session) -> None:
    """The same for the first `fit` of a Lightning Trainer, whose checkpoint is a file."""
    checkpoint = os.environ.get("TUNER_RESUME")
    if checkpoint and os.path.isfile(checkpoint):
        _hook_first_call(module.Trainer, "fit", "ckpt_path", CKPT_PATH_POSITION, checkpoint, session)


def _hook_first_call(
    trainer_class: Any, method: str, argument: str, position: int, checkpoint: str, session: Session
) -> None:
    """Pass `checkpoint` to the first call of `method` unless the script passes its own."""
    original = getattr(trainer_class, method)
    pending = [checkpoint]

    @functools.wraps(original)
    def resume(self: Any, *args: Any, **kwargs: Any) -> Any:
        passed = args[position] if len(args) > position else kwargs.get(argument)
        if pending and pending.pop() and not passed:
            if len(args) > position:
                args = (*args[:position], checkpoint, *args[position + 1 :])
            else:
                kwargs[argument] = checkpoint
            call_safely(_report_resume, session, checkpoint)
        return original(self, *args, **kwargs)

    setattr(trainer_class, method, resume)


def _restore_batch_size(trainer: Any) -> None:
    """Before Transformers 5, a resumed Trainer uses the micro batch of the checkpoint: use the requested one."""
    if not getattr(trainer.args, "auto_find_batch_size", False):
        trainer._train_batch_size = trainer.args.train_batch_size


def _report_resume(session: Session, path: str) -> None:
    session.open()
    session.report("injected", values={RESUME_FIELD: path}, not_found=[])


def hook_sigterm_checkpoint(module: Any, session: Session) -> None:
    """Enable it in `transformers.training_args` if `TUNER_SAVE_ON_TERM` is set."""
    if os.environ.get(SIGTERM_VARIABLE):
        inject_training_arguments(module, _SigtermInjection(session, {SIGTERM_FIELD: True}))


class _SigtermInjection(InjectionLog):
    """Applies only where it is safe: several ranks would stop at different steps, a handler of the script must not be
    replaced, and only the main thread may set one.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """Empty where it is not safe."""
        fits = (
            process_role.rank_and_world()[1] == 1
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        return self._settings if fits else {}

    @settings.setter
    def settings(self, values: dict[str, Any]) -> None:
        self._settings = values

    def report(self, place: str, values: dict[str, Any], last: bool = False) -> None:
        """A version without the field needs no report: the user did not ask for it."""
        if values:
            super().report(place, values)

"""SIGTERM as a request for a checkpoint: Transformers' enable_jit_checkpoint, where the version has it. Opt-in."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from .. import process_role
from .injection import InjectionLog, inject_training_arguments

if TYPE_CHECKING:
    from ..session import Session

VARIABLE = "TUNER_SAVE_ON_TERM"
FIELD = "enable_jit_checkpoint"


def hook_sigterm_checkpoint(module: Any, session: Session) -> None:
    """Switch it on in `transformers.training_args`. Without `TUNER_SAVE_ON_TERM`, touch nothing."""
    if os.environ.get(VARIABLE):
        inject_training_arguments(module, _SigtermInjection(session, {FIELD: True}))


class _SigtermInjection(InjectionLog):
    """Where it can do no harm: with several ranks each would stop at a step of its own, a script's own handler is the
    script's, and only the main thread may set one.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """None but in the fitting process."""
        fits = (
            process_role.rank_and_world()[1] == 1
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        return self._settings if fits else {}

    @settings.setter
    def settings(self, values: dict[str, Any]) -> None:
        self._settings = values

    def tell(self, place: str, values: dict[str, Any], last: bool = False) -> None:
        """A version without it is nothing that was asked for."""
        if values:
            super().tell(place, values)

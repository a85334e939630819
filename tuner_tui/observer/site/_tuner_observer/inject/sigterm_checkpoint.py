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
    """Enable it in `transformers.training_args` if `TUNER_SAVE_ON_TERM` is set."""
    if os.environ.get(VARIABLE):
        inject_training_arguments(module, _SigtermInjection(session, {FIELD: True}))


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

"""Builds the observer of a process and installs each part once the module that it hooks is imported."""

from __future__ import annotations

import atexit
import os
import sys

from . import process_role
from .import_hooks import call_safely, install_import_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be an import too many for a process without torch
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from .import_hooks import Hook
    from .instrumentation import Instrumentation
    from .process_exit import ExitReporter
    from .session import Session


HOOKED_MODULES = (
    "torch.nn.modules.module",
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
    "torch.amp.grad_scaler",
    "torch.cuda.amp.grad_scaler",
    "torch.amp.autocast_mode",
    "torch._dynamo.callback",
    "safetensors.torch",
    "transformers.training_args",
    "transformers.trainer",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
)


class Observer:
    """The parts of one process. Those that need torch are built once torch is imported whole."""

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir
        self.launched = process_role.is_launched(run_dir)
        self.watch: Instrumentation | None = None
        self._session: Session | None = None
        self._ending: ExitReporter | None = None
        self._waiting: list[tuple[str, Any]] = []
        self._previous_excepthook = sys.excepthook

    @property
    def session(self) -> Session:
        """The story of this process, begun when first there is something to tell."""
        if self._session is None:
            from .session import Session

            self._session = Session(self.run_dir, self.launched)
            self._session.at_exit = self.at_exit
        return self._session

    @property
    def ending(self) -> ExitReporter:
        """Tells how it ends."""
        if self._ending is None:
            from .process_exit import ExitReporter

            self._ending = ExitReporter(self.session, lambda: None if self.watch is None else self.watch.counters)
        return self._ending

    def excepthook(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Write the event, then let whoever was there before print the traceback."""
        call_safely(lambda: self.ending.tell(error))
        self._previous_excepthook(kind, error, traceback)

    def at_exit(self) -> None:
        """The last counters, and how it ended if that was not told yet."""
        if self.watch is not None:
            call_safely(self.watch.at_exit)
        if self._session is not None or sys.exc_info()[1] is not None or hasattr(sys, "last_value"):
            self.ending.at_exit()

    def leaves_at_once(self) -> None:
        """`os._exit` runs nothing on its way: the last counters are written before."""
        if self.watch is not None and self._session is not None and self._session.opened:
            self.ending.last_counters()

    def hooks(self) -> dict[str, Hook]:
        """What to do after which import. `import torch` brings most of them itself: those wait until it is done."""

        return {"torch": self._torch_imported, **{name: self._hook(name) for name in HOOKED_MODULES}}

    def _hook(self, name: str) -> Callable[[Any], None]:
        def imported(module: Any) -> None:
            if self.watch is None:
                self._waiting.append((name, module))
            else:
                self.watch.imported(name, module)

        return imported

    def _torch_imported(self, torch: Any) -> None:
        from .instrumentation import Instrumentation

        self.watch = Instrumentation(torch, self.session)
        for name, module in self._waiting:
            call_safely(self.watch.imported, name, module)
        self._waiting.clear()
        if self.session.launched:
            self.session.open()

    def forked(self) -> None:
        """In a forked child: start anew, and stay silent until it trains."""
        self.launched = process_role.is_launched(self.run_dir)
        if self._session is not None:
            self._session.forked(self.launched)
        if self.watch is not None:
            self.watch.reset()


def install(run_dir: str) -> None:
    """Called once, at the start of the interpreter."""
    observer = Observer(run_dir)
    sys.excepthook = observer.excepthook
    install_import_hooks(observer.hooks())
    atexit.register(lambda: call_safely(observer.at_exit))
    _hook_os_exit(observer)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: call_safely(observer.forked))


def _hook_os_exit(observer: Observer) -> None:
    original = os._exit

    def _exit(status: int) -> None:
        call_safely(observer.leaves_at_once)
        original(status)

    os._exit = _exit  # type: ignore[assignment]

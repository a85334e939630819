"""Put the parts of the observer together, each when the module that it watches was imported."""

from __future__ import annotations

import atexit
import os

from .crashes import Ending
from .importing import call_safely, watch_imports
from .session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be an import too many for a process without torch
    from collections.abc import Callable
    from typing import Any

    from .importing import Hook
    from .watch import Watch


class Observer:
    """The parts of one process. Those that need torch are built once torch is imported whole."""

    def __init__(self, run_dir: str) -> None:
        self.session = Session(run_dir)
        self.watch: Watch | None = None
        self.ending = Ending(self.session, lambda: None if self.watch is None else self.watch.counters)
        self.session.at_exit = self.ending.at_exit
        self._waiting: list[tuple[str, Any]] = []

    def hooks(self) -> dict[str, Hook]:
        """What to do after which import. `import torch` brings most of them itself: those wait until it is done."""
        from .modules import WATCHED

        return {"torch": self._torch_imported, **{name: self._hook(name) for name in WATCHED}}

    def _hook(self, name: str) -> Callable[[Any], None]:
        def imported(module: Any) -> None:
            if self.watch is None:
                self._waiting.append((name, module))
            else:
                self.watch.imported(name, module)

        return imported

    def _torch_imported(self, torch: Any) -> None:
        from .watch import Watch

        self.watch = Watch(torch, self.session)
        for name, module in self._waiting:
            call_safely(self.watch.imported, name, module)
        self._waiting.clear()
        if self.session.launched:
            self.session.open()

    def forked(self) -> None:
        """In a forked child: start anew, and stay silent until it trains."""
        self.session.forked()
        if self.watch is not None:
            self.watch.reset()


def install(run_dir: str) -> None:
    """Called once, at the start of the interpreter."""
    observer = Observer(run_dir)
    watch_imports(observer.hooks())
    atexit.register(observer.ending.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: call_safely(observer.forked))

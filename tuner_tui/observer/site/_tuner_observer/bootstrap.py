"""Builds the observer of a process and installs each part once the module that it hooks is imported."""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident

from . import process_role
from .import_hooks import call_safely, install_import_hooks
from .inspection import StackDump

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without torch should not import `typing`
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from .import_hooks import Hook
    from .instrumentation import Instrumentation
    from .process_exit import ExitReporter
    from .session import Session


HOOKED_MODULES = (
    "argparse", "torch.nn.modules.module", "torch.optim.optimizer", "torch.optim.lr_scheduler",
    "torch.utils.data.dataloader", "torch.profiler.profiler", "torch.distributed.distributed_c10d",
    "torch.nn.parallel.distributed", "torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler", "torch.amp.autocast_mode",
    "torch._dynamo.callback", "torch._dynamo.eval_frame", "safetensors.torch", "datasets",
    "transformers.modeling_utils", "transformers.training_args", "transformers.trainer_jit_checkpoint",
    "transformers.trainer", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer",
    "wandb.sdk.wandb_run", "torch.utils.tensorboard.writer", "tensorboardX.writer", "mlflow.tracking.fluent",
    "trackio.run", "accelerate.accelerator", "lightning.fabric.fabric", "lightning_fabric.fabric",
    "keras.src.saving.saving_lib",
)  # fmt: skip


class Observer:
    """The observer of one process. Everything that needs torch is built when `import torch` has finished."""

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir
        self.launched = process_role.is_launched(run_dir)
        self.instrumentation: Instrumentation | None = None
        self._session: Session | None = None
        self._exit_reporter: ExitReporter | None = None
        self._early_modules: list[tuple[str, Any]] = []
        self._previous_excepthook = sys.excepthook
        self._main_thread = get_ident()
        self.stack_dump = StackDump()

    @property
    def session(self) -> Session:
        """The event log of this process, created on first use."""
        if self._session is None:
            from .session import Session

            self._session = Session(self.run_dir, self.launched)
            self._session.at_exit = self.at_exit
        return self._session

    @property
    def exit_reporter(self) -> ExitReporter:
        """Created on first use, like `session`."""
        if self._exit_reporter is None:
            from .process_exit import ExitReporter

            self._exit_reporter = ExitReporter(
                self.session, lambda: None if self.instrumentation is None else self.instrumentation.counters
            )
        return self._exit_reporter

    def excepthook(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Report the error, then call the previous hook, which prints the traceback."""
        call_safely(lambda: self.exit_reporter.report(error))
        self._previous_excepthook(kind, error, traceback)

    def at_exit(self) -> None:
        """Write the last counters, and how the process ended unless that was already reported."""
        if self.instrumentation is not None:
            call_safely(self.instrumentation.at_exit)
        # Nothing to say of a process that neither imported torch nor failed: `pip`, a shell's helper, a data script.
        if self._session is not None or sys.exc_info()[1] is not None or hasattr(sys, "last_value"):
            self.exit_reporter.at_exit()

    def exits(self, status: Any) -> None:
        """Nothing else says with which code a process ends: exit handlers run when `SystemExit` is gone."""
        if self.instrumentation is not None and get_ident() == self._main_thread:
            self.exit_reporter.exits(status)

    def before_os_exit(self, _: Any) -> None:
        """Write the last counters: `os._exit` runs no exit handlers."""
        if self.instrumentation is not None and self._session is not None and self._session.is_open:
            self.exit_reporter.write_last_counters()

    def hooks(self) -> dict[str, Hook]:
        """Functions to call after imports, by module name.

        `import torch` imports most of the hooked modules itself; their hooks are deferred until torch is complete.
        """
        return {"torch": self._torch_imported, **{name: self._hook(name) for name in HOOKED_MODULES}}

    def _hook(self, name: str) -> Callable[[Any], None]:
        def imported(module: Any) -> None:
            if self.instrumentation is None:
                # `import torch` is under way: hooks that use torch's attributes have to wait until it is complete.
                self._early_modules.append((name, module))
            else:
                self.instrumentation.module_imported(name, module)

        return imported

    def _torch_imported(self, torch: Any) -> None:
        from .instrumentation import Instrumentation

        try:
            self.instrumentation = Instrumentation(torch, self.session)
        except Exception as error:
            if self.session.launched:
                self.session.open()
                version = getattr(torch, "__version__", "of an unknown version")
                why = f"the observer does not work with torch {version} ({type(error).__name__})"
                self.session.report("unobserved", reason=why)
            raise
        for name, module in self._early_modules:
            call_safely(self.instrumentation.module_imported, name, module)
        self._early_modules.clear()
        if self.session.launched:
            self.session.open()

    def after_fork(self) -> None:
        """Reset in a forked child, which stays silent until it trains."""
        self.launched = process_role.is_launched(self.run_dir)
        call_safely(self.stack_dump.register)
        if self._session is not None:
            self._session.after_fork(self.launched)
        if self.instrumentation is not None:
            self.instrumentation.reset()


def install(run_dir: str) -> None:
    """Create the observer and register its hooks. Called once, when the interpreter starts."""
    observer = Observer(run_dir)
    sys.excepthook = observer.excepthook
    call_safely(observer.stack_dump.register)
    call_safely(observer.stack_dump.hook_signal)
    install_import_hooks(observer.hooks())
    atexit.register(lambda: call_safely(observer.at_exit))
    os._exit = _calling_first(os._exit, observer.before_os_exit)
    sys.exit = _calling_first(sys.exit, observer.exits)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: call_safely(observer.after_fork))


def _calling_first(original: Callable[[Any], Any], before: Callable[[Any], None]) -> Any:
    def exit(status: Any = None) -> None:
        call_safely(before, status)
        original(status)

    return exit

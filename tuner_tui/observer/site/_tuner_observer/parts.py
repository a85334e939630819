"""Put the parts of the observer together, each when the module that it watches was imported."""

import atexit
import os
import sys

from .crashes import Ending
from .importing import watch_imports
from .session import Session


class Observer:
    """The parts of one process. Those that need torch are built when torch's own modules appear."""

    def __init__(self, run_dir):
        self.session = Session(run_dir)
        self.ending = Ending(self.session, lambda: self.counters)
        self.counters = None
        self.effective = None

    def hooks(self):
        """What to do after which import."""
        return {
            "torch.optim.optimizer": self._optimizer_imported,
            "torch.utils.data.dataloader": self._dataloader_imported,
            "torch.amp.grad_scaler": self._scaler_imported,
            "torch.cuda.amp.grad_scaler": self._scaler_imported,
            "torch.amp.autocast_mode": self._autocast_imported,
            "torch._dynamo.callback": self._dynamo_imported,
            "torch": self._torch_imported,
            "transformers.training_args": self._training_args_imported,
            "transformers.trainer": self._trainer_imported,
        }

    def _needed(self):
        """Counters and what they lean on, built at the first torch module of interest."""
        if self.counters is None:
            torch = sys.modules["torch"]
            from .counters import Counters
            from .effective import Effective
            from .memory import Peaks

            self.peaks = Peaks(torch)
            self.counters = Counters(self.session, torch.Tensor, torch.is_grad_enabled, self.peaks.fields)
            self.effective = Effective(torch, self.session)
            self.counters.on_flush.append(self.effective.look)
        return self.counters

    def _optimizer_imported(self, module):
        from . import optimizers

        counters = self._needed()
        optimizers.watch(module, counters, self.session, self.peaks.before_step, self._after_step)

    def _after_step(self, optimizer):
        self.peaks.after_step(optimizer)
        self.effective.optimizer_stepped(optimizer)

    def _dataloader_imported(self, module):
        from . import inject, loaders

        counters = self._needed()
        loaders.watch(module, counters, self.effective.loader_started)
        inject.into_loaders(module, self.session)

    def _scaler_imported(self, module):
        from . import optimizers

        optimizers.watch_scaler(module, self._needed())

    def _autocast_imported(self, module):
        self._needed()
        self.effective.watch_autocast(module)

    def _dynamo_imported(self, module):
        from . import compiling

        compiling.watch(module, self.session)

    def _torch_imported(self, module):
        from . import memory

        if self.session.launched:
            self.session.open()
        memory.limit(module)

    def _training_args_imported(self, module):
        from . import inject

        inject.into_training_arguments(module, self.session)

    def _trainer_imported(self, module):
        from . import trainer

        trainer.watch(module, self.session, self._needed(), self.effective)

    def forked(self):
        """In a forked child: start anew, and stay silent until it trains."""
        self.session.forked()
        if self.counters is not None:
            self.counters.reset()


def install(run_dir):
    """Called once, at the start of the interpreter."""
    observer = Observer(run_dir)
    watch_imports(observer.hooks())
    atexit.register(observer.ending.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=observer.forked)

"""Put the parts of the observer together, each when the module that it watches was imported."""

import atexit
import os

from .crashes import Ending
from .importing import call_safely, watch_imports
from .session import Session


class Observer:
    """The parts of one process. Those that need torch are built once torch is imported whole."""

    def __init__(self, run_dir):
        self.session = Session(run_dir)
        self.counters = None
        self.ending = Ending(self.session, lambda: self.counters)
        self.session.at_exit = self.ending.at_exit
        self.ledger = None
        self._waiting = []

    def hooks(self):
        """What to do after which import. `import torch` brings most of them itself: those wait until it is done."""
        watched = {
            "torch.nn.modules.module": self._modules_imported,
            "torch.optim.optimizer": self._optimizer_imported,
            "torch.utils.data.dataloader": self._dataloader_imported,
            "torch.amp.grad_scaler": self._scaler_imported,
            "torch.cuda.amp.grad_scaler": self._scaler_imported,
            "torch.amp.autocast_mode": self._autocast_imported,
            "torch._dynamo.callback": self._dynamo_imported,
            "transformers.training_args": self._training_args_imported,
            "transformers.trainer": self._trainer_imported,
        }
        hooks = {name: self._after_torch(hook) for name, hook in watched.items()}
        hooks["torch"] = self._torch_imported
        return hooks

    def _after_torch(self, hook):
        def run(module):
            if self.counters is None:
                self._waiting.append((hook, module))
            else:
                hook(module)

        return run

    def _torch_imported(self, torch):
        from . import memory
        from .counters import Counters
        from .effective import Effective

        self.peaks = memory.Peaks(torch)
        self.effective = Effective(torch, self.session)
        self.counters = Counters(self.session, torch.Tensor, torch.is_grad_enabled, self.peaks.fields)
        self.counters.on_flush.append(self.effective.look)
        if os.environ.get("TUNER_INJECT"):
            self._prepare_injection()
        for hook, module in self._waiting:
            call_safely(hook, module)
        self._waiting.clear()
        if self.session.launched:
            self.session.open()
        call_safely(memory.limit, torch)

    def _prepare_injection(self):
        from . import inject

        settings = inject.wanted()
        self.ledger = inject.Ledger(self.session, settings) if settings else None

    def _modules_imported(self, module):
        self.counters.watch_eval_mode(module.Module)

    def _optimizer_imported(self, module):
        from . import optimizers

        optimizers.watch(module, self.counters, self.session, self.peaks.before_step, self._after_step)

    def _after_step(self, optimizer):
        self.peaks.after_step(optimizer)
        self.effective.optimizer_stepped(optimizer)

    def _dataloader_imported(self, module):
        from . import loaders

        loaders.watch(module, self.counters, self.effective.loader_started)
        if self.ledger is not None:
            from . import inject

            inject.into_loaders(module, self.ledger)

    def _scaler_imported(self, module):
        from . import optimizers

        optimizers.watch_scaler(module, self.counters)

    def _autocast_imported(self, module):
        self.effective.watch_autocast(module)

    def _dynamo_imported(self, module):
        from . import compiling

        compiling.watch(module, self.session)

    def _training_args_imported(self, module):
        if self.ledger is not None:
            from . import inject

            inject.into_training_arguments(module, self.ledger)

    def _trainer_imported(self, module):
        from . import trainer

        trainer.watch(module, self.session, self.counters, self.effective)

    def forked(self):
        """In a forked child: start anew, and stay silent until it trains."""
        self.session.forked()
        if self.counters is not None:
            self.counters.reset()
            self.effective.reset()


def install(run_dir):
    """Called once, at the start of the interpreter."""
    observer = Observer(run_dir)
    watch_imports(observer.hooks())
    atexit.register(observer.ending.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: call_safely(observer.forked))

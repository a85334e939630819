"""What watches a process that imported torch: the counters and, module by module, what feeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import (
    compiling,
    gradients,
    inject,
    inject_lightning,
    lightning,
    loaders,
    memory,
    optimizers,
    resuming,
    saving,
    terminating,
    trainer,
    trial,
    trial_hooks,
)
from .counters import Counters
from .effective import Effective
from .evaluation import Evaluation
from .importing import call_safely

if TYPE_CHECKING:
    from .session import Session


LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


class Watch:
    """Built once torch is imported whole."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._session = session
        peaks = memory.Peaks(torch)
        self._peaks = peaks if torch.backends.cuda.is_built() else None
        self._effective = Effective(torch, session)
        self.counters = Counters(session, torch.Tensor, Evaluation(torch.is_grad_enabled), peaks.fields)
        self.counters.on_flush.append(self._effective.look)
        settings = inject.wanted()
        self._effective.asked = tuple(settings)
        self._ledger = inject.Ledger(session, settings) if settings else None
        if self._ledger is not None:
            self.counters.on_flush.append(self._ledger.training_began)
        call_safely(memory.limit, torch)
        call_safely(gradients.watch, torch.autograd.grad_mode, self.counters.journal, torch.is_grad_enabled)
        call_safely(saving.watch_torch, torch, self.counters)
        terms = trial.wanted()
        self._trial = None if terms is None else trial.Trial(torch, session, self.counters, terms)

    def imported(self, name: str, module: Any) -> None:
        """One of the watched modules is there."""
        if self._trial is not None:
            self._try(name, module, self._trial)
        if name == "torch.nn.modules.module":
            self.counters.evaluation.watch_mode(module.Module, self.counters.unsettle)
            self._effective.watch_models(module.Module)
        elif name == "torch.optim.optimizer":
            optimizers.watch(module, self.counters, self._peaks, self._effective.optimizer_stepped)
        elif name == "torch.utils.data.dataloader":
            loaders.watch(module, self.counters, self._effective.loader_started)
        elif name.endswith("grad_scaler"):
            optimizers.watch_scaler(module, self.counters)
        elif name == "torch.amp.autocast_mode":
            self._effective.watch_autocast(module)
        elif name == "torch._dynamo.callback":
            compiling.watch(module, (self.counters.compiling, self._effective.compiled))
        elif name == "transformers.trainer":
            trainer.watch(module, self._session, self.counters, self._effective)
            resuming.watch(module, self._session)
        elif name == "transformers.training_args":
            terminating.watch(module, self._session)
        elif name == "safetensors.torch":
            saving.watch_safetensors(module, self.counters)
        elif name in LIGHTNING:
            lightning.watch(module, self._session, self.counters, self._effective)
            resuming.watch_lightning(module, self._session)
        if self._ledger is not None:
            self._inject(name, module, self._ledger)

    def _inject(self, name: str, module: Any, ledger: inject.Ledger) -> None:
        if name == "torch.utils.data.dataloader":
            inject.into_loaders(module, ledger)
        elif name == "transformers.training_args":
            inject.into_training_arguments(module, ledger)
        elif name in LIGHTNING:
            inject_lightning.into_trainer(module, ledger)

    def _try(self, name: str, module: Any, tried: trial.Trial) -> None:
        """In a trial. Its hooks lie inside those that everything else is counted by."""
        if name == "torch.utils.data.dataloader":
            trial_hooks.watch_loaders(module, tried)
        elif name == "torch.optim.optimizer":
            trial_hooks.watch_optimizers(module, tried)
        elif name == "torch._dynamo.callback":
            compiling.watch(module, (tried.compiling,))
        elif name == "transformers.training_args":
            trial_hooks.set_arguments(module, self._session)
        elif name == "transformers.trainer":
            trial_hooks.watch_trainer(module, tried)

    def at_exit(self) -> None:
        """The process ends by itself."""
        if self._trial is not None:
            self._trial.ended()

    def reset(self) -> None:
        """In a forked child: nothing was counted or told."""
        self.counters.reset()
        self._effective.reset()

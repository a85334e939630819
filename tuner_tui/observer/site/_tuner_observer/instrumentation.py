"""Instruments a process that imported torch: builds the counters and installs the hooks that feed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .counters import memory_peaks
from .counters.evaluation_detector import EvaluationDetector
from .counters.step_counters import StepCounters
from .frameworks import lightning_trainer, transformers_trainer
from .hooks import compilation, dataloaders, grad_mode, optimizer_steps, torch_save
from .import_hooks import call_safely
from .inject import injection, resume_checkpoint, sigterm_checkpoint
from .settings_in_effect import SettingsInEffect
from .trial import trial_controller, trial_hooks

if TYPE_CHECKING:
    from .session import Session


LIGHTNING_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


class Instrumentation:
    """Built once torch is imported whole."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._session = session
        peaks = memory_peaks.MemoryPeaks(torch)
        self._peaks = peaks if torch.backends.cuda.is_built() else None
        self._effective = SettingsInEffect(torch, session)
        self.counters = StepCounters(session, torch.Tensor, EvaluationDetector(torch.is_grad_enabled), peaks.fields)
        self.counters.on_flush.append(self._effective.look)
        settings = injection.requested_settings()
        self._effective.asked = tuple(settings)
        self._ledger = injection.InjectionLog(session, settings) if settings else None
        if self._ledger is not None:
            self.counters.on_flush.append(self._ledger.training_began)
        call_safely(memory_peaks.limit_gpu_memory, torch)
        call_safely(grad_mode.hook_grad_mode, torch.autograd.grad_mode, self.counters.journal, torch.is_grad_enabled)
        call_safely(torch_save.hook_torch_save, torch, self.counters)
        terms = trial_controller.requested_protocol()
        self._trial = None if terms is None else trial_controller.TrialController(torch, session, self.counters, terms)

    def imported(self, name: str, module: Any) -> None:
        """One of the watched modules is there."""
        if self._trial is not None:
            self._try(name, module, self._trial)
        if name == "torch.nn.modules.module":
            self.counters.evaluation.watch_mode(module.Module, self.counters.unsettle)
            self._effective.watch_models(module.Module)
        elif name == "torch.optim.optimizer":
            optimizer_steps.hook_optimizers(module, self.counters, self._peaks, self._effective.optimizer_stepped)
        elif name == "torch.utils.data.dataloader":
            dataloaders.hook_dataloaders(module, self.counters, self._effective.loader_started)
        elif name.endswith("grad_scaler"):
            optimizer_steps.hook_grad_scaler(module, self.counters)
        elif name == "torch.amp.autocast_mode":
            self._effective.watch_autocast(module)
        elif name == "torch._dynamo.callback":
            compilation.hook_compilation(module, (self.counters.compiling, self._effective.compiled))
        elif name == "transformers.trainer":
            transformers_trainer.hook_transformers_trainer(module, self._session, self.counters, self._effective)
            resume_checkpoint.hook_trainer_resume(module, self._session)
        elif name == "transformers.training_args":
            sigterm_checkpoint.hook_sigterm_checkpoint(module, self._session)
        elif name == "safetensors.torch":
            torch_save.hook_safetensors(module, self.counters)
        elif name in LIGHTNING_MODULES:
            lightning_trainer.hook_lightning_trainer(module, self._session, self.counters, self._effective)
            resume_checkpoint.hook_lightning_resume(module, self._session)
        if self._ledger is not None:
            self._inject(name, module, self._ledger)

    def _inject(self, name: str, module: Any, ledger: injection.InjectionLog) -> None:
        if name == "torch.utils.data.dataloader":
            injection.inject_dataloaders(module, ledger)
        elif name == "transformers.training_args":
            injection.inject_training_arguments(module, ledger)
        elif name in LIGHTNING_MODULES:
            injection.inject_lightning_trainer(module, ledger)

    def _try(self, name: str, module: Any, tried: trial_controller.TrialController) -> None:
        """In a trial. Its hooks lie inside those that everything else is counted by."""
        if name == "torch.utils.data.dataloader":
            trial_hooks.hook_trial_loaders(module, tried)
        elif name == "torch.optim.optimizer":
            trial_hooks.hook_trial_optimizers(module, tried)
        elif name == "torch._dynamo.callback":
            compilation.hook_compilation(module, (tried.compiling,))
        elif name == "transformers.training_args":
            trial_hooks.inject_trial_arguments(module, self._session)
        elif name == "transformers.trainer":
            trial_hooks.hook_trial_trainer(module, tried)

    def at_exit(self) -> None:
        """The process ends by itself."""
        if self._trial is not None:
            self._trial.ended()

    def reset(self) -> None:
        """In a forked child: nothing was counted or told."""
        self.counters.reset()
        self._effective.reset()

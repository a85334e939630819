"""Instruments a process that imported torch: builds the counters and installs the hooks that feed them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import trial_controller
from .allocator_history import AllocatorHistory
from .counters import memory_peaks
from .counters.batch_log import BatchLog
from .counters.evaluation import EvaluationDetector
from .counters.kept_gradients import KeptGradients
from .counters.planned_length import PlannedLength
from .counters.script_variables import named_batch
from .counters.step_counters import StepCounters
from .counters.training_state import TrainingStates
from .finite_check import FiniteCheck, keep_files, keep_from_saving
from .hooks import (
    backward_loss,
    dataloaders,
    grad_mode,
    injection,
    lightning_trainer,
    loggers,
    optimizer_steps,
    rank_waits,
    torch_save,
    transformers_trainer,
)
from .hooks.reporter import hook_loading
from .import_hooks import call_after, call_before, call_safely
from .inspection import CollectiveDump
from .session import Session, json_variable
from .settings_in_effect import ScriptOptions, SettingsInEffect
from .step_profile import StepProfiler

LIGHTNING_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


class Instrumentation:
    """All hooks of a process that has imported torch."""

    def __init__(self, torch: Any, session: Session) -> None:
        """Raises `AttributeError` with torch 1, which has no hooks for the steps of all optimizers."""
        _ = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
        self._session = session
        self._settings_in_effect = SettingsInEffect(torch, session)
        memory = memory_peaks.MemoryPeaks(torch).fields
        self.counters = StepCounters(session, torch.Tensor, EvaluationDetector(torch.is_grad_enabled), memory)
        self.counters.on_flush.append(self._read_batch_again)
        self.counters.on_flush.append(
            lambda: self._settings_in_effect.check(
                self.counters.accumulation,
                self.counters.optimizers,
                self.counters.recent_optimizers,
                self.counters.evaluation.left_in_eval,
            )
        )
        settings = json_variable("TUNER_INJECT") or {}
        self._settings_in_effect.requested = tuple(settings)
        self._injection_log = injection.InjectionLog(session, settings) if settings else None
        if self._injection_log is not None:
            self.counters.on_flush.append(self._injection_log.report_missing)
            call_safely(injection.report_after_backward, torch.autograd, self._injection_log)
        call_safely(memory_peaks.limit_gpu_memory, torch)
        replay = json_variable("TUNER_REPLAY")
        self._finite_check = (
            None
            if replay is None
            else FiniteCheck(torch, self.counters, replay, self._settings_in_effect.find_model, self._end_replay)
        )
        if self._finite_check is not None:  # inside the other hooks, which look at their caller
            call_before(torch.Tensor, "backward", self._finite_check.backward_called)
        self._keeps_files = self._finite_check is not None or "TUNER_PROVE" in os.environ
        if self._keeps_files:
            call_safely(keep_files, torch)
        self._no_grad = grad_mode.NoGradTracker(self.counters)
        call_safely(grad_mode.hook_grad_mode, torch.autograd.grad_mode, self._no_grad)
        self._backward_loss = backward_loss.BackwardLoss(
            torch, session, self.counters, self._own_optimizer_stepped, self._settings_in_effect
        )
        self.counters.on_flush.append(self._backward_loss.write)
        call_safely(self._backward_loss.hook_backward, torch.Tensor)
        self._batch_log = BatchLog(torch, session)
        self._logged = loggers.LoggedValues(session, self.counters)
        self.counters.on_flush.append(self._logged.write)
        self._rank_waits = rank_waits.RankWaits(self.counters)
        self.counters.on_flush.append(lambda: self._rank_waits.hook_backward(torch.autograd))
        self._collective_dump = CollectiveDump()
        self._script_options = ScriptOptions(session)
        self.counters.on_flush.append(self._script_options.write)
        self._saved = torch_save.SavedFiles(session, self.counters)
        self.counters.on_flush.append(self._saved.write)
        call_safely(torch_save.hook_torch_save, torch, self.counters, self._saved)
        call_safely(torch_save.hook_renames, os, self._saved)
        history = AllocatorHistory(torch, session)
        call_safely(history.arm)
        self._profiler = StepProfiler(torch, self.counters, self._settings_in_effect.find_model, history)
        self.counters.on_flush.append(lambda: call_safely(self._profiler.check))
        self._states = TrainingStates(torch, session, self.counters, self._settings_in_effect.find_model)
        self._calls: tuple[tuple[str, str, str, Callable[..., None], Callable[..., None]], ...] = (
            ("argparse", "ArgumentParser", "parse_known_args", call_before, self._script_options.parses),
            ("torch.optim.optimizer", "Optimizer", "add_param_group", call_after, self._settings_in_effect.group_added),
            ("torch.optim.lr_scheduler", "LRScheduler", "__init__", call_after, self._states.scheduler_made),
            ("torch.amp.autocast_mode", "autocast", "__enter__", call_after, self._settings_in_effect.autocast_entered),
            ("torch.profiler.profiler", "profile", "prepare_trace", call_before, self._profiler.prepares),
            # A module that compiles another is about to be made.
            ("torch._dynamo.eval_frame", "OptimizedModule", "__init__", call_before,
             lambda *_, **__: self._no_grad.compiling()),
            # A Trainer saves and ends because of a SIGTERM: it exits as if it had completed.
            ("transformers.trainer_jit_checkpoint", "CheckpointManager", "execute_jit_checkpoint", call_before,
             lambda *_: session.report("stop-requested", how="SIGTERM")),
        )  # fmt: skip
        """Module, class and method to hook, before or after each call, and what is called then."""
        protocol = json_variable("TUNER_TRIAL")
        self._trial = (
            None if protocol is None else trial_controller.TrialController(torch, session, self.counters, protocol)
        )
        if self._trial is None:
            self._backward_loss.losses = self._batch_log.losses
            self.counters.on_batches = self._batch_log.step_done
            self.counters.on_flush.append(self._batch_log.write)
            self.counters.on_resumed += [self._batch_log.resumed, self._states.resumed]
            self.counters.on_save = self._states.saving
            call_safely(self._states.follow)
            kept = KeptGradients(torch, lambda: session.report("in-effect", values={"gradients_kept": True}))
            self.counters.on_flush.append(lambda: call_safely(kept.write))
            self.counters.on_flush.append(lambda: call_safely(self._states.write))

    def module_imported(self, name: str, module: Any) -> None:
        """Install the hooks that belong to the module `name`."""
        # Order matters: of two hooks on one function the one installed last is called first. A trial's hooks and the
        # script's own call have to lie inside those of the counters, injected arguments outside of everything.
        if self._trial is not None:
            trial_controller.hook_trial(name, module, self._trial, self._session)
        if self._keeps_files:
            call_safely(keep_from_saving, name, module)
        for hooked, owner, method, hook, callback in self._calls:
            if hooked == name and hasattr(module, owner):
                hook(getattr(module, owner), method, callback)
        if name == "torch.nn.modules.module":
            self.counters.evaluation.hook_eval_mode(module.Module, self.counters.mode_changes)
        elif name == "torch.optim.optimizer":
            optimizer_steps.hook_optimizers(module, self.counters, self._optimizer_stepped)
        elif name == "torch.utils.data.dataloader":
            dataloaders.hook_dataloaders(module, self.counters, self._settings_in_effect.loader_started)
        elif name.endswith("grad_scaler"):
            self._hook_grad_scaler(module.__dict__.get("GradScaler"))
        elif name == "torch.distributed.distributed_c10d":
            modules = [module, sys.modules["torch.distributed"]]
            self._rank_waits.hook_collectives(modules)
            for distributed in modules:
                call_after(distributed, "init_process_group", lambda *_, **__: self._collective_dump.start())
        elif name == "torch.nn.parallel.distributed":
            self._rank_waits.hook_ddp(module.DistributedDataParallel)
        elif name == "torch._dynamo.callback":
            began = (self.counters.compiling, self._settings_in_effect.set_compiled, self._no_grad.compiling)
            optimizer_steps.hook_compilation(module, began)
        elif name == "transformers.modeling_utils":
            self.counters.evaluation.hook_eval_mode(module.PreTrainedModel, self.counters.mode_changes)
            hook_loading(module.PreTrainedModel, "from_pretrained", self._session, "loading-model")
        elif name == "datasets":
            hook_loading(module, "load_dataset", self._session, "loading-data")
            hook_loading(module.Dataset, "map", self._session, "loading-data")
        elif name == "transformers.trainer":
            transformers_trainer.hook_transformers_trainer(
                module, self._session, self.counters, self._settings_in_effect
            )
            injection.hook_trainer_resume(module, self._session)
        elif name == "transformers.training_args":
            injection.hook_sigterm_checkpoint(module, self._session)
        elif name == "safetensors.torch":
            torch_save.hook_safetensors(module, self.counters, self._saved)
        elif name in LIGHTNING_MODULES:
            lightning_trainer.hook_lightning_trainer(module, self._session, self.counters, self._settings_in_effect)
            injection.hook_lightning_resume(module, self._session)
        elif name in loggers.LOGGERS:
            loggers.hook_logger(name, module, self._logged)
        torch_save.hook_checkpoints(name, module, self._saved)
        if self._finite_check is not None:
            call_safely(self._finite_check.hook, name, module)
        if self._injection_log is None:
            return
        if name == "torch.utils.data.dataloader":
            is_training = lambda: not self.counters.evaluation.is_evaluating()  # noqa: E731
            injection.inject_dataloaders(module, self._injection_log, is_training)
        elif name == "transformers.training_args":
            injection.inject_training_arguments(module, self._injection_log)
        elif name in LIGHTNING_MODULES:
            injection.inject_lightning_trainer(module, self._injection_log)

    def _hook_grad_scaler(self, scaler_class: Any) -> None:
        if "step" not in getattr(scaler_class, "__dict__", ()):  # derived from another one, which is hooked
            return
        optimizer_steps.hook_grad_scaler(scaler_class, self.counters)
        call_after(scaler_class, "scale", self._backward_loss.scaled)
        call_after(scaler_class, "__init__", self._states.scaler_made)
        if self._finite_check is not None:
            self._finite_check.hook_grad_scaler(scaler_class)

    def _optimizer_stepped(self, optimizer: Any) -> None:
        """Called after the first step of each optimizer."""
        self._backward_loss.groups.stop()
        self.counters.optimizer_added(sys._getframe(1))
        self._settings_in_effect.optimizer_stepped(optimizer)
        if not all(each.is_cpu for group in optimizer.param_groups for each in group["params"]):
            self.counters.buffer.optimizer_s = None  # a GPU takes its time after the call
        if self.counters.needs_plan():  # not at every step: it takes milliseconds
            self._read_loop(sys._getframe(1), call_safely(optimizer_steps.steps_made, optimizer))

    def _own_optimizer_stepped(self, frame: Any, parameter: Any) -> None:
        """Called after the first step of an optimizer that is not torch's."""
        self.counters.optimizer_added(frame)
        self._settings_in_effect.own_optimizer_stepped(frame, parameter)
        self._read_loop(frame)

    def _read_loop(self, frame: Any, made: int | None = None) -> None:
        """Read what the functions that lead to a step say of the length, and of the batch where no loader says it."""
        self.counters.set_plan(call_safely(PlannedLength, frame), made or 0)
        self._settings_in_effect.model_searched = self.counters.trainer_reports  # maybe another one is trained now
        if not self.counters.has_loader:
            self._read_batch(frame)

    def _read_batch(self, frame: Any, delivered: Iterable[int] = ()) -> None:
        """Read the batch of a training without a loader."""
        rows = call_safely(named_batch, frame, delivered)
        self._settings_in_effect.set_batch(rows)
        self.counters.set_batch(rows)

    def _read_batch_again(self) -> None:
        """Read it once more where a loader was read before the first step alone."""
        if self.counters.was_fed_once:
            self._read_batch(sys._getframe(1), self.counters.forget_loader())

    def _end_replay(self) -> None:
        """End the process of a replay: the rest of the script might save and upload."""
        self.at_exit()
        self._session.report("ended", step=self.counters.step)
        trial_controller.exit_process()

    def at_exit(self) -> None:
        """Finish a trial that is still being measured; report the last loss and settings that found no place."""
        call_safely(self._profiler.at_exit)
        call_safely(self._backward_loss.at_exit)
        call_safely(self._batch_log.write_last, self.counters.step, self.counters.unfinished)
        call_safely(self._states.write, wait=True)
        call_safely(self._saved.write, True)
        call_safely(self._logged.write)
        if self._injection_log is not None and self._session.is_open:
            self._injection_log.report_missing()
        if self._trial is not None:
            self._trial.training_ended()
        if self._finite_check is not None:
            call_safely(self._finite_check.training_ended)

    def reset(self) -> None:
        """Discard all counts and reports, in a forked child."""
        call_safely(self._profiler.reset)
        self.counters.reset()
        self._settings_in_effect.reset()
        self._backward_loss.reset()
        self._batch_log.reset()
        self._states.reset()
        self._logged.reset()
        if self._finite_check is not None:
            self._finite_check.reset()

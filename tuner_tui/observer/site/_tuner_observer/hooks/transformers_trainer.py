"""Hooks the Hugging Face Trainer: plan, logs, evaluations, checkpoints, phases and the control file."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..counters.script_variables import calling_frames, variables_of
from ..counters.step_counters import StepCounters
from ..import_hooks import call_safely
from ..names import NAMES
from ..session import Session
from ..settings_in_effect import SettingsInEffect
from .loggers import MAX_PARTS
from .reporter import FrameworkReporter, as_float, hook_pause


def hook_transformers_trainer(
    module: Any, session: Session, counters: StepCounters, settings_in_effect: SettingsInEffect
) -> None:
    """Add a callback to all future Trainers, and time evaluation and saving."""
    reporter = TransformersReporter(session, counters, settings_in_effect)
    # The list from which every Trainer takes its default callbacks: no subclass and no argument of the script can miss
    # it.
    module.DEFAULT_CALLBACKS.append(_callback_class(module, reporter))
    for name in ("evaluate", "predict", "evaluation_loop", "prediction_loop"):
        hook_pause(module.Trainer, name, reporter, "evaluating")
    hook_pause(module.Trainer, "_save_checkpoint", reporter, "saving")


class TransformersReporter(FrameworkReporter):
    """Implements the methods of the callback."""

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        train_dataloader: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Report the plan. Steps of this process start at the resumed step."""
        # The Trainer rounds the epochs up where `max_steps` ends the training within one.
        steps_an_epoch = -(-(call_safely(len, train_dataloader) or 0) // args.gradient_accumulation_steps)
        epochs = state.max_steps / steps_an_epoch if steps_an_epoch else as_float(state.num_train_epochs)
        self.counters.follow_trainer(state.global_step)
        # On a CPU without `use_cpu` it may set up a process group, and nevertheless averages no gradients.
        self.counters.trains_alone = args.world_size == 1
        ignores = call_safely(ignores_accumulation, model)
        if ignores is not None:
            self.settings_in_effect.update({"loss_ignores_accumulation": ignores})
        self.begin(
            model,
            "skipping" if state.global_step else "training",
            total_steps=None if os.environ.get("TUNER_TRIAL") else state.max_steps,  # which is not the end of a trial
            first_step=state.global_step,
            epochs=None if state.num_train_epochs == sys.maxsize else epochs,  # of a stream
        )
        conditional = {
            **(call_safely(_optimizer_of, args, optimizer) or {}),
            **(call_safely(_schedule_of, args, lr_scheduler) or {}),
            **({"num_train_epochs": as_float(args.num_train_epochs)} if args.max_steps <= 0 else {}),
        }
        self.settings_in_effect.set_training_arguments(args, conditional)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Batches before the first step are those skipped when resuming."""
        if self.session.phase == "skipping":
            self.counters.skipped_batches(args.gradient_accumulation_steps)
            self.session.enter_phase("training")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the step and act on the control file: save a checkpoint, and stop if requested."""
        self.counters.trainer_stepped()
        request = self.control_file.request(state.global_step)
        if request in ("checkpoint", "stop"):
            control.should_save = True
        if request == "stop":
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            numbers = {name: as_float(value) for name, value in logs.items()}
            figures: dict[str, Any] = {name: numbers.pop(name, None) for name in ("loss", "learning_rate", "grad_norm")}
            others = [(name, number) for name, number in numbers.items() if number is not None and name != "epoch"]
            figures["others"] = dict(others[:MAX_PARTS]) or None
            self.report_metrics({"step": state.global_step, "epoch": as_float(state.epoch), **figures})

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        self.report_evaluation(state.global_step, metrics)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = os.path.join(os.path.abspath(args.output_dir), f"checkpoint-{state.global_step}")
        if self.session.is_open and getattr(state, "is_world_process_zero", True):
            self.session.report("checkpoint", step=state.global_step, path=path, seconds=self.saving_s)


def _callback_class(module: Any, reporter: FrameworkReporter) -> type:
    """Derive from `TrainerCallback`, which exists only after transformers was imported."""

    def safely(method: Callable[..., None]) -> Callable[..., None]:
        return lambda _, *args, **kwargs: call_safely(method, *args, **kwargs)

    handlers = {name: safely(method) for name, method in reporter.handlers().items()}
    return type("TunerObserverCallback", (module.TrainerCallback,), handlers)


MAX_FRAMES = 12
"""Depth of the search for the Trainer: it calls callbacks a few frames below its own loop."""


def ignores_accumulation(model: Any) -> bool | None:
    """Whether the loss of the Trainer that is calling us grows with accumulated batches; None if unknown.

    A model whose forward accepts `**kwargs` gets the number of items in the step, and the Trainer leaves the division
    to it. Classifiers that compute their loss with a `loss_fct` of their own ignore that number (BERT, RoBERTa,
    DistilBERT, GPT-2 and most others in 5.23), so that loss and gradient are too large by the number of accumulated
    batches. So does a `compute_loss` of the script's own that does not use it.
    """
    trainer = _calling_trainer(sys._getframe(1))
    if trainer is None:
        return None
    divides = not trainer.model_accepts_loss_kwargs or getattr(trainer, "loss_is_scaled_for_ga", None) is False
    if divides or trainer.compute_loss_func is not None or trainer.label_smoother is not None:
        return False
    compute_loss = type(trainer).compute_loss
    if compute_loss is not sys.modules["transformers.trainer"].Trainer.compute_loss:
        source = inspect.getsource(compute_loss)
        # A parameter that is in its signature alone is not used.
        if "accumulation" in source or any(source.count(name) > 1 for name in NAMES["passed_items"]):
            return None
        return True
    forward = inspect.unwrap(type(_unwrap_model(model)).forward)
    if not forward.__module__.startswith("transformers.models."):
        return None
    return "loss_fct" in forward.__code__.co_varnames


def _calling_trainer(innermost: FrameType) -> Any:
    for frame in calling_frames(innermost, MAX_FRAMES):
        trainer = variables_of(frame).get("self")
        if hasattr(trainer, "model_accepts_loss_kwargs") and hasattr(trainer, "compute_loss_func"):
            return trainer
    return None


def _unwrap_model(model: Any) -> Any:
    """The model without the wrappers of torch.compile, DDP and PEFT."""
    model = getattr(model, "_orig_mod", model)
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _optimizer_of(args: Any, optimizer: Any) -> dict[str, Any]:
    """The argument for the optimizer; if the Trainer was given another one, the values of that."""
    inner, name = getattr(optimizer, "optimizer", optimizer), str(getattr(args.optim, "value", args.optim))
    is_asked = type(inner).__name__.lower().startswith(name.partition("_")[0])
    if is_asked and bool(inner.defaults.get("fused")) == ("fused" in name):
        return {"optim": name}
    return {"learning_rate": inner.defaults["lr"], "weight_decay": inner.defaults.get("weight_decay")}


def _schedule_of(args: Any, scheduler: Any) -> dict[str, Any]:
    """The arguments for the schedule, if transformers made it from them. A warm-up below 1 is a share of the steps."""
    (function,) = {id(each): each for each in getattr(scheduler, "scheduler", scheduler).lr_lambdas}.values()
    name = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    if not function.func.__name__.startswith(f"_get_{name}_schedule"):
        return {}
    warmup = args.warmup_steps or getattr(args, "warmup_ratio", None)
    return {"lr_scheduler_type": name, "warmup_steps": float(warmup or 0)}

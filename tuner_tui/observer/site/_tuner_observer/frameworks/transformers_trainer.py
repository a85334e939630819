"""Hooks the Hugging Face Trainer: plan, logs, evaluations, checkpoints, phases and the control file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import settings_in_effect
from .reporter import FrameworkReporter, as_float, hook_pause

if TYPE_CHECKING:
    from ..counters.step_counters import StepCounters
    from ..session import Session
    from ..settings_in_effect import SettingsInEffect


def hook_transformers_trainer(
    module: Any, session: Session, counters: StepCounters, effective: SettingsInEffect
) -> None:
    """Add a callback to every Trainer that will be built, and time evaluation and saving."""
    story = TransformersReporter(session, counters, effective)
    module.DEFAULT_CALLBACKS.append(_callback_class(module, story))
    for name in ("evaluate", "predict", "evaluation_loop", "prediction_loop"):
        hook_pause(module.Trainer, name, story, "evaluating")
    hook_pause(module.Trainer, "_save_checkpoint", story, "saving")


class TransformersReporter(FrameworkReporter):
    """What the callback tells."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The plan. Steps of this process start at the resumed step."""
        session = self.session
        self.counters.follow_trainer(state.global_step)
        session.open()
        total, trainable = settings_in_effect.count_parameters(model)
        session.tell(
            "plan",
            total_steps=None if os.environ.get("TUNER_TRIAL") else state.max_steps,  # a trial has no such end
            first_step=state.global_step,
            epochs=as_float(state.num_train_epochs),
            accumulation=args.gradient_accumulation_steps,
            obeys=True,
            parameters=total,
            trainable_parameters=trainable,
        )
        self.effective.arguments_known(args)
        self.effective.model_known(model)
        self.effective.versions_known()
        self.control_file.training_begins()
        session.enter("skipping" if state.global_step else "training")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Batches are skipped until the first step begins."""
        if self.session.phase == "skipping":
            self.counters.skipped_batches(args.gradient_accumulation_steps)
            self.session.enter("training")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step is done. Obey the control file: checkpoint now, or checkpoint and end."""
        self.counters.trainer_stepped()
        word = self.control_file.order(state.global_step)
        if word in ("checkpoint", "stop"):
            control.should_save = True
        if word == "stop":
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Loss, learning rate and gradient norm; at most one line a second, the newest kept for the end."""
        logs = logs or {}
        if "loss" not in logs:
            return
        fields = {"step": state.global_step, "epoch": as_float(state.epoch)}
        for name in ("loss", "learning_rate", "grad_norm"):
            fields[name] = as_float(logs.get(name))
        self.measured(fields)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Metrics that are numbers, as the trainer names them."""
        self.evaluated(state.global_step, metrics)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Trainer calls this when the checkpoint is complete."""
        path = os.path.join(os.path.abspath(args.output_dir), f"checkpoint-{state.global_step}")
        if self.session.opened and getattr(state, "is_world_process_zero", True):
            self.session.tell("checkpoint", step=state.global_step, path=path, seconds=self.saving_s)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last counters and metrics."""
        self.write_metrics()
        self.counters.trainer_ended()
        self.session.enter("ending")


def _callback_class(module: Any, story: FrameworkReporter) -> type:
    """A TrainerCallback class, made when transformers is there to derive from."""

    def event(name: str) -> Any:
        method = getattr(story, name)

        def handler(_: object, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            try:
                method(args, state, control, **kwargs)
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                return

        return handler

    names = [name for name in dir(story) if name.startswith("on_")]
    return type("TunerObserverCallback", (module.TrainerCallback,), {name: event(name) for name in names})

"""Hooks the Lightning Trainer: plan, logged metrics, evaluations, checkpoints, phases and the control file."""

from __future__ import annotations

import functools
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from .. import settings_in_effect
from ..import_hooks import call_safely
from .reporter import FrameworkReporter, as_float, hook_pause

if TYPE_CHECKING:
    from ..counters.step_counters import StepCounters
    from ..session import Session
    from ..settings_in_effect import SettingsInEffect

LOSS_NAMES = ("train_loss", "train/loss", "loss", "train_loss_step", "train/loss_step", "loss_step")
GRAD_NORM_NAMES = ("grad_norm", "train/grad_norm", "grad_2.0_norm_total")


def hook_lightning_trainer(module: Any, session: Session, counters: StepCounters, effective: SettingsInEffect) -> None:
    """`module` is `….trainer.trainer` of `lightning.pytorch` or `pytorch_lightning`; it imports all the others."""
    package = module.__name__[: -len(".trainer.trainer")]
    story = LightningReporter(session, counters, effective)
    call_safely(_hook_callbacks, sys.modules.get(package + ".trainer.call"), story)
    call_safely(_hook_logger, _connector_module(package), story)
    loop = getattr(sys.modules.get(package + ".loops.evaluation_loop"), "_EvaluationLoop", None)
    if loop is not None:
        hook_pause(loop, "run", story, "evaluating")
    hook_pause(module.Trainer, "save_checkpoint", story, "saving")
    _hook_checkpoints(module.Trainer, story)


def _connector_module(package: str) -> Any:
    return sys.modules.get(package + ".trainer.connectors.logger_connector.logger_connector")


def _hook_callbacks(module: Any, story: LightningReporter) -> None:
    """`module` is `….trainer.call`: every hook of every callback is called by one function there."""
    original = module._call_callback_hooks
    handlers = {name: getattr(story, name) for name in dir(story) if name.startswith("on_")}

    @functools.wraps(original)
    def _call_callback_hooks(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        handler = handlers.get(hook_name)
        if handler is not None:
            call_safely(handler, trainer)
        return original(trainer, hook_name, *args, **kwargs)

    module._call_callback_hooks = _call_callback_hooks


def _hook_logger(module: Any, story: LightningReporter) -> None:
    """Metrics are numbers once Lightning has made them so for a logger: it is its own wait for the device, not ours."""
    connector_class, to_scalars = module._LoggerConnector, module.convert_tensors_to_scalars
    original = connector_class.log_metrics

    def convert_tensors_to_scalars(data: Any) -> Any:
        scalars = to_scalars(data)
        story.scalars = dict(scalars) if isinstance(scalars, dict) else None
        return scalars

    @functools.wraps(original)
    def log_metrics(self: Any, *args: Any, **kwargs: Any) -> None:
        story.scalars = None
        original(self, *args, **kwargs)
        call_safely(story.logged, self.trainer)

    module.convert_tensors_to_scalars = functools.wraps(to_scalars)(convert_tensors_to_scalars)
    connector_class.log_metrics = log_metrics


def _hook_checkpoints(trainer_class: Any, story: LightningReporter) -> None:
    original = trainer_class.save_checkpoint

    @functools.wraps(original)
    def save_checkpoint(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, filepath, *args, **kwargs)
        call_safely(story.saved, self, filepath)
        return result

    trainer_class.save_checkpoint = save_checkpoint


class LightningReporter(FrameworkReporter):
    """`on_…` methods are called before the callbacks of that name."""

    def __init__(self, session: Session, counters: StepCounters, effective: SettingsInEffect) -> None:
        super().__init__(session, counters, effective)
        self.scalars: dict[str, Any] | None = None
        self._validation: dict[str, Any] = {}
        self._obeyed_at = 0

    def on_train_start(self, trainer: Any) -> None:
        """The plan. Steps of this process start at the resumed step."""
        session, model = self.session, trainer.lightning_module
        self.counters.starts_at(trainer.global_step)
        self._obeyed_at = trainer.global_step
        session.open()
        total, trainable = settings_in_effect.count_parameters(model)
        session.tell(
            "plan",
            total_steps=_count_or_none(call_safely(lambda: trainer.estimated_stepping_batches)),
            first_step=trainer.global_step,
            epochs=_count_or_none(trainer.max_epochs),
            accumulation=trainer.accumulate_grad_batches,
            obeys=True,
            parameters=total,
            trainable_parameters=trainable,
        )
        self.effective.known({"gradient_accumulation_steps": trainer.accumulate_grad_batches})
        self.effective.model_known(model)
        self.effective.versions_known()
        self.control_file.training_begins()
        session.enter("training")

    def on_train_batch_end(self, trainer: Any) -> None:
        """After a step, obey the control file: checkpoint now, or checkpoint and end."""
        if trainer.global_step == self._obeyed_at:
            return
        self._obeyed_at = trainer.global_step
        word = self.control_file.order(trainer.global_step)
        if word not in ("checkpoint", "stop"):
            return
        trainer.save_checkpoint(os.path.join(trainer.default_root_dir, f"checkpoint-{trainer.global_step}.ckpt"))
        if word == "stop":
            trainer.should_stop = True

    def logged(self, trainer: Any) -> None:
        """What went to the loggers; the learning rate is the optimizer's own."""
        scalars = self.scalars or {}
        if not trainer.training:
            self._validation.update(scalars)
            return
        loss = _first(scalars, LOSS_NAMES)
        if loss is None:
            return
        fields = {"step": trainer.global_step, "epoch": as_float(trainer.current_epoch), "loss": loss}
        fields["grad_norm"] = _first(scalars, GRAD_NORM_NAMES)
        fields["learning_rate"] = call_safely(lambda: as_float(trainer.optimizers[0].param_groups[0]["lr"]))
        self.measured(fields)

    def on_validation_start(self, trainer: Any) -> None:
        """Metrics of an earlier one are not this one's."""
        self._validation.clear()

    def on_validation_end(self, trainer: Any) -> None:
        """An evaluation is done; the check before the training is none. Without a logger, what is on the CPU counts."""
        if not trainer.sanity_checking:
            kept = getattr(trainer._logger_connector, "_callback_metrics", {})
            unlogged = {name: value for name, value in kept.items() if not name.startswith("train")}
            self.evaluated(trainer.global_step, self._validation or unlogged)

    def saved(self, trainer: Any, path: Any) -> None:
        """A checkpoint is complete."""
        if self.session.opened and trainer.is_global_zero:
            path = os.path.abspath(os.fspath(path))
            self.session.tell("checkpoint", step=trainer.global_step, path=path, seconds=self.saving_s)

    def on_train_end(self, trainer: Any) -> None:
        """The last counters and metrics."""
        self.write_metrics()
        self.counters.trainer_ended()
        self.session.enter("ending")


def _first(values: dict[str, Any], names: tuple[str, ...]) -> float | None:
    return next((as_float(values[name]) for name in names if name in values), None)


def _count_or_none(value: Any) -> int | None:
    """A number of steps or epochs: Lightning says -1 or infinity where there is no end."""
    return int(value) if value is not None and math.isfinite(value) and value > 0 else None

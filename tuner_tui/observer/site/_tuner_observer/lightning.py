"""With Lightning: the plan, what it logs, evaluations, checkpoints, phases, and the control file.

No callback is added to the user's list: the function through which Lightning calls callbacks is listened to.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from . import models
from .importing import call_safely
from .story import Story, number, pause_during

if TYPE_CHECKING:
    from .counters import Counters
    from .effective import Effective
    from .session import Session

LOSS_NAMES = ("train_loss", "train/loss", "loss", "train_loss_step", "train/loss_step", "loss_step")
GRADIENT_NAMES = ("grad_norm", "train/grad_norm", "grad_2.0_norm_total")


def watch(module: Any, session: Session, counters: Counters, effective: Effective) -> None:
    """`module` is `….trainer.trainer` of `lightning.pytorch` or `pytorch_lightning`; it imports all the others."""
    package = module.__name__[: -len(".trainer.trainer")]
    story = LightningStory(session, counters, effective)
    call_safely(_listen, sys.modules.get(package + ".trainer.call"), story)
    call_safely(_overhear, _connector_module(package), story)
    loop = getattr(sys.modules.get(package + ".loops.evaluation_loop"), "_EvaluationLoop", None)
    if loop is not None:
        pause_during(loop, "run", story, "evaluating")
    pause_during(module.Trainer, "save_checkpoint", story, "saving")
    _tell_checkpoints(module.Trainer, story)


def _connector_module(package: str) -> Any:
    return sys.modules.get(package + ".trainer.connectors.logger_connector.logger_connector")


def _listen(module: Any, story: LightningStory) -> None:
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


def _overhear(module: Any, story: LightningStory) -> None:
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


def _tell_checkpoints(trainer_class: Any, story: LightningStory) -> None:
    original = trainer_class.save_checkpoint

    @functools.wraps(original)
    def save_checkpoint(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, filepath, *args, **kwargs)
        call_safely(story.saved, self, filepath)
        return result

    trainer_class.save_checkpoint = save_checkpoint


class LightningStory(Story):
    """`on_…` methods are called before the callbacks of that name."""

    def __init__(self, session: Session, counters: Counters, effective: Effective) -> None:
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
        total, trainable = models.parameters(model)
        session.tell(
            "plan",
            total_steps=_finite_count(call_safely(lambda: trainer.estimated_stepping_batches)),
            first_step=trainer.global_step,
            epochs=_finite_count(trainer.max_epochs),
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
        fields = {"step": trainer.global_step, "epoch": number(trainer.current_epoch), "loss": loss}
        fields["grad_norm"] = _first(scalars, GRADIENT_NAMES)
        fields["learning_rate"] = call_safely(lambda: number(trainer.optimizers[0].param_groups[0]["lr"]))
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
    return next((number(values[name]) for name in names if name in values), None)


def _finite_count(value: Any) -> int | None:
    """A number of steps or epochs: Lightning says -1 or infinity where there is no end."""
    return int(value) if value is not None and math.isfinite(value) and value > 0 else None

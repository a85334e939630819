"""Hooks the Lightning Trainer: plan, logged metrics, evaluations, checkpoints, phases and the control file.

The user's list of callbacks is not changed: the function with which Lightning calls callbacks is hooked instead.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

from ..counters.step_counters import StepCounters
from ..import_hooks import call_after, call_before, call_safely
from ..session import Session
from ..settings_in_effect import SettingsInEffect
from .loggers import kind_of, training_losses
from .reporter import FrameworkReporter, as_float, hook_pause

GRAD_NORM_NAMES = ("grad_norm", "train/grad_norm", "grad_2.0_norm_total")


def hook_lightning_trainer(
    module: Any, session: Session, counters: StepCounters, settings_in_effect: SettingsInEffect
) -> None:
    """`module` is `trainer.trainer` of `lightning.pytorch` or `pytorch_lightning`, which imports the others."""
    # Private names of Lightning are hooked one by one, each under `call_safely`: if a version moves one of them, its
    # part is missing and the rest works.
    package = module.__name__[: -len(".trainer.trainer")]
    reporter = LightningReporter(session, counters, settings_in_effect)
    call_safely(_hook_callbacks, sys.modules.get(package + ".trainer.call"), reporter)
    connectors = sys.modules.get(package + ".trainer.connectors.logger_connector.logger_connector")
    call_safely(_hook_logger, connectors, reporter)
    loop = getattr(sys.modules.get(package + ".loops.evaluation_loop"), "_EvaluationLoop", None)
    if loop is not None:
        hook_pause(loop, "run", reporter, "evaluating")
    hook_pause(module.Trainer, "save_checkpoint", reporter, "saving")
    call_after(
        module.Trainer, "save_checkpoint", lambda _, trainer, filepath, *__, **___: reporter.saved(trainer, filepath)
    )


def _hook_callbacks(module: Any, reporter: LightningReporter) -> None:
    """`module` is `trainer.call`, whose `_call_callback_hooks` calls each hook of all callbacks."""
    handlers = reporter.handlers()

    def before(trainer: Any, hook_name: str, *_: Any, **__: Any) -> None:
        if hook_name in handlers:
            handlers[hook_name](trainer)

    call_before(module, "_call_callback_hooks", before)


def _hook_logger(module: Any, reporter: LightningReporter) -> None:
    """Read metrics after Lightning has converted them for its loggers, which avoids another synchronisation.

    Without a logger it converts nothing; then those on the CPU are read.
    """

    def converted(scalars: Any, *_: Any, **__: Any) -> None:
        reporter.scalars = dict(scalars) if isinstance(scalars, dict) else None

    def logged(_: None, connector: Any, metrics: Any, *__: Any, **___: Any) -> None:
        reporter.logged(connector.trainer, metrics)

    call_after(module, "convert_tensors_to_scalars", converted)
    call_before(module._LoggerConnector, "log_metrics", lambda *_, **__: converted(None))
    call_after(module._LoggerConnector, "log_metrics", logged)


class LightningReporter(FrameworkReporter):
    """`on_*` methods are called before the callbacks' methods of the same name."""

    def __init__(self, session: Session, counters: StepCounters, settings_in_effect: SettingsInEffect) -> None:
        super().__init__(session, counters, settings_in_effect)
        self.scalars: dict[str, Any] | None = None
        self._validation: dict[str, Any] = {}
        self._obeyed_at = 0

    def on_train_start(self, trainer: Any) -> None:
        """Report the plan. Steps of this process start at the resumed step."""
        self.counters.set_first_step(trainer.global_step)
        self._obeyed_at = trainer.global_step
        self.settings_in_effect.update({"gradient_accumulation_steps": trainer.accumulate_grad_batches})
        self.begin(
            trainer.lightning_module,
            "training",
            total_steps=_count_or_none(call_safely(lambda: trainer.estimated_stepping_batches)),
            first_step=trainer.global_step,
            epochs=_count_or_none(trainer.max_epochs),
        )

    def on_train_batch_end(self, trainer: Any) -> None:
        """After a step, act on the control file: save a checkpoint, and stop if requested."""
        if trainer.global_step == self._obeyed_at:
            return
        self._obeyed_at = trainer.global_step
        request = self.control_file.request(trainer.global_step)
        if request not in ("checkpoint", "stop"):
            return
        trainer.save_checkpoint(os.path.join(trainer.default_root_dir, f"checkpoint-{trainer.global_step}.ckpt"))
        if request == "stop":
            trainer.should_stop = True

    def logged(self, trainer: Any, metrics: Any) -> None:
        """Report logged metrics; the learning rate is read from the optimizer."""
        scalars = self.scalars or metrics or {}
        if not trainer.training:
            self._validation.update(scalars)
            return
        fields = training_losses(scalars)
        if fields.get("loss") is None:
            return
        fields.update(step=self._step(trainer), epoch=as_float(trainer.current_epoch))
        fields["grad_norm"] = next((as_float(scalars[name]) for name in GRAD_NORM_NAMES if name in scalars), None)
        fields["learning_rate"] = call_safely(lambda: as_float(trainer.optimizers[0].param_groups[0]["lr"]))
        self.report_metrics(fields)

    def on_validation_start(self, trainer: Any) -> None:
        """Discard the metrics of earlier validations."""
        self._validation.clear()

    def on_validation_end(self, trainer: Any) -> None:
        """Report an evaluation, except the sanity check. Without a logger, use the metrics that are on the CPU."""
        if not trainer.sanity_checking:
            kept = getattr(trainer._logger_connector, "_callback_metrics", {})
            unlogged = {name: value for name, value in kept.items() if not name.startswith("train")}
            self.report_evaluation(self._step(trainer), _evaluated(self._validation or unlogged))

    on_test_start = on_validation_start

    def on_test_end(self, trainer: Any) -> None:
        """Report the metrics of a test under their names: those of a validation have the step of the same weights."""
        self.report_evaluation(self._step(trainer), self._validation or trainer.callback_metrics)

    def saved(self, trainer: Any, path: Any) -> None:
        """Report a completed checkpoint; one that would skip the rest of an epoch only as a file that was saved.

        After a stop in mid-epoch, callbacks that save at the end of an epoch save one that counts as complete: resuming
        from it starts with the next.
        """
        if self.session.is_open and trainer.is_global_zero:
            path = os.path.abspath(os.fspath(path))
            whole = call_safely(lambda: trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)
            if trainer.should_stop and whole is False:
                self.session.report("saved", step=self._step(trainer), path=path)
            else:
                self.session.report("checkpoint", step=self._step(trainer), path=path, seconds=self.saving_s)

    def _step(self, trainer: Any) -> int:
        """Lightning counts the calls of all optimizers; those that step together make one step."""
        return self.counters.step if len(trainer.optimizers) > 1 else int(trainer.global_step)


def _evaluated(logged: Any) -> dict[str, Any]:
    """The metrics by their names; where the value of a batch and their mean are logged, the mean alone."""
    metrics = {}
    for name, value in logged.items():
        plain, _, kind = name.rpartition("_")
        if kind not in ("step", "epoch") or not {f"{plain}_step", f"{plain}_epoch"} <= logged.keys():
            plain = name
        elif kind == "step":
            continue
        metrics["eval_loss" if kind_of(plain).key == "eval_loss" else plain] = value
    return metrics


def _count_or_none(value: Any) -> int | None:
    """Number of steps or epochs, None for Lightning's -1 or infinity."""
    return int(value) if value is not None and math.isfinite(value) and value > 0 else None

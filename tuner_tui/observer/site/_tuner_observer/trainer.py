"""With Hugging Face Trainer: the plan, what it logs, evaluations, checkpoints, phases, and the control file."""

from __future__ import annotations

import functools
import math
import os
import time
from typing import TYPE_CHECKING, Any

from . import models
from .control import ControlFile
from .importing import call_safely

if TYPE_CHECKING:
    from .counters import Counters
    from .effective import Effective
    from .session import Session


def watch(module: Any, session: Session, counters: Counters, effective: Effective) -> None:
    """Add a callback to every Trainer that will be built, and time evaluation and saving."""
    story = Story(session, counters, effective)
    module.DEFAULT_CALLBACKS.append(_callback_class(module, story))
    for name in ("evaluate", "predict", "evaluation_loop", "prediction_loop"):
        _pause_during(module.Trainer, name, story, "evaluating")
    _pause_during(module.Trainer, "_save_checkpoint", story, "saving")


def _pause_during(trainer_class: Any, name: str, story: Story, phase: str) -> None:
    original = trainer_class.__dict__.get(name)
    if original is None:
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        paused = call_safely(story.enter, phase)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            call_safely(story.failed, phase, error)
            raise
        finally:
            call_safely(story.leave, phase, paused)

    setattr(trainer_class, name, method)


class Story:
    """What the callback tells. Errors stay inside: see `_callback_class`."""

    def __init__(self, session: Session, counters: Counters, effective: Effective) -> None:
        self._session = session
        self._counters = counters
        self._effective = effective
        self._control_file = ControlFile(session.run_dir)
        self._last_metrics_s = -math.inf
        self._metrics: dict[str, Any] | None = None
        self._saving_s: float | None = None

    def enter(self, phase: str) -> bool:
        """The Trainer evaluates or saves from here. Returns whether it is the outermost such thing."""
        self._counters.unsettle()
        if phase == "evaluating":
            self._counters.evaluation.depth += 1
        return self._counters.pause(phase, time.perf_counter())

    def leave(self, phase: str, outermost: bool) -> None:
        """The Trainer is done with it."""
        if phase == "evaluating":
            self._counters.evaluation.depth -= 1
        else:
            self._saving_s = self._paused_s()
        if outermost:
            self._counters.end_pause()

    def failed(self, phase: str, error: BaseException) -> None:
        """An error leaves this phase: should nobody catch it, this is where it happened."""
        if self._session.failed_in is None or self._session.failed_in[0] != id(error):
            self._session.failed_in = (id(error), phase)

    def _paused_s(self) -> float | None:
        seconds = self._counters.clock.paused_s(time.perf_counter())
        return None if seconds is None else round(seconds, 6)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The plan. Steps of this process start at the resumed step."""
        session = self._session
        self._counters.follow_trainer(state.global_step)
        session.open()
        total, trainable = models.parameters(model)
        session.tell(
            "plan",
            total_steps=state.max_steps,
            first_step=state.global_step,
            epochs=_number(state.num_train_epochs),
            accumulation=args.gradient_accumulation_steps,
            parameters=total,
            trainable_parameters=trainable,
        )
        self._effective.model_known(model)
        self._effective.versions_known()
        self._control_file.ignore_present()
        session.enter("skipping" if state.global_step else "training")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Batches are skipped until the first step begins."""
        if self._session.phase == "skipping":
            self._counters.skipped_batches(args.gradient_accumulation_steps)
            self._session.enter("training")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step is done. Obey the control file: checkpoint now, or checkpoint and end."""
        self._counters.trainer_stepped()
        word = self._control_file.read()
        if word in ("checkpoint", "stop"):
            control.should_save = True
        if word == "stop":
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Loss, learning rate and gradient norm; at most one line a second, the newest kept for the end."""
        logs = logs or {}
        if "loss" not in logs:
            return
        fields = {"step": state.global_step, "epoch": _number(state.epoch)}
        for name in ("loss", "learning_rate", "grad_norm"):
            fields[name] = _number(logs.get(name))
        self._metrics = fields
        if time.perf_counter() - self._last_metrics_s >= 1.0:
            self._write_metrics()

    def _write_metrics(self) -> None:
        if self._metrics is not None:
            self._session.count("metrics", self._metrics)
            self._metrics = None
            self._last_metrics_s = time.perf_counter()

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Metrics that are numbers, as the trainer names them."""
        numbers = {name: _number(value) for name, value in (metrics or {}).items()}
        self._session.tell(
            "evaluated",
            step=state.global_step,
            metrics={name: value for name, value in numbers.items() if value is not None},
            seconds=self._paused_s(),
        )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Trainer calls this when the checkpoint is complete."""
        path = os.path.join(os.path.abspath(args.output_dir), f"checkpoint-{state.global_step}")
        if self._session.opened and getattr(state, "is_world_process_zero", True):
            self._session.tell("checkpoint", step=state.global_step, path=path, seconds=self._saving_s)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last counters and metrics."""
        self._write_metrics()
        self._counters.trainer_ended()
        self._session.enter("ending")


def _callback_class(module: Any, story: Story) -> type:
    """A TrainerCallback class, made when transformers is there to derive from."""

    def event(name: str) -> Any:
        method = getattr(story, name)

        def handler(_: object, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            call_safely(functools.partial(method, args, state, control, **kwargs))

        return handler

    names = [name for name in dir(story) if name.startswith("on_")]
    return type("TunerObserverCallback", (module.TrainerCallback,), {name: event(name) for name in names})


def _number(value: Any) -> float | None:
    """A float of what Trainer gives: a number, or since transformers 5 its string; None for anything else."""
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None

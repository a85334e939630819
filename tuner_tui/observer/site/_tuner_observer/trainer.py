"""With Hugging Face Trainer: the plan, what it logs, evaluations, checkpoints, phases, and the control file."""

import functools
import math
import os
import time

from . import models
from .control import ControlFile
from .importing import call_safely


def watch(module, session, counters, effective):
    """Add a callback to every Trainer that will be built, and time evaluation and saving."""
    callback_class = _callback_class(module, Story(session, counters, effective))
    module.DEFAULT_CALLBACKS.append(callback_class)
    for name in ("evaluate", "predict"):
        _pause_during(module.Trainer, name, counters, "evaluating")
    _pause_during(module.Trainer, "_save_checkpoint", counters, "saving")


def _pause_during(trainer_class, name, counters, phase):
    original = trainer_class.__dict__.get(name)
    if original is None:
        return

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        paused = call_safely(_enter, counters, phase)
        try:
            return original(self, *args, **kwargs)
        finally:
            call_safely(_leave, counters, phase, paused)

    setattr(trainer_class, name, method)


def _enter(counters, phase):
    if phase == "evaluating":
        counters.evaluations += 1
    return counters.pause(phase)


def _leave(counters, phase, paused):
    if phase == "evaluating":
        counters.evaluations -= 1
    counters.last_pause_s = counters.paused_for()
    if paused:
        counters.resume()


class Story:
    """What the callback tells. Errors stay inside: see `_callback_class`."""

    def __init__(self, session, counters, effective):
        self._session = session
        self._counters = counters
        self._effective = effective
        self._control_file = ControlFile(session.run_dir)
        self._last_metrics_s = -math.inf
        self._metrics = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """The plan. Steps of this process start at the resumed step."""
        counters, session = self._counters, self._session
        counters.first_step = state.global_step - counters.own_steps
        counters.follow_trainer()
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

    def on_step_begin(self, args, state, control, **kwargs):
        """Batches are skipped until the first step begins."""
        if self._session.phase == "skipping":
            self._counters.skipped(args.gradient_accumulation_steps)
            self._session.enter("training")

    def on_step_end(self, args, state, control, **kwargs):
        """A step is done. Obey the control file: checkpoint now, or checkpoint and end."""
        self._counters.trainer_stepped()
        word = self._control_file.read()
        if word in ("checkpoint", "stop"):
            control.should_save = True
        if word == "stop":
            control.should_training_stop = True
        return control

    def on_log(self, args, state, control, logs=None, **kwargs):
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

    def _write_metrics(self):
        if self._metrics is not None:
            self._session.count("metrics", self._metrics)
            self._metrics = None
            self._last_metrics_s = time.perf_counter()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Metrics that are numbers, as the trainer names them."""
        numbers = {name: _number(value) for name, value in (metrics or {}).items()}
        self._session.tell(
            "evaluated",
            step=state.global_step,
            metrics={name: value for name, value in numbers.items() if value is not None},
            seconds=self._counters.paused_for(),
        )

    def on_save(self, args, state, control, **kwargs):
        """Trainer calls this when the checkpoint is complete."""
        path = os.path.join(os.path.abspath(args.output_dir), "checkpoint-%d" % state.global_step)
        if self._session.opened and getattr(state, "is_world_process_zero", True):
            seconds = self._counters.last_pause_s
            self._session.tell("checkpoint", step=state.global_step, path=path, seconds=seconds)

    def on_train_end(self, args, state, control, **kwargs):
        """The last counters and metrics."""
        self._write_metrics()
        self._counters.trainer_ended()
        self._session.enter("ending")


def _callback_class(module, story):
    """A TrainerCallback class, made when transformers is there to derive from."""

    def event(name):
        method = getattr(story, name)

        def handler(self, args, state, control, **kwargs):
            call_safely(functools.partial(method, args, state, control, **kwargs))

        return handler

    names = [name for name in dir(story) if name.startswith("on_")]
    return type("TunerObserverCallback", (module.TrainerCallback,), {name: event(name) for name in names})


def _number(value):
    """A float of what Trainer gives: a number, or since transformers 5 its string; None for anything else."""
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


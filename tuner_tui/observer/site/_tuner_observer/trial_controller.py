"""Runs a trial: measures the training for some seconds and then ends it. Only with TUNER_TRIAL, its protocol.

The longest batch comes first, and again after the first optimizer step, when the optimizer state exists. The warm-up
ends when both are done, the batches prefetched by loader workers are used up, and nothing was compiled recently. Then
steps are measured until the throughput is stable. The rest of the script, which might save, evaluate and upload, never
runs.
"""

from __future__ import annotations

import math
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from . import longest_batch, process_role
from .counters.evaluation import EvaluationDetector
from .counters.step_counters import StepCounters
from .data_streams import DrawnSamples, is_stream, length_of, repeats_in_workers
from .hooks.injection import InjectionLog, inject_training_arguments
from .hooks.optimizer_steps import hook_compilation
from .import_hooks import call_after, call_before, call_safely, is_compiling_function
from .names import LIBRARIES
from .process_exit import is_out_of_memory, redact
from .session import Session
from .settings_in_effect import KEPT
from .trial_figures import GpuStopwatch, ThroughputEstimate, TrialMemory


def evaluate_one_batch(
    trainer: Any, evaluation: EvaluationDetector, session: Session, alone: bool, within_s: float
) -> tuple[str, float | None]:
    """Evaluate the longest batch with a Trainer; describe the result and return its seconds.

    Reports out of memory and ends the process.
    """
    if trainer is None:
        return "no evaluation: it works with a Trainer only", None
    if not alone:
        return "no evaluation: several processes", None
    evaluation.depth += 1
    session.enter_phase("evaluating")
    try:
        return _predict_longest_batch(trainer, within_s)
    except Exception as error:  # noqa: BLE001 - outermost edge inside somebody else's process
        kind = type(error).__name__
        if not is_out_of_memory(kind, str(error)):
            return f"no evaluation: {kind}: {redact(str(error)).partition(chr(10))[0][:200]}", None
        session.open()
        session.report(
            "out-of-memory", message=redact(str(error)[:4000]) or kind, where="evaluating", step=session.step
        )
        os._exit(1)
    finally:
        evaluation.depth -= 1


def _predict_longest_batch(trainer: Any, within_s: float) -> tuple[str, float | None]:
    if trainer.eval_dataset is None:
        return "no evaluation: no evaluation data", None
    loader = trainer.get_eval_dataloader()
    first = [True]
    result = longest_batch.put_longest_batch_first(
        getattr(loader, "base_dataloader", loader), lambda: bool(first and first.pop()), within_s
    )
    since_s = time.perf_counter()
    batch = next(iter(loader))
    model = trainer.model_wrapped
    was_training = model.training
    model.eval()
    try:
        trainer.prediction_step(model, batch, prediction_loss_only=trainer.compute_metrics is None)
    finally:
        model.train(was_training)
    return f"one batch, {result}", round(time.perf_counter() - since_s, 6)


DEFAULT_PROTOCOL = {"warmup_steps": 2, "warmup_s": 0.5, "least_steps": 3, "least_s": 1.0, "spread": 0.02, "most_s": 8.0,
         "lengths_s": 2.0, "evaluate": True}  # fmt: skip
"""Defaults for what `TUNER_TRIAL` leaves out. Seconds are seconds of training."""
MAX_RESTARTS = 8
"""How often a compilation may restart the measurement: torch's limit of recompilations of one function."""
MAX_WAIT_FOR_RANKS_S = 60.0
"""A rank that is done keeps training, so that others can finish, until it is ended or this time has passed."""


class TrialController:
    """One trial in one process. Its methods may raise: hooks call them with `call_safely`."""

    def __init__(self, torch: Any, session: Session, counters: StepCounters, protocol: dict[str, Any]) -> None:
        self._session = session
        self._counters = counters
        self._protocol = {**DEFAULT_PROTOCOL, **protocol}
        self._memory = TrialMemory(torch)
        self._stopwatch = GpuStopwatch(torch)
        self._trainer: Any = None
        self._longest = "no DataLoader was observed"
        self._samples: int | None = None
        self._lookup_s = 0.0
        self._backlog = self._workers = 0
        self._longest_given = 0
        self._has_loader = False
        self._drawn: DrawnSamples | None = None
        self._workers_repeat = False
        self._compiled_at = -1
        self._restarts = 0
        self._closure = False
        self._first_step_totals: dict[str, Any] | None = None
        self._totals_now: dict[str, Any] = {}
        self._start_totals: dict[str, Any] | None = None
        self._min_step_totals: dict[str, Any] | None = None
        self._speed = ThroughputEstimate()
        self._finished_s: float | None = None
        counters.on_step = self._stepped

    # called by the hooks

    def set_trainer(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Remember the Trainer, which is used for the evaluation."""
        self._trainer = weakref.ref(trainer)

    def compiling(self) -> None:
        """Exclude the current step and the next one from the measurement."""
        self._compiled_at = self._counters.own_steps

    def loader_opened(self, loader: Any) -> None:
        """Put the longest batch first if this is the first training loader."""
        if self._has_loader or self._counters.evaluation.is_evaluating():
            return
        self._has_loader = True
        self._memory.begin()
        self._samples = longest_batch.dataset_size(loader.dataset)
        self._drawn = DrawnSamples(loader.dataset) if is_stream(loader.dataset) else None
        self._workers_repeat = repeats_in_workers(loader.dataset, loader.worker_init_fn)
        self._workers = loader.num_workers
        self._backlog = loader.num_workers * (loader.prefetch_factor or 0)
        since_s = time.perf_counter()
        self._longest = longest_batch.put_longest_batch_first(loader, self._longest_due, self._protocol["lengths_s"])
        self._lookup_s = time.perf_counter() - since_s

    def batch_delivered(self, batch: Any, iterator: Any) -> None:
        """Compare the samples of a stream with those before."""
        if self._drawn is not None:
            self._drawn.delivered(batch, iterator)

    def _longest_due(self) -> bool:
        """True for the first batch, and for the first batch requested after an optimizer step."""
        due = self._longest_given == 0 or (self._longest_given == 1 and self._counters.own_steps > 0)
        self._longest_given += due
        return due

    def optimizer_begins(self, _: Any, args: Any, kwargs: Any) -> None:
        """With a closure (as Lightning uses) forward and backward run inside the step and cannot be separated."""
        self._closure = self._closure or any(map(callable, (*args, *kwargs.values())))
        if self._finished_s is None and not self._closure:
            self._memory.before_step()
            self._stopwatch.optimizer_begins()

    def optimizer_ends(self, optimizer: Any, *_: Any) -> None:
        if self._finished_s is not None:
            return
        if not self._closure:
            self._stopwatch.optimizer_ends()
            self._memory.after_step()
        self._memory.first_stepped(optimizer)

    # steps

    def _stepped(self) -> None:
        """Called after every optimizer call; processes completed steps."""
        if self._finished_s is not None:
            if time.perf_counter() - self._finished_s > MAX_WAIT_FOR_RANKS_S:
                exit_process()
            return
        now = {**self._counters.totals(), "t": time.time()}
        steps = now["own_steps"]
        if steps == self._totals_now.get("own_steps", 0):
            return
        before, self._totals_now = self._totals_now, now
        if self._first_step_totals is None:
            self._first_step_totals = now
        if self._min_step_totals is None and steps >= self._protocol["warmup_steps"]:
            self._min_step_totals = now
        # A recompilation in the measured span (another shape) would be measured as slow steps: measure anew after it.
        if self._start_totals is not None and self._compiled_at >= self._start_totals["own_steps"]:
            self._restart()
        if self._start_totals is None:
            if self._is_warm(now):
                self._begin(now)
        else:
            batches = now["micro_steps"] - before["micro_steps"]
            ended = self._speed.add(self._amount(now, before), now["train_s"] - before["train_s"], batches)
            if self._is_finished(ended):
                self.finish()

    def _is_warm(self, now: dict[str, Any]) -> bool:
        """True once warm-up is over."""
        assert self._first_step_totals is not None
        protocol, steps = self._protocol, now["own_steps"]
        if steps < protocol["warmup_steps"] or steps <= self._compiled_at + 1:
            return False
        if now["train_s"] >= protocol["most_s"]:
            return True
        # Workers have prefetched before the first step; those batches come before the longest one of the second
        # request. Warm-up lasts until they are used up, so that the measured steps have batches like all later ones.
        used = self._backlog + 1 + longest_batch.MOST_WORST
        longest_used = now["micro_steps"] >= self._first_step_totals["micro_steps"] + used
        return (longest_used or not self._has_loader) and now["train_s"] >= protocol["warmup_s"]

    def _begin(self, now: dict[str, Any]) -> None:
        self._memory.warm()
        self._stopwatch.begin()
        self._start_totals = now
        self._speed = ThroughputEstimate(self._workers)

    def _restart(self) -> None:
        """Discard the measurement, because a new shape was compiled during it."""
        if self._restarts < MAX_RESTARTS:
            self._restarts += 1
            self._start_totals = None
            self._speed = ThroughputEstimate()

    def _amount(self, now: dict[str, Any], before: dict[str, Any]) -> float:
        """Tokens of the step without padding, else samples, else 1."""
        name = "tokens" if now["tokens"] is not None else "samples" if now["samples"] else "own_steps"
        return float(now[name] - (before.get(name) or 0))

    def _is_finished(self, block_ended: bool) -> bool:
        protocol, speed = self._protocol, self._speed
        if speed.steps < 2:
            return False
        if speed.seconds >= protocol["most_s"]:
            return True
        spread = speed.spread() if block_ended else None
        stable = spread is not None and spread <= protocol["spread"]
        return stable and speed.steps >= protocol["least_steps"] and speed.seconds >= protocol["least_s"]

    # the end

    def training_ended(self) -> None:
        """Finish with the steps measured so far: the training has ended before the trial."""
        if self._finished_s is None and self._totals_now:
            self.finish()

    def finish(self) -> None:
        """Report the measurement, and end the process if it is the only rank."""
        self._finished_s = time.perf_counter()
        self._stopwatch.end()
        alone = process_role.rank_and_world()[1] == 1
        evaluated, evaluation_s = "not requested", None
        trainer = None if self._trainer is None else self._trainer()
        if self._protocol["evaluate"]:
            evaluated, evaluation_s = evaluate_one_batch(
                trainer, self._counters.evaluation, self._session, alone, self._protocol["lengths_s"]
            )
        self._session.open()
        self._session.report(
            "trial",
            **self._figures(),
            evaluated=evaluated,
            evaluation_s=evaluation_s,
            planned_steps=self._planned_steps(trainer),
        )
        if alone:
            self._counters.flush()
            self._session.enter_phase("ending")
            self._session.report("ended", step=self._counters.step)
            exit_process()

    def _planned_steps(self, trainer: Any) -> int | None:
        """Steps that the training would take without the trial; None if they are not known, or a framework's plan."""
        steps: int | None = None
        if trainer is not None:
            steps = call_safely(_trainer_steps, trainer)
        elif not self._counters.trainer_reports:
            steps = call_safely(self._counters.planned_steps, self._totals_now)
        return steps

    def _counts_from(self) -> dict[str, Any]:
        """Totals at which the measured span starts: after warm-up, or after `warmup_steps` if too few steps followed.

        Hundreds of short steps may pass before the warm-up time does; they are a good measure of throughput.
        """
        start, early = self._start_totals, self._min_step_totals or self._totals_now
        if start is None:
            return early
        enough = self._totals_now["own_steps"] - start["own_steps"] >= self._protocol["least_steps"]
        return start if enough or self._compiled_at >= early["own_steps"] else early

    def _figures(self) -> dict[str, Any]:
        end, start = self._totals_now, self._counts_from()
        timed = start is self._start_totals  # the stopwatch ran for the same span
        names = ("samples", "tokens", "padding_tokens", "data_wait_s")
        accumulates = end["micro_steps"] >= 2 * end["own_steps"] >= 4  # a loader may be one batch ahead
        counted = {name: None if end[name] is None else round(end[name] - (start[name] or 0), 6) for name in names}
        steps = end["own_steps"] - start["own_steps"]
        seconds = end["train_s"] - start["train_s"]
        return {
            "steps": steps,
            "warmup_steps": start["own_steps"],
            "begun_t": round(start["t"], 3),
            "lookup_s": round(self._lookup_s, 6),
            "micro_steps": end["micro_steps"] - start["micro_steps"],
            "seconds": round(self._stopwatch.corrected(seconds) if timed else seconds, 6),
            **counted,
            "spread": self._speed.spread(),
            "optimizer_s": self._stopwatch.optimizer_s(steps) if timed else None,
            "batch_shape": end["batch_shape"],
            "dataset_samples": self._samples,
            "longest": self._longest,
            "workers_repeat": self._workers_repeat,
            "repeated_samples": None if self._drawn is None else self._drawn.repeated,
            **self._memory.fields(accumulates),
        }


def _trainer_steps(trainer: Any) -> int | None:
    """Steps that a Hugging Face Trainer would take without the trial; None if its data has no length."""
    arguments = trainer.args
    max_steps = getattr(arguments, KEPT, {}).get("max_steps")
    if max_steps is not None and max_steps > 0:
        return int(max_steps)
    batches = length_of(getattr(trainer.callback_handler, "train_dataloader", None))
    if batches is None:
        return None
    steps = max(1, math.ceil(batches / arguments.gradient_accumulation_steps))
    planned: int = math.ceil(arguments.num_train_epochs * steps)
    return planned


def exit_process() -> None:
    """Terminate the loader workers and this process, without running the rest of the script."""
    for stream in (sys.stdout, sys.stderr):
        call_safely(stream.flush)
    processes = sys.modules.get("multiprocessing.process")
    for child in [] if processes is None else processes.active_children():
        if child.daemon:
            call_safely(child.kill)
    os._exit(0)


def hook_trial(name: str, module: Any, trial: TrialController, session: Session) -> None:
    """Notify the trial of what happens in the module `name`, and disable saving and evaluation in it."""
    if name == "torch.utils.data.dataloader":
        call_before(module.DataLoader, "__iter__", trial.loader_opened)
        call_after(module._BaseDataLoaderIter, "__next__", trial.batch_delivered)
    elif name == "torch.optim.optimizer":
        is_compiling = is_compiling_function()

        def unless_compiling(hook: Callable[..., None]) -> Callable[..., None]:
            return lambda *call: None if is_compiling() else call_safely(hook, *call)

        module.register_optimizer_step_pre_hook(unless_compiling(trial.optimizer_begins))
        module.register_optimizer_step_post_hook(unless_compiling(trial.optimizer_ends))
    elif name == "torch._dynamo.callback":
        hook_compilation(module, (trial.compiling,))
    elif name == "transformers.training_args":
        inject_training_arguments(module, _SilentInjection(session, LIBRARIES["trial_arguments"]))
    elif name == "transformers.trainer":
        call_before(module.Trainer, "train", trial.set_trainer)
        call_after(module.Trainer, "train", lambda *_, **__: trial.training_ended())


class _SilentInjection(InjectionLog):
    """Injects without a report: these are not settings of the user, whose values are kept aside."""

    def set_values(self, arguments: Any, values: dict[str, Any]) -> None:
        arguments.__dict__.setdefault(KEPT, {name: getattr(arguments, name) for name in values})
        super().set_values(arguments, values)

    def report(self, target: str, values: dict[str, Any], last: bool = False) -> None:
        return None

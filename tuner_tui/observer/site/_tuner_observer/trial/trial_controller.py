"""Runs a trial: measures the training for some seconds and then ends it. Only with TUNER_TRIAL, its protocol."""

from __future__ import annotations

import json
import os
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

from .. import process_role
from ..import_hooks import call_safely
from ..process_exit import is_out_of_memory
from . import longest_batch
from .throughput import GpuStopwatch, ThroughputEstimate
from .trial_memory import TrialMemory

if TYPE_CHECKING:
    from ..counters.evaluation_detector import EvaluationDetector
    from ..counters.step_counters import StepCounters
    from ..session import Session


def evaluate_one_batch(
    trainer: Any, evaluation: EvaluationDetector, session: Session, alone: bool, within_s: float
) -> str:
    """Have a Trainer evaluate its longest batch, and say what came of it. Out of memory ends the process, told."""
    if trainer is None:
        return "no evaluation: only a Trainer shows how it evaluates"
    if not alone:
        return "no evaluation: several processes"
    evaluation.depth += 1
    session.enter("evaluating")
    try:
        return _predict_longest_batch(trainer, within_s)
    except Exception as error:  # noqa: BLE001 - outermost edge inside somebody else's process
        kind = type(error).__name__
        if not is_out_of_memory(kind, str(error)):
            return f"no evaluation: {kind}: {str(error).partition(chr(10))[0][:200]}"
        session.open()
        session.tell("out-of-memory", message=str(error)[:4000] or kind, where="evaluating", step=session.step)
        os._exit(1)
    finally:
        evaluation.depth -= 1


def _predict_longest_batch(trainer: Any, within_s: float) -> str:
    if trainer.eval_dataset is None:
        return "no evaluation: there is no data for it"
    loader = trainer.get_eval_dataloader()
    first = [True]
    said = longest_batch.put_longest_batch_first(
        getattr(loader, "base_dataloader", loader), lambda: bool(first and first.pop()), within_s
    )
    batch = next(iter(loader))
    model = trainer.model_wrapped
    was_training = model.training
    model.eval()
    try:
        trainer.prediction_step(model, batch, prediction_loss_only=trainer.compute_metrics is None)
    finally:
        model.train(was_training)
    return f"one batch, {said}"


DEFAULT_PROTOCOL = {"warmup_steps": 2, "warmup_s": 0.5, "least_steps": 3, "least_s": 1.0, "spread": 0.02, "most_s": 8.0,
         "lengths_s": 2.0, "evaluate": True}  # fmt: skip
"""What holds where `TUNER_TRIAL` says nothing else. Seconds are those of training."""
MAX_RESTARTS = 8
"""Times that a compilation sets the measuring back: as often as torch compiles one function for new shapes."""
MAX_WAIT_FOR_RANKS_S = 60.0
"""A rank that has measured trains on until the others have too and all are ended; if nobody does that, so long."""


def requested_protocol() -> dict[str, Any] | None:
    """The terms of `TUNER_TRIAL`; None where this is no trial."""
    text = os.environ.get("TUNER_TRIAL")
    try:
        terms = json.loads(text) if text else None
    except ValueError:
        return None
    return {**DEFAULT_PROTOCOL, **terms} if isinstance(terms, dict) else None


class TrialController:
    """One trial in one process. Methods may raise: they are called safely."""

    def __init__(self, torch: Any, session: Session, counters: StepCounters, terms: dict[str, Any]) -> None:
        self._torch = torch
        self._session = session
        self._counters = counters
        self._terms = terms
        self._peaks = TrialMemory(torch)
        self._watch = GpuStopwatch(torch)
        self._trainer: Any = None
        self._longest = "no loader was seen"
        self._samples: int | None = None
        self._backlog = 0
        self._given = 0
        self._arranged = False
        self._compiled_at = -1
        self._restarts = 0
        self._closure = False
        self._first: dict[str, Any] | None = None
        self._before: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._began: dict[str, Any] | None = None
        self._fewest: dict[str, Any] | None = None
        self._speed = ThroughputEstimate()
        self._told_s: float | None = None
        counters.on_step = self._stepped

    # what the hooks tell

    def trains(self, trainer: Any) -> None:
        """A Trainer begins: it will show how it evaluates."""
        self._trainer = weakref.ref(trainer)

    def compiling(self) -> None:
        """The compiler is at work: this step and the next are no measure of anything."""
        self._compiled_at = self._counters.own_steps

    def reads(self, loader: Any) -> None:
        """A loader is about to be read: if it is the training's first one, its longest batch comes first."""
        if self._arranged or self._counters.evaluation.running():
            return
        self._arranged = True
        self._peaks.begin()
        self._samples = longest_batch.dataset_size(loader.dataset)
        self._backlog = loader.num_workers * (loader.prefetch_factor or 0)
        self._longest = longest_batch.put_longest_batch_first(loader, self._longest_due, self._terms["lengths_s"])

    def _longest_due(self) -> bool:
        """At the very first batch, and at the first one that is drawn after an optimizer step."""
        due = self._given == 0 or (self._given == 1 and self._counters.own_steps > 0)
        self._given += due
        return due

    def optimizer_begins(self, args: Any, kwargs: Any) -> None:
        """A closure (Lightning's way) runs forward and backward inside the step: its part cannot be told apart then."""
        self._closure = self._closure or any(map(callable, (*args, *kwargs.values())))
        if self._told_s is None and not self._closure:
            self._peaks.before_step()
            self._watch.optimizer_begins()

    def optimizer_ends(self) -> None:
        """It is done."""
        if self._told_s is None and not self._closure:
            self._watch.optimizer_ends()
            self._peaks.after_step()

    # steps

    def _stepped(self) -> None:
        """After every optimizer call: look whether a step is done."""
        if self._told_s is not None:
            if time.perf_counter() - self._told_s > MAX_WAIT_FOR_RANKS_S:
                _exit_process(0)
            return
        now = self._counters.totals()
        steps = now["own_steps"]
        if steps == self._last.get("own_steps", 0):
            return
        before, self._last = self._last, now
        if self._first is None:
            self._first = now
        if self._fewest is None and steps >= self._terms["warmup_steps"]:
            self._fewest = now
        if self._began is not None and self._compiled_at >= self._began["own_steps"]:
            self._begin_anew()
        if self._began is None:
            if self._is_warm(now):
                self._begin(now)
        else:
            self._speed.add(self._amount(now, before), now["train_s"] - before["train_s"])
            if self._is_enough():
                self.finish()

    def _is_warm(self, now: dict[str, Any]) -> bool:
        """Whether what comes next is like what comes for hours after."""
        assert self._first is not None
        terms, steps = self._terms, now["own_steps"]
        if steps < terms["warmup_steps"] or steps <= self._compiled_at + 1:
            return False
        if now["train_s"] >= terms["most_s"]:
            return True
        met = now["micro_steps"] >= self._first["micro_steps"] + self._backlog + 2
        return (met or not self._arranged) and now["train_s"] >= terms["warmup_s"]

    def _begin(self, now: dict[str, Any]) -> None:
        self._peaks.warm()
        self._watch.begin()
        self._began = now

    def _begin_anew(self) -> None:
        """Something was compiled in the measured stretch, for a new shape: what was measured is no measure."""
        if self._restarts < MAX_RESTARTS:
            self._restarts += 1
            self._began = None
            self._speed = ThroughputEstimate()

    def _amount(self, now: dict[str, Any], before: dict[str, Any]) -> float:
        """Real tokens of a step, else its samples, else the step itself."""
        name = "tokens" if now["tokens"] is not None else "samples" if now["samples"] else "own_steps"
        return float(now[name] - (before.get(name) or 0))

    def _is_enough(self) -> bool:
        terms, speed = self._terms, self._speed
        if speed.steps < 2:
            return False
        if speed.seconds >= terms["most_s"]:
            return True
        spread = speed.spread()
        stable = spread is not None and spread <= terms["spread"]
        return stable and speed.steps >= terms["least_steps"] and speed.seconds >= terms["least_s"]

    # the end

    def ended(self) -> None:
        """The training came to its end before the trial did: what there is has to do."""
        if self._told_s is None and self._last:
            self.finish()

    def finish(self) -> None:
        """Write down what was measured, and end the process where it is alone."""
        self._told_s = time.perf_counter()
        self._watch.end()
        alone = process_role.rank_and_world()[1] == 1
        evaluated = "it was not asked for"
        if self._terms["evaluate"]:
            trainer = None if self._trainer is None else self._trainer()
            evaluated = evaluate_one_batch(
                trainer, self._counters.evaluation, self._session, alone, self._terms["lengths_s"]
            )
        self._session.open()
        self._session.tell("trial", **self._figures(), evaluated=evaluated)
        if alone:
            self._counters.flush()
            self._session.enter("ending")
            self._session.tell("ended", step=self._counters.step)
            _exit_process(0)

    def _counts_from(self) -> dict[str, Any]:
        """Where the measured stretch begins: after the warm-up, or its first steps where it took nearly all there is.

        Hundreds of quick steps may end before the warm-up's seconds do; they tell the speed well.
        """
        began, fewest = self._began, self._fewest or self._last
        if began is None:
            return fewest
        enough = self._last["own_steps"] - began["own_steps"] >= self._terms["least_steps"]
        return began if enough or self._compiled_at >= fewest["own_steps"] else fewest

    def _figures(self) -> dict[str, Any]:
        last = self._last
        began = self._counts_from()
        watched = began is self._began
        names = ("samples", "tokens", "padding_tokens", "data_wait_s")
        counted = {name: _rounded_difference(last[name], began[name]) for name in names}
        steps = last["own_steps"] - began["own_steps"]
        seconds = last["train_s"] - began["train_s"]
        return {
            "steps": steps,
            "warmup_steps": began["own_steps"],
            "micro_steps": last["micro_steps"] - began["micro_steps"],
            "seconds": round(self._watch.corrected(seconds) if watched else seconds, 6),
            **counted,
            "spread": self._speed.spread(),
            "optimizer_s": self._watch.optimizer_s(steps) if watched else None,
            "batch_shape": last["batch_shape"],
            "dataset_samples": self._samples,
            "longest": self._longest,
            **self._peaks.fields(),
        }


def _rounded_difference(one: Any, other: Any) -> Any:
    return None if one is None else round(one - (other or 0), 6)


def _exit_process(code: int) -> None:
    """End this process here and now, its loaders' workers first. What the script would do next is not the trial's."""
    for stream in (sys.stdout, sys.stderr):
        call_safely(stream.flush)
    processes = sys.modules.get("multiprocessing.process")
    for child in [] if processes is None else processes.active_children():
        if child.daemon:
            call_safely(child.kill)
    os._exit(code)

"""Hooks every optimizer step by torch's global hooks, and GradScaler for the steps that it skips."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..import_hooks import call_safely

if TYPE_CHECKING:
    from ..counters.memory_peaks import MemoryPeaks
    from ..counters.step_counters import StepCounters

perf_counter = time.perf_counter

StepHook = Callable[[Any, Any, Any], None]


def hook_optimizers(
    module: Any, counters: StepCounters, peaks: MemoryPeaks | None, first_stepped: Callable[[Any], None]
) -> None:
    """Register with `torch.optim.optimizer`. `first_stepped` is called after the first step of an optimizer.

    `peaks`, where torch knows of a GPU, look at memory around a step now and then.
    """
    is_compiling, journal = is_compiling_function(), counters.journal
    notes, known = journal.notes, journal.optimizers

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if peaks is not None and not is_compiling():
            call_safely(peaks.before_step)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            now, key = perf_counter(), id(optimizer)
            notes.append((key, now))
            seen = known.get(key)
            if seen is None or seen() is not optimizer:  # a new one may have the place of one that is gone
                known[key] = ref(optimizer)
                first_stepped(optimizer)
            if peaks is not None:
                peaks.after_step()
            if now >= journal.due_s:
                counters.attend(now)
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return

    if hasattr(module, "register_optimizer_step_post_hook"):
        if peaks is not None:
            module.register_optimizer_step_pre_hook(before)
        module.register_optimizer_step_post_hook(after)
    else:
        _wrap_steps(module.Optimizer, before, after)


def _wrap_steps(optimizer_class: Any, before: StepHook, after: StepHook) -> None:
    """torch 1.13 has no global hooks, but every optimizer passes through `Optimizer.__init__`: wrap its class there."""
    original = optimizer_class.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        step = type(self).step
        if not getattr(step, "_tuner_wrapped", False):
            type(self).step = _wrap_step(step, before, after)

    optimizer_class.__init__ = __init__


def _wrap_step(original: Any, before: StepHook, after: StepHook) -> Any:
    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self, args, kwargs)
        result = original(self, *args, **kwargs)
        after(self, args, kwargs)
        return result

    step._tuner_wrapped = True  # type: ignore[attr-defined]
    return step


def is_compiling_function() -> Callable[[], bool]:
    """torch.compile may trace an optimizer step with its hooks: then they must vanish from the graph."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        test: Callable[[], bool] | None = getattr(compiler, name, None)
        if test is not None:
            return test
    return lambda: False


def hook_grad_scaler(module: Any, counters: StepCounters) -> None:
    """A `GradScaler` that finds an infinite gradient does not call the optimizer: count the step as skipped.

    A fused optimizer on a GPU is called all the same and skips inside its kernel; seeing that would need a
    synchronisation, so such steps are counted as taken.
    """
    scaler_class = module.__dict__.get("GradScaler")
    if scaler_class is None or "step" not in scaler_class.__dict__:
        return
    original = scaler_class.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        written = counters.journal.written()
        result = original(self, optimizer, *args, **kwargs)
        if counters.journal.written() == written:
            call_safely(counters.skipped, optimizer)
        return result

    scaler_class.step = step

"""Watch every optimizer of the process by torch's own global hooks, and the gradient scaler for steps it leaves out."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counters import Counters
    from .session import Session

StepHook = Callable[[Any, Any, Any], None]


def watch(
    module: Any,
    counters: Counters,
    session: Session,
    pre_step: Callable[[], None],
    post_step: Callable[[Any], None],
) -> None:
    """Register with `torch.optim.optimizer`. `pre_step` and `post_step` look at memory around a step now and then."""
    is_compiling = _compiling_test()

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            session.in_optimizer = True
            pre_step()
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            session.in_optimizer = False
            post_step(optimizer)
            counters.stepped(optimizer)
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return

    if hasattr(module, "register_optimizer_step_post_hook"):
        module.register_optimizer_step_pre_hook(before_step)
        module.register_optimizer_step_post_hook(after_step)
    else:
        _wrap_steps(module.Optimizer, before_step, after_step)


def _wrap_steps(optimizer_class: Any, before_step: StepHook, after_step: StepHook) -> None:
    """torch 1.13 has no global hooks, but every optimizer passes through `Optimizer.__init__`: wrap its class there."""
    original = optimizer_class.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        step = type(self).step
        if not getattr(step, "_tuner_wrapped", False):
            type(self).step = _wrapped(step, before_step, after_step)

    optimizer_class.__init__ = __init__


def _wrapped(original: Any, before_step: StepHook, after_step: StepHook) -> Any:
    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before_step(self, args, kwargs)
        result = original(self, *args, **kwargs)
        after_step(self, args, kwargs)
        return result

    step._tuner_wrapped = True  # type: ignore[attr-defined]
    return step


def _compiling_test() -> Callable[[], bool]:
    """torch.compile may trace an optimizer step with its hooks: then they must vanish from the graph."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def watch_scaler(module: Any, counters: Counters) -> None:
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
        before = counters.calls
        result = original(self, optimizer, *args, **kwargs)
        if counters.calls == before:
            try:
                counters.stepped(optimizer, True)
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                return result
        return result

    scaler_class.step = step

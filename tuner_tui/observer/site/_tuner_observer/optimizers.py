"""Watch every optimizer of the process by torch's own global hooks, and the gradient scaler for steps it leaves out."""

import functools
import sys


def watch(module, counters, session, pre_step, post_step):
    """Register with `torch.optim.optimizer`. `pre_step` and `post_step` look at memory around a step now and then."""
    is_compiling = _compiling_test()

    def before_step(optimizer, args, kwargs):
        if is_compiling():
            return
        try:
            session.in_optimizer = True
            pre_step(optimizer)
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return

    def after_step(optimizer, args, kwargs):
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


def _wrap_steps(optimizer_class, before_step, after_step):
    """torch 1.13 has no global hooks, but every optimizer passes through `Optimizer.__init__`: wrap its class there."""
    original = optimizer_class.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        step = type(self).step
        if not getattr(step, "_tuner_wrapped", False):
            type(self).step = _wrapped(step, before_step, after_step)

    optimizer_class.__init__ = __init__


def _wrapped(original, before_step, after_step):
    @functools.wraps(original)
    def step(self, *args, **kwargs):
        before_step(self, args, kwargs)
        result = original(self, *args, **kwargs)
        after_step(self, args, kwargs)
        return result

    step._tuner_wrapped = True
    return step


def _compiling_test():
    """torch.compile may trace an optimizer step with its hooks: then they must vanish from the graph."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def watch_scaler(module, counters):
    """A `GradScaler` that finds an infinite gradient does not call the optimizer: count the step as skipped.

    A fused optimizer on a GPU is called all the same and skips inside its kernel; seeing that would need a
    synchronisation, so such steps are counted as taken.
    """
    scaler_class = module.__dict__.get("GradScaler")
    if scaler_class is None or "step" not in scaler_class.__dict__:
        return
    original = scaler_class.step

    @functools.wraps(original)
    def step(self, optimizer, *args, **kwargs):
        before = counters.calls
        result = original(self, optimizer, *args, **kwargs)
        if counters.calls == before:
            try:
                counters.stepped(optimizer, True)
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                return result
        return result

    scaler_class.step = step

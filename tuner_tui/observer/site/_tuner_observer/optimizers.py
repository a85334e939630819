"""Watch every optimizer of the process by torch's own global hooks, and the gradient scaler for steps it leaves out."""

import functools


def watch(module, counters, session, pre_step, post_step):
    """Register with `torch.optim.optimizer`. `pre_step` and `post_step` look at memory around a step now and then."""
    register_pre = getattr(module, "register_optimizer_step_pre_hook", None)
    register_post = getattr(module, "register_optimizer_step_post_hook", None)
    if register_pre is None or register_post is None:
        session.unsupported = "optimizer steps: torch without global optimizer hooks"
        return
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

    register_pre(before_step)
    register_post(after_step)


def _compiling_test():
    """torch.compile may trace an optimizer step with its hooks: then they must vanish from the graph."""
    import torch

    compiler = getattr(torch, "compiler", None)
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

"""Hooks every optimizer step by torch's global hooks, GradScaler for the steps that it skips, and torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from ..counters.step_counters import StepCounters
from ..import_hooks import call_around, call_safely, is_compiling_function

perf_counter = time.perf_counter


def hook_optimizers(module: Any, counters: StepCounters, first_stepped: Callable[[Any], None]) -> None:
    """Hook `torch.optim.optimizer`. `first_stepped` is called after the first step of each optimizer."""
    is_compiling, buffer = is_compiling_function(), counters.buffer
    records, optimizers, counted, began_s = buffer.records, buffer.optimizers, [0], [0.0]
    output_size = counters.session.output_size

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        if _closure(args, kwargs) is not None:
            buffer.optimizer_s = None
        began_s[0] = perf_counter()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            now, key = perf_counter(), id(optimizer)
            if buffer.optimizer_s is not None and began_s[0]:
                buffer.optimizer_s += now - began_s[0]
                began_s[0] = 0.0  # the call around that of an inner optimizer
            # LBFGS calls its closure, and with it `backward`, up to 20 times in a step: these are not micro batches.
            if buffer.backwards > counted[0] + 1 and _closure(args, kwargs) is not None:
                buffer.backwards = counted[0] + 1
            counted[0] = buffer.backwards
            records.append((key, now, buffer.backwards, output_size() or 0))
            buffer.calls += 1
            buffer.rate = optimizer.param_groups[0].get("lr")
            seen = optimizers.get(key)
            if seen is None or seen() is not optimizer:  # the id of a deleted optimizer may be reused
                optimizers[key] = ref(optimizer)
                buffer.due_s = 0.0
                first_stepped(optimizer)
            if now >= buffer.due_s:
                counters.process_step(now)
        except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
            return

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _closure(args: Any, kwargs: Any) -> Any:
    """The closure that an optimizer's `step` was called with, None without one."""
    return args[1] if len(args) > 1 else kwargs.get("closure")


def steps_made(optimizer: Any) -> int:
    """The steps that an optimizer has counted, with those before its state was saved; 0 where it counts none.

    What it counts on a GPU is not read: that would wait for the GPU.
    """
    counts = [state.get("step") for state in optimizer.state.values()]
    return max((int(each) for each in counts if each is not None and getattr(each, "is_cpu", True)), default=0)


def hook_grad_scaler(scaler_class: Any, counters: StepCounters) -> None:
    """Count steps that a `GradScaler` skips because a gradient is infinite.

    A fused optimizer on a GPU skips inside its kernel. Detecting that would need a synchronisation, so such steps count
    as taken.
    """

    def leave(before: tuple[Any, int], _: Any, error: BaseException | None) -> None:
        optimizer, written = before
        if error is None and counters.buffer.written() == written:
            counters.step_skipped(optimizer, call_safely(steps_made, optimizer) or 0)

    call_around(scaler_class, "step", lambda _, optimizer, *__, **___: (optimizer, counters.buffer.written()), leave)


def hook_compilation(module: Any, callbacks: Sequence[Callable[[], None]]) -> None:
    """Call `callbacks` before every compilation. `module` is `torch._dynamo.callback`."""

    def compilation_began(*_: object) -> None:
        for each in callbacks:
            call_safely(each)

    module.on_compile_start(compilation_began)

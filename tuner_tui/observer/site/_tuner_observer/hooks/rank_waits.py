"""Measures time in calls that wait for other ranks: `backward`, collectives, and the buffers that DDP broadcasts.

A rank that is late at a collective keeps the others waiting there, so its own share of this time is the smallest.
`backward` holds the all-reduce of DDP; the gradients computed in it take all ranks about as long. On a GPU, calls
return before their work is done: nothing is measured there.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from ..counters.step_counters import StepCounters
from ..import_hooks import is_compiling_function, replacing
from ..names import NAMES
from ..process_role import is_distributed

perf_counter = time.perf_counter


class RankWaits:
    """Adds the seconds of waiting calls to the counters; of nested calls the outermost counts."""

    def __init__(self, counters: StepCounters) -> None:
        self._counters = counters
        self._is_compiling = is_compiling_function()
        self._depth = 0
        self._hooks_backward = False

    def wrap(self, original: Any) -> Any:
        """`original`, measured while a training runs."""
        # `_depth`: `all_gather_object` calls `all_gather`, and a hook of the gradients may call `all_reduce` within
        # `backward`. Counting both would double the wait.

        @functools.wraps(original)
        def measured(*args: Any, **kwargs: Any) -> Any:
            if self._is_compiling() or self._depth:
                return original(*args, **kwargs)
            self._depth += 1
            began_s = perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1
                self._counters.waited_for_ranks(perf_counter() - began_s)

        return measured

    def hook_backward(self, autograd: Any) -> None:
        """Hook `torch.autograd.backward`, once this is one of several ranks: it would cost others for nothing."""
        if self._hooks_backward or not is_distributed():
            return
        self._hooks_backward = True
        original = autograd.backward
        measured = self.wrap(original)

        @replacing(autograd, "backward")
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(tensors, "is_cpu", True):
                return measured(tensors, *args, **kwargs)
            self._counters.wait_is_known = False
            return original(tensors, *args, **kwargs)

    def hook_collectives(self, modules: Any) -> None:
        """Hook the functions in each of `modules`: `torch.distributed` has its own names for them."""
        wrap = functools.lru_cache(maxsize=None)(self.wrap)
        for module in modules:
            for name in NAMES["collectives"]:
                original = getattr(module, name, None)
                if original is not None:
                    setattr(module, name, wrap(original))

    def hook_ddp(self, ddp_class: Any) -> None:
        """Hook the broadcast of buffers at the start of `forward`."""
        if "_sync_buffers" in ddp_class.__dict__:
            ddp_class._sync_buffers = self.wrap(ddp_class._sync_buffers)

"""Hooks no_grad and inference_mode, as contexts and as decorators, and records the spans without gradients.

Which spans are evaluations is decided later, by `counters.step_gap`. Optimizers disable gradients in another way, which
is not hooked.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from ..counters.record_buffer import RecordBuffer

perf_counter = time.perf_counter
get_ident = threading.get_ident

MIN_SPAN_S = 1e-3
"""Shorter spans are gradient clipping, weight averaging and the like."""


class NoGradTracker:
    """Nesting depth of these contexts in the training's thread, and when the outermost one was entered."""

    __slots__ = ("buffer", "count", "grad_enabled", "since_s", "thread")

    def __init__(self, buffer: RecordBuffer, grad_enabled: Callable[[], bool]) -> None:
        self.buffer = buffer
        self.grad_enabled = grad_enabled
        self.thread = get_ident()
        self.count = 0
        self.since_s = 0.0

    def enter(self) -> None:
        """Enter a context."""
        if get_ident() == self.thread:
            if not self.count:
                self.since_s = perf_counter()
            self.count += 1

    def leave(self) -> None:
        """Leave a context, recording the outermost one unless it was `inference_mode(False)`."""
        if get_ident() != self.thread or not self.count:
            return
        self.count -= 1
        if not self.count:
            now = perf_counter()
            if now - self.since_s >= MIN_SPAN_S and not self.grad_enabled():
                self.buffer.no_grad_spans.append((self.since_s, now))


def hook_grad_mode(grad_mode: Any, buffer: RecordBuffer, grad_enabled: Callable[[], bool]) -> None:
    """Hook those contexts of `torch.autograd.grad_mode` that this version of torch has."""
    depth = NoGradTracker(buffer, grad_enabled)
    for name in ("no_grad", "inference_mode"):
        context = grad_mode.__dict__.get(name)
        if context is not None and {"__enter__", "__exit__"} <= context.__dict__.keys():
            _wrap_context(context, depth)


def _wrap_context(context: Any, depth: NoGradTracker) -> None:
    enter, leave = context.__enter__, context.__exit__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        depth.enter()
        return enter(self)

    @functools.wraps(leave)
    def __exit__(self: Any, *error: Any) -> Any:
        depth.leave()
        return leave(self, *error)

    context.__enter__, context.__exit__ = __enter__, __exit__

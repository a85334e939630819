"""Detects evaluation in a loop without a framework: gradients off, a model in eval mode, or a trainer's notice."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..import_hooks import call_safely

get_ident = threading.get_ident


class EvaluationDetector:
    """Whether what runs now is an evaluation.

    A model in eval mode is only a hint: some loops keep a frozen teacher in it, some never leave it. The first step
    made in spite of it takes the hint away for good.
    """

    def __init__(self, grad_enabled: Callable[[], bool]) -> None:
        """`grad_enabled`: torch.is_grad_enabled."""
        self.grad_enabled = grad_enabled
        self.reset()

    def reset(self) -> None:
        """Start anew."""
        self.depth = 0
        self.trains = False
        self._model: Any = None
        self._since_s: float | None = None
        self._trusts_mode = True
        self._thread = get_ident()

    def watch_mode(self, module_class: Any, before: Callable[[], None]) -> None:
        """Notice `model.eval()`; not `train()`, which Trainer calls on every module at every step.

        `before` is called before what is thought of it changes.
        """
        original = module_class.eval

        @functools.wraps(original)
        def eval_(module: Any) -> Any:
            if self._trusts_mode and get_ident() == self._thread:
                call_safely(self._doubt, module, before)
            return original(module)

        module_class.eval = eval_

    def _doubt(self, module: Any, before: Callable[[], None]) -> None:
        before()
        if self.trains:
            self._model = weakref.ref(module)
            if self._since_s is None:
                self._since_s = time.perf_counter()

    @property
    def is_out_of_question(self) -> bool:
        """Whether only gradients that are off can make the next batch one of an evaluation."""
        return not self.depth and self._model is None

    def running(self, trained: bool = False) -> bool:
        """Asked before every batch. `trained`: steps followed what came from there before.

        A loop that evaluates after each step may ask for its next batch before it calls `train()` again.
        """
        if self.depth or not self.grad_enabled():
            return True
        if self._model is None or trained:
            return False
        model = self._model()
        if model is None or model.training:
            self._model = None
            return False
        return True

    def began_s(self) -> float | None:
        """When the model went into eval mode since the last step, once it trains again: asked before its next batch."""
        since_s, self._since_s = self._since_s, None
        return since_s

    def stepped(self) -> None:
        """An optimizer stepped: what runs is training, whatever the model's mode."""
        self.trains = True
        self._since_s = None
        if self._model is not None:
            model = self._model()
            if model is not None and not model.training:
                self._trusts_mode = False
            self._model = None

"""Tells whether a training clears the gradients of a step before it computes those of the next one.

Looked at in the first steps only, at the smallest parameter of the optimizer that steps first. Its gradient is another
tensor at the second step where it was cleared as usual. Where it is the same one, each call of `backward` is looked at
for a few steps: it finds the gradient set to 0, or as the step before has left it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

from ..import_hooks import call_around, call_safely, is_compiling_function
from .memory_peaks import HostCopy, copy_to_host

MIN_STEPS = 3
"""Steps in a row, each with the gradients of the one before: nothing else explains them."""
MAX_ELEMENTS = 64


class KeptGradients:
    """Hooked into optimizers until it is known. `report` is called if the gradients are kept.

    What changes the gradient between two calls of `backward`, such as momentum by hand, is nothing to report either.
    """

    def __init__(self, torch: Any, report: Callable[[], None]) -> None:
        self._torch = torch
        self._report = report
        self._is_compiling = is_compiling_function()
        self._optimizer: Any = None
        self._parameter: Callable[[], Any] = lambda: None
        self._gradient: Callable[[], Any] = lambda: None
        self._version = self._steps = 0
        self._hooked = self._grew = self._is_known = False
        self._values: list[Any] = []
        register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
        self._handle = register(self._step_begins)

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if not (self._is_known or self._steps == MIN_STEPS or self._is_compiling()):
            call_safely(self._look, optimizer)

    def _look(self, optimizer: Any) -> None:
        if self._optimizer is None:
            self._optimizer = ref(optimizer)
            parameters = (each for group in optimizer.param_groups for each in group["params"])
            parameter = min((each for each in parameters if each.grad is not None), key=lambda each: each.numel())
            self._parameter, self._gradient = ref(parameter), ref(parameter.grad)
            return
        if self._optimizer() is not optimizer:
            return
        gradient = self._kept_gradient()
        if gradient is None or (self._hooked and not self._grew):
            self._is_known = True
            return
        if not self._hooked:
            call_around(self._torch.autograd, "backward", self._backward_begins, self._backward_ended)
        self._steps += self._hooked
        self._hooked, self._grew, self._version = True, False, gradient._version

    def _kept_gradient(self) -> Any:
        """The gradient of the steps before if it is still that of the parameter, else None."""
        parameter, gradient = self._parameter(), self._gradient()
        return None if parameter is None or parameter.grad is not gradient else gradient

    def _backward_begins(self, *_: Any, **__: Any) -> int | None:
        if self._is_known or self._steps == MIN_STEPS:
            return None
        gradient = self._kept_gradient()
        if gradient is None or gradient._version != self._version:
            self._is_known = True
            return None
        values = gradient.detach().reshape(-1)[:MAX_ELEMENTS]
        self._values.append(copy_to_host(self._torch, values) if values.is_cuda else values.tolist())
        return self._version

    def _backward_ended(self, version: int | None, *_: object) -> None:
        gradient = self._gradient()
        if version is not None and gradient is not None:
            self._version = gradient._version
            self._grew = self._grew or self._version > version

    def write(self) -> None:
        """Report it once it is known. Called after an optimizer step, where no hook before one is called."""
        if self._handle is None:
            return
        if self._steps == MIN_STEPS and not self._is_known:
            if any(isinstance(each, HostCopy) and not each.has_arrived() for each in self._values):
                return
            self._is_known = True
            values = [each.values() if isinstance(each, HostCopy) else each for each in self._values]
            if all(each is not None and any(each) for each in values):
                self._report()
        if self._is_known:
            self._handle.remove()
            self._handle, self._values = None, []

"""Find and count models."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

from .importing import call_safely

MOST_ASKED = 32
"""Modules remembered, the newest."""


def parameters(model: Any) -> tuple[int | None, int | None]:
    """`(all, trainable)` parameters of a model; `(None, None)` without one."""
    if model is None:
        return None, None
    counts = [(each.numel(), each.requires_grad) for each in model.parameters()]
    return sum(count for count, _ in counts), sum(count for count, trains in counts if trains)


class Owners:
    """Finds the model of an optimizer: a script asks it for its parameters to build that optimizer."""

    def __init__(self, module_class: Any) -> None:
        """`module_class`: torch.nn.Module, watched until a model was found."""
        self._class = module_class
        self._asked: dict[int, Any] = {}
        self._original = original = module_class.named_parameters

        @functools.wraps(original)
        def named_parameters(module: Any, *args: Any, **kwargs: Any) -> Any:
            call_safely(self._remember, module)
            return original(module, *args, **kwargs)

        self._wrapper = module_class.named_parameters = named_parameters

    def _remember(self, module: Any) -> None:
        self._asked.pop(id(module), None)
        self._asked[id(module)] = weakref.ref(module)
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]

    def of(self, optimizer: Any) -> Any:
        """The outermost module that holds the parameters of `optimizer`, or None."""
        if self._class.named_parameters is self._wrapper:
            self._class.named_parameters = self._original
        wanted = {id(each) for group in optimizer.param_groups for each in group["params"]}
        asked = [module for module in (each() for each in self._asked.values()) if module is not None]
        self._asked.clear()
        holders = [module for module in asked if wanted <= {id(each) for each in module.parameters()}]
        if holders:
            return max(holders, key=lambda module: sum(1 for _ in module.modules()))
        return _holder_of(next(iter(optimizer.param_groups[0]["params"]), None), self._class)


def _holder_of(parameter: Any, module_class: type) -> Any:
    """The outermost module that holds `parameter`: looks through all objects, some 100 ms per million.

    Types are asked by `type()`, so that no lazy proxy wakes up.
    """
    modules = [each for each in gc.get_objects() if issubclass(type(each), module_class)]
    held = {id(child) for module in modules for child in module._modules.values()}
    for module in modules:
        if id(module) not in held and any(each is parameter for each in module.parameters()):
            return module
    return None

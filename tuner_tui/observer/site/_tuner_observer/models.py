"""Find and count models."""

from __future__ import annotations

import gc
from typing import Any


def parameters(model: Any) -> tuple[int | None, int | None]:
    """`(all, trainable)` parameters of a model; `(None, None)` without one."""
    if model is None:
        return None, None
    counts = [(each.numel(), each.requires_grad) for each in model.parameters()]
    return sum(count for count, _ in counts), sum(count for count, trains in counts if trains)


def owner_of(parameter: Any, module_class: type) -> Any:
    """The outermost module that holds `parameter`, or None.

    Looks through all objects once, some 50 ms per million. Types are asked by `type()`, so that no lazy proxy wakes up.
    """
    modules = [each for each in gc.get_objects() if issubclass(type(each), module_class)]
    held = {id(child) for module in modules for child in module._modules.values()}
    for module in modules:
        if id(module) not in held and any(each is parameter for each in module.parameters()):
            return module
    return None

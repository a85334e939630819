"""The grouped products of models with experts, on fake tensors.

Torch's own rule for them refuses every type but bf16, which the kernels of CPUs and of newer cards do not; what they
take of memory is their result alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GROUPED = getattr(torch.ops.aten, "_grouped_mm", None)
"""None where torch is too old to have it."""


class GroupedProducts(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """While active, a grouped product is an empty tensor of its shape."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation, or make what stands for it."""
        options = dict(kwargs or {})
        if GROUPED is None or func is not GROUPED.default:
            return func(*args, **options)
        offsets = args[2] if len(args) > 2 else options.get("offs")
        kind = args[4] if len(args) > 4 else options.get("out_dtype")
        first, second = args[0], args[1]
        return first.new_empty(product_shape(first.shape, second.shape, offsets), dtype=kind or first.dtype)


def product_shape(first: Any, second: Any, offsets: Any) -> tuple[int, ...]:
    """Of two matrices one product a group; of a matrix and one for each group, the rows side by side."""
    if len(first) == len(second) == 2:
        return (offsets.shape[0], first[0], second[1])
    if len(first) == 2:
        return (first[0], second[-1])
    return (first[1], second[1]) if len(second) == 2 else (first[0], first[1], second[-1])

"""Makes operations on the CPU take the memory they would take on a GPU.

A torch built for CPUs cannot make fake tensors that say they are on a GPU. What differs in memory are three things,
replaced here while a step is traced: dropout keeps a mask of one byte, attention runs in a fused kernel that keeps no
scores, and autocast runs more operations in fp32 (aten/src/ATen/autocast_mode.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

FP32_IN_AUTOCAST = (
    (functional, ("layer_norm", "group_norm", "softmax", "log_softmax", "nll_loss", "cosine_similarity")),
    (torch, ("softmax", "log_softmax", "pow", "rsqrt", "exp", "log", "reciprocal", "cumsum", "sum", "norm")),
    (torch.Tensor, ("softmax", "log_softmax", "pow", "rsqrt", "exp", "log", "reciprocal", "cumsum", "sum", "norm")),
)
"""Operations that autocast runs in fp32 on a GPU and in the type of their input on a CPU."""
_plain_attention = functional.scaled_dot_product_attention


@contextmanager
def cuda_rules(on: bool) -> Iterator[None]:
    """While it lasts, and where it is `on`, torch's functions keep what they would keep on a GPU.

    Not a mode of torch: those are not active in what a checkpointed layer computes again.
    """
    before = []
    for owner, name, function in replacements() if on else ():
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Where each function stands, its name, and what stands for it."""
    for owner, names in FP32_IN_AUTOCAST:
        for name in names:
            yield owner, name, in_fp32(getattr(owner, name))
    yield functional, "dropout", dropout
    yield functional, "scaled_dot_product_attention", attention


def in_fp32(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, its 16-bit tensors widened first where autocast is on and no type is asked for."""

    def widening(*args: Any, **options: Any) -> Any:
        if torch.is_autocast_enabled("cpu") and options.get("dtype") is None:
            args = tuple(widened(one) for one in args)
        return function(*args, **options)

    return widening


def widened(value: Any) -> Any:
    """A 16-bit tensor in fp32; anything else as it is."""
    narrow = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if narrow else value


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """A dropout that keeps a mask of one byte a number."""
    if not training or p == 0.0:
        return input
    return torch.native_dropout(input, p, True)[0]


class FusedAttention(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed here
    """Flash or memory-efficient attention: keeps its inputs, its output, and one fp32 number a query and head."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, bias: Any) -> Any:
        """The output in the layout of the kernels, in which heads of one token lie side by side."""
        batch, heads, length, _ = query.shape
        output = query.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
        sums = torch.empty(batch, heads, length, dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums, bias)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """One gradient for each input."""
        query, key, value = ctx.saved_tensors[:3]
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention as torch's dispatcher chooses it on a GPU.

    With grouped queries in fp32 no fused kernel applies: flash takes 16 bit only, the memory-efficient one no groups.
    """
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        query, key, value = (one.to(kind) for one in (query, key, value))
    if enable_gqa and query.dtype is torch.float32:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True)
    return FusedAttention.apply(query, key, value, None if attn_mask is None else added(attn_mask, query))


def added(mask: Any, query: Any) -> Any:
    """A mask as the memory-efficient kernel takes it: added to the scores, in their type, without repeated rows."""
    return torch.empty(mask.shape, dtype=query.dtype) if mask.dtype is torch.bool else mask

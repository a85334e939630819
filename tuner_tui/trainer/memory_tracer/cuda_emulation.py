"""Makes CPU operations on fake tensors allocate what they would on a GPU.

A torch built for CPUs cannot create fake CUDA tensors. Three differences in memory are emulated while a step is traced:
dropout keeps a mask of one byte per element, attention runs in a fused kernel that keeps no scores, and autocast runs
more operations in fp32 (aten/src/ATen/autocast_mode.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional

FP32_IN_AUTOCAST = (
    (functional, ("layer_norm", "group_norm", "softmax", "log_softmax", "nll_loss", "cosine_similarity")),
    (torch, ("softmax", "log_softmax", "pow", "rsqrt", "exp", "log", "reciprocal", "cumsum", "sum", "norm")),
    (torch.Tensor, ("softmax", "log_softmax", "pow", "rsqrt", "exp", "log", "reciprocal", "cumsum", "sum", "norm")),
)
"""Operations that autocast runs in fp32 on a GPU, but in the dtype of their input on a CPU."""
_plain_attention = functional.scaled_dot_product_attention


@contextmanager
def emulate_cuda(on: bool, flash: bool) -> Iterator[None]:
    """Replace torch's functions by ones that keep for backward what the GPU kernels keep; no effect unless `on`.

    `flash`: the GPU runs flash attention. Not a mode of torch: those are not active in what a checkpointed layer
    computes again.
    """
    with replace_functions(replacements(flash) if on else ()):
        yield


@contextmanager
def replace_functions(functions: Iterable[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """Replace functions, given with owner and name, and restore them in the end."""
    before = []
    for owner, name, function in functions:
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def replacements(flash: bool) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Owner, name and replacement of each function."""
    for owner, names in FP32_IN_AUTOCAST:
        for name in names:
            yield owner, name, run_in_fp32(getattr(owner, name))
    yield functional, "dropout", dropout
    yield functional, "scaled_dot_product_attention", partial(attention, flash=flash)


NARROW = (torch.bfloat16, torch.float16)


def run_in_fp32(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on 16-bit tensors cast to fp32, under autocast and without an explicit `dtype`."""

    def widening(*args: Any, **options: Any) -> Any:
        if torch.is_autocast_enabled("cpu") and options.get("dtype") is None:
            args = tuple(
                value.float() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value for value in args
            )
        return function(*args, **options)

    return widening


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout that keeps a mask of one byte per element."""
    if not training or p == 0.0:
        return input
    return torch.native_dropout(input, p, True)[0]


class FusedAttention(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed here
    """Flash or memory-efficient attention: keeps its inputs, its output, and one fp32 value per query and head."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, bias: Any) -> Any:
        """An empty output in the memory layout of the kernels, (batch, length, heads, size)."""
        batch, heads, length, _ = query.shape
        output = query.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
        sums = torch.empty(batch, heads, length, dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums, bias)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """An empty gradient for each input; for the bias where it trains, as the positions of T5."""
        query, key, value, _, _, bias = ctx.saved_tensors
        inputs = zip((query, key, value, bias), ctx.needs_input_grad, strict=True)
        return tuple(torch.empty_like(tensor) if needed else None for tensor, needed in inputs)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    flash: bool = True,
) -> Any:
    """Attention with the kernel that torch chooses on a GPU.

    With grouped queries no fused kernel applies in fp32, or on a GPU without flash attention: flash takes 16 bit only,
    the memory-efficient kernel no groups.
    """
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        query, key, value = (tensor.to(kind) for tensor in (query, key, value))
    # Math attention keeps the scores, which is most of the memory of a long sequence.
    if enable_gqa and (query.dtype is torch.float32 or not flash):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        # The memory-efficient kernel needs it as it is added to the scores, in their dtype, not expanded.
        attn_mask = torch.empty(attn_mask.shape, dtype=query.dtype)
    return FusedAttention.apply(query, key, value, attn_mask)


GROUPED_MM = getattr(torch.ops.aten, "_grouped_mm", None)
"""None in older versions of torch."""


def empty_grouped_mm(first: Any, second: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """An empty tensor for a grouped product, whose fake implementation in torch only accepts bf16."""
    return first.new_empty(grouped_mm_shape(first.shape, second.shape, offs), dtype=out_dtype or first.dtype)


def grouped_mm_shape(first: Any, second: Any, offsets: Any) -> tuple[int, ...]:
    """The shape of `_grouped_mm`: two matrices give one product per group, otherwise the rows are concatenated."""
    if len(first) == len(second) == 2:
        return (offsets.shape[0], first[0], second[1])
    if len(first) == 2:
        return (first[0], second[-1])
    return (first[1], second[1]) if len(second) == 2 else (first[0], first[1], second[-1])

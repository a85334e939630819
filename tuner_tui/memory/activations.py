"""What a training keeps from forward for backward, in bytes a sample."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.attention import attention
from tuner_tui.memory.blocks import block_bytes
from tuner_tui.memory.device import Device
from tuner_tui.memory.numerics import Numerics, numerics_of
from tuner_tui.memory.shapes import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes a sample: what a block keeps, what a checkpointed block keeps, what embedding and final layers keep.

    `block_extra` is what a block's backward pass takes beside what it keeps. `loss_forward` and `loss_backward` are
    what the loss of a language model takes at its worst; `evaluation` is a batch without gradients. `words` counts the
    logits.
    """

    block: float
    checkpoint: float
    ends: float
    block_extra: float
    loss_forward: float
    loss_backward: float
    evaluation: float
    words: float


def activations(shape: ModelShape, settings: Settings, device: Device) -> Activations:
    """The activations of one sample of `max_length` tokens."""
    n = numerics_of(shape, settings, device)
    adapted = settings.peft_method != "none"
    tokens = min(settings.max_length, shape.positions)
    scores = attention(shape, settings, device, n, tokens)
    words = float(tokens * shape.vocab) if shape.language_model else 0.0
    return Activations(
        block=tokens * block_bytes(shape, settings, n) + scores.kept,
        checkpoint=float(tokens * shape.hidden * n.stream),
        ends=0.0 if adapted else tokens * shape.hidden * _ends(shape, n),
        block_extra=max(tokens * _extra(shape, n, adapted), scores.extra),
        loss_forward=words * _loss_forward(n),
        loss_backward=words * 12,  # the log-softmax, its gradient and that of the logits, each in fp32
        evaluation=max(words * _loss_forward(n), tokens * _evaluation(shape, n) + scores.evaluation),
        words=words,
    )


def _loss_forward(n: Numerics) -> int:
    """Bytes a word: logits in 16 bit, their copy in fp32 and its log-softmax; without a copy where they are fp32."""
    return 10 if n.compute == 2 else 8


def _ends(shape: ModelShape, n: Numerics) -> float:
    """Bytes a hidden unit and token, kept before the first block and after the last; none where both are frozen."""
    mask = n.mask if shape.hidden_dropout else 0
    if shape.family == "bert":
        return n.stream + mask
    final = 2 * n.stream if shape.family == "llama" else n.stream
    return mask + final + (n.normed if shape.language_model else 0)


def _extra(shape: ModelShape, n: Numerics, adapted: bool) -> float:
    """Bytes a token that are there only while a block's backward pass is in its MLP.

    Of an adapted layer the gradient comes in two parts, under autocast with a copy in fp32.
    """
    hidden, inner = shape.hidden, shape.intermediate
    if adapted:
        return 8.0 * (inner + hidden) if n.casts else 2.0 * n.compute * inner
    if shape.family == "gpt2":
        return 12.0 * inner if n.wide else 1.65 * n.compute * inner
    tensors = 2 if shape.family == "modernbert" else 1
    return float(tensors * n.compute * inner + (4 * hidden if n.casts else 0))


def _evaluation(shape: ModelShape, n: Numerics) -> float:
    """Bytes a token of one block at work without gradients."""
    widest = 4 if shape.family == "modernbert" else 2
    return float(shape.hidden * (2 * n.stream + 2 * n.compute) + shape.intermediate * widest * n.compute)

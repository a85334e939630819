"""One optimizer step and one evaluation batch as the Trainer runs them, with their storages counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from .storage_counter import STATES, WEIGHTS, StorageCounter

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class TracedStep:
    """Model, optimizer and settings of the traced step."""

    model: Any
    optimizer: Any | None
    precision: str
    causal: bool
    length: int
    accumulation: int
    max_grad_norm: float

    def autocast(self) -> Any:
        """The autocast context of the forward pass, as accelerate sets it."""
        return nullcontext() if self.precision == "fp32" else torch.autocast("cpu", DTYPES[self.precision])


def forward_and_backward(traced: TracedStep, storages: StorageCounter, batch: int) -> int:
    """Forward and backward of a micro batch; phase `batch`. With accumulation of a later one, which takes more.

    Returns the number of events before it.
    """
    traced.model.train()
    storages.enter("batch")
    if traced.accumulation > 1:
        allocate_gradients(traced, storages)
    before = len(storages.events)
    loss = compute_loss(traced, make_inputs(traced, batch))[0]
    loss.backward()
    del loss
    storages.enter("outside")
    return before


def allocate_gradients(traced: TracedStep, storages: StorageCounter) -> None:
    """Give every trained parameter its gradient, as an earlier backward pass does."""
    for parameter in traced.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
            storages.gradient(parameter)


def optimizer_step(traced: TracedStep, storages: StorageCounter) -> None:
    """Gradient clipping and the optimizer, independent of the batch size; phase `step`."""
    storages.enter("step")
    if traced.max_grad_norm > 0:
        torch.nn.utils.clip_grad_norm_(traced.model.parameters(), traced.max_grad_norm)
    if traced.optimizer is not None:
        traced.optimizer.step()
    storages.enter("outside")


def evaluate(traced: TracedStep, storages: StorageCounter, batch: int) -> None:
    """Forward of one batch without gradients; phase `evaluation`."""
    traced.model.eval()
    storages.enter("evaluation")
    with torch.no_grad():
        inputs = make_inputs(traced, batch)
        loss, outputs = compute_loss(traced, inputs)
        del loss, outputs, inputs
    storages.enter("outside")


def make_inputs(traced: TracedStep, batch: int) -> dict[str, torch.Tensor]:
    """A batch of full length; samples of a classifier have an attention mask, blocks of a language model none."""
    tokens = torch.ones(batch, traced.length, dtype=torch.int64)
    if traced.causal:
        return {"input_ids": tokens, "labels": torch.ones_like(tokens)}
    labels = torch.zeros(batch, dtype=torch.int64)
    if batch == 1:
        return {"input_ids": tokens, "labels": labels}
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def compute_loss(traced: TracedStep, inputs: dict[str, torch.Tensor]) -> tuple[Any, Any]:
    """The loss and the outputs, cast to fp32 as accelerate does."""
    labels = None if traced.causal else inputs.pop("labels")
    count = torch.ones((), dtype=torch.int64)
    with traced.autocast():
        outputs = traced.model(**inputs, num_items_in_batch=count) if traced.causal else traced.model(**inputs)
    if traced.precision != "fp32":
        outputs = outputs_to_fp32(outputs)
    if labels is None:
        return outputs["loss"], outputs
    return cross_entropy(outputs["logits"].float(), labels, reduction="sum") / count, outputs


def outputs_to_fp32(outputs: Any) -> Any:
    """As `accelerate.utils.convert_outputs_to_fp32`."""
    return {
        name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in outputs.items()
    }


@contextmanager
def count_storages(traced: TracedStep, counter: StorageCounter | None = None) -> Iterator[StorageCounter]:
    """Count storages within the context, including existing weights, buffers and optimizer states."""
    storages = StorageCounter() if counter is None else counter
    storages.enter("outside")
    storages.kind = WEIGHTS
    storages.weights(traced.model.parameters())
    for buffer in traced.model.buffers():
        storages.add(buffer)
    storages.kind = STATES
    for state in traced.optimizer.state.values() if traced.optimizer is not None else ():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                storages.add(value)
    storages.kind = None
    trained = [one for one in traced.model.parameters() if one.requires_grad]
    hooks = [one.register_post_accumulate_grad_hook(storages.gradient) for one in trained]
    if traced.accumulation > 1:
        hooks += [one.register_hook(storages.accumulate) for one in trained]
    with storages:
        yield storages
    for hook in hooks:
        hook.remove()

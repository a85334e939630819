"""The model and optimizer of a trace, and one step and one evaluation as the Trainer runs them, on fake tensors.

The model is built from its configuration alone, without weights; its storages are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from accelerate.utils import convert_to_fp32
from torch.nn.functional import cross_entropy

from ..job_file import JobArguments
from ..models import add_adapters, model_class, model_config, model_options
from .storage_counter import STATES, WEIGHTS, StorageCounter

TOKENS = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def build_meta_model(job: JobArguments, labels: int, checkpointing: bool, saved: dict[str, Any] | None) -> Any:
    """The job's model, with `labels` outputs for a classifier, its adapters and checkpointing.

    It is on the meta device, where weights take neither memory nor time to initialise. `saved` is its configuration
    where that is known without reading it.
    """
    names = [str(number) for number in range(labels)] if job.task.endswith("classification") else None
    with torch.device("meta"):
        model = model_class(job).from_config(model_config(job, TOKENS, names, saved), **model_options(job))
        model = add_adapters(model, job, checkpointing)
    model.config.use_cache = False
    if checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model


def make_fake(model: Any) -> Any:
    """Move weights and buffers from meta to (fake) CPU tensors; call it in a fake mode. Shared tensors stay shared.

    Adapters cannot be made under a fake mode: they are moved to the device of the weights, which fake tensors refuse.
    """
    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = made.setdefault(tensor, empty_on_cpu(tensor))
    return model


def empty_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """An empty CPU tensor of the same shape and dtype; a parameter for a parameter."""
    empty = torch.empty_like(tensor, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def build_optimizer(model: Any, name: str, foreach: bool) -> Any | None:
    """The optimizer of `TrainingArguments.optim`; None for one that needs a further package or a GPU.

    `foreach` is what torch chooses by default on a GPU: all tensors at once.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name == "adamw_torch":
        return torch.optim.AdamW(trained, lr=1e-5, foreach=foreach)
    if name == "adamw_torch_fused":
        return torch.optim.AdamW(trained, lr=1e-5, fused=True)
    if name == "sgd":
        return torch.optim.SGD(trained, lr=1e-5, foreach=foreach)
    if name == "adafactor":
        return transformers.Adafactor(trained, lr=1e-5, scale_parameter=False, relative_step=False)
    return None


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class TracedStep:
    """Model, optimizer and settings of the traced step."""

    model: Any
    optimizer: Any | None
    precision: str
    task: str
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
    """A batch of full length. Padded texts have an attention mask, blocks of a language model have none."""
    config, tokens = traced.model.config, torch.ones(batch, traced.length, dtype=torch.int64)
    if traced.task == "causal-lm":
        return {"input_ids": tokens, "labels": torch.ones_like(tokens)}
    if traced.task == "seq2seq":  # texts as long as their targets
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.ones_like(tokens)}
    if traced.task == "speech-to-text":
        sound = torch.empty(batch, config.num_mel_bins, 2 * config.max_source_positions)
        return {"input_features": sound, "labels": tokens[:, : config.max_target_positions].clone()}
    classes = torch.zeros(batch, dtype=torch.int64)
    if traced.task == "image-classification":
        return {"pixel_values": torch.empty(batch, *image_size(config)), "labels": classes}
    if batch == 1:
        return {"input_ids": tokens, "labels": classes}
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": classes}


def image_size(config: Any) -> tuple[int, int, int]:
    """Channels, height and width of the images of a model, of 224 × 224 pixels where its configuration says none."""
    config = getattr(config, "vision_config", config)
    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return getattr(config, "num_channels", 3), height, width


def compute_loss(traced: TracedStep, inputs: dict[str, torch.Tensor]) -> tuple[Any, Any]:
    """The loss and the outputs, cast to fp32 as accelerate does."""
    labels = inputs.pop("labels") if traced.task == "classification" else None
    count = torch.ones((), dtype=torch.int64)
    counted = {"num_items_in_batch": count} if traced.task == "causal-lm" else {}
    with traced.autocast():
        outputs = traced.model(**inputs, **counted)
    if traced.precision != "fp32":
        outputs = convert_to_fp32(outputs)
    if labels is None:
        return outputs["loss"], outputs
    return cross_entropy(outputs["logits"].float(), labels, reduction="sum") / count, outputs


@contextmanager
def count_storages(traced: TracedStep, counter: StorageCounter | None = None) -> Iterator[StorageCounter]:
    """Count storages within the context, including existing weights, buffers and optimizer states."""
    storages = StorageCounter() if counter is None else counter
    storages.enter("outside")
    # Storages that exist already are entered by hand, with their kind; a dispatch mode only sees what operations make.
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
    trained = [parameter for parameter in traced.model.parameters() if parameter.requires_grad]
    hooks = [parameter.register_post_accumulate_grad_hook(storages.gradient) for parameter in trained]
    if traced.accumulation > 1:
        hooks += [parameter.register_hook(storages.accumulate) for parameter in trained]
    with storages:
        yield storages
    for hook in hooks:
        hook.remove()

"""The memory of the phases of a training step, traced on fake tensors.

The model is built from its configuration alone, without weights; its storages are counted. A step and an evaluation run
as the Trainer runs them.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from accelerate.utils import convert_to_fp32
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Embedding, Linear
from torch.nn.functional import cross_entropy
from transformers import masking_utils
from transformers.pytorch_utils import Conv1D

from ..job_file import JobArguments
from ..models import DTYPES, add_adapters, model_class, model_config, model_options
from .caching_allocator import Event
from .cuda_emulation import emulate_cuda, replace_functions
from .storage_counter import STATES, WEIGHTS, ModuleCounter, StorageCounter
from .training_events import BatchEvents, FixedEvents, allocator_slack, events_at

TRAINING_ONLY = ("gradient_checkpointing", "gradient_accumulation_steps", "max_grad_norm")
"""Settings that an evaluation does not depend on."""


def trace_memory(request: dict[str, Any], evaluations: dict[str, Any]) -> dict[str, Any]:
    """Bytes of weights and optimizer states, and the peaks of each phase and batch size.

    How gradients are computed does not change an evaluation, so that `evaluations` has those of other requests.
    """
    settings, on_gpu = request["settings"], request["on_gpu"]
    job = JobArguments(**request["job"])
    torch.set_num_threads(1)
    gc.freeze()  # the libraries' objects are not searched for garbage again and again
    gc.enable()
    model = build_meta_model(job, request["labels"], settings["gradient_checkpointing"], request.get("config"))
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake, emulate_cuda(on_gpu, request["flash"]), without_data_values():
        make_fake(model)
        optimizer = build_optimizer(model, settings["optim"], request["foreach"])
        traced = TracedStep(
            model, optimizer, settings["precision"], job.task, job.max_length,
            settings["gradient_accumulation_steps"], settings["max_grad_norm"],
        )  # fmt: skip
        # The optimizer makes its states at the first update, so two updates are traced: the first shows what they take
        # and where the allocator puts them, the second what every later update takes.
        weights, first_update, _ = trace_update(traced)
        if request.get("by_module"):
            return memory_parts(traced, request["batches"][0], request["eval_batches"])
        sizes = model_sizes(traced)
        _, update, step = trace_update(traced)
        passes = trace_batches(request["batches"], lambda batch: training_passes(traced, batch))
        fixed = FixedEvents(weights, first_update, update)
        slack = allocator_slack(fixed, passes, request["replayed"], request["expandable_segments"])
        others = {name: value for name, value in settings.items() if name not in TRAINING_ONLY}
        asked = json.dumps({**request, "settings": others}, sort_keys=True)
        if asked not in evaluations:
            batch_events = trace_batches(request["eval_batches"], lambda batch: evaluation_passes(traced, batch))
            evaluations[asked] = peaks(batch_events, request["eval_batches"])
    train = peaks(passes, request["batches"])
    return {**sizes, "step_bytes": step, "train": train, "evaluation": evaluations[asked], "slack": slack}


def trace_batches(batches: Sequence[int], trace: Callable[[int], BatchEvents]) -> dict[int, BatchEvents]:
    """The events at the first two of `batches`, and at all where others do not follow from these."""
    first, second, *others = batches
    traced = {first: trace(first), second: trace(second)}
    # Two traces are enough where sizes are linear in the batch (see `events_at`); a trace takes seconds.
    if any(events_at(traced, batch) is None for batch in others):
        traced |= {batch: trace(batch) for batch in others}
    return traced


def peaks(traced: Mapping[int, BatchEvents], batches: Iterable[int]) -> list[dict[str, int]]:
    """The peak at each of `batches`, all of which were traced or follow from those that were."""
    batch_events = ((batch, events_at(traced, batch)) for batch in batches)
    return [{"batch": batch, **asdict(events.peak)} for batch, events in batch_events if events is not None]


def trace_update(traced: TracedStep) -> tuple[Sequence[Event], Sequence[Event], int]:
    """The events of the weights and of clipping and the optimizer's step, and its peak, with all gradients live."""
    with count_storages(traced) as storages:
        weights = list(storages.events)
        allocate_gradients(traced, storages)
        before = len(storages.events)
        optimizer_step(traced, storages)
        update = storages.passes(before)
        traced.model.zero_grad()
    return weights, update.passes, update.peak.total


def training_passes(traced: TracedStep, batch: int) -> BatchEvents:
    with count_storages(traced) as storages:
        before = forward_and_backward(traced, storages, batch)
        after = len(storages.events)
        traced.model.zero_grad()
    zero_grad, gradients = storages.passes(after).passes, frozenset(storages.accumulated)
    return replace(storages.passes(before, after), zero_grad=zero_grad, gradients=gradients)


def memory_parts(traced: TracedStep, batch: int, eval_batches: Sequence[int]) -> dict[str, Any]:
    """The memory at the highest peak of a step and its evaluations, by module, kind and dtype; the peak's phase."""
    counter = ModuleCounter(traced.length, getattr(traced.model.config, "vocab_size", None))
    with count_storages(traced, counter), counter.modules(traced.model):
        forward_and_backward(traced, counter, batch)
        optimizer_step(traced, counter)
        traced.model.zero_grad()
        for eval_batch in eval_batches:
            evaluate(traced, counter, eval_batch)
    parts = [
        {"module": module, "kind": kind, "dtype": dtype, "size": size, "line": line, "step_part": step_part}
        for (module, kind, dtype, line, step_part), size in counter.parts.items()
        if size > 0
    ]
    return {"phase": counter.highest_phase, "parts": parts, "quantizable": quantizable_weights(traced.model)}


def evaluation_passes(traced: TracedStep, batch: int) -> BatchEvents:
    with count_storages(traced) as storages:
        before = len(storages.events)
        evaluate(traced, storages, batch)
    return storages.passes(before)


@contextmanager
def without_data_values() -> Iterator[None]:
    """Replace what Transformers decides by values that fake tensors lack.

    Masks for packed sequences follow from values of positions: without them a training on blocks of its own making
    runs, and so does the one that is traced. Whether a layer is dropped follows from a random number: none is.
    """
    rand = torch.rand
    functions: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (masking_utils, "find_packed_sequence_indices", lambda position_ids: None),
        # Single numbers are above every probability.
        (torch, "rand", lambda *size, **options: 1.0 if size == ([],) else rand(*size, **options)),
    )
    with replace_functions(function for function in functions if hasattr(*function[:2])):
        yield


def model_sizes(traced: TracedStep) -> dict[str, Any]:
    """Counts of parameters, and bytes of weights, gradients and optimizer states (None if not traced)."""
    parameters = list(traced.model.parameters())
    stored = {tensor.untyped_storage(): None for tensor in [*parameters, *traced.model.buffers()]}
    states: int | None = None
    if traced.optimizer is not None:
        values = [value for state in traced.optimizer.state.values() for value in state.values()]
        states = sum(value.nbytes for value in values if hasattr(value, "nbytes"))
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    embeddings = (module for module in traced.model.modules() if isinstance(module, Embedding))
    embedded = {id(module.weight): module.weight for module in embeddings if module.weight.requires_grad}
    return {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable": sum(parameter.numel() for parameter in trained),
        "embedding": sum(weight.numel() for weight in embedded.values()),
        "weight_bytes": sum(storage.nbytes() for storage in stored),
        "gradient_bytes": sum(parameter.nbytes for parameter in trained),
        "state_bytes": states,
        "quantizable": quantizable_weights(traced.model),
    }


def quantizable_weights(model: Any) -> dict[str, int]:
    """The frozen linear layers, without the output layer and heads, which bitsandbytes leaves as they are."""
    output = model.get_output_embeddings()
    frozen = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, (Linear, Conv1D))
        and module is not output
        and not module.weight.requires_grad
        and "original_module" not in name
    ]
    return {
        "total_bytes": sum(weight.nbytes for weight in frozen),
        "numbers": sum(weight.numel() for weight in frozen),
        "rows": sum(weight.shape[0] for weight in frozen),
        "largest": max((weight.numel() for weight in frozen), default=0),
    }


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


def make_fake(model: Any) -> None:
    """Move weights and buffers from meta to (fake) CPU tensors; call it in a fake mode. Shared tensors stay shared.

    Adapters cannot be made under a fake mode: they are moved to the device of the weights, which fake tensors refuse.
    """
    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = made.setdefault(tensor, empty_on_cpu(tensor))


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
    """The loss and the outputs, with autocast in the forward pass and cast to fp32 after it, as accelerate does."""
    labels = inputs.pop("labels") if traced.task == "classification" else None
    count = torch.ones((), dtype=torch.int64)
    counted = {"num_items_in_batch": count} if traced.task == "causal-lm" else {}
    if traced.precision == "fp32":
        outputs = traced.model(**inputs, **counted)
    else:
        with torch.autocast("cpu", DTYPES[traced.precision]):
            outputs = traced.model(**inputs, **counted)
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

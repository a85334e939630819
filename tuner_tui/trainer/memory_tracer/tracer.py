"""The memory of the phases of a training step, traced on fake tensors."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Embedding, Linear
from transformers import masking_utils
from transformers.pytorch_utils import Conv1D

from ..job_file import JobArguments
from .caching_allocator import Event
from .cuda_emulation import emulate_cuda, replace_functions
from .storage_counter import ModuleCounter
from .training_events import BatchEvents, FixedEvents, allocator_slack, events_at
from .training_step import (
    TracedStep,
    allocate_gradients,
    build_meta_model,
    build_optimizer,
    count_storages,
    evaluate,
    forward_and_backward,
    make_fake,
    optimizer_step,
)

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
    with replace_functions(each for each in functions if hasattr(*each[:2])):
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

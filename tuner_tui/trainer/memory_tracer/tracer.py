"""Traces the peak memory of a training step on fake tensors."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from ..job_file import first_line
from .caching_allocator import Event
from .training_events import BatchEvents, FixedEvents, allocator_slack, events_at

TRAINING_ONLY = ("gradient_checkpointing", "gradient_accumulation_steps", "max_grad_norm")
"""Settings that an evaluation does not depend on."""


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """What was traced; `answers` in the order of the request's `requests`, if it has several."""
    warnings.simplefilter("ignore")
    evaluations: dict[str, Any] = {}
    if "requests" in request:
        return {"answers": [trace_or_problem(part, evaluations) for part in request["requests"]]}
    return trace_or_problem(request, evaluations)


def trace_or_problem(request: dict[str, Any], evaluations: dict[str, Any]) -> dict[str, Any]:
    """What was traced, or `{"problem": sentence}`. `evaluations` are those traced before, for requests alike."""
    from ..job_file import JobError, find_config_problem, go_offline_if_unreachable, needs_hub

    if needs_hub({"model": request["job"]["model"]}):
        go_offline_if_unreachable()
        if (problem := find_config_problem(request["job"]["model"])) is not None:
            return {"problem": problem}
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    try:
        return trace_memory(request, evaluations)
    except JobError as error:
        return {"problem": str(error)}
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return {"problem": f"the model's code depends on values of the data, which a trace does not have ({error})"}
    except Exception as error:  # noqa: BLE001  whatever a model's own code raises on fake tensors is the answer
        return {"problem": describe_error(error, request["job"])}


def describe_error(error: Exception, job: dict[str, Any]) -> str:
    """Why the model could not be traced, in one sentence."""
    if "Unrecognized configuration class" in str(error):
        return f"{job['model']} is not a {job['task']} model for text"
    return f"{type(error).__name__}: {first_line(error)}"


def trace_memory(request: dict[str, Any], evaluations: dict[str, Any]) -> dict[str, Any]:
    """Bytes of weights and optimizer states, and the peaks of each phase and batch size.

    How gradients are computed does not change an evaluation, so that `evaluations` has those of other requests.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ..job_file import JobArguments
    from .cuda_emulation import emulate_cuda
    from .training_step import TracedStep, build_meta_model, build_optimizer, make_fake

    settings, on_gpu = request["settings"], request["on_gpu"]
    job = JobArguments(**request["job"])
    torch.set_num_threads(1)
    gc.freeze()  # the libraries' objects are not searched for garbage again and again
    model = build_meta_model(job, request["labels"], settings["gradient_checkpointing"])
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake, emulate_cuda(on_gpu, request["flash"]), without_packed_sequence_masks():
        make_fake(model)
        optimizer = build_optimizer(model, settings["optim"], request["foreach"])
        traced = TracedStep(
            model, optimizer, settings["precision"], job.task == "causal-lm", job.max_length,
            settings["gradient_accumulation_steps"], settings["max_grad_norm"],
        )  # fmt: skip
        # The optimizer makes its states at the first update, so two updates are traced: the first shows what they take
        # and where the allocator puts them, the second what every later update takes.
        weights, first_update, _ = trace_update(traced)
        if request.get("by_module"):
            return memory_parts(traced, request["batches"][0], request["eval_batches"][0])
        sizes = model_sizes(traced)
        _, update, step = trace_update(traced)
        passes = trace_batches(request["batches"], lambda batch: training_passes(traced, batch))
        fixed = FixedEvents(weights, first_update, update)
        slack = allocator_slack(fixed, passes, request["replayed"], request["expandable_segments"])
        others = {name: value for name, value in settings.items() if name not in TRAINING_ONLY}
        asked = json.dumps({**request, "settings": others}, sort_keys=True)
        if asked not in evaluations:
            found = trace_batches(request["eval_batches"], lambda batch: evaluation_passes(traced, batch))
            evaluations[asked] = peaks(found, request["eval_batches"])
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
    found = ((batch, events_at(traced, batch)) for batch in batches)
    return [{"batch": batch, **asdict(events.peak)} for batch, events in found if events is not None]


def trace_update(traced: Any) -> tuple[Sequence[Event], Sequence[Event], int]:
    """The events of the weights and of clipping and the optimizer's step, and its peak, with all gradients live."""
    from .training_step import allocate_gradients, count_storages, optimizer_step

    with count_storages(traced) as storages:
        weights = list(storages.events)
        allocate_gradients(traced, storages)
        before = len(storages.events)
        optimizer_step(traced, storages)
        update = storages.passes(before)
        traced.model.zero_grad()
    return weights, update.passes, update.peak.total


def training_passes(traced: Any, batch: int) -> BatchEvents:
    from .training_step import count_storages, forward_and_backward

    with count_storages(traced) as storages:
        before = forward_and_backward(traced, storages, batch)
        after = len(storages.events)
        traced.model.zero_grad()
    zero_grad, gradients = storages.passes(after).passes, frozenset(storages.accumulated)
    return replace(storages.passes(before, after), zero_grad=zero_grad, gradients=gradients)


def memory_parts(traced: Any, batch: int, eval_batch: int) -> dict[str, Any]:
    """The memory at the highest peak of a step and an evaluation, by module, kind and dtype; the phase of that peak."""
    from .storage_counter import ModuleCounter
    from .training_step import count_storages, evaluate, forward_and_backward, optimizer_step

    counter = ModuleCounter(traced.length, getattr(traced.model.config, "vocab_size", None))
    with count_storages(traced, counter), counter.modules(traced.model):
        forward_and_backward(traced, counter, batch)
        optimizer_step(traced, counter)
        traced.model.zero_grad()
        evaluate(traced, counter, eval_batch)
    parts = [
        {"module": module, "kind": kind, "dtype": dtype, "size": size}
        for (module, kind, dtype), size in counter.parts.items()
        if size > 0
    ]
    return {"phase": counter.highest_phase, "parts": parts, "quantizable": quantizable_weights(traced.model)}


def evaluation_passes(traced: Any, batch: int) -> BatchEvents:
    from .training_step import count_storages, evaluate

    with count_storages(traced) as storages:
        before = len(storages.events)
        evaluate(traced, storages, batch)
    return storages.passes(before)


@contextmanager
def without_packed_sequence_masks() -> Iterator[None]:
    """Disable masks for packed sequences, which Transformers derives from position values that fake tensors lack.

    Without such a mask a training on blocks of its own making runs, and so does the one that is traced.
    """
    from transformers import masking_utils

    name = "find_packed_sequence_indices"
    before = getattr(masking_utils, name, None)
    if before is not None:
        setattr(masking_utils, name, lambda position_ids: None)
    yield
    if before is not None:
        setattr(masking_utils, name, before)


def model_sizes(traced: Any) -> dict[str, Any]:
    """Counts of parameters, and bytes of weights, gradients and optimizer states (None if not traced)."""
    from torch.nn import Embedding

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
    from torch.nn import Linear
    from transformers.pytorch_utils import Conv1D

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

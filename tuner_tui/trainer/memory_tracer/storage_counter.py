"""Counts the memory of live tensors operation by operation, and what it is at the peak by module, kind and dtype."""

from __future__ import annotations

import re
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count, groupby
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from .caching_allocator import FREED, Event
from .cuda_emulation import GROUPED_MM, empty_grouped_mm
from .training_events import BatchEvents, LiveBytes

WEIGHTS, STATES = "weights", "optimizer states"


class StorageCounter(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """A dispatch mode that counts the bytes of every storage that an operation creates until it is freed.

    Storages made before are counted by `add`, with their `kind`. `events` has every allocation and free in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kind: str | None = None
        self._sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._weights: weakref.WeakSet[Any] = weakref.WeakSet()
        self._gradients: weakref.WeakSet[Any] = weakref.WeakSet()
        self.phase = "outside"
        self.events: list[Event] = []
        self._live_after: list[LiveBytes] = []
        self.accumulated: set[int] = set()
        """Names of gradients that were added to earlier ones."""
        self._names: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next_name = count()
        self.total = 0
        self.gradients = 0
        self.copies = 0

    def passes(self, start: int, end: int | None = None) -> BatchEvents:
        """The events from number `start` on and before `end`.

        Frees that follow one another are put into the order of their names: a graph is released in any order.
        """
        passes = self.events[start:end]
        ordered = (sorted(events) if freed else events for freed, events in groupby(passes, key=is_free))
        after = [live for event, live in zip(passes, self._live_after[start:end], strict=True) if not is_free(event)]
        return BatchEvents([*chain.from_iterable(ordered)], live=[self._live_after[start - 1], *after])

    def enter(self, phase: str) -> None:
        self.phase = phase

    def weights(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count weights, whose 16-bit copies are counted separately."""
        for tensor in tensors:
            self.add(tensor)
            self._weights.add(tensor.untyped_storage())

    def add(self, tensor: torch.Tensor) -> None:
        """Count the storage of `tensor` once."""
        storage = tensor.untyped_storage()
        if storage not in self._sizes:
            size = storage.nbytes()
            self._sizes[storage] = size
            self._grow(storage, size, "total")

    def gradient(self, parameter: torch.Tensor) -> None:
        """Count a gradient once, after its accumulation; it lives until the optimizer step."""
        if parameter.grad is not None and (storage := parameter.grad.untyped_storage()) not in self._gradients:
            self._gradients.add(storage)
            self._grow(storage, storage.nbytes(), "gradients")

    def accumulate(self, gradient: torch.Tensor) -> None:
        """Note a gradient that is added to an earlier one."""
        name = self._names.get(gradient.untyped_storage())
        if name is not None:
            self.accumulated.add(name)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        grouped = GROUPED_MM is not None and func is GROUPED_MM.default
        result = (empty_grouped_mm if grouped else func)(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if not isinstance(tensor, torch.Tensor) or (storage := tensor.untyped_storage()) in self._sizes:
                continue
            self.add(tensor)
            if func is torch.ops.aten._to_copy.default and args[0].untyped_storage() in self._weights:
                self._grow(storage, self._sizes[storage], "copies")
        return result

    def _grow(self, storage: Any, size: int, counter: str) -> None:
        setattr(self, counter, getattr(self, counter) + size)
        name = None
        if counter == "total":
            name = self._names[storage] = next(self._next_name)
            self._note((name, size))
        # A storage is freed when its last tensor is; autograd's saved tensors hold it without our seeing it. A
        # finalizer of the storage itself is the only place that knows. Without `atexit = False` each would run at the
        # end of Python.
        weakref.finalize(storage, self._shrink, size, counter, name).atexit = False

    def _shrink(self, size: int, counter: str, name: int | None) -> None:
        setattr(self, counter, getattr(self, counter) - size)
        if name is not None:
            self._note((name, FREED))

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self._live_after.append(LiveBytes(self.total, self.gradients, self.copies))


def is_free(event: Event) -> bool:
    return event[1] == FREED


Label = tuple[str, str, str, str, str]
"""Module, kind, dtype, line of the model's code, and part of the step."""
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
GRADIENTS, COPIES = "gradients", "16-bit copies of weights"
PROBABILITIES, LOGITS, BATCH = "attention probabilities", "logits and loss", "batch"
BACKWARD, STEP = "temporary in backward", "temporary in the optimizer step"
LIBRARY = re.compile(r"[/\\]torch[/\\]|[/\\]memory_tracer[/\\]|^<|[/\\](?:contextlib|weakref)\.py$")
MODULE_KINDS = (
    ("normalisation", re.compile(r"(norm|(^|[._])ln)[^.]*$", re.IGNORECASE)),
    ("adapter", re.compile(r"lora_|adapter", re.IGNORECASE)),
    ("attention", re.compile(r"attn|attention", re.IGNORECASE)),
    ("embeddings", re.compile(r"embed|wte|wpe", re.IGNORECASE)),
    ("MLP", re.compile(r"mlp|ffn|feed_?forward|intermediate|output\.dense|experts|(^|\.)(fc|lin)\d", re.IGNORECASE)),
    ("head", re.compile(r"head|classifier|score|pooler", re.IGNORECASE)),
)
"""The kind of what a module allocates, by the first pattern in its name."""
OTHER = "residual stream and other"


class ModuleCounter(StorageCounter):
    """Counts storages by module and kind, and keeps these counts at the highest peak of all phases."""

    def __init__(self, length: int, vocabulary: int | None) -> None:
        super().__init__()
        self.parts: Mapping[Label, int] = {}
        self.highest_phase = ""
        self._length, self._vocabulary = length, vocabulary
        self._live: Counter[Label] = Counter()
        self._labels: weakref.WeakKeyDictionary[Any, list[Label]] = weakref.WeakKeyDictionary()
        self._modules: list[str] = []
        self._highest = 0
        self._tensor: torch.Tensor | None = None

    def enter(self, phase: str) -> None:
        super().enter(phase)
        self._update_peak()

    def add(self, tensor: torch.Tensor) -> None:
        """Count the storage of `tensor` once, under its module and kind."""
        self._tensor = tensor
        super().add(tensor)

    @contextmanager
    def modules(self, model: Any) -> Iterator[None]:
        """Note which module runs, also where a checkpointed one runs again."""

        def enter(name: str) -> Any:
            return lambda *_: self._modules.append(name)

        def leave(*_: Any) -> None:
            self._modules.pop()

        handles = []
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(name)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield
        for handle in handles:
            handle.remove()

    def _grow(self, storage: Any, size: int, counter: str) -> None:
        super()._grow(storage, size, counter)
        if counter == "total":
            label = [self._label()]
            self._labels[storage] = label
            self._live[label[0]] += size
            weakref.finalize(storage, self._release, label, size).atexit = False
            self._update_peak()
        elif storage in self._labels:
            label = self._labels[storage]
            self._release(label, size)
            label[0] = ("", GRADIENTS if counter == "gradients" else COPIES, *label[0][2:])
            self._live[label[0]] += size

    def _release(self, label: list[Label], size: int) -> None:
        self._live[label[0]] -= size

    def _label(self) -> Label:
        kept = None if self._tensor is None else self._tensor.dtype
        module, kind = self._module_and_kind()
        return module, kind, DTYPES.get(kept, str(kept).removeprefix("torch.")), self._line(), self._step_part()

    def _line(self) -> str:
        """The innermost line of the model's own code: neither torch's nor that of this package."""
        frame = sys._getframe() if self._modules else None
        while frame is not None and LIBRARY.search(frame.f_code.co_filename):
            frame = frame.f_back
        return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"

    def _step_part(self) -> str:
        if self.kind is not None:
            return "loading" if self.kind == WEIGHTS else "optimizer"
        if self.phase != "batch":
            return "optimizer" if self.phase == "step" else self.phase
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "forward" if self._modules else "data"

    def _module_and_kind(self) -> tuple[str, str]:
        if self.kind is not None:
            return "", self.kind
        module = self._modules[-1] if self._modules else ""
        shape = () if self._tensor is None else tuple(self._tensor.shape)
        # Attention scores are found by shape, (…, length, length): eager attention makes them in the middle of a
        # module whose other tensors are activations. Logits by the size of the vocabulary.
        square = len(shape) >= 3 and shape[-1] == shape[-2] == self._length
        if square and (len(shape) == 4 or kind_of(module) == "attention"):
            return block_of(module), PROBABILITIES
        if self._vocabulary is not None and shape and shape[-1] == self._vocabulary:
            return "", LOGITS
        if self.phase == "step":
            return "", STEP
        if torch._C._current_graph_task_id() != -1 and not self._modules:
            return "", BACKWARD
        if not module:
            return "", BATCH if not self._modules else OTHER
        return block_of(module), kind_of(module)

    def _update_peak(self) -> None:
        if self.phase != "outside" and self.total > self._highest:
            self._highest, self.highest_phase = self.total, self.phase
            self.parts = dict(self._live)


def kind_of(module: str) -> str:
    return next((kind for kind, pattern in MODULE_KINDS if pattern.search(module)), OTHER)


def block_of(module: str) -> str:
    """The name with `*` for the number of its block and without what follows; all of a name outside blocks."""
    before, *inside = re.split(r"\.\d+(?:\.|$)", module, maxsplit=1)
    return f"{before}.*" if inside else before

"""Records what holds the GPU's memory: the history of PyTorch's CUDA allocator, reduced to the stacks at its peak.

Recorded are the Python stacks alone, which cost microseconds; the ring of events is bounded. The reduction runs in this
process, because a snapshot has a hundred megabytes: a few kilobytes of JSON reach the run folder. Nothing is pickled.
"""

from __future__ import annotations

import os
import re
import sys
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from .import_hooks import around_module_calls, call_safely
from .process_role import rank_and_world
from .session import Session

VARIABLE = "TUNER_MEMORY_HISTORY"
"""Optimizer steps to record from the start of the training; an out of memory before ends the recording."""
OPTIMIZERS = "torch.optim.optimizer"
MAX_EVENTS = 100_000
"""About a kilobyte of host memory each, with its stack."""
MAX_STACKS, MAX_FRAMES = 64, 40
MAX_REDUCING_S = 20.0
"""Of all failed allocations together: cuDNN and batch size finders try again and again."""
PASSED_THROUGH = re.compile(
    r"torch/nn/modules/module\.py:(?:_wrapped_call_impl|_call_impl|inner)$|torch/utils/_contextlib\.py:|/_tuner_observer/"
)
"""Calls that only pass another one on."""
BLOCK_NUMBER = re.compile(r"\.\d+(?=\.|$)")
WRAPPERS = re.compile(r"^(?:module|_orig_mod)\.")


class AllocatorHistory:
    """The recording of this process, from the start or when it is asked for."""

    def __init__(self, torch: Any, session: Session, modules: Mapping[str, Any] = sys.modules) -> None:
        """`modules` has `torch.optim.optimizer`, which is no attribute of its package."""
        self._torch, self._session, self._imported = torch, session, modules
        self._modules: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._roots: WeakSet[Any] = WeakSet()
        self._optimizers: WeakSet[Any] = WeakSet()
        self._labels: list[str] = []
        self._annotate: Callable[[str], None] = _ignore
        self._steps_us: deque[float] = deque(maxlen=1000)
        self._restore: list[Callable[[], None]] = []
        self._last_step = 0
        self._tell: Callable[[dict[str, Any]], None] = _ignore
        self._reducing_s = 0.0

    def arm(self) -> None:
        """Record from the moment CUDA is initialised if the environment asks for it."""
        steps = os.environ.get(VARIABLE, "")
        if steps.isdigit() and int(steps):
            self._torch.cuda._lazy_call(lambda: call_safely(self._start, int(steps), _ignore))

    def record(self, steps: int, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Record `steps` optimizer steps, then write what held the memory. `tell` receives how it ended."""
        if not self._torch.cuda.is_initialized():
            return {"refused": "it trains without CUDA, and only CUDA's allocator keeps a history"}
        return self._start(steps, tell)

    def _start(self, steps: int, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        reason = self._why_not()
        if reason is not None:
            return {"refused": reason}
        self._torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MAX_EVENTS)
        self._restore.append(partial(self._torch.cuda.memory._record_memory_history, None))
        self._last_step, self._tell = steps, tell
        self._annotate = getattr(self._torch.cuda.memory, "_set_memory_metadata", _ignore)  # torch 2.10 and newer
        self._steps_us.clear()
        self._torch._C._cuda_attach_out_of_memory_observer(partial(call_safely, self._failed))
        # Before the step: memory may run out in the first one, which allocates the states.
        optimizers = self._imported[OPTIMIZERS]
        before = optimizers.register_optimizer_step_pre_hook(lambda each, *_: self._optimizers.add(each))
        after = optimizers.register_optimizer_step_post_hook(self._stepped)
        self._restore += [before.remove, after.remove, around_module_calls(self._torch, self._enter, self._leave)]
        return {"state": "recording"}

    def _why_not(self) -> str | None:
        torch = self._torch
        if self._restore:
            return "its memory is being recorded already"
        needed = (
            (torch.cuda.memory, "_record_memory_history"), (torch.cuda.memory, "_snapshot"),
            (torch._C, "_cuda_attach_out_of_memory_observer"),
            (self._imported.get(OPTIMIZERS), "register_optimizer_step_post_hook"),
        )  # fmt: skip
        missing = [name for owner, name in needed if not hasattr(owner, name)]
        if missing:
            return f"torch {torch.__version__} has no {missing[0]}"
        if getattr(torch._C, "_cuda_isHistoryEnabled", bool)():
            return "the training records its allocator itself"
        return None

    def _stepped(self, *_: Any) -> None:
        self._steps_us.append(time.time() * 1e6)
        if len(self._steps_us) >= self._last_step:
            call_safely(self._end)

    def _end(self) -> None:
        try:
            self._tell(self._write(False, self._torch.cuda.mem_get_info()))
        finally:
            self.stop()

    def _failed(self, device: int, size: int, total_bytes: int, free_bytes: int) -> None:
        """Called by the allocator before it raises; the training may catch the error and go on."""
        if self._restore and self._reducing_s < MAX_REDUCING_S:
            began_s = time.monotonic()
            self._tell(self._write(True, (free_bytes, total_bytes)))
            self._reducing_s += time.monotonic() - began_s

    def _write(self, failed: bool, device_bytes: tuple[int, int]) -> dict[str, Any]:
        snapshot = self._torch.cuda.memory._snapshot()
        reduced = reduce_snapshot(snapshot, failed, self._owners(), list(self._steps_us))
        rank = rank_and_world()[0]
        reduced.update(rank=rank, free_bytes=device_bytes[0], total_bytes=device_bytes[1])
        try:
            self._session.write_json(f"memory-rank{rank}.json", reduced)
        except OSError as error:
            return {"refused": f"what held the memory cannot be written: {error.strerror}"}
        return {"recorded": True}

    def _owners(self) -> dict[int, str]:
        """What the tensors of the model and its optimizers are, by the address of their memory."""
        owners: dict[int, str] = {}
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        parameters = [parameter for group in groups for parameter in group["params"]]
        for root in self._roots:
            parameters += [*root.parameters(), *root.buffers()]
        states = (
            value for optimizer in self._optimizers for state in optimizer.state.values() for value in state.values()
        )
        gradients = (parameter.grad for parameter in parameters)
        for kind, tensors in (("weights", parameters), ("gradients", gradients), ("optimizer states", states)):
            for tensor in tensors:
                if isinstance(tensor, self._torch.Tensor):
                    address = call_safely(lambda each: each.untyped_storage().data_ptr(), tensor)
                    owners.setdefault(address or 0, kind)
        return owners

    def _enter(self, module: Any) -> str | None:
        if not self._labels and module not in self._modules:
            self._roots.add(module)
            for name, each in module.named_modules():
                self._modules[each] = BLOCK_NUMBER.sub(".*", WRAPPERS.sub("", name)) or type(module).__name__
        label = self._modules.get(module)
        if label is not None:
            self._labels.append(label)
            self._annotate(label)
        return label

    def _leave(self, *_: Any) -> None:
        self._labels.pop()
        self._annotate(self._labels[-1] if self._labels else "")

    def stop(self) -> None:
        """End the recording; in a forked child, too."""
        while self._restore:
            call_safely(self._restore.pop())


def _ignore(_: Any) -> None:
    """Nobody waits for the answer."""


class _Allocation:
    """Bytes that were alive from the event with the number `start` until the one with the number `end`."""

    __slots__ = ("end", "entry", "owner", "size", "start")

    def __init__(self, entry: Mapping[str, Any], start: int, end: int, owner: str = "") -> None:
        self.entry, self.start, self.end, self.owner = entry, start, end, owner
        self.size: int = entry.get("requested_size") or entry["size"]


def reduce_snapshot(
    snapshot: Mapping[str, Any],
    failed: bool = False,
    owners: Mapping[int, str] | None = None,
    steps_us: Sequence[float] = (),
) -> dict[str, Any]:
    """The bytes that were alive at the peak of the fullest GPU by stack; `stacks` and `rest_bytes` add up to it.

    `snapshot` is that of `torch.cuda.memory`. `failed`: the peak is the last allocation that failed, which is part of
    it. `owners` are kinds by address, `steps_us` when optimizer steps ended (microseconds since the epoch).
    """
    devices = []
    for device, trace in enumerate(snapshot["device_traces"]):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        devices.append((*_reduce_device(segments, trace, failed, owners or {}, steps_us), device))
    _, reduced, device = max(devices, key=lambda reduced: reduced[0])
    return dict(reduced, device=device)


def _reduce_device(
    segments: Sequence[Mapping[str, Any]],
    trace: Sequence[Mapping[str, Any]],
    failed: bool,
    owners: Mapping[int, str],
    steps_us: Sequence[float],
) -> tuple[tuple[bool, int], dict[str, Any]]:
    allocations, failure = _allocations(segments, trace, owners), None
    if failed:
        failure = next((number for number in reversed(range(len(trace))) if trace[number]["action"] == "oom"), None)
    if failure is not None:
        allocations.append(_Allocation(trace[failure], failure, failure + 1, "refused"))
    changes = [0] * (len(trace) + 1)
    for each in allocations:
        changes[max(each.start, 0)] += each.size if each.start >= 0 else 0
        changes[each.end] -= each.size
    moment, total = -1, sum(each.size for each in allocations if each.start < 0)
    peak = total
    for number, change in enumerate(changes[:-1]):
        total += change
        if number == failure or (failure is None and total > peak):
            moment, peak = number, total
    reserved = sum(segment["total_size"] for segment in segments)
    for event in trace[moment + 1 :]:
        sign = {"segment_alloc": -1, "segment_map": -1, "segment_free": 1, "segment_unmap": 1}.get(event["action"], 0)
        reserved += sign * event["size"]
    alive = [each for each in allocations if each.start <= moment < each.end]
    at_us = trace[moment].get("time_us", 0) if moment >= 0 else 0
    reduced = {"peak_bytes": peak, "reserved_bytes": reserved, "failed": failure is not None}
    return (failure is not None, peak), dict(reduced, **_by_stack(alive, [end for end in steps_us if end <= at_us]))


def _allocations(
    segments: Sequence[Mapping[str, Any]], trace: Sequence[Mapping[str, Any]], owners: Mapping[int, str]
) -> list[_Allocation]:
    """All that was alive at some time of the trace, with what it began with: that was freed later, or is alive now."""
    ended: list[_Allocation] = []
    alive: dict[int, _Allocation] = {}
    for number, event in enumerate(trace):
        address = event.get("addr", 0)
        # Until "free_completed" another stream may use the memory, so that nobody else can get it.
        if event["action"] in ("alloc", "free_completed"):
            allocation = alive.pop(address, None)
            if allocation is None and event["action"] == "free_completed":
                allocation = _Allocation(event, -1, number)  # recorded with the stack of its allocation
            if allocation is not None:
                allocation.end = number
                ended.append(allocation)
        if event["action"] == "alloc":
            alive[address] = _Allocation(event, number, len(trace))
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                allocation = alive.pop(block["address"], None) or _Allocation(block, -1, len(trace))
                allocation.owner = owners.get(block["address"], "")
                ended.append(allocation)
    return ended  # what is left in `alive` has no block: when its pool was released is not recorded


def _by_stack(alive: Iterable[_Allocation], steps_us: Sequence[float]) -> dict[str, Any]:
    """The allocations by stack, label and owner, the largest first; those of steps that had ended are counted apart."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    steps: dict[tuple[Any, ...], set[int]] = {}
    newest = len(steps_us)
    for each in alive:
        entry = each.entry
        is_recorded = each.start >= 0 or bool(entry.get("frames"))
        key = _stack(entry.get("frames") or ()), entry.get("user_metadata") or "", each.owner, is_recorded
        group = groups.setdefault(key, {"bytes": 0, "count": 0, "earlier_bytes": 0})
        group["bytes"] += each.size
        group["count"] += 1
        step = bisect_right(steps_us, entry["time_us"]) if "time_us" in entry and each.start >= 0 else newest
        if step < newest:
            group["earlier_bytes"] += each.size
            steps.setdefault(key, set()).add(step)
    ordered = sorted(groups.items(), key=lambda item: -item[1]["bytes"])
    table: dict[tuple[str, int, str], int] = {}
    stacks = []
    for key, group in ordered[:MAX_STACKS]:
        numbers = [table.setdefault(frame, len(table)) for frame in key[0]]
        described = {"module": key[1], "owner": key[2], "recorded": key[3], "earlier_steps": len(steps.get(key, ()))}
        stacks.append(dict(group, frames=numbers, **described))
    rest = sum(group["bytes"] for _, group in ordered[MAX_STACKS:])
    return {"stacks": stacks, "rest_bytes": rest, "frames": [list(frame) for frame in table]}


def _stack(frames: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, int, str], ...]:
    """The Python calls, innermost first, without those that only pass a call on."""
    calls = ((frame["filename"], frame["line"], frame["name"]) for frame in frames)
    python = [call for call in calls if call[0].endswith(".py") or call[0].startswith("<")]
    return tuple(call for call in python if not PASSED_THROUGH.search(f"{call[0]}:{call[2]}"))[:MAX_FRAMES]

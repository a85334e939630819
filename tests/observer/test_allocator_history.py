"""What was alive at the peak, from snapshots whose peak is known exactly, and the recording on a simulated GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.allocator import FakeAllocator
from tests.late_module import one_worker
from tuner_tui.inspection.peak_memory import parse_peak
from tuner_tui.observer.site._tuner_observer.allocator_history import MAX_STACKS, AllocatorHistory, reduce_snapshot
from tuner_tui.observer.site._tuner_observer.session import Session

LINES = tuple(f"f /u/train.py:{line}" for line in range(1, 90))


def total(reduced: dict[str, Any]) -> int:
    bytes_of: list[int] = [stack["bytes"] for stack in reduced["stacks"]]
    return sum(bytes_of, reduced["rest_bytes"])


@given(
    st.lists(st.tuples(st.sampled_from("aaafrpcso"), st.integers(1, 2**20), st.integers(0, 88)), max_size=120),
    st.integers(0, 30),
    st.sampled_from([3, 10, 40, 10**9]),
    st.integers(0, 2),
)
def test_the_stacks_add_up_to_the_peak(
    actions: list[tuple[str, int, int]], before: int, max_events: int, device: int
) -> None:
    gpu = FakeAllocator(max_events, device, is_recording=False)
    freed: list[int] = []
    for number, (action, size, line) in enumerate(actions):
        gpu.is_recording = number >= before
        live, pending = list(gpu.live), list(gpu.pending)
        if action == "a":
            gpu.allocate(size, (LINES[line],), stream=line % 3)
        elif action == "r" and freed:
            gpu.reuse(freed.pop(), size, (LINES[line],))
        elif action in "fp" and live:
            gpu.free(live[size % len(live)], awaits_stream=action == "p")
            freed += [] if action == "p" else [live[size % len(live)]]
        elif action == "c" and pending:
            gpu.complete(pending[size % len(pending)])
            freed.append(pending[size % len(pending)])
        elif action == "o":
            gpu.fail(size, (LINES[line],))
    reduced = reduce_snapshot(gpu.snapshot())
    assert (reduced["peak_bytes"], total(reduced)) == (gpu.peak, gpu.peak)
    assert len(reduced["stacks"]) <= MAX_STACKS
    if gpu.peak:
        assert parse_peak(json.dumps(reduced).encode()).breakdown.total == gpu.peak


@given(st.lists(st.integers(1, 2**20), min_size=1, max_size=20), st.integers(1, 2**30), st.integers(0, 19))
def test_what_failed_is_part_of_the_peak_although_more_was_held_before(
    sizes: list[int], refused: int, freed: int
) -> None:
    gpu = FakeAllocator()
    addresses = [gpu.allocate(size, (LINES[0],)) for size in sizes]
    gpu.free(addresses[freed % len(addresses)])
    held = gpu.used
    gpu.fail(refused, (LINES[1],), "lm_head")
    gpu.allocate(7, (LINES[2],))
    reduced = reduce_snapshot(gpu.snapshot(), failed=True)
    assert (reduced["failed"], reduced["peak_bytes"], total(reduced)) == (True, held + refused, held + refused)
    [request] = [stack for stack in reduced["stacks"] if stack["owner"] == "refused"]
    assert (request["bytes"], request["module"]) == (refused, "lm_head")


def test_the_fullest_gpu_and_what_its_allocator_had_at_the_peak() -> None:
    gpu = FakeAllocator(device=1)
    for _ in range(4):
        gpu.allocate(1000)
    gpu.free(next(iter(gpu.live)))
    gpu.allocate(10)  # a second segment, after the peak
    reduced = reduce_snapshot(gpu.snapshot())
    assert (reduced["device"], reduced["peak_bytes"], reduced["reserved_bytes"]) == (1, 4000, 4 * 2**20)


def test_an_allocation_without_a_block_went_with_its_pool() -> None:
    gpu = FakeAllocator()
    gpu.allocate(1000)
    snapshot = gpu.snapshot()
    snapshot["segments"] = []
    assert reduce_snapshot(snapshot)["peak_bytes"] == 0


def test_owners_are_known_by_address_and_earlier_steps_by_time() -> None:
    gpu = FakeAllocator()
    weights = gpu.allocate(500, (LINES[0],))
    steps = []
    for _ in range(4):
        gpu.allocate(30, (LINES[1],))
        steps.append(gpu.now_us + 0.5)
    gpu.allocate(30, (LINES[1],))
    reduced = reduce_snapshot(gpu.snapshot(), owners={weights: "weights"}, steps_us=steps)
    first, second = reduced["stacks"]
    assert (first["owner"], first["bytes"]) == ("weights", 500)
    assert (second["bytes"], second["earlier_bytes"], second["earlier_steps"]) == (150, 120, 4)


def test_frames_that_only_pass_on_are_left_out() -> None:
    gpu = FakeAllocator()
    module = "/v/site-packages/torch/nn/modules/module.py"
    calls = ("at::empty ??:0", "linear /v/f.py:1", f"_call_impl {module}:2", f"_apply {module}:3", "main /u/train.py:4")
    gpu.allocate(1, calls)
    assert reduce_snapshot(gpu.snapshot())["frames"] == [
        ["/v/f.py", 1, "linear"], [module, 3, "_apply"], ["/u/train.py", 4, "main"],
    ]  # fmt: skip


class Memory:
    """`torch.cuda.memory` of a simulated GPU."""

    def __init__(self, gpu: FakeAllocator) -> None:
        self.gpu = gpu
        self.recorded: list[Any] = []
        self.labels: list[str] = []
        self._snapshot = gpu.snapshot
        self._set_memory_metadata = self.labels.append

    def _record_memory_history(self, enabled: str | None, **options: Any) -> None:
        self.recorded.append((enabled, options.get("stacks"), options.get("context")))


class Module:
    """`torch.nn.Module` without torch."""

    def __init__(self, **children: Module) -> None:
        self.children = children
        self.body: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        for child in self.children.values():
            child()
        self.body()

    def named_modules(self) -> list[tuple[str, Module]]:
        return [
            ("", self),
            *((f"module.h.{number}.{name}", each) for number, (name, each) in enumerate(self.children.items())),
        ]

    def parameters(self) -> list[Any]:
        return []

    buffers = parameters


class SimulatedTorch:
    """As much of torch as a recording needs."""

    __version__ = "2.13.0"
    Tensor = SimpleNamespace

    def __init__(self, gpu: FakeAllocator, initialized: bool = True) -> None:
        self.memory = Memory(gpu)
        self.hooks, self.observers, self.queued = (list[Callable[..., Any]]() for _ in range(3))
        self.cuda = SimpleNamespace(
            memory=self.memory, is_initialized=lambda: initialized, mem_get_info=lambda: (5, 2**30),
            _lazy_call=self.queued.append,
        )  # fmt: skip
        self._C = SimpleNamespace(_cuda_attach_out_of_memory_observer=self.observers.append)
        self.optimizers = SimpleNamespace(
            register_optimizer_step_pre_hook=self._hook, register_optimizer_step_post_hook=self._hook
        )
        self.nn = SimpleNamespace(Module=type("Module", (Module,), {}))

    def _hook(self, hook: Callable[..., None]) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def step(self, optimizer: Any) -> None:
        for hook in list(self.hooks):
            hook(optimizer, (), {})


class Optimizer:
    """With one parameter, its gradient and its state at known addresses."""

    def __init__(self, *addresses: int) -> None:
        weight, gradient, state = (self._tensor(address) for address in addresses)
        weight.grad = gradient
        self.param_groups, self.state = [{"params": [weight]}], {0: {"step": 3, "exp_avg": state}}

    @staticmethod
    def _tensor(address: int) -> SimpleNamespace:
        storage = SimpleNamespace(data_ptr=lambda: address)
        return SimpleNamespace(untyped_storage=lambda: storage, grad=None)


def history(torch: Any, folder: Path) -> AllocatorHistory:
    modules = {"torch.optim.optimizer": torch.optimizers}
    return AllocatorHistory(torch, Session(str(folder), launched=False), modules)


def test_steps_that_were_asked_for_are_recorded_and_named(tmp_path: Path) -> None:
    gpu = FakeAllocator()
    torch, answers = SimulatedTorch(gpu), list[Any]()
    recording = history(torch, tmp_path)
    plain_call = torch.nn.Module.__call__
    assert recording.record(2, answers.append) == {"state": "recording"}
    assert recording.record(2, answers.append) == {"refused": "its memory is being recorded already"}
    optimizer = Optimizer(gpu.allocate(400), gpu.allocate(300), gpu.allocate(200))
    model = torch.nn.Module(mlp=torch.nn.Module())
    model()
    torch.step(optimizer)
    assert answers == []
    torch.step(optimizer)
    assert answers == [{"recorded": True}]
    assert torch.memory.recorded == [("all", "python", "alloc"), (None, None, None)]
    assert torch.memory.labels == ["Module", "h.*.mlp", "Module", ""]
    assert (torch.hooks, torch.nn.Module.__call__) == ([], plain_call)
    [file] = tmp_path.iterdir()
    peak = parse_peak(file.read_bytes())
    assert (file.name, file.stat().st_mode & 0o777, peak.peak_bytes) == ("memory-rank0.json", 0o600, 900)
    assert peak.breakdown.by(lambda part: part.kind) == {"weights": 400, "gradients": 300, "optimizer states": 200}
    assert peak.outside_bytes == 2**30 - 5 - 4 * 2**20


def test_armed_it_begins_with_cuda_and_writes_when_memory_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeAllocator()
    torch = SimulatedTorch(gpu, initialized=False)
    monkeypatch.setenv("TUNER_MEMORY_HISTORY", "10")
    history(torch, tmp_path).arm()
    assert torch.memory.recorded == []
    [started] = torch.queued
    started()
    gpu.allocate(1000, ("forward /u/train.py:3",))
    gpu.fail(5000, ("forward /u/train.py:4",))
    [ran_out] = torch.observers
    ran_out(0, 5000, 2**30, 10)
    peak = parse_peak((tmp_path / "memory-rank0.json").read_bytes())
    assert (peak.failed, peak.peak_bytes, peak.sentence) == (
        True, 6000, "largest at the peak: activations, 1000 B, train.py:3 (forward)",
    )  # fmt: skip


def test_off_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNER_MEMORY_HISTORY", raising=False)
    torch = SimulatedTorch(FakeAllocator())
    history(torch, tmp_path).arm()
    assert (torch.queued, torch.memory.recorded, torch.hooks) == ([], [], [])


@pytest.mark.parametrize(
    ("owner", "name"),
    [("memory", "_snapshot"), ("_C", "_cuda_attach_out_of_memory_observer")],
)
def test_a_private_name_that_moved_is_a_reason(owner: str, name: str, tmp_path: Path) -> None:
    torch = SimulatedTorch(FakeAllocator())
    delattr(getattr(torch, owner), name)
    assert history(torch, tmp_path).record(2, print) == {"refused": f"torch 2.13.0 has no {name}"}
    assert torch.memory.recorded == []


def test_reasons_of_the_training(tmp_path: Path) -> None:
    torch = SimulatedTorch(FakeAllocator(), initialized=False)
    assert "only CUDA's allocator keeps a history" in history(torch, tmp_path).record(2, print)["refused"]
    torch = SimulatedTorch(FakeAllocator())
    torch._C._cuda_isHistoryEnabled = lambda: True
    assert history(torch, tmp_path).record(2, print) == {"refused": "the training records its allocator itself"}
    answers = list[Any]()
    recording = history(SimulatedTorch(FakeAllocator()), tmp_path / "gone")
    recording.record(1, answers.append)
    recording._torch.step(Optimizer(1, 2, 3))
    assert answers == [{"refused": "what held the memory cannot be written: No such file or directory"}]


def test_the_bounded_history_is_reduced_in_seconds() -> None:
    gpu = FakeAllocator(max_events=100_000)
    addresses = [gpu.allocate(1000, (LINES[number % 80],)) for number in range(30)]
    event = [dict(each) for each in gpu.trace if each["action"] == "alloc"]
    snapshot = gpu.snapshot()
    frees = [{**each, "action": "free_completed"} for each in event]
    snapshot["device_traces"] = [(event + frees) * 1600 + event]
    assert len(snapshot["device_traces"][0]) > 90_000
    began_s = time.process_time()
    assert reduce_snapshot(snapshot)["peak_bytes"] == 1000 * len(addresses)
    assert time.process_time() - began_s < 5


@one_worker
def test_the_model_and_the_optimizer_of_torch_are_found(tmp_path: Path) -> None:
    real = pytest.importorskip("torch")
    torch = SimulatedTorch(FakeAllocator())
    torch.nn, torch.Tensor = real.nn, real.Tensor
    recording = AllocatorHistory(torch, Session(str(tmp_path), launched=False))
    assert recording.record(3, print) == {"state": "recording"}
    model = real.nn.Sequential(real.nn.Linear(4, 8), real.nn.ReLU())
    optimizer = real.optim.AdamW(model.parameters())
    model(real.ones(3, 4)).sum().backward()
    optimizer.step()
    kinds = list(recording._owners().values())
    recording.stop()
    assert {kind: kinds.count(kind) for kind in kinds} == {"weights": 2, "gradients": 2, "optimizer states": 6}
    assert torch.memory.labels == ["Sequential", "0", "Sequential", "1", "Sequential", ""]

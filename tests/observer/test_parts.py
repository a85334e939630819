"""The observer's parts by themselves, with fakes for what surrounds them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.observer.observed_process import SITE, run_python
from tuner_tui.observer.site._tuner_observer.counters.batch_stats import (
    ALWAYS_COUNTED_MASKS,
    COUNT_INTERVAL_S,
    MAX_COUNTED_ELEMENTS,
    BatchLayout,
    IteratorStats,
)
from tuner_tui.observer.site._tuner_observer.counters.evaluation_detector import EvaluationDetector
from tuner_tui.observer.site._tuner_observer.counters.memory_peaks import MemoryPeaks
from tuner_tui.observer.site._tuner_observer.counters.step_counters import StepCounters
from tuner_tui.observer.site._tuner_observer.frameworks import transformers_trainer
from tuner_tui.observer.site._tuner_observer.frameworks.control_file import ControlFile
from tuner_tui.observer.site._tuner_observer.hooks import optimizer_steps
from tuner_tui.observer.site._tuner_observer.import_hooks import PostImportFinder
from tuner_tui.observer.site._tuner_observer.process_exit import ExitReporter, is_out_of_memory
from tuner_tui.observer.site._tuner_observer.process_role import MARKER, is_launched
from tuner_tui.observer.site._tuner_observer.session import PHASE_BURST, Session

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _no_process_claimed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark that the first observed process leaves in its environment is gone again after each test."""
    monkeypatch.setenv(MARKER, "")


def measure(batch: Any) -> Any:
    return IteratorStats().counted(BatchLayout(batch, torch.Tensor).measure(batch, 1.0))


def ids(rows: int = 4, columns: int = 6) -> Any:
    return torch.arange(rows * columns).reshape(rows, columns)


def test_batches_of_every_shape() -> None:
    mask = torch.ones(4, 6, dtype=torch.long)
    mask[0, 3:] = 0
    assert measure({"input_ids": ids(), "attention_mask": mask}) == ((4, 6), 21, 3)
    numbered = torch.tensor([[1, 1, 2, 2, 3, 0]] * 4)
    assert measure({"input_ids": ids(), "attention_mask": numbered}) == ((4, 6), 20, 4)
    assert measure({"input_ids": ids(), "attention_mask": mask.bool()}) == ((4, 6), 21, 3)
    assert measure(({"input_ids": ids(), "attention_mask": mask}, torch.zeros(4))) == ((4, 6), 21, 3)
    assert measure({"input_ids": ids(), "labels": ids()}) == ((4, 6), 24, None)
    assert measure({"input_ids": ids(1, 24), "seq_idx": ids(1, 24)}) == ((1, 24), 24, 0)
    assert measure({"pixel_values": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(2)}) == ((2, 3, 8, 8), None, None)
    assert measure((ids(), mask, torch.zeros(4))) == ((4, 6), 21, 3)
    assert measure([ids(), ids()]) == ((4, 6), 24, None)
    assert measure((torch.zeros(5, 2), torch.zeros(5))) == ((5, 2), None, None)
    assert measure(torch.zeros(7, 2)) == ((7, 2), None, None)
    assert measure(["a", "b"]) == ((), None, None)
    assert measure(None) == ((), None, None)


def test_large_masks_are_counted_by_some_rows_and_come_out_right() -> None:
    rows, columns = 64, 512
    assert rows * columns > 2 * MAX_COUNTED_ELEMENTS
    lengths = torch.arange(rows) * columns // rows  # sorted: the worst case for taking every k-th row
    mask = (torch.arange(columns)[None, :] < lengths[:, None]).long()
    batch = {"input_ids": torch.zeros_like(mask), "attention_mask": mask}
    layout = BatchLayout(batch, torch.Tensor)
    source = IteratorStats()
    counted = [source.counted(layout.measure(batch, 1.0))[1] or 0 for _ in range(16)]
    assert len(set(counted)) > 1
    assert sum(counted) / len(counted) == pytest.approx(int(mask.sum()), rel=0.01)
    assert source.estimated


def test_of_batches_that_come_fast_the_first_masks_are_counted_and_then_some() -> None:
    source, layout = (
        IteratorStats(),
        BatchLayout({"input_ids": ids(), "attention_mask": ids().clamp(max=1)}, torch.Tensor),
    )
    taken, tokens = [], []
    for number in range(4000):
        lengths = torch.full((4, 1), 1 + number % 6)
        batch = {"input_ids": ids(), "attention_mask": (torch.arange(6)[None, :] < lengths).long()}
        measured = layout.measure(batch, number * 1e-3)
        taken.append(measured[1] is not None)
        tokens.append(source.counted(measured)[1])
        if number == ALWAYS_COUNTED_MASKS - 1:
            assert all(taken)
            assert not source.estimated
    assert sum(taken) == pytest.approx(
        ALWAYS_COUNTED_MASKS + (4000 - ALWAYS_COUNTED_MASKS) * 1e-3 / COUNT_INTERVAL_S, abs=2
    )
    assert source.estimated
    assert sum(tokens) == pytest.approx(4000 * 4 * 3.5, rel=0.1)


def test_of_batches_that_come_slowly_every_mask_is_counted() -> None:
    source, layout = (
        IteratorStats(),
        BatchLayout({"input_ids": ids(), "attention_mask": ids().clamp(max=1)}, torch.Tensor),
    )
    batch = {"input_ids": ids(), "attention_mask": ids().clamp(max=1)}
    measured = [source.counted(layout.measure(batch, number * 2 * COUNT_INTERVAL_S)) for number in range(200)]
    assert set(measured) == {((4, 6), 23, 1)}
    assert not source.estimated


def test_control_file_is_obeyed_once_and_not_if_it_is_old(tmp_path: Path) -> None:
    file = tmp_path / "control"
    file.write_text("stop\n")
    old = ControlFile(str(tmp_path))
    old.training_begins()
    assert old.order(1) is None
    now = [100.0]
    control = ControlFile(str(tmp_path), lambda: now[0])
    assert control.order(1) == "stop"
    now[0] += 2
    assert control.order(2) is None
    file.write_text("checkpoint 17\n")
    assert control.order(3) is None, "looked at once a second at most"
    now[0] += 2
    assert control.order(4) == "checkpoint"


def test_ranks_obey_at_the_same_step(tmp_path: Path) -> None:
    now = [100.0]
    first, second, third = (
        ControlFile(str(tmp_path), lambda: now[0], lambda rank=rank: (rank, 3))  # type: ignore[misc]
        for rank in range(3)
    )
    for control in (first, second, third):
        control.training_begins()
    assert [control.order(1) for control in (third, second, first)] == [None] * 3
    (tmp_path / "control").write_text("stop\n")
    now[0] += 0.5
    assert [control.order(2) for control in (first, second, third)] == [None] * 3, "not looked at yet"
    now[0] += 0.6
    assert second.order(3) is None, "it looks at the order never by itself"
    assert first.order(3) is None, "the others may have this step behind them"
    assert [control.order(4) for control in (third, first, second)] == ["stop"] * 3
    now[0] += 2
    assert [control.order(5) for control in (first, second, third)] == [None] * 3


def test_phases_are_thinned_out_but_the_end_is_told(tmp_path: Path) -> None:
    session = Session(str(tmp_path), launched=True)
    session.open()
    for _ in range(50):
        session.enter("evaluating")
        session.enter("training")
    session.enter("ending")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    phases = [line["phase"] for line in lines if line["kind"] == "phase"]
    assert len(phases) <= PHASE_BURST + 2
    assert phases[-1] == "ending"


def test_ranks_of_a_launcher_are_launched_and_their_children_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py"])
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv(MARKER, "1::/run")
    assert not is_launched("/run")
    assert is_launched("/another run"), "a run started from within a run"
    monkeypatch.setenv("RANK", "1")
    assert is_launched("/run")
    assert is_launched("/run"), "an exec keeps its pid"
    monkeypatch.setenv(MARKER, "1:1:/run")
    assert not is_launched("/run")


@pytest.mark.parametrize(
    "command",
    [["/venv/bin/torchrun"], ["/venv/bin/accelerate", "launch"], ["-u", "-m", "torch.distributed.run", "--standalone"]],
)
def test_launchers_leave_the_place_to_their_ranks(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", *command])
    assert not is_launched("/run")


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("AcceleratorError", "CUDA error: out of memory", True),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("MemoryError", "", True),
        ("_ArrayMemoryError", "Unable to allocate 1.00 TiB for an array", True),
        ("OutOfResources", "out of resource: shared memory, Required: 147456", False),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate more than 1EB memory.", False),
        ("RuntimeError", "DataLoader worker is killed by signal: Bus error. out of shared memory", False),
        ("ValueError", "bad shape", False),
    ],
)
def test_what_counts_as_out_of_memory(kind: str, message: str, expected: bool) -> None:
    assert is_out_of_memory(kind, message) is expected


class FakeCuda:
    """The allocator of a started device: a settable peak, and its statistics as torch nests them."""

    def __init__(self) -> None:
        self.peak = 100
        self.started = True

    def is_initialized(self) -> bool:
        return self.started

    def max_memory_allocated(self) -> int:
        return self.peak

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        allocated = {"all": {"peak": self.peak, "current": 150}}
        return {"allocated_bytes": allocated, "reserved_bytes": {"all": {"peak": 400}}, "num_alloc_retries": 2}


def test_peaks_of_the_device_and_of_the_optimizer_step() -> None:
    cuda = FakeCuda()
    peaks = MemoryPeaks(SimpleNamespace(cuda=cuda))
    peaks.before_step()
    cuda.peak = 300
    peaks.after_step()
    fields = peaks.fields()
    assert fields["rss_peak_bytes"]
    assert fields["anonymous_bytes"]
    assert fields["allocated_bytes"] == 150
    assert (fields["allocated_peak_bytes"], fields["reserved_peak_bytes"]) == (300, 400)
    assert (fields["step_peak_bytes"], fields["alloc_retries"]) == (300, 2)
    cuda.started = False
    assert set(peaks.fields()) == {"rss_peak_bytes", "anonymous_bytes"}


def test_optimizers_of_torch_without_global_hooks(tmp_path: Path) -> None:
    class Optimizer:
        def __init__(self) -> None:
            self.steps = 0

        def step(self) -> str:
            self.steps += 1
            return "stepped"

    seen: list[object] = []
    module = SimpleNamespace(Optimizer=Optimizer)
    session = Session(str(tmp_path), launched=True)
    counters = StepCounters(session, torch.Tensor, EvaluationDetector(torch.is_grad_enabled), dict)
    optimizer_steps.hook_optimizers(module, counters, None, seen.append)
    first, second = Optimizer(), Optimizer()
    assert [first.step(), second.step(), first.step()] == ["stepped"] * 3
    assert seen == [first, second]
    assert counters.step == 2, "they take turns"


def test_injection_into_loaders(tmp_path: Path) -> None:
    code = """
import torch
from torch.utils.data import DataLoader, TensorDataset, SequentialSampler
data = TensorDataset(torch.zeros(8, 2))
ordered = SequentialSampler(data)
for loader in (DataLoader(data, 2, True), DataLoader(data, batch_size=2), DataLoader(data, 2, sampler=ordered)):
    print(loader.batch_size, loader.num_workers, loader.prefetch_factor, loader.drop_last)
"""
    inject = {"per_device_train_batch_size": 4, "dataloader_num_workers": 0, "dataloader_prefetch_factor": 3, "lr": 1}
    environment = {"PYTHONPATH": str(SITE), "TUNER_RUN_DIR": str(tmp_path), "TUNER_INJECT": json.dumps(inject)}
    result = run_python("-c", code, settings=environment)
    assert result.stdout.splitlines() == ["4 0 None False", "2 0 None False", "2 0 None False"], result.stderr
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    [injected] = [line for line in lines if line["kind"] == "injected"]
    assert "not_found" not in injected or injected["not_found"] == [], "another place may take it yet"
    assert injected["values"]["per_device_train_batch_size"] == 4


def test_hooks_run_once_after_the_import_whoever_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []

    def failing_hook(module: ModuleType) -> None:
        seen.append(module)
        raise RuntimeError("the observer's own fault")

    monkeypatch.setattr(sys, "meta_path", [PostImportFinder({"watched_module": failing_hook}), *sys.meta_path])
    assert importlib.util.find_spec("watched_module") is not None
    assert seen == []
    module = importlib.import_module("watched_module")
    assert seen == [module]
    assert module.__loader__.get_source("watched_module") == "value = 1\n"  # type: ignore[union-attr]
    del sys.modules["watched_module"]


class FakeTrainer:
    """A Trainer whose evaluation runs out of memory."""

    def evaluate(self) -> None:
        self.evaluation_loop()

    def predict(self) -> None: ...

    def evaluation_loop(self) -> None:
        raise MemoryError

    def _save_checkpoint(self) -> None: ...


def test_error_in_an_evaluation_is_told_as_such(tmp_path: Path) -> None:
    session = Session(str(tmp_path), launched=True)
    session.open()
    counters = StepCounters(session, torch.Tensor, EvaluationDetector(torch.is_grad_enabled), dict)
    module = SimpleNamespace(DEFAULT_CALLBACKS=[], Trainer=FakeTrainer, TrainerCallback=object)
    transformers_trainer.hook_transformers_trainer(module, session, counters, SimpleNamespace())  # type: ignore[arg-type]
    assert len(module.DEFAULT_CALLBACKS) == 1
    with pytest.raises(MemoryError) as caught:
        FakeTrainer().evaluate()
    ExitReporter(session, lambda: counters).tell(caught.value)
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["where"]) == ("out-of-memory", "evaluating")
    assert not counters.evaluation.running()

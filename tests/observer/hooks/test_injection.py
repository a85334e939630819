"""Injection of settings into DataLoaders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.late_module import skip_without
from tests.observer.observed_process import SCRIPTS, SITE, observe, run_python
from tuner_tui.observer.site._tuner_observer.hooks.injection import hook_lightning_resume, hook_trainer_resume
from tuner_tui.observer.site._tuner_observer.session import Session
from tuner_tui.runs.events import types as events

skip_without("torch")


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
    injected, at_exit = [line for line in lines if line["kind"] == "injected"]
    assert at_exit["not_found"] == ["lr"]
    assert "not_found" not in injected or injected["not_found"] == [], "another place may still take it"
    assert injected["values"]["per_device_train_batch_size"] == 4


def test_at_most_one_worker_for_a_stream_that_does_not_divide_itself(tmp_path: Path) -> None:
    code = """
import itertools
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
class Whole(IterableDataset):
    def __iter__(self):
        return iter(range(12))
class Divided(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        return iter(range(worker.id, 12, worker.num_workers))
for stream in (Whole(), Divided()):
    loader = DataLoader(stream, batch_size=2)
    print(loader.num_workers, sorted(sample.item() for batch in loader for sample in batch))
"""
    settings = {"TUNER_INJECT": json.dumps({"dataloader_num_workers": 2})}
    run = observe(tmp_path, "-c", code, settings=settings)
    assert run.output.splitlines() == [f"{workers} {list(range(12))}" for workers in (1, 2)], run.errors
    limits = [event.limits for event in run.of(events.Injected) if event.limits]
    assert limits == [{"dataloader_num_workers": "each worker would deliver all samples of this stream"}]


@dataclass(frozen=True)
class Injected:
    """Output of a script, what was set inside it, and what found no place."""

    lines: list[str]
    values: dict[str, Any]
    not_found: list[str]


def inject_into(script: str, tmp_path: Path, values: dict[str, Any], *words: str) -> Injected:
    run = observe(tmp_path, str(SCRIPTS / script), *words, settings={"TUNER_INJECT": json.dumps(values)})
    assert run.exit_code == 0, run.errors
    injected = [event for event in run.events if isinstance(event, events.Injected)]
    taken = {name: value for event in injected for name, value in event.values.items()}
    return Injected(run.output.splitlines(), taken, list(injected[-1].not_found))


@pytest.mark.full
def test_an_ordered_loader_that_is_read_under_gradients_takes_a_batch_size(tmp_path: Path) -> None:
    wanted = {"per_device_train_batch_size": 8, "dataloader_num_workers": 1}
    run = inject_into("ordered_loaders.py", tmp_path, wanted)
    # 24 samples, 8 at a time; the validation's 8 samples stay at 4
    assert run.lines == ["train [8, 8, 8] 3 1 2", "valid [4, 4] 0"] * 2
    assert run.values == wanted


def test_an_ordered_loader_keeps_a_length_that_the_script_has_planned_with(tmp_path: Path) -> None:
    run = inject_into("ordered_loaders.py", tmp_path, {"per_device_train_batch_size": 8}, "plan")
    assert run.lines[0] == "train [4, 4, 4, 4, 4, 4] 6 0 None"
    assert run.not_found == ["per_device_train_batch_size"]


def test_what_finds_no_place_is_reported_without_an_optimizer(tmp_path: Path) -> None:
    run = inject_into("ordered_loaders.py", tmp_path, {"learning_rate": 0.5}, "by-hand")
    assert run.not_found == ["learning_rate"]


def test_what_finds_no_place_is_reported_at_the_end_of_a_process_that_never_trained(tmp_path: Path) -> None:
    settings = {"TUNER_INJECT": json.dumps({"learning_rate": 0.5})}
    run = observe(tmp_path, "-c", "import torch", settings=settings)
    assert [event.not_found for event in run.of(events.Injected)] == [("learning_rate",)]


def trainer_class() -> Any:
    class Trainer:
        def train(self, resume_from_checkpoint: Any = None, trial: Any = None) -> tuple[Any, Any]:
            return resume_from_checkpoint, trial

        def get_train_dataloader(self) -> None: ...

        def fit(self, *args: Any, ckpt_path: Any = None) -> Any:
            return ckpt_path

    return Trainer


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "last.ckpt"
    file.touch()
    monkeypatch.setenv("TUNER_RESUME", str(file))
    return str(file)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((None, 7), {}), ((False,), {"trial": 7}), ((), {"trial": 7})])
def test_only_the_first_training_resumes(tmp_path: Path, checkpoint: str, args: Any, kwargs: Any) -> None:
    Trainer = trainer_class()
    hook_trainer_resume(SimpleNamespace(Trainer=Trainer), Session(str(tmp_path), launched=True))
    trial = 7 if "trial" in kwargs or len(args) > 1 else None
    assert Trainer().train(*args, **kwargs) == (checkpoint, trial)
    assert Trainer().train(*args, **kwargs)[0] in (None, False)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    [injected] = [line for line in lines if line["kind"] == "injected"]
    assert injected["values"] == {"resume_from_checkpoint": checkpoint}


@pytest.mark.parametrize(("args", "kwargs"), [(("mine",), {}), ((), {"resume_from_checkpoint": "mine"})])
def test_a_checkpoint_of_the_script_is_kept(tmp_path: Path, checkpoint: str, args: Any, kwargs: Any) -> None:
    Trainer = trainer_class()
    hook_trainer_resume(SimpleNamespace(Trainer=Trainer), Session(str(tmp_path), launched=True))
    assert Trainer().train(*args, **kwargs)[0] == "mine"
    assert not (tmp_path / "events.jsonl").exists()


def test_lightning_resumes_from_a_file(tmp_path: Path, checkpoint: str) -> None:
    Trainer = trainer_class()
    hook_lightning_resume(SimpleNamespace(Trainer=Trainer), Session(str(tmp_path), launched=True))
    assert Trainer().fit("model", "train") == checkpoint
    assert Trainer().fit("model", "train") is None

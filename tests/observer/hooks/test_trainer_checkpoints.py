"""Resuming from the checkpoint of the environment, whichever way the script calls its Trainer."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_tui.observer.site._tuner_observer.hooks.injection import (
    hook_lightning_resume,
    hook_trainer_resume,
)
from tuner_tui.observer.site._tuner_observer.session import Session


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

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.trainer.job_file import JobArguments, JobError, needs_hub, parse_config
from tuner_tui.trainer.main import main

torch, transformers = late_module("torch"), late_module("transformers")
training = late_module("tuner_tui.trainer.training")


def values(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"output_dir": str(tmp_path / "out"), **more}


def test_job_and_training_arguments_are_told_apart(tmp_path: Path) -> None:
    job, arguments = parse_config(values(tmp_path, task="causal-lm", max_steps=7, lora_r=4))
    assert (job.task, job.lora_r, arguments.max_steps) == ("causal-lm", 4, 7)


def test_a_warmup_below_one_stays_a_share(tmp_path: Path) -> None:
    _, arguments = parse_config(values(tmp_path, warmup_steps=0.06, max_steps=100))
    assert arguments.get_warmup_steps(100) == 6


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"learning_rat": 1}, "learning_rat"),
        ({"dataloader_prefetch_factor": 2}, "dataloader_prefetch_factor"),
        ({"optim": "adamx"}, "adamx"),
        ({"eval_strategy": "sometimes"}, "sometimes"),
    ],
)
def test_a_bad_value_is_one_sentence_with_file_and_key(tmp_path: Path, bad: dict[str, Any], sentence: str) -> None:
    with pytest.raises(JobError) as raised:
        parse_config(values(tmp_path, **bad), "job.yaml")
    assert str(raised.value).startswith("job.yaml: ")
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_checkpointing_recomputes_the_way_that_adapters_need(tmp_path: Path) -> None:
    names = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    key = "activation_checkpointing" if "activation_checkpointing" in names else "gradient_checkpointing"
    _, arguments = parse_config(values(tmp_path, **{key: True}))
    assert arguments.gradient_checkpointing
    assert getattr(arguments, f"{key}_kwargs") == {"use_reentrant": False}


def test_bad_input_ends_with_two_and_says_why_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent.yaml")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/absent.yaml: No such file or directory\n"
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage:")


def test_only_what_is_not_here_needs_the_hub(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n")
    assert not needs_hub({})
    assert not needs_hub({"model": "gpt2", "data": str(tmp_path / "train.csv")})
    assert needs_hub({"model": "bert-base-uncased"})
    assert needs_hub({"data": "imdb"})


def properties(name: str, gib: int, major: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, total_memory=gib * 2**30, major=major, minor=0)


A3090, A4060, A6000, T4 = (
    properties("RTX 3090", 24, 8), properties("RTX 4060", 8, 8), properties("RTX 6000", 24, 7), properties("T4", 16, 7),
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "visible", "used", "again_on"),
    [
        ((A3090, A4060), None, 1, None),
        ((A3090, A3090), None, 2, None),
        ((A4060, A3090), None, 1, "1"),  # CUDA counts the fastest first: here the one with less memory
        ((A4060, A3090, A3090), None, 1, "1"),
        ((A4060, A3090), "5,2", 1, "2"),
        ((A4060, A3090), "GPU-aa,GPU-bb", 1, "GPU-bb"),
        ((A6000, A3090), None, 1, "1"),  # as much memory, but a newer generation
        ((T4, A4060), None, 1, None),
    ],
)
def test_of_different_gpus_only_the_best_trains(
    gpus: tuple[SimpleNamespace, ...],
    visible: str | None,
    used: int,
    again_on: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: gpus[number])
    monkeypatch.setattr(os, "execve", lambda path, argv, env: started.append((argv, env)))
    monkeypatch.setattr(sys, "orig_argv", ["python", "trainer", "job.yaml"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    arguments: Any = SimpleNamespace(n_gpu=len(gpus), _n_gpu=len(gpus))
    training.use_one_kind_of_gpu(arguments)
    assert arguments._n_gpu == used
    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in started] == ([] if again_on is None else [again_on])
    assert all(argv[1:] == ["trainer", "job.yaml"] for argv, _ in started)


@pytest.mark.parametrize(
    ("parameters", "job", "used"),
    [
        (110_000_000, JobArguments(), 2),
        (110_000_000, JobArguments(peft_method="lora"), 1),
        (124_000_000, JobArguments(task="causal-lm"), 1),
        (400_000_000, JobArguments(), 2),
        (1_236_000_000, JobArguments(), 1),
    ],
)
def test_what_dataparallel_would_slow_down_trains_on_one_gpu(
    parameters: int, job: JobArguments, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: A3090)
    arguments: Any = SimpleNamespace(n_gpu=2, _n_gpu=2)
    training.use_one_gpu_for_large_models(arguments, job, parameters)
    assert arguments._n_gpu == used

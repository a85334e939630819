"""Rules across settings and against the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from tests.fakes.inventories import python
from tests.settings.strategies import all_settings
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.job import BuiltinJob, job_from_json
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.settings.preset_file import Preset
from tuner_tui.settings.presets import list_presets, shipped_folder
from tuner_tui.settings.resolve import resolve
from tuner_tui.settings.rules import Problem, find_problems, overflows_fp16

EXAMPLES = yaml.load(Path(__file__).with_name("rules.yaml").read_text(), yaml.CSafeLoader)
CAPABILITIES = {"K80": (3, 7), "P100": (6, 0), "V100": (7, 0), "T4": (7, 5), "A10": (8, 6), "A100": (8, 0)}
CPU_BUILD = Interpreter("/p", "3.11.4", {"torch": "2.13.0+cpu"})


def gpu(name: str) -> Gpu:
    return Gpu(0, f"Tesla {name}", capability=CAPABILITIES.get(name))


def problems(
    settings: dict[str, Any],
    gpus: list[str] | None,
    interpreter: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
) -> tuple[Problem, ...]:
    """The problems of an example."""
    return find_problems(
        Settings(**settings),
        gpus=None if gpus is None else tuple(map(gpu, gpus)),
        interpreter=None if interpreter is None else Interpreter("/p", **{"python_version": "3.11.4", **interpreter}),
        job=None if job is None else job_from_json(job),
        cores=16,
    )


@pytest.mark.parametrize("example", EXAMPLES["wrong"], ids=lambda example: example["says"])
def test_what_does_not_fit_is_said_with_what_would(example: dict[str, Any]) -> None:
    where = {name: example.get(name) for name in ("gpus", "interpreter", "job")}
    says, settings = example["says"], example["settings"]
    (problem,) = [problem for problem in problems(settings, **where) if says in problem.sentence]
    assert problem.severity == example["severity"]
    assert problem.fix == example.get("fix", problem.fix)
    if problem.fix:
        assert says not in " ".join(left.sentence for left in problems({**settings, **problem.fix}, **where))


@pytest.mark.parametrize("example", EXAMPLES["right"], ids=lambda example: str(example["settings"]))
def test_what_fits_or_is_not_known_is_let_be(example: dict[str, Any]) -> None:
    assert problems(**example) == ()


def test_a_setting_that_the_installed_transformers_does_not_have_is_told():
    names = dict.fromkeys([*FIELDS, "bf16", "fp16", "group_by_length", "warmup_ratio"])
    del names["train_sampling_strategy"]
    old = Interpreter("/p", "3.10", {"torch": "2.4.0"}, torch_cuda="12.1", training_arguments=names)
    wrong = find_problems(Settings(train_sampling_strategy="sequential"), gpus=None, interpreter=old)
    assert "no effect" in wrong[0].sentence
    assert find_problems(Settings(train_sampling_strategy="group_by_length"), gpus=None, interpreter=old) == ()


def test_errors_come_first():
    severities = [item.severity for item in problems({"tf32": True, "precision": "bf16", "eval_steps": 5}, ["T4"])]
    assert severities == ["error", "error", "warning"]


@given(all_settings)
def test_every_problem_names_fields_and_values_that_exist(settings):
    for gpus in ((), (gpu("T4"),), (gpu("A100"),)):
        for item in find_problems(settings, gpus=gpus, interpreter=python(), job=BuiltinJob(max_samples=100), cores=2):
            assert item.fields
            assert set(item.fields) <= set(FIELDS)
            assert set(item.fix) <= set(FIELDS)
            assert item.sentence.endswith((".", "?"))
            settings.changed(**item.fix)


def test_suggestions_are_known_names():
    for name in ("optim", "lr_scheduler_type"):
        for word in FIELDS[name].suggestions:
            assert not [item for item in problems({name: word}, ["A100"]) if item.fields == (name,)]


@pytest.mark.parametrize("name", ["demo", "cpu"])
def test_the_presets_for_any_box_fit_a_box_without_a_gpu(name):
    preset: Preset = next(
        item.loaded.preset for item in list_presets((shipped_folder(),)) if item.name == name and item.loaded
    )
    settings = resolve(preset=preset).settings
    assert find_problems(settings, gpus=(), interpreter=CPU_BUILD, job=preset.job, cores=2) == ()


@pytest.mark.parametrize(
    ("model", "overflows"),
    [
        ("google/gemma-2-2b-it", True), ("unsloth/Gemma-3-1B", True), ("t5-small", True), ("google/mt5-base", True),
        ("google/flan-t5-xl", True), ("google/byt5-small", True), ("google/umt5-base", True),
        ("Salesforce/codet5-base", True), ("google/flan-ul2", True), ("google/long-t5-local-base", True),
        ("bert-base-uncased", False), ("Qwen/Qwen2.5-7B", False), ("gpt2", False), ("org/part5", False), (None, False),
    ],
)  # fmt: skip
def test_models_that_overflow_in_fp16(model: str | None, overflows: bool) -> None:
    assert overflows_fp16(model) is overflows

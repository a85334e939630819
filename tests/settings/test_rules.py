"""Rules across settings and against the machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.settings.strategies import all_settings
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.settings.presets import Preset, list_presets, shipped_folder
from tuner_tui.settings.resolve import resolve
from tuner_tui.settings.rules import Problem, find_problems

K80 = (Gpu(0, "Tesla K80", capability=(3, 7)),)
P100 = (Gpu(0, "Tesla P100", capability=(6, 0)),)
V100 = (Gpu(0, "Tesla V100", capability=(7, 0)),)
T4 = (Gpu(0, "Tesla T4", capability=(7, 5)),)
A100 = (Gpu(0, "NVIDIA A100", capability=(8, 0)),)
MIXED = (*A100, *T4)
UNKNOWN = (Gpu(0, "GPU 0"),)
NONE: tuple[Gpu, ...] = ()
FULL = {"torch": "2.13.0", "bitsandbytes": "0.48.0", "flash-attn": "2.8.0", "peft": "0.18.0"}


def python(
    torch: str | None = "2.13.0", cuda: str | None = "13.0", version: str = "3.11.4", **packages: str
) -> Interpreter:
    named = {name.replace("_", "-"): text for name, text in packages.items()}
    torch_package = {} if torch is None else {"torch": torch}
    return Interpreter("/env/bin/python", version, {**torch_package, **named}, torch_cuda=cuda)


def found(
    change: dict[str, Any],
    gpus: tuple[Gpu, ...] | None = A100,
    interpreter: Interpreter | None = None,
    job: BuiltinJob | None = None,
    cores: int | None = 16,
) -> tuple[Problem, ...]:
    return find_problems(Settings(**change), gpus=gpus, interpreter=interpreter, job=job, cores=cores)


FUSED = {"optim": "adamw_torch_fused"}
FLASH = {"attn_implementation": "flash_attention_2", "precision": "bf16"}
FLEX = {"attn_implementation": "flex_attention"}
MIN_LR = {"lr_scheduler_type": "cosine_with_min_lr"}
COMPILE = {"torch_compile": True}

WRONG = [
    ({"dataloader_prefetch_factor": 2}, A100, None, "error", "Prefetch needs", {"dataloader_prefetch_factor": None}),
    (
        {"dataloader_persistent_workers": True},
        A100, None, "error", "Persistent", {"dataloader_persistent_workers": False},
    ),
    ({"dataloader_num_workers": 17}, A100, None, "warning", "17 workers on 16", {"dataloader_num_workers": 8}),
    ({"precision": "bf16"}, T4, None, "error", "Tesla T4 (capability 7.5) has no bf16", {"precision": "fp16"}),
    ({"precision": "bf16"}, V100, None, "error", "Tesla V100 (capability 7.0) has no bf16", {"precision": "fp16"}),
    ({"precision": "bf16"}, MIXED, None, "error", "Tesla T4", {"precision": "fp16"}),
    ({"precision": "bf16"}, K80, None, "error", "Tesla K80", {"precision": "fp32"}),
    ({"precision": "fp16"}, K80, None, "error", "needs 5.3", {"precision": "fp32"}),
    ({"precision": "bf16"}, NONE, None, "warning", "On the CPU", {"precision": "fp32"}),
    ({"precision": "fp16"}, NONE, None, "error", "silently off", {"precision": "fp32"}),
    ({"precision": "fp16"}, A100, python("2.13.0+cpu", None), "error", "On the CPU", {"precision": "fp32"}),
    ({"tf32": True}, T4, None, "error", "has no TF32", {"tf32": None}),
    ({"tf32": True}, NONE, None, "error", "On the CPU there is no TF32", {"tf32": None}),
    (FLASH, T4, None, "error", "cannot run flash-attn", None),
    (FLASH, A100, python(), "error", "flash-attn is not installed", {"attn_implementation": "sdpa"}),
    ({**FLASH, "precision": "fp32"}, A100, None, "error", "fp16 or bf16", {"precision": "bf16"}),
    ({**FLASH, "precision": "fp32"}, NONE, None, "error", "needs a GPU", {"attn_implementation": "sdpa"}),
    (FLEX, A100, python("2.4.1"), "error", "torch 2.5", {"attn_implementation": "sdpa"}),
    ({"optim": "adamw_bnb_8bit"}, A100, python(), "error", "needs bitsandbytes", {"optim": "adamw_torch"}),
    ({"optim": "paged_adamw_8bit"}, A100, python(), "error", "needs bitsandbytes", {"optim": "adamw_torch"}),
    (FUSED, A100, python("1.13.1"), "error", "needs torch 2.0", {"optim": "adamw_torch"}),
    (FUSED, NONE, python("2.3.1+cpu", None), "error", "needs torch 2.4", {"optim": "adamw_torch"}),
    ({"optim": "adamw"}, A100, None, "warning", "did you mean adamw_torch?", {"optim": "adamw_torch"}),
    ({"optim": "zzzz"}, A100, None, "warning", "has no 'zzzz'.", {}),
    ({"lr_scheduler_type": "cosin"}, A100, None, "warning", "did you mean cosine", {"lr_scheduler_type": "cosine"}),
    (MIN_LR, A100, None, "warning", "needs min_lr", {"lr_scheduler_type": "cosine"}),
    ({"lr_scheduler_type": "constant", "warmup_steps": 0.1}, A100, None, "warning", "ignores the warmup", None),
    (
        {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "no"},
        A100, None, "error", "evaluation is off", {"eval_strategy": "epoch"},
    ),
    ({"warmup_steps": 100.0, "max_steps": 100}, A100, None, "warning", "never ends", {"warmup_steps": 0.06}),
    ({"warmup_steps": 1.5}, A100, None, "warning", "1.5 becomes 1", {"warmup_steps": 1.0}),
    ({"eval_steps": 10}, A100, None, "warning", "needs evaluate = steps", {"eval_strategy": "steps"}),
    ({"eval_strategy": "steps"}, A100, None, "warning", "log every (10 steps)", {"eval_steps": 500}),
    (
        {"eval_strategy": "steps", "eval_steps": 200, "max_steps": 100},
        A100, None, "warning", "never happens", {"eval_steps": 100},
    ),
    (
        {"eval_strategy": "steps", "eval_steps": 30, "save_strategy": "steps"},
        A100, None, "warning", "without an evaluation", {"save_steps": 480},
    ),
    (COMPILE, A100, python("1.13.1"), "error", "torch 2.0", {"torch_compile": False}),
    (COMPILE, A100, python("2.3.0", version="3.12.1"), "error", "needs torch 2.4", {"torch_compile": False}),
    (COMPILE, P100, None, "error", "Triton kernels need 7.0", {"torch_compile": False}),
]  # fmt: skip


@pytest.mark.parametrize(("change", "gpus", "interpreter", "severity", "said", "right"), WRONG)
def test_what_does_not_fit_is_said_with_what_would(change, gpus, interpreter, severity, said, right):
    matching = [item for item in found(change, gpus, interpreter) if said in item.sentence]
    assert len(matching) == 1
    assert matching[0].severity == severity
    if right is not None:
        assert matching[0].fix == right
    mended = {**change, **matching[0].fix}
    if matching[0].fix:
        assert said not in " ".join(item.sentence for item in found(mended, gpus, interpreter))


RIGHT = [
    ({}, NONE, None),
    ({}, A100, python()),
    ({"precision": "bf16", "tf32": True}, A100, python()),
    ({"precision": "bf16", "tf32": True}, UNKNOWN, None),
    ({"precision": "bf16", "tf32": True}, None, None),
    ({"precision": "fp16"}, T4, None),
    ({"precision": "fp16"}, NONE, python("2.9.0+rocm6.4", None)),
    ({"dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True, "dataloader_num_workers": 4}, A100, None),
    (FLASH, A100, Interpreter("/p", "3.11", FULL, torch_cuda="13.0")),
    (FLASH, A100, Interpreter("/p", problem="it does not answer")),
    ({"optim": "adamw_bnb_8bit"}, A100, Interpreter("/p", "3.11", FULL, torch_cuda="13.0")),
    ({"optim": "adamw_bnb_8bit"}, A100, None),
    (FUSED, NONE, python("2.13.0+cpu", None)),
    (COMPILE, A100, python("2.4.0", version="3.12.1")),
    (COMPILE, A100, python("2.2.0")),
    ({"lora_r": 8, "lora_alpha": 4}, A100, None),
    ({"eval_strategy": "steps", "eval_steps": 50, "save_strategy": "steps", "save_steps": 100}, A100, None),
]


@pytest.mark.parametrize(("change", "gpus", "interpreter"), RIGHT)
def test_what_fits_or_is_not_known_is_let_be(change, gpus, interpreter):
    assert found(change, gpus, interpreter) == ()


def test_an_adapter_needs_peft_in_the_built_in_job():
    wrong = found({"peft_method": "lora"}, interpreter=python(), job=BuiltinJob())
    assert [item.fix for item in wrong] == [{"peft_method": "none"}]
    assert found({"peft_method": "lora"}, interpreter=python(peft="0.18.0"), job=BuiltinJob()) == ()


def test_the_built_in_job_trains_in_bf16_on_a_cpu():
    assert found({"precision": "bf16"}, NONE, job=BuiltinJob()) == ()


def test_a_batch_larger_than_the_data_is_told():
    wrong = found({"gradient_accumulation_steps": 4}, job=BuiltinJob(max_samples=20))
    assert "32 is larger than the job's 20 samples" in wrong[0].sentence
    assert found({"gradient_accumulation_steps": 4}, job=BuiltinJob(max_samples=32)) == ()


def test_a_setting_that_the_installed_transformers_does_not_have_is_told():
    names = dict.fromkeys([*FIELDS, "bf16", "fp16", "group_by_length", "warmup_ratio"])
    del names["train_sampling_strategy"]
    old = Interpreter("/p", "3.10", {"torch": "2.4.0"}, torch_cuda="12.1", training_arguments=names)
    wrong = found({"train_sampling_strategy": "sequential"}, interpreter=old)
    assert "no effect" in wrong[0].sentence
    assert found({"train_sampling_strategy": "group_by_length"}, interpreter=old) == ()


def test_errors_come_first():
    severities = [item.severity for item in found({"tf32": True, "precision": "bf16", "eval_steps": 5}, T4)]
    assert severities == ["error", "error", "warning"]


@given(all_settings)
def test_every_problem_names_fields_and_values_that_exist(settings):
    for gpus in (NONE, T4, A100):
        for item in find_problems(settings, gpus=gpus, interpreter=python(), job=BuiltinJob(max_samples=100), cores=2):
            assert item.fields
            assert set(item.fields) <= set(FIELDS)
            assert set(item.fix) <= set(FIELDS)
            assert item.sentence.endswith((".", "?"))
            settings.changed(**item.fix)


def test_suggestions_are_known_names():
    for name in ("optim", "lr_scheduler_type"):
        for word in FIELDS[name].suggestions:
            assert not [item for item in found({name: word}) if item.fields == (name,)]


@pytest.mark.parametrize("name", ["demo", "cpu"])
def test_the_presets_for_any_box_fit_a_box_without_a_gpu(name):
    preset: Preset = next(
        item.loaded.preset for item in list_presets((shipped_folder(),)) if item.name == name and item.loaded
    )
    settings = resolve(preset=preset).settings
    assert find_problems(settings, gpus=(), interpreter=python("2.13.0+cpu", None), job=preset.job, cores=2) == ()


@pytest.mark.parametrize(
    ("words", "warned"),
    [((), True), (("--use_cpu",), False), (("--use_cpu", "True"), False), (("--use_cpu=false",), True)],
)
def test_bf16_on_a_training_that_says_it_uses_the_cpu_is_fine(words: tuple[str, ...], warned: bool) -> None:
    job = CommandJob(command=("python", "train.py", *words))
    found = find_problems(Settings(precision="bf16"), gpus=(), interpreter=None, job=job)
    assert any("precision" in problem.fields for problem in found) is warned

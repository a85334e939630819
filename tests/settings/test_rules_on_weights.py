"""Rules on the dtype of weights, with the facts of torch and bitsandbytes as expected values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.inventories import card, python
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules import Problem, find_problems, overflows_fp16

A10, T4, V100, P40 = card("A10", gib=22.5), card("T4", gib=15.0), card("V100", gib=15.8), card("P40")
MODEL = BuiltinJob(task="causal-lm", model="Qwen/Qwen2.5-7B")
BNB = python(bitsandbytes="0.50.2")
QLORA: dict[str, Any] = {"peft_method": "lora", "quantization": "nf4", "precision": "bf16"}


def problems(gpu: Gpu, job: Job = MODEL, interpreter: Any = BNB, **values: Any) -> tuple[Problem, ...]:
    return find_problems(Settings.model_validate(values), gpus=(gpu,), interpreter=interpreter, job=job)


def only(found: tuple[Problem, ...]) -> Problem:
    (problem,) = found
    return problem


def test_qlora_fits_its_card() -> None:
    assert problems(A10, **QLORA) == ()


def test_quantized_weights_need_an_adapter() -> None:
    problem = only(problems(A10, quantization="nf4"))
    assert (problem.severity, problem.fix) == ("error", {"peft_method": "lora"})
    assert problems(A10, CommandJob(command=("python", "sft.py")), quantization="nf4") == ()


def test_missing_bitsandbytes_is_an_error_with_the_install_line() -> None:
    problem = only(problems(A10, interpreter=python(), **QLORA))
    assert (problem.severity, problem.fix) == ("error", {"quantization": "none"})
    assert "pip install bitsandbytes" in problem.sentence


def test_random_weights_are_not_quantized() -> None:
    problem = only(problems(A10, BuiltinJob(task="causal-lm", model="llama-1b"), **QLORA))
    assert "starts from random weights" in problem.sentence


@pytest.mark.parametrize(
    ("gpu", "kind", "fix"),
    [(V100, "int8", {"quantization": "nf4"}), (P40, "nf4", {"quantization": "none"}), (T4, "int8", None),
     (V100, "nf4", None)],
)  # fmt: skip
def test_what_bitsandbytes_computes_on(gpu: Gpu, kind: str, fix: dict[str, Any] | None) -> None:
    found = problems(gpu, peft_method="lora", quantization=kind)
    assert [one.fix for one in found] == ([] if fix is None else [fix])


def test_bf16_compute_is_emulated_before_ampere() -> None:
    problem = only(problems(T4, peft_method="lora", quantization="nf4", bnb_4bit_compute_dtype="bf16"))
    assert (problem.severity, problem.fix) == ("warning", {"bnb_4bit_compute_dtype": "auto"})


def test_the_loss_scaler_takes_no_16_bit_weights() -> None:
    problem = only(problems(T4, precision="fp16", weights_dtype="bf16"))
    assert (problem.severity, problem.fix) == ("error", {"weights_dtype": "auto"})
    assert problems(T4, precision="fp16", weights_dtype="bf16", peft_method="lora") == ()
    assert problems(A10, precision="bf16", weights_dtype="bf16") == ()


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


@pytest.mark.parametrize(("gpu", "instead"), [(T4, "fp32"), (A10, "bf16")])
def test_fp16_for_such_a_model_is_a_warning(gpu: Gpu, instead: str) -> None:
    problem = only(problems(gpu, BuiltinJob(task="causal-lm", model="google/gemma-3-1b-it"), precision="fp16"))
    assert (problem.severity, problem.fix) == ("warning", {"precision": instead})


def test_torchtune_quantizes_without_bitsandbytes() -> None:
    """Its QLoRA recipes take NF4 from torchao."""
    job = CommandJob(command=("tune", "run"), dialect="torchtune")
    assert problems(A10, job, python(), **QLORA) == ()

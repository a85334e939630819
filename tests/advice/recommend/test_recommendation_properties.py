"""Whatever the machine, the interpreter, the job and the values given: nothing recommended stops a training."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.inventories import box, interpreters, inventories, jobs, make_gpu, python
from tests.settings.strategies import settings_values
from tuner_tui.advice.recommend.recommendation import Recommendation, recommend, with_recommended
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.known_gpus import KnownGpu, known_gpus
from tuner_tui.settings.apply import build_command
from tuner_tui.settings.distributed import gpus_of_job
from tuner_tui.settings.job import SHAPES, BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings
from tuner_tui.settings.rules import Problem, find_problems


def wrong(tried: Settings, inventory: Inventory, interpreter: Interpreter | None, job: Any) -> tuple[Problem, ...]:
    cores = inventory.cpu.usable_cores
    problems = find_problems(tried, gpus=gpus_of_job(inventory, job), interpreter=interpreter, job=job, cores=cores)
    # How many processes there are the job says, and no recommendation changes it.
    return tuple(problem for problem in problems if "each needs one of its own" not in problem.sentence)


@given(inventories, interpreters, jobs)
def test_nothing_recommended_is_wrong(inventory: Inventory, interpreter: Interpreter | None, job: Any) -> None:
    recommended = recommend(inventory, interpreter, job)
    assert wrong(recommended.settings, inventory, interpreter, job) == ()


@given(inventories, interpreters, jobs, settings_values)
def test_what_is_recommended_fits_what_is_given(
    inventory: Inventory, interpreter: Interpreter | None, job: Any, values: dict[str, Any]
) -> None:
    recommended = recommend(inventory, interpreter, job, values)
    assert not recommended.values.keys() & values.keys()
    assert {name: getattr(recommended.settings, name) for name in values} == values
    before = {problem.fields for problem in wrong(Settings(**values), inventory, interpreter, job)}
    new = [
        recommended_setting
        for recommended_setting in wrong(recommended.settings, inventory, interpreter, job)
        if recommended_setting.fields not in before
    ]
    assert [
        finding for finding in new if finding.severity == "error" and recommended.values.keys() & set(finding.fields)
    ] == []


@given(inventories, interpreters, jobs)
def test_everything_recommended_reaches_the_built_in_job(
    inventory: Inventory, interpreter: Interpreter | None, job: Any
) -> None:
    recommended = recommend(inventory, interpreter, job)
    applied = build_command(job, recommended.settings, interpreter, "/out", chosen=recommended.values)
    if isinstance(job, BuiltinJob):
        assert not set(applied.not_applied) & recommended.values.keys()


@given(inventories, interpreters, jobs, settings_values)
def test_recommended_values_fill_in_and_never_override(
    inventory: Inventory, interpreter: Interpreter | None, job: Any, values: dict[str, Any]
) -> None:
    flag = Origin(OriginKind.FLAG)
    resolved = Resolved(Settings(**values), dict.fromkeys(values, flag))
    filled = with_recommended(resolved, inventory, interpreter, job)
    if isinstance(job, CommandJob):
        assert filled == resolved
    assert {name: filled.origin(name) for name in values} == dict.fromkeys(values, flag)
    assert {name: getattr(filled.settings, name) for name in values} == values
    others = {filled.origin(name).kind for name in set(FIELDS) - values.keys()}
    assert others <= {OriginKind.RECOMMENDED, OriginKind.DEFAULT}


SIZES_GIB = sorted({gib for gpu in known_gpus() for gib in gpu.memory_gib})
OF_EACH_ARCHITECTURE = {gpu.architecture: gpu for gpu in known_gpus()}
METHODS = [("none", "none"), ("lora", "none"), ("lora", "nf4")]
"""How much of a model is trained, and how exactly it is held: the first is most."""
ADAMW = ("adamw_torch_fused", "adamw_torch", "adamw_bnb_8bit")


def method(advice: Recommendation) -> tuple[int, ...]:
    """What little memory makes a training do without: less of it compares as smaller."""
    chosen = advice.settings
    return (
        METHODS.index((chosen.peft_method, chosen.quantization)),
        ADAMW.index(chosen.optim),
        int(chosen.gradient_checkpointing),
        -advice.replicas,  # one process uses several GPUs for small models only
    )


@settings(deadline=None)
@given(
    gpu_model=st.sampled_from(sorted(OF_EACH_ARCHITECTURE.values(), key=lambda gpu_model: gpu_model.name)),
    model=st.sampled_from(
        ["bert-base-uncased", "bert-large-uncased", "microsoft/deberta-v2-xxlarge", "gpt2", "Qwen/Qwen2.5-0.5B",
         "meta-llama/Llama-3.2-3B", "Qwen/Qwen2.5-7B"]
    ),
    interpreter=interpreters,
    max_length=st.sampled_from([64, 128, 512, 2048]),
    count=st.sampled_from([1, 2, 3, 8]),
    max_samples=st.none() | st.integers(1, 5000),
)  # fmt: skip
def test_more_memory_never_gives_a_smaller_batch(
    gpu_model: KnownGpu,
    model: str,
    interpreter: Interpreter | None,
    max_length: int,
    count: int,
    max_samples: int | None,
) -> None:
    """For every memory size that is sold. A smaller micro batch comes with a better method, a worse method never."""
    task: Literal["classification", "causal-lm"] = "classification" if "bert" in model else "causal-lm"
    job = BuiltinJob(model=model, task=task, max_samples=max_samples)
    before: Recommendation | None = None
    for gib in SIZES_GIB:
        gpus = (make_gpu(gpu_model.name, index, gib=gib) for index in range(count))
        recommended = recommend(box(*gpus), interpreter, job, {"max_length": max_length})
        if before is not None:
            assert method(recommended) <= method(before), gib
            smaller = recommended.settings.per_device_train_batch_size < before.settings.per_device_train_batch_size
            assert not smaller or method(recommended) < method(before), gib
            reasons = {value.name: value.reason for value in before.advised}
            if "8 GB" not in reasons["per_device_train_batch_size"]:  # the notes of 8 GB have larger steps
                assert recommended.effective_batch >= before.effective_batch, gib
        before = recommended


@given(inventories, interpreters, jobs, st.integers(8, 8192))
def test_the_effective_batch_stays_sensible(
    inventory: Inventory, interpreter: Interpreter | None, job: Any, tokens: int
) -> None:
    recommended = recommend(inventory, interpreter, job, {"max_length": tokens})
    if "per_device_train_batch_size" not in recommended.values:
        return  # nothing is known of what the command trains
    assert recommended.effective_batch <= max(256, recommended.replicas)
    if isinstance(job, BuiltinJob) and job.max_samples is not None:
        assert recommended.effective_batch <= max(job.max_samples, recommended.replicas)
    if tokens >= 1024 and job.model not in SHAPES:
        assert recommended.settings.per_device_train_batch_size <= 16
    assert all(outcome.reason and outcome.source for outcome in recommended.advised)
    assert all(outcome.reason and outcome.source for outcome in recommended.rejected)


def not_one_sample(advice: Recommendation) -> bool:
    return any("not even one sample" in note for note in advice.notes)


@settings(deadline=None)
@given(
    gpu_model=st.sampled_from(known_gpus()),
    model=st.sampled_from(
        ["bert-base-uncased", "roberta-large", "microsoft/deberta-v3-large", "gpt2", "meta-llama/Llama-3.2-1B",
         "microsoft/phi-2", "meta-llama/Llama-2-7b-hf", "Qwen/Qwen2.5-32B"]
    ),
    max_length=st.sampled_from([64, 128, 512, 2048]),
    max_samples=st.none() | st.integers(1, 5000),
    count=st.integers(2, 16),
    bitsandbytes=st.booleans(),
)  # fmt: skip
def test_more_gpus_get_no_less_than_one(
    gpu_model: KnownGpu, model: str, max_length: int, max_samples: int | None, count: int, bitsandbytes: bool
) -> None:
    """Neither a smaller step, nor less that is trained, nor a training that does not fit where it fitted one."""
    task: Literal["classification", "causal-lm"] = "classification" if "bert" in model else "causal-lm"
    job = BuiltinJob(model=model, task=task, max_samples=max_samples)
    packages = {"bitsandbytes": "0.50.0"} if bitsandbytes else {}
    finding, several = (
        recommend(
            box(
                *(
                    make_gpu(gpu_model.name, index, gpu_model.memory_gib[0] if gpu_model.memory_gib else None)
                    for index in range(gpus)
                )
            ),
            python(**packages),
            job,
            {"max_length": max_length},
        )
        for gpus in (1, count)
    )
    assert several.replicas in (1, count)
    assert several.effective_batch >= finding.effective_batch
    first, second = (
        METHODS.index((recommended.settings.peft_method, recommended.settings.quantization))
        for recommended in (finding, several)
    )
    assert second <= first
    assert several.settings.max_length == finding.settings.max_length
    assert not_one_sample(finding) or not not_one_sample(several)
    if several.replicas == 1:
        assert several.values == finding.values
        assert any(f"--processes {count}" in note for note in several.notes)

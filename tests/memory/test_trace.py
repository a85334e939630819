"""Asking the Python that trains: the answer, its cache, and every way in which there is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.late_module import skip_without
from tuner_tui.hardware.interpreter import Interpreter, ProbeCacheEntry
from tuner_tui.memory.device import Device
from tuner_tui.memory.trace import (
    MARK,
    MemoryTrace,
    QuantizableWeights,
    TracedPeak,
    TraceError,
    ask_trainer,
    cached_trace,
    estimate_from_trace,
    expandable_segments,
    trace_cache_entry,
    trace_memory,
    trace_request,
    trace_together,
)
from tuner_tui.settings.job import BuiltinJob, Task
from tuner_tui.settings.model import Settings, Value

pytestmark = pytest.mark.usefixtures("own_cache")
JOB, GPU = BuiltinJob(task="causal-lm", model="tiny"), Device(True, (8, 0), 2**30)
PYTHON = Interpreter(sys.executable, packages={"torch": "2.13.0", "transformers": "5.23.0"})
MIB = 2**20


def peak(batch: int, total: int) -> TracedPeak:
    return TracedPeak(batch, total, gradients=10 * MIB if batch < 8 else 0, copies=0)


TRACE = MemoryTrace(
    parameters=10 * MIB, trainable=10 * MIB, weight_bytes=40 * MIB, gradient_bytes=40 * MIB, state_bytes=80 * MIB,
    step_bytes=200 * MIB, train=(peak(2, 150 * MIB), peak(8, 160 * MIB), peak(32, 400 * MIB)),
    evaluation=(TracedPeak(2, 130 * MIB, 0, 0), TracedPeak(8, 140 * MIB, 0, 0)),
)  # fmt: skip


@pytest.mark.train
def test_a_trace_is_asked_for_once() -> None:
    skip_without("transformers")
    settings = Settings(precision="bf16", max_length=32)
    assert cached_trace(PYTHON, JOB, settings, GPU) is None
    trace = trace_memory(PYTHON, JOB, settings, GPU)
    assert cached_trace(PYTHON, JOB, settings.changed(seed=1), GPU) == trace
    assert trace.parameters == trace.trainable == 918_144
    assert [phase.batch for phase in trace.train] == [2, 8, 32, 128]
    assert [batch for batch, _ in trace.slack] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert all(0 < slack < 4 * 20 * MIB for _, slack in trace.slack), "a few segments that are not full"
    assert estimate_from_trace(trace, settings, GPU).verdict == "fits"


@pytest.mark.full
@pytest.mark.train
def test_traces_made_together_are_those_made_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("transformers")
    plain = Settings(precision="bf16", max_length=32)
    asked = [plain, plain.changed(gradient_checkpointing=True, gradient_accumulation_steps=4)]
    trace_together(PYTHON, [(JOB, settings, GPU) for settings in asked], lambda number: None)
    together = [cached_trace(PYTHON, JOB, settings, GPU) for settings in asked]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "alone"))
    assert together == [trace_memory(PYTHON, JOB, settings, GPU) for settings in asked]


NAMED: list[tuple[str, Task]] = [
    ("facebook/deit-tiny-patch16-224", "image-classification"), ("openai/whisper-tiny", "speech-to-text"),
    ("google-t5/t5-small", "seq2seq"), ("facebook/bart-base", "seq2seq"),
]  # fmt: skip


@pytest.mark.train
@pytest.mark.parametrize("named", [NAMED[:3], pytest.param(NAMED[3:], marks=pytest.mark.full)])
def test_models_of_images_sound_or_sequences_are_traced_by_their_names(named: list[tuple[str, Task]]) -> None:
    skip_without("transformers")
    asked = [
        (BuiltinJob(task=task, model=model), Settings(max_length=length), GPU)
        for model, task in named
        for length in (32, 64)
    ]
    assert trace_together(PYTHON, asked, lambda number: None) == [None] * len(asked)
    traces = [cached_trace(PYTHON, *each) for each in asked]
    for (_, task), short, long in zip(named, traces[::2], traces[1::2], strict=True):
        assert short is not None
        assert long is not None
        assert short.weight_bytes >= 4 * short.parameters
        same = short.train[-1].total == long.train[-1].total
        assert same == (task == "image-classification"), "the length of texts says nothing of images"
        assert short.train[1].total < short.train[2].total


def test_a_model_that_was_never_downloaded_is_known_before_torch_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("huggingface_hub")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    for name, value in {"PYTHONPATH": str(tmp_path), "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    question = trace_request(BuiltinJob(model="meta-llama/Llama-3.2-1B"), Settings(), GPU)
    with pytest.raises(TraceError, match=r"Llama-3\.2-1B was not downloaded before, and the Hub cannot be reached"):
        ask_trainer(Path(sys.executable), question)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"per_device_train_batch_size": 64}, True), ({"learning_rate": 1.0}, True), ({"save_steps": 9}, True),
        ({"gradient_accumulation_steps": 7}, False), ({"precision": "bf16"}, False), ({"max_length": 64}, False),
        ({"optim": "sgd"}, False), ({"peft_method": "lora"}, False), ({"gradient_checkpointing": True}, False),
    ],
)  # fmt: skip
def test_what_a_trace_depends_on(changed: dict[str, Any], same: bool) -> None:
    def entry(settings: Settings) -> ProbeCacheEntry:
        return trace_cache_entry(PYTHON, trace_request(JOB, settings, GPU))

    assert (entry(Settings()) == entry(Settings().changed(**changed))) is same


def test_another_version_or_configuration_is_another_trace(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    question = trace_request(BuiltinJob(model=str(model)), Settings(), GPU)
    first = trace_cache_entry(PYTHON, question)
    assert trace_cache_entry(replace(PYTHON, packages={"torch": "2.14.0"}), question) != first
    (model / "config.json").write_text('{"hidden_size": 8}')
    assert trace_cache_entry(PYTHON, question) != first


def test_a_damaged_entry_is_none() -> None:
    entry = trace_cache_entry(PYTHON, trace_request(JOB, Settings(), GPU))
    entry.write({"parameters": 1})
    assert cached_trace(PYTHON, JOB, Settings(), GPU) is None
    entry.file.write_text('{"parameters": 1')
    assert cached_trace(PYTHON, JOB, Settings(), GPU) is None


ANSWER = {
    "parameters": 1, "trainable": 1, "weight_bytes": 4, "gradient_bytes": 4, "state_bytes": None, "step_bytes": 9,
    "train": [{"batch": 2, "total": 8, "gradients": 1, "copies": 0}], "evaluation": [],
}  # fmt: skip


ANSWERS = """#!{python}
import json, sys
asked = json.load(sys.stdin)["requests"]
open({calls!r}, "a").write(f"{{len(asked)}}\\n")
point = dict(batch=2, total=9, gradients=1, copies=0)
answer = dict(parameters=1, trainable=1, weight_bytes=4, gradient_bytes=4, state_bytes=8, step_bytes=9,
              train=[point] * 2, evaluation=[point] * 2)
answers = [answer if one["job"]["max_length"] != 999 else dict(problem="no") for one in asked]
print({mark!r} + json.dumps(dict(answers=answers)))
"""


def test_several_traces_take_one_start_and_only_what_is_missing(tmp_path: Path) -> None:
    calls, script = tmp_path / "calls", tmp_path / "python"
    script.write_text(ANSWERS.format(python=sys.executable, calls=str(calls), mark=MARK))
    script.chmod(0o755)
    interpreter, progress = replace(PYTHON, path=str(script)), list[int]()
    checkpointed = Settings(gradient_checkpointing=True)
    asked = [(JOB, Settings(), GPU), (JOB, Settings(seed=7), GPU), (JOB, checkpointed, GPU)]
    assert trace_together(interpreter, asked, progress.append) == [None] * 3
    impossible = (JOB, Settings(max_length=999), GPU)
    problems = trace_together(interpreter, [*asked, impossible], progress.append)
    assert problems == [None, None, None, "The model cannot be traced: no."]
    assert trace_together(interpreter, asked, progress.append) == [None] * 3
    assert progress == [2, 1]
    assert calls.read_text().split() == ["2", "1"]
    trace = cached_trace(interpreter, JOB, checkpointed, GPU)
    assert trace is not None
    assert trace.state_bytes == 8
    assert cached_trace(interpreter, JOB, Settings(max_length=999), GPU) is None


def test_without_an_answer_only_what_is_missing_has_a_problem(tmp_path: Path) -> None:
    nobody = replace(PYTHON, path=str(tmp_path / "python"))
    trace_cache_entry(nobody, trace_request(JOB, Settings(), GPU)).write(ANSWER)
    asked = [(JOB, Settings(), GPU), (JOB, Settings(max_length=64), GPU), (JOB, Settings(max_length=64), GPU)]
    progress = list[int]()
    cached = cached_trace(nobody, JOB, Settings(), GPU)
    assert cached is not None
    assert (cached.train, cached.step_bytes) == ((TracedPeak(2, 8, 1, 0),), 9)
    first, *others = trace_together(nobody, asked, progress.append)
    assert (first, progress) == (None, [1])
    assert [problem is not None and "cannot be started" in problem for problem in others] == [True, True]


def test_fp16_takes_the_trace_of_bf16() -> None:
    def entry(precision: str) -> ProbeCacheEntry:
        return trace_cache_entry(PYTHON, trace_request(JOB, Settings().changed(precision=precision), GPU))

    assert entry("fp16") == entry("bf16") != entry("fp32")


def printing(output: str, folder: Path) -> Path:
    """A Python that prints `output` whatever it is asked."""
    (folder / "output").write_text(output + "\n")
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncat > /dev/null\ncat {folder}/output\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("", "before the trace was done"),
        (f'{MARK}{{"problem": "model x: no such folder"}}', "model x: no such folder"),
    ],
)
def test_what_cannot_be_traced_is_said(output: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=sentence):
        ask_trainer(printing(output, tmp_path), {})


def test_the_answer_is_found_among_other_output(tmp_path: Path) -> None:
    python = printing(f"a warning\n{MARK}{json.dumps({'parameters': 3})}", tmp_path)
    assert ask_trainer(python, {}) == {"parameters": 3}


def test_a_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be started"):
        ask_trainer(tmp_path / "python", {})


@pytest.mark.parametrize(
    ("batch", "tensors", "moment"),
    [(2, 200, "optimizer step"), (8, 200, "optimizer step"), (20, 280, "forward and backward"), (64, 720, "forward")],
)
def test_between_traced_batches_lies_a_straight_line(batch: int, tensors: int, moment: str) -> None:
    estimated = estimate_from_trace(TRACE, Settings(per_device_train_batch_size=batch), GPU)
    assert estimated.tensor_bytes(batch) == pytest.approx(tensors * MIB)
    assert estimated.peak_phase.startswith(moment)


def test_the_parts_of_a_traced_peak() -> None:
    """From 8 to 32 samples 10 MiB each; of the 400 MiB are 40 weights, 5 copies of them and 80 states."""
    copied = replace(TRACE, train=(*TRACE.train[:2], TracedPeak(32, 400 * MIB, gradients=20 * MIB, copies=5 * MIB)))
    estimated = estimate_from_trace(copied, Settings(per_device_train_batch_size=32), GPU).parts
    sizes = (estimated.weights, estimated.gradients, estimated.optimizer, estimated.activations)
    assert [size / MIB for size in sizes] == [45, 20, 80, 255]
    two = estimate_from_trace(copied, Settings(per_device_train_batch_size=32), GPU, processes=2).parts
    assert two.gradients == 60 * MIB, "and buckets of 40"


def test_copies_of_weights_that_only_the_trace_makes_do_not_count() -> None:
    """Weights of 20 MiB in fp16, of which bf16 makes copies: not a training in fp16, nor one on 4-bit weights."""
    weights = QuantizableWeights(total_bytes=16 * MIB, numbers=8 * MIB, rows=1, largest=0)
    train = tuple(TracedPeak(batch, 400 * MIB, gradients=0, copies=18 * MIB) for batch in (2, 8))
    trace = replace(TRACE, weight_bytes=20 * MIB, quantizable=weights, train=train)

    def weights_mib(**values: Value) -> float:
        return (
            estimate_from_trace(trace, Settings(per_device_train_batch_size=4).changed(**values), GPU).parts.weights
            / MIB
        )

    assert weights_mib(precision="bf16") == 38
    assert weights_mib(precision="fp16") == 20
    assert weights_mib(precision="bf16", quantization="nf4") == pytest.approx(10.5, abs=0.1), "4 + 0.5 and 2 + 4"


def test_the_first_of_several_gpus_adds_up_gradients_next_to_its_own() -> None:
    """40 of weights, twice 40 of gradients, 80 of states; without the sum the optimizer step takes 180."""
    trace = replace(TRACE, step_bytes=180 * MIB)
    single, two = (
        estimate_from_trace(trace, Settings(per_device_train_batch_size=2), replace(GPU, gpu_count=count))
        for count in (1, 2)
    )
    assert (single.peak_phase, single.tensor_bytes(2) / MIB) == ("optimizer step", 180)
    assert (two.peak_phase, two.tensor_bytes(2) / MIB) == ("end of backward", 200)


def test_evaluation_counts_with_its_own_batch() -> None:
    estimated = estimate_from_trace(TRACE, Settings(per_device_eval_batch_size=68), GPU)
    assert estimated.peak_phase == "evaluation, eval batch 68"
    without = estimate_from_trace(TRACE, Settings(per_device_eval_batch_size=68, eval_strategy="no"), GPU)
    assert without.total_bytes < estimated.total_bytes
    assert "evaluation" not in without.peak_phase
    assert estimated.tensor_bytes(8) == pytest.approx(240 * MIB)


def test_an_optimizer_that_was_not_traced_comes_from_the_table() -> None:
    without = replace(TRACE, state_bytes=None, step_bytes=80 * MIB)
    estimated = estimate_from_trace(without, Settings(per_device_train_batch_size=32, optim="adamw_bnb_8bit"), GPU)
    assert estimated.parts.optimizer == pytest.approx(2 * (1 + 4 / 256) * 10 * MIB, rel=1e-6)
    assert estimated.tensor_bytes(32) == pytest.approx(400 * MIB + estimated.parts.optimizer, rel=1e-6)


def test_states_of_embeddings_that_were_not_traced_are_in_fp32() -> None:
    """Of 10 Mi parameters 4 Mi are in embeddings: 8 bytes each, the others two bytes and their scales."""
    without = replace(TRACE, state_bytes=None, embedding=4 * MIB)
    estimated = estimate_from_trace(without, Settings(per_device_train_batch_size=32, optim="adamw_bnb_8bit"), GPU)
    assert estimated.parts.optimizer == pytest.approx((4 * 8 + 6 * 2 * (1 + 4 / 256)) * MIB, rel=1e-6)


def test_what_the_allocator_reserves_takes_the_place_of_the_assumed_slack() -> None:
    """10 MiB at 2 samples and 40 at 32 are 25 half way between, and 80 at twice as many."""
    assert estimate_from_trace(TRACE, Settings(), GPU).overhead.slack(400 * MIB, 32) == pytest.approx(32 * MIB)
    estimated = estimate_from_trace(
        replace(TRACE, slack=((2, 10 * MIB), (32, 40 * MIB))), Settings(per_device_train_batch_size=32), GPU
    )
    slack = [estimated.overhead.slack(1, batch) / MIB for batch in (1, 2, 17, 32, 64)]
    assert slack == [10, 10, 25, 40, 80]
    assert estimated.total_bytes - estimated.overhead.context_bytes == pytest.approx(440 * MIB, rel=1e-6)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128, expandable_segments: true"}, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, False),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:128", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, False),
    ],
)
def test_expandable_segments_are_read_from_the_environment(environment: dict[str, str], expected: bool) -> None:
    assert expandable_segments(environment) is expected

"""What the Python that trains is asked about memory: a traced step, its breakdown by module, and its imports.

The trainer runs a step of the job on fake tensors, which takes seconds and no GPU, and answers in JSON. Answers are
cached by the question and the versions of the packages. A few micro batches are traced; any other lies between them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui import __file__ as package
from tuner_tui.core.files import read_regular
from tuner_tui.core.json_struct import from_json
from tuner_tui.hardware.interpreter import (
    Interpreter,
    ProbeCacheEntry,
    marked_lines,
    probe_cache_entry,
    run_interpreter,
)
from tuner_tui.inspection.peak_memory import MemoryBreakdown, MemoryPart
from tuner_tui.memory.closed_form import MemoryPhase, evaluation_phases
from tuner_tui.memory.device import Device, ImportFootprint
from tuner_tui.memory.estimate import MemoryEstimate, estimate_from_phases
from tuner_tui.memory.fixed_memory import embedding_states_bytes, optimizer_bytes, quantized_bytes
from tuner_tui.memory.known_shapes import config_to_trace, known_shape
from tuner_tui.memory.model_config import config_path
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

FORMAT = 10
"""Part of the key of the cache; raised when the answer changes."""
MARK = "tuner-tui-trace "
TRAINER = Path(package).parent / "trainer"
TRACED_BATCHES = (2, 8, 32, 128)
"""The micro batches traced, or fewer where that is enough. The peak is convex and piecewise linear, so that the chord
between two of them is above it."""
REPLAYED_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
"""The micro batches for which the allocator is replayed; what it reserves lies between theirs."""
TRACED_JOB_SETTINGS = (
    "max_length", "attn_implementation", "peft_method", "lora_r", "lora_alpha", "lora_dropout", "weights_dtype",
)  # fmt: skip
TRACED_SETTINGS = ("optim", "gradient_checkpointing", "max_grad_norm")
TRACED_PACKAGES = ("torch", "transformers", "peft")
TIMEOUT_S = 240.0
TRACED_UNCERTAINTY = 0.05
"""On a CPU most traces are within 1 % of what torch allocated; a GPU's allocator and kernels add to that."""


class TraceError(RuntimeError):
    """The job cannot be traced; the message is a sentence."""


class TracedPeak(Struct, frozen=True):
    """The peak of tensors at one micro batch, and the gradients and 16-bit copies of weights in it; in bytes."""

    batch: int
    total: int
    gradients: int
    copies: int


class QuantizableWeights(Struct, frozen=True):
    """The frozen linear layers that bitsandbytes quantizes: their bytes as loaded, numbers, rows, and the largest."""

    total_bytes: int = 0
    numbers: int = 0
    rows: int = 0
    largest: int = 0

    def saved_bytes(self, settings: Settings) -> int:
        """What `settings.quantization` saves of them; 0 without it."""
        if settings.quantization == "none" or not self.rows:
            return 0
        return round(self.total_bytes - quantized_bytes(settings, self.numbers, self.rows))


class MemoryTrace(Struct, frozen=True):
    """What tracing found, in bytes.

    `train` holds the peaks of forward and backward, `evaluation` those of a batch without gradients, smallest batch
    first; `step_bytes` is the peak of clipping and the optimizer's step. `state_bytes` is None for an optimizer that
    cannot be traced; its step is then not part of `step_bytes`. `embedding` is the number of trained weights in
    embeddings. `slack` has, by micro batch, what PyTorch's allocator reserves of a GPU above the peak of all tensors;
    empty on a CPU.
    """

    parameters: int
    trainable: int
    weight_bytes: int
    gradient_bytes: int
    state_bytes: int | None
    step_bytes: int
    train: tuple[TracedPeak, ...]
    evaluation: tuple[TracedPeak, ...]
    embedding: int = 0
    quantizable: QuantizableWeights = QuantizableWeights()
    slack: tuple[tuple[int, float], ...] = ()


def trace_memory(
    interpreter: Interpreter, job: BuiltinJob, settings: Settings, device: Device, timeout_s: float = TIMEOUT_S
) -> MemoryTrace:
    """The trace of `job`, from the cache or within seconds. Raises `TraceError`."""
    entry = trace_cache_entry(interpreter, question := trace_request(job, settings, device))
    if (trace := _read_entry(entry)) is None:
        entry.write(answer := ask_trainer(Path(interpreter.path), question, timeout_s))
        trace = from_json(MemoryTrace, answer)
    return trace


def trace_together(
    interpreter: Interpreter, trainings: Iterable[tuple[BuiltinJob, Settings, Device]], before: Callable[[int], None]
) -> list[str | None]:
    """Put the traces of all `trainings` into the cache, by one start of the Python that trains.

    `before` is called with their number if any is missing. Returns for each why it could not be traced, or None.
    """
    questions = [trace_request(job, settings, device) for job, settings, device in trainings]
    entries = [trace_cache_entry(interpreter, question) for question in questions]
    asked = zip(entries, questions, strict=True)
    missing = {entry: question for entry, question in asked if _read_entry(entry) is None}
    if not missing:
        return [None] * len(entries)
    before(len(missing))
    try:
        answers = ask_trainer(Path(interpreter.path), {"requests": [*missing.values()]})["answers"]
    except TraceError as error:
        return [str(error) if entry in missing else None for entry in entries]
    problems = {}
    for entry, answer in zip(missing, answers, strict=True):
        if "problem" in answer:
            problems[entry] = _describe(answer["problem"])
        else:
            entry.write(answer)
    return [problems.get(entry) for entry in entries]


def cached_trace(interpreter: Interpreter, job: BuiltinJob, settings: Settings, device: Device) -> MemoryTrace | None:
    """The trace of `job` from the cache; None where it is not there. Reads one small file."""
    return _read_entry(trace_cache_entry(interpreter, trace_request(job, settings, device)))


def trace_request(job: BuiltinJob, settings: Settings, device: Device) -> dict[str, Any]:
    """The question to the memory tracer. The micro batch is not part of it: `TRACED_BATCHES` are traced."""
    # A model that shares keys among heads, which only flash attention can, is traced for GPUs with and without it.
    shape = known_shape(job.model, job.task)
    may_group_queries = shape is None or shape.kv_heads < shape.heads
    return {
        "job": {
            **{name: getattr(job, name) for name in ("task", "model", "trust_remote_code")},
            **{name: getattr(settings, name) for name in TRACED_JOB_SETTINGS},
        },
        "settings": {
            **{name: getattr(settings, name) for name in TRACED_SETTINGS},
            "precision": "fp32" if settings.precision == "fp32" else "bf16",  # fp16 takes as much
            "gradient_accumulation_steps": min(settings.gradient_accumulation_steps, 2),
        },
        "config": config_to_trace(job.model, job.task),
        "labels": 2,  # the number of classes in the data changes next to nothing
        "on_gpu": device.on_gpu,
        "flash": device.flash or not may_group_queries,
        "expandable_segments": device.on_gpu and expandable_segments(os.environ),
        "foreach": device.on_gpu,
        "batches": TRACED_BATCHES,
        "eval_batches": TRACED_BATCHES,
        "replayed": REPLAYED_BATCHES if device.on_gpu else (),
    }


def expandable_segments(environment: Mapping[str, str]) -> bool:
    """Whether the environment sets this option of PyTorch's allocator; the newer variable goes first."""
    options = environment.get("PYTORCH_ALLOC_CONF") or environment.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    return "expandable_segments:true" in options.replace(" ", "").lower()


def trace_cache_entry(interpreter: Interpreter, question: Mapping[str, Any]) -> ProbeCacheEntry:
    """The cache's entry for the question, the versions of the packages and the model's own configuration."""
    versions = {name: interpreter.packages.get(name) for name in TRACED_PACKAGES}
    config = config_path(question["job"]["model"])
    digest = None if config is None else sha256(read_regular(config, follow_links=True)).hexdigest()
    return probe_cache_entry("traces", [FORMAT, question, versions, digest])


def ask_trainer(
    python: Path, question: Mapping[str, Any], timeout_s: float = TIMEOUT_S, verb: str = "trace-memory"
) -> dict[str, Any]:
    """The answer of the trainer's probe `verb`. Raises `TraceError`."""
    try:
        output, code = run_interpreter([str(python), str(TRAINER), verb], json.dumps(question), timeout_s)
    except OSError as error:
        raise TraceError(f"{python} cannot be started ({error.strerror}).") from error
    except subprocess.TimeoutExpired as error:
        raise TraceError(f"The answer to {verb} took longer than {timeout_s:.0f} s.") from error
    lines = marked_lines(output, MARK)
    if not lines:
        raise TraceError(
            f"{python} exited with code {code} before the trace was done: is it the Python of your training "
            "environment?"
        )
    answer: dict[str, Any] = json.loads(lines[-1])
    if "problem" in answer:
        raise TraceError(_describe(answer["problem"]))
    return answer


def _describe(problem: str) -> str:
    return f"The model cannot be traced: {problem}."


def estimate_from_trace(trace: MemoryTrace, settings: Settings, device: Device, processes: int = 1) -> MemoryEstimate:
    """The estimate that a trace makes for the micro batch of `settings`; sizes of one process."""
    saved = trace.quantizable.saved_bytes(settings)
    # Traced in bf16: of weights that were saved in fp16 there are copies, which neither a training in fp16 makes nor
    # one that computes with quantized weights.
    copied = 2 * trace.quantizable.numbers if saved else trace.weight_bytes * (settings.precision == "fp16")
    if saved or trace.weight_bytes < 3 * trace.parameters:
        less = [min(peak.copies, copied) for peak in trace.train]
        pairs = zip(trace.train, less, strict=True)
        peaks = (replace(peak, total=peak.total - size, copies=peak.copies - size) for peak, size in pairs)
        trace = replace(trace, train=tuple(peaks))
    phases = phases_from_trace(trace, settings, device, processes)
    if not saved:
        estimate = estimate_from_phases(phases, settings, device, TRACED_UNCERTAINTY, "traced")
        return replace(estimate, overhead=replace(estimate.overhead, traced_slack=trace.slack))
    computed = 2 * trace.quantizable.largest  # the largest matrix in 16 bit: each is dequantized when it computes
    quantized = tuple(
        replace(line, weights=line.weights - saved, temporary=line.temporary + (computed if line.sample else 0))
        for line in phases
    )
    words = f"traced, with weights in {settings.quantization}"
    return estimate_from_phases(quantized, settings, device, TRACED_UNCERTAINTY, words)


def phases_from_trace(
    trace: MemoryTrace, settings: Settings, device: Device, processes: int
) -> tuple[MemoryPhase, ...]:
    """The traced peaks as straight lines in the micro batch; the highest line is the peak."""
    buckets = trace.gradient_bytes if processes > 1 else 0
    states, step = trace.state_bytes, trace.step_bytes
    if states is None:
        each = optimizer_bytes(settings.optim, device.on_gpu, 4)
        states = round(each.kept * trace.trainable + embedding_states_bytes(settings.optim, trace.embedding))
        step += states + round(each.temporary * trace.trainable)
    # Traced peaks contain the states where the optimizer could be traced. They are taken out of the part that is called
    # temporary, and `states`, which is estimated otherwise, is added to every line.
    traced_states = trace.state_bytes or 0
    lines = []
    for low, high in pairwise(trace.train):  # the line through two traced batches, with the parts of the larger one
        slope = (high.total - low.total) / (high.batch - low.batch)
        weights, gradients = trace.weight_bytes + high.copies, high.gradients + buckets
        rest = high.total - slope * high.batch - weights - high.gradients - traced_states
        lines.append(MemoryPhase("forward and backward", weights, gradients, states, rest, slope))
    if device.gpu_count > 1:  # DataParallel adds up the gradients of all GPUs next to its own
        lines.append(MemoryPhase("end of backward", trace.weight_bytes, 2 * trace.gradient_bytes, states, 0, 0))
    fixed = trace.weight_bytes + trace.gradient_bytes + states
    step_line = MemoryPhase(
        "optimizer step", trace.weight_bytes, trace.gradient_bytes + buckets, states, max(0, step - fixed), 0
    )
    # The evaluation's peak lies on the chord around its batch, or on the last one extended.
    batch, pairs = settings.per_device_eval_batch_size, list(pairwise(trace.evaluation))
    low, high = next(((low, high) for low, high in pairs if batch <= high.batch), pairs[-1])
    evaluation = low.total + (high.total - low.total) / (high.batch - low.batch) * (batch - low.batch)
    temporary = evaluation - traced_states - trace.weight_bytes
    return (*lines, step_line, *evaluation_phases(settings, trace.weight_bytes, buckets, states, temporary))


def _read_entry(entry: ProbeCacheEntry) -> MemoryTrace | None:
    try:
        return from_json(MemoryTrace, entry.read())
    except ValueError:
        return None


WEIGHTS = "weights"
PHASES = {"batch": "forward and backward", "step": "optimizer step", "evaluation": "evaluation"}


def trace_breakdown(interpreter: Interpreter, job: BuiltinJob, settings: Settings, device: Device) -> MemoryBreakdown:
    """The breakdown at the micro batch of `settings`, from the cache or within seconds. Raises `TraceError`."""
    question = trace_request(job, settings, device) | {
        "by_module": True,
        "batches": (settings.per_device_train_batch_size,),
        "eval_batches": () if settings.eval_strategy == "no" else (settings.per_device_eval_batch_size,),
    }
    entry = trace_cache_entry(interpreter, question)
    answer = entry.read()
    if answer is None:
        answer = ask_trainer(Path(interpreter.path), question)
        entry.write(answer)
    parts = [MemoryPart(**part) for part in answer["parts"]]
    if settings.precision == "fp16":  # traced in bf16, which takes as much
        parts = [
            replace(part, dtype="fp16") if part.dtype == "bf16" and part.kind != WEIGHTS else part for part in parts
        ]
    parts = _quantize(parts, QuantizableWeights(**answer["quantizable"]), settings, answer["phase"])
    return MemoryBreakdown(PHASES[answer["phase"]], tuple(sorted(parts, key=lambda part: -part.size)))


def _quantize(parts: list[MemoryPart], weights: QuantizableWeights, settings: Settings, phase: str) -> list[MemoryPart]:
    """The parts with the quantized weights as bitsandbytes keeps them, and the largest of them as it computes."""
    saved = weights.saved_bytes(settings)
    if not saved:
        return parts
    frozen = max((part for part in parts if part.kind == WEIGHTS), key=lambda part: part.size)
    kept = [replace(frozen, size=frozen.size - weights.total_bytes) if part is frozen else part for part in parts]
    kept.append(MemoryPart("", WEIGHTS, settings.quantization, weights.total_bytes - saved))
    if phase == "batch":
        kept.append(MemoryPart("", "weights as they compute", settings.precision, 2 * weights.largest))
    return [part for part in kept if part.size > 0]


THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
"""Variables that, like the packages and the number of cores, decide how much is reserved."""


def import_footprint(interpreter: Interpreter, cores: int, *, cached_only: bool = False) -> ImportFootprint | None:
    """The memory of `interpreter` after its imports, on `cores` cores; None where it cannot be measured.

    Takes seconds the first time; with `cached_only` nothing is started.
    """
    # Under a memory limit this is a large part: libraries reserve a gigabyte and more, by the number of cores.
    threads = [os.environ.get(name) for name in THREAD_VARIABLES]
    entry = probe_cache_entry("started", [interpreter.path, dict(interpreter.packages), cores, threads])
    answer = entry.read()
    try:
        if answer is None and not cached_only:
            answer = ask_trainer(Path(interpreter.path), {}, verb="started-memory")
            entry.write(answer)
        return from_json(ImportFootprint, answer)
    except (TraceError, ValueError):
        return None

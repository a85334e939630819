"""Traced memory of a job: a training step on fake tensors, run by the Python that trains, cached on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner_tui import __file__ as package
from tuner_tui.core.probe_cache import write_atomically
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.memory.closed_form import MemoryPhase, optimizer_bytes
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import MemoryEstimate, estimate_from_phases
from tuner_tui.memory.model_shape import config_path
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

FORMAT = 2
MARK = "tuner-tui-trace "
TRAINER = Path(package).parent / "trainer"
TRACED_BATCHES = (2, 8, 32, 128)
"""Micro batches that are traced. The peak is a convex curve of straight pieces: a chord between two is above it."""
TRACED_SETTINGS = ("precision", "optim", "gradient_checkpointing", "max_grad_norm")
TRACED_PACKAGES = ("torch", "transformers", "peft")
TIMEOUT_S = 240.0


class TraceError(RuntimeError):
    """A job that could not be traced; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class TracedPeak:
    """The peak of tensors at one batch, and what of it were gradients and 16-bit copies of weights; in bytes."""

    batch: int
    total: int
    gradients: int
    copies: int


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """What tracing found, in bytes. `state_bytes` and what the optimizer's step takes are None where not traced.

    `train` are the peaks of forward and backward, `step_bytes` that of clipping and the optimizer's step, `evaluation`
    those of a batch without gradients; smallest batch first.
    """

    parameters: int
    trainable: int
    weight_bytes: int
    gradient_bytes: int
    state_bytes: int | None
    step_bytes: int
    train: tuple[TracedPeak, ...]
    evaluation: tuple[TracedPeak, ...]


def trace_memory(
    interpreter: Interpreter,
    job: BuiltinJob,
    settings: Settings,
    device: Device,
    labels: int = 2,
    cache_folder: Path | None = None,
) -> MemoryTrace:
    """The trace of `job`, from the cache where the same was traced before. Raises `TraceError`.

    Takes seconds where it is not in the cache. `labels` are the classes of the data. `cache_folder` is the user's
    cache folder where it is not given.
    """
    question = trace_request(job, settings, device, labels)
    entry = cache_entry(interpreter, question, cache_folder)
    known = read_entry(entry)
    if known is not None:
        return known
    answer = ask_trainer(Path(interpreter.path), question)
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomically(entry, json.dumps(answer))
    return trace_from_answer(answer)


def cached_trace(
    interpreter: Interpreter,
    job: BuiltinJob,
    settings: Settings,
    device: Device,
    labels: int = 2,
    cache_folder: Path | None = None,
) -> MemoryTrace | None:
    """What `trace_memory` would answer at once; None where it would have to ask. Reads one small file."""
    return read_entry(cache_entry(interpreter, trace_request(job, settings, device, labels), cache_folder))


def trace_request(job: BuiltinJob, settings: Settings, device: Device, labels: int) -> dict[str, Any]:
    """The question as the tracer takes it."""
    return {
        "job": {
            "task": job.task,
            "model": job.model,
            "trust_remote_code": job.trust_remote_code,
            "max_length": settings.max_length,
            "attn_implementation": settings.attn_implementation,
            "peft_method": settings.peft_method,
            "lora_r": settings.lora_r,
            "lora_alpha": settings.lora_alpha,
            "lora_dropout": settings.lora_dropout,
        },
        "settings": {
            **{name: getattr(settings, name) for name in TRACED_SETTINGS},
            "gradient_accumulation_steps": min(settings.gradient_accumulation_steps, 2),
        },
        "labels": labels,
        "on_gpu": device.on_gpu,
        "foreach": device.on_gpu,
        "batches": TRACED_BATCHES,
        "eval_batches": TRACED_BATCHES,
    }


def cache_entry(interpreter: Interpreter, question: Mapping[str, Any], folder: Path | None) -> Path:
    """Where the answer is kept: named after the question, the packages' versions and the model's own configuration."""
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("tuner-tui") / "traces"
    versions = {name: interpreter.packages.get(name) for name in TRACED_PACKAGES}
    config = config_path(question["job"]["model"])
    text = None if config is None else sha256(config.read_bytes()).hexdigest()
    key = json.dumps([FORMAT, question, versions, text], sort_keys=True)
    return folder / f"{sha256(key.encode()).hexdigest()[:24]}.json"


def read_entry(entry: Path) -> MemoryTrace | None:
    """The answer kept there; None where there is none or it is damaged."""
    try:
        return trace_from_answer(json.loads(entry.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ask_trainer(
    python: Path, question: Mapping[str, Any], timeout_s: float = TIMEOUT_S, verb: str = "trace-memory"
) -> dict[str, Any]:
    """The trainer's answer to `verb`; every way in which there is none is a `TraceError`."""
    try:
        # A session of its own, so that on a timeout everything it started ends with it.
        process = subprocess.Popen(
            [str(python), str(TRAINER), verb],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise TraceError(f"{python} cannot be started ({error.strerror}).") from error
    try:
        output, _ = process.communicate(json.dumps(question), timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise TraceError(f"Tracing took longer than {timeout_s:.0f} s and was stopped.") from error
    finally:
        if process.poll() is None:  # a timeout, or Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return parse_answer(output, python, process.returncode)


def parse_answer(output: str, python: Path, code: int) -> dict[str, Any]:
    """The marked line of the tracer's output."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise TraceError(f"{python} ended with exit code {code} before it had traced: is it the Python that trains?")
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    if "problem" in answer:
        raise TraceError(f"It cannot be traced: {answer['problem']}.")
    return answer


def trace_from_answer(answer: Mapping[str, Any]) -> MemoryTrace:
    """The answer as a trace."""
    return MemoryTrace(
        parameters=answer["parameters"],
        trainable=answer["trainable"],
        weight_bytes=answer["weight_bytes"],
        gradient_bytes=answer["gradient_bytes"],
        state_bytes=answer["state_bytes"],
        step_bytes=answer["step"],
        train=tuple(TracedPeak(**one) for one in answer["train"]),
        evaluation=tuple(TracedPeak(**one) for one in answer["evaluation"]),
    )


TRACED_UNCERTAINTY = 0.05
"""On a CPU tracing is within 1 % of what torch allocated, in most cases; a GPU's allocator and kernels add to it."""


def estimate_from_trace(trace: MemoryTrace, settings: Settings, device: Device, processes: int = 1) -> MemoryEstimate:
    """What `trace` says of the micro batch of `settings`; sizes of one process."""
    return estimate_from_phases(
        phases_from_trace(trace, settings, device, processes), settings, device, TRACED_UNCERTAINTY, "traced"
    )


def phases_from_trace(
    trace: MemoryTrace, settings: Settings, device: Device, processes: int
) -> tuple[MemoryPhase, ...]:
    """The traced peaks as straight lines in the micro batch, whose largest is the peak."""
    buckets = trace.gradient_bytes if processes > 1 else 0
    states, step = trace.state_bytes, trace.step_bytes
    if states is None:
        each = optimizer_bytes(settings.optim, device.on_gpu, 4)
        states = round(each.kept * trace.trainable)
        step += states + round(each.temporary * trace.trainable)
    known = trace.state_bytes or 0
    lines = [_chord(low, high, trace.weight_bytes, buckets, states, known) for low, high in pairwise(trace.train)]
    if device.cards > 1:  # DataParallel sums all cards' gradients beside its own
        end = MemoryPhase("backward's end", trace.weight_bytes, 2 * trace.gradient_bytes, states, 0, 0)
        lines = [*lines, end]
    fixed = trace.weight_bytes + trace.gradient_bytes + states
    step_line = MemoryPhase(
        "optimizer step", trace.weight_bytes, trace.gradient_bytes + buckets, states, max(0, step - fixed), 0
    )
    evaluation = _peak_at(trace.evaluation, settings.per_device_eval_batch_size) - known
    return (
        *lines,
        step_line,
        MemoryPhase("evaluation", trace.weight_bytes, buckets, states, evaluation - trace.weight_bytes, 0),
    )


def _chord(low: TracedPeak, high: TracedPeak, weights: int, buckets: int, states: int, known: int) -> MemoryPhase:
    """The line through two traced batches; its parts are those of the larger one."""
    slope = (high.total - low.total) / (high.batch - low.batch)
    rest = high.total - slope * high.batch - weights - high.copies - high.gradients - known
    return MemoryPhase("forward and backward", weights + high.copies, high.gradients + buckets, states, rest, slope)


def _peak_at(points: tuple[TracedPeak, ...], batch: int) -> float:
    """The peak at any batch: on the chord around it, or on the last one prolonged."""
    pairs = list(pairwise(points))
    low, high = next(((low, high) for low, high in pairs if batch <= high.batch), pairs[-1])
    return low.total + (high.total - low.total) / (high.batch - low.batch) * (batch - low.batch)

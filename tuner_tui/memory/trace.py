"""The traced figures of a job: asked of the Python that trains, remembered on disk.

The question goes to `trainer/trace_memory.py`, which runs a step on fake tensors. The micro batch is no part of it: a
few batches are traced, and any other lies between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuner_tui import __file__ as package
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.interpreter_cache import write_atomically
from tuner_tui.memory.device import Device
from tuner_tui.memory.shapes import config_path
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

FORMAT = 2
MARK = "tuner-tui-trace "
TRAINER = Path(package).parent / "trainer"
BATCHES = (2, 8, 32, 128)
"""Micro batches that are traced. The peak is a convex curve of straight pieces: a chord between two is above it."""
SETTINGS = ("precision", "optim", "gradient_checkpointing", "max_grad_norm")
VERSIONS = ("torch", "transformers", "peft")
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
class Trace:
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


def trace(
    interpreter: Interpreter,
    job: BuiltinJob,
    settings: Settings,
    device: Device,
    labels: int = 2,
    cache_folder: Path | None = None,
) -> Trace:
    """The trace of `job`, from the cache where the same was traced before. Raises `TraceError`.

    Takes seconds where it is not in the cache. `labels` are the classes of the data. `cache_folder` is the user's
    cache folder where it is not given.
    """
    question = request(job, settings, device, labels)
    entry = cache_entry(interpreter, question, cache_folder)
    known = read_entry(entry)
    if known is not None:
        return known
    answer = ask(Path(interpreter.path), question)
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomically(entry, json.dumps(answer))
    return trace_of(answer)


def known_trace(
    interpreter: Interpreter,
    job: BuiltinJob,
    settings: Settings,
    device: Device,
    labels: int = 2,
    cache_folder: Path | None = None,
) -> Trace | None:
    """What `trace` would answer at once; None where it would have to ask. Reads one small file."""
    return read_entry(cache_entry(interpreter, request(job, settings, device, labels), cache_folder))


def request(job: BuiltinJob, settings: Settings, device: Device, labels: int) -> dict[str, Any]:
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
            **{name: getattr(settings, name) for name in SETTINGS},
            "gradient_accumulation_steps": min(settings.gradient_accumulation_steps, 2),
        },
        "labels": labels,
        "on_gpu": device.on_gpu,
        "foreach": device.on_gpu,
        "batches": BATCHES,
        "eval_batches": BATCHES,
    }


def cache_entry(interpreter: Interpreter, question: Mapping[str, Any], folder: Path | None) -> Path:
    """Where the answer is kept: named after the question, the packages' versions and the model's own configuration."""
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("tuner-tui") / "traces"
    versions = {name: interpreter.packages.get(name) for name in VERSIONS}
    config = config_path(question["job"]["model"])
    text = None if config is None else sha256(config.read_bytes()).hexdigest()
    key = json.dumps([FORMAT, question, versions, text], sort_keys=True)
    return folder / f"{sha256(key.encode()).hexdigest()[:24]}.json"


def read_entry(entry: Path) -> Trace | None:
    """The answer kept there; None where there is none or it is damaged."""
    try:
        return trace_of(json.loads(entry.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ask(
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
    return answer_in(output, python, process.returncode)


def answer_in(output: str, python: Path, code: int) -> dict[str, Any]:
    """The marked line of the tracer's output."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise TraceError(f"{python} ended with exit code {code} before it had traced: is it the Python that trains?")
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    if "problem" in answer:
        raise TraceError(f"It cannot be traced: {answer['problem']}.")
    return answer


def trace_of(answer: Mapping[str, Any]) -> Trace:
    """The answer as a trace."""
    return Trace(
        parameters=answer["parameters"],
        trainable=answer["trainable"],
        weight_bytes=answer["weight_bytes"],
        gradient_bytes=answer["gradient_bytes"],
        state_bytes=answer["state_bytes"],
        step_bytes=answer["step"],
        train=tuple(TracedPeak(**one) for one in answer["train"]),
        evaluation=tuple(TracedPeak(**one) for one in answer["evaluation"]),
    )

"""The events of a run: one JSON line each, typed and versioned.

Two sorts. *Story* events are rare and worth keeping for ever; their line starts with `{"story":1,` so that a reader can
find them in a file of any size without parsing it. *Frequent* events (`steps`, `metrics`) come at most once a second
and a rank and carry **cumulative** counters, so that any suffix of the file gives the present state and any two lines
give the rate between them. The observer writes the same lines without importing this module; a test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

EVENT_VERSION = 1
STORY_PREFIX = b'{"story":1,'


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event has: `t` in seconds since the epoch, and the rank that wrote it (None: the supervisor).

    `source` names what was read where no observer told it: the output, a file of the tool. Such events are in no file.
    """

    kind: ClassVar[str] = ""
    story: ClassVar[bool] = True
    t: float
    rank: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched(Event):
    """The supervisor started the training process."""

    kind: ClassVar[str] = "launched"
    pid: int
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(Event):
    """Somebody asked for a checkpoint or a stop; `how` is checkpoint, stop, terminate or kill."""

    kind: ClassVar[str] = "stop-requested"
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Event):
    """The training process ended. `oom_kill` is True where the kernel or the cgroup says that it killed for memory."""

    kind: ClassVar[str] = "exited"
    exit_code: int | None = None
    signal: int | None = None
    oom_kill: bool | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """The last event of a training. `outcome`: completed, stopped, failed, out-of-memory or lost."""

    kind: ClassVar[str] = "finished"
    outcome: str
    sentence: str = ""
    step: int | None = None
    total_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack(Event):
    """The run ended out of memory and goes on as the run `into` with `change`; the `number`th of at most `most` times.

    `step` is where that run begins: a checkpoint's, or 0 for a start from nothing. Told after `finished`.
    """

    kind: ClassVar[str] = "fell-back"
    into: str
    number: int
    most: int
    sentence: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackEnded(Event):
    """The run ended out of memory and is not continued; the sentence says why. Told after `finished`."""

    kind: ClassVar[str] = "fallback-ended"
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """The observer is in the training process."""

    kind: ClassVar[str] = "started"
    pid: int
    world_size: int = 1
    python: str | None = None
    torch: str | None = None
    transformers: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(Event):
    """The training entered a phase: starting, compiling, training, evaluating, saving, skipping, ending."""

    kind: ClassVar[str] = "phase"
    phase: str
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Event):
    """How long the training will be. `first_step` is above 0 where it resumed from a checkpoint.

    `obeys`: it takes the orders of the control file.
    """

    kind: ClassVar[str] = "plan"
    total_steps: int | None = None
    first_step: int = 0
    epochs: float | None = None
    accumulation: int | None = None
    parameters: int | None = None
    trainable_parameters: int | None = None
    obeys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(Event):
    """Metrics of one evaluation, by the trainer's own names, and how long it took."""

    kind: ClassVar[str] = "evaluated"
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Event):
    """A checkpoint is complete on disk."""

    kind: ClassVar[str] = "checkpoint"
    step: int
    path: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InEffect(Event):
    """What is really in effect, seen inside the process; only what changed since the last such event."""

    kind: ClassVar[str] = "in-effect"
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected(Event):
    """What `inject` set inside the process, and which names found no place."""

    kind: ClassVar[str] = "injected"
    values: Mapping[str, Any] = field(default_factory=dict)
    not_found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory(Event):
    """The process ran out of memory; `where` is training, evaluating, saving, loading or optimizer-step."""

    kind: ClassVar[str] = "out-of-memory"
    message: str
    where: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised(Event):
    """An exception ended the training process."""

    kind: ClassVar[str] = "raised"
    type: str
    message: str
    where: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMeasured(Event):
    """What a trial measured, one for each rank; after it the process ends.

    `steps` optimizer steps in `seconds` of training, after `warmup_steps` that do not count; `samples`, `tokens`
    (padding left out), `padding_tokens`, `data_wait_s` and `optimizer_s` (time inside the optimizers) are theirs.
    `spread` is the half width of the 95 % interval of its speed, as a share. The peaks are of the whole process;
    `data_peak_bytes` is its private memory, where a limit counts that. `batch_peak_bytes` (forward and backward) and
    `optimizer_peak_bytes` are told apart by CUDA's allocator alone, in bytes that it gave out.
    `device_outside_bytes` is what the card holds beside the allocator's: its context, and other processes.
    `longest` and `evaluated` say in words whether the longest batch was met and one batch evaluated.
    """

    kind: ClassVar[str] = "trial"
    steps: int
    seconds: float
    warmup_steps: int = 0
    micro_steps: int = 0
    samples: int = 0
    tokens: int | None = None
    padding_tokens: int | None = None
    data_wait_s: float = 0.0
    optimizer_s: float | None = None
    spread: float | None = None
    batch_shape: tuple[int, ...] | None = None
    dataset_samples: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    rss_peak_bytes: int | None = None
    data_peak_bytes: int | None = None
    batch_peak_bytes: int | None = None
    optimizer_peak_bytes: int | None = None
    device_outside_bytes: int | None = None
    device_total_bytes: int | None = None
    longest: str = ""
    evaluated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The observed process came to its end by itself."""

    kind: ClassVar[str] = "ended"
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Event):
    """Cumulative counters since the observer started, at most one line a second.

    `step` is the optimizer step of the whole training (it starts above 0 on resume), `own_steps` those of this process.
    `tokens` leaves padding out; `tokens_estimated` where batches came so fast, or were so large, that of tokens and
    padding only some were counted, and the rest is estimated by them. `train_s` is wall time between optimizer steps,
    evaluation and saving left out; `data_wait_s` is the part of it spent waiting for the next batch, `between_s` the
    part from an optimizer step to the next request for a batch, None where no loader is asked. `own_steps` counts
    steps that a gradient scaler left out too; `skipped_steps` says how many. `slowest_step_s` is of the last window,
    the peaks are of the process so far: `allocated`, `reserved` and `step` (where the optimizer step set the peak) by
    CUDA's allocator, and `rss_peak_bytes`, which every process has, its largest resident set (VmHWM). At that moment
    `allocated_bytes` were given out by CUDA's allocator, and `anonymous_bytes` the process had beside files (RssAnon).
    """

    kind: ClassVar[str] = "steps"
    story: ClassVar[bool] = False
    step: int
    own_steps: int
    micro_steps: int = 0
    samples: int = 0
    tokens: int | None = None
    padding_tokens: int | None = None
    tokens_estimated: bool = False
    train_s: float = 0.0
    data_wait_s: float = 0.0
    between_s: float | None = None
    eval_s: float = 0.0
    save_s: float = 0.0
    skipped_steps: int = 0
    slowest_step_s: float | None = None
    batch_shape: tuple[int, ...] | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    step_peak_bytes: int | None = None
    alloc_retries: int | None = None
    rss_peak_bytes: int | None = None
    allocated_bytes: int | None = None
    anonymous_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Event):
    """What the trainer logged: loss, learning rate, gradient norm. A value that is not finite is kept as it is."""

    kind: ClassVar[str] = "metrics"
    story: ClassVar[bool] = False
    step: int
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    epoch: float | None = None


EVENT_TYPES: Mapping[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        Launched, StopRequested, Exited, Finished, FellBack, FallbackEnded, Started, Phase, Plan, Evaluated,
        Checkpoint, InEffect, Injected, OutOfMemory, Raised, TrialMeasured, Ended, Steps, Metrics,
    )
}  # fmt: skip

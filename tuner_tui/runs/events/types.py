"""Event types of a run. An event is one line of JSON, typed and versioned.

*Story* events are rare and kept whole; their lines start with `{"story":1,`, so that a reader finds them in a file of
any size without parsing the rest. *Frequent* events (`steps`, `metrics`) come about once a second and rank with
**cumulative** counters: any suffix of the file gives the current state, and any two lines give the rate between them.
The observer writes the same lines without importing this module; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from tuner_tui.core.json_struct import ExitCode, Figure, HostName, Identifier, PathText, Pid, SignalNumber, Time

EVENT_VERSION = 1
STORY_PREFIX = b'{"story":1,'
BACKWARD = "backward()"
"""Source of a loss that is neither printed nor logged: the scalar that `backward()` was called on."""
PRINTED = ("log lines", "progress bar")


def trust(source: str | None, summary: bool = False, part: bool = False) -> int:
    """How much a metric of this source is worth; a loss of one source is not mixed with that of another.

    A Trainer's own is best, then what the script gives to a logger, what it prints, and what `backward()` was called
    on. A `summary` (`Metrics.summary`) comes too seldom to stand for the loss between two of them. A
    `part` of the loss is worth less than all of it, whoever says it.
    """
    if part:
        return -1
    if summary or source == BACKWARD:
        return 0
    return 3 if source is None else 1 if source in PRINTED else 2


class Event(Struct, frozen=True, kw_only=True):
    """Common fields: `t` in seconds since the epoch, and the rank that wrote the event (None: the supervisor).

    `source` says where the values come from unless the observer counted them or a Trainer reported them to it: the file
    or output that they were read from, the logger that the script calls, or `BACKWARD`.
    """

    kind: ClassVar[str] = ""
    """The word in the file: the name of the class in lower case with hyphens, unless the class has another."""
    story: ClassVar[bool] = True
    t: Time
    rank: int | None = None
    source: str | None = None

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__dict__.get("kind") or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()
        EVENT_TYPES[cls.kind] = cls


EVENT_TYPES: dict[str, type[Event]] = {}
"""All kinds of events."""


class Launched(Event, frozen=True, kw_only=True):
    """The supervisor started the training process."""

    pid: Pid
    argv: tuple[str, ...] = ()


SIGNALLED = "SIGTERM"
"""How a stop was requested that was no order of this program."""


class StopRequested(Event, frozen=True, kw_only=True):
    """A checkpoint or a stop was requested; `how` is an `Order`, or `SIGTERM` if the training got one and ends."""

    how: str


class Hung(Event, frozen=True, kw_only=True):
    """The training makes no steps, and its processes said why: `cause` is a `HangKind` of `inspection.hang`."""

    cause: str
    sentence: str
    evidence: tuple[str, ...] = ()


class NotFinite(Event, frozen=True, kw_only=True):
    """The loss that `backward()` was called on is nan or infinite in this step, and was not in the one before."""

    step: int


class Profiled(Event, frozen=True, kw_only=True):
    """Some steps were profiled: what bounds them, as `inspection.slow_step` says it, and the `share` of a step."""

    bound: str
    share: Figure
    where: str
    sentence: str
    evidence: tuple[str, ...] = ()


class Exited(Event, frozen=True, kw_only=True):
    """The training process ended. `oom_kill` is True if the kernel or the cgroup reports that it was killed for
    memory."""

    exit_code: ExitCode | None = None
    signal: SignalNumber | None = None
    oom_kill: bool | None = None
    evidence: tuple[str, ...] = ()


class Finished(Event, frozen=True, kw_only=True):
    """The last event of a training. `outcome`: completed, stopped, failed, out-of-memory or lost.

    It repeats `step`, `total_steps`, `loss` and `not_finite_since` for lists of runs, which read the end of the file
    alone.
    """

    outcome: str
    sentence: str = ""
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    not_finite_since: int | None = None


class FellBack(Event, frozen=True, kw_only=True):
    """The run ran out of memory and continues as run `into` with the changed settings `change`; fallback `number` of
    `most`.

    `step` is the first step of that run: that of a checkpoint, or 0. Written after `finished`.
    """

    into: Identifier
    number: int
    most: int
    sentence: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None


class FallbackEnded(Event, frozen=True, kw_only=True):
    """The run ran out of memory and is not continued; the sentence gives the reason. Written after `finished`."""

    sentence: str


class Started(Event, frozen=True, kw_only=True):
    """The observer is active in the training process.

    `independent`: another process of the run trains at the same time, and neither is a rank of a distributed training
    (Hogwild); `rank` is just a number. `host` is the name of its machine, the scope of its pid.
    """

    pid: Pid
    host: HostName | None = None
    world_size: int = 1
    independent: bool = False
    python: str | None = None
    torch: str | None = None
    transformers: str | None = None
    device: str | None = None


class Phase(Event, frozen=True, kw_only=True):
    """The training entered a phase: starting, loading-model, loading-data, compiling, training, evaluating, saving,
    skipping, ending.

    `output`: bytes of output so far, where an evaluation begins or ends that prints only its own results;
    `output_until`: with what was printed after it, before the training went on.

    `generates`: what looks like an evaluation generates samples, by the name of its function.
    """

    phase: str
    step: int | None = None
    output: int | None = None
    output_until: int | None = None
    generates: bool = False


class Plan(Event, frozen=True, kw_only=True):
    """The length of the training. `first_step` is above 0 after a resume.

    `obeys`: the training obeys the control file. `guessed`: no Trainer said so; variables of the script, named like
    `num_epochs`, and the length of its loader did.
    """

    total_steps: int | None = None
    first_step: int = 0
    epochs: float | None = None
    parameters: int | None = None
    trainable_parameters: int | None = None
    obeys: bool = False
    guessed: bool = False


class Evaluated(Event, frozen=True, kw_only=True):
    """Metrics of one evaluation, named as the trainer names them, and its duration."""

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: Figure | None = None

    @property
    def results(self) -> Mapping[str, float]:
        """The metrics that measure the model, not the speed of the evaluation."""
        return {name: value for name, value in self.metrics.items() if not OF_SPEED.search(name)}


OF_SPEED = re.compile(r"(?:_runtime|_per_second|_time)$|^(?:eval_)?(?:epoch|samples|steps|model_preparation_time)$")
"""Metrics that a Trainer adds to those of the model."""


class Checkpoint(Event, frozen=True, kw_only=True):
    """A checkpoint was written completely."""

    step: int
    path: PathText
    seconds: Figure | None = None


class InEffect(Event, frozen=True, kw_only=True):
    """Values in effect inside the process; only those that changed since the last such event."""

    values: Mapping[str, Any] = field(default_factory=dict)


class Injected(Event, frozen=True, kw_only=True):
    """Values that `inject` set inside the process, and names that it found no place for; `limits` says why a value is
    not the requested one."""

    values: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    not_found: tuple[str, ...] = ()


class Options(Event, frozen=True, kw_only=True):
    """The options of the script's argument parsers, each with its aliases: `-b --batch-size`.

    `switches` are those that take no value.
    """

    options: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


class Saved(Event, frozen=True, kw_only=True):
    """The script itself saved a file or folder. `resumable`: it holds more than weights.

    `step` is None where the observer does not count the steps.
    """

    step: int | None = None
    path: PathText
    resumable: bool = False


class Unobserved(Event, frozen=True, kw_only=True):
    """The observer does not run in the launched Python; `reason` completes "Not observed, because"."""

    reason: str


class OutOfMemory(Event, frozen=True, kw_only=True):
    """The process ran out of memory; `where` is training, evaluating, saving, loading or optimizer-step."""

    message: str
    where: str | None = None
    step: int | None = None


class Raised(Event, frozen=True, kw_only=True):
    """An exception ended the training process."""

    type: str
    message: str
    where: str | None = None
    step: int | None = None


class TrialMeasured(Event, frozen=True, kw_only=True):
    """The measurement of a trial, one for each rank; the process ends after it.

    `steps` optimizer steps took `seconds` from `begun_t` (seconds since the epoch), after `warmup_steps` that are not
    measured, and of `planned_steps` that the training would take without the trial. `lookup_s` went into looking for
    the longest batch before, `evaluation_s` into evaluating one batch afterwards. `samples`, `tokens` (without
    padding), `padding_tokens`, `data_wait_s` and `optimizer_s` (time inside the optimizers) belong to those steps.
    `spread` is the half width of the 95 % confidence interval of the speed, relative to it. Peaks are of the whole
    process; `data_peak_bytes` is its private memory, where a limit applies to that. `batch_peak_bytes` (forward and
    backward) comes from CUDA's allocator and counts allocated bytes. `device_outside_bytes` is memory of the GPU
    outside the allocator: the context, and other processes. `resident_bytes` is at most what exists
    when a forward pass begins: weights, optimizer states, and accumulated gradients. `longest` and `evaluated` say
    whether the longest batch was used and one batch was evaluated. `workers_repeat`: the data is a stream that does not
    divide itself among several workers. `repeated_samples` counts, for the first 1, 2, 4, 8 … samples of a stream,
    those that were drawn before.
    """

    kind: ClassVar[str] = "trial"
    steps: int
    seconds: Figure
    warmup_steps: int = 0
    micro_steps: int = 0
    samples: int = 0
    tokens: int | None = None
    padding_tokens: int | None = None
    data_wait_s: Figure = 0.0
    optimizer_s: Figure | None = None
    spread: Figure | None = None
    batch_shape: tuple[int, ...] | None = None
    dataset_samples: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    rss_peak_bytes: int | None = None
    data_peak_bytes: int | None = None
    batch_peak_bytes: int | None = None
    resident_bytes: int | None = None
    device_outside_bytes: int | None = None
    device_total_bytes: int | None = None
    longest: str = ""
    evaluated: str = ""
    begun_t: Figure | None = None
    lookup_s: Figure = 0.0
    evaluation_s: Figure | None = None
    planned_steps: int | None = None
    workers_repeat: bool = False
    repeated_samples: tuple[int, ...] = ()


class Ended(Event, frozen=True, kw_only=True):
    """The observed process ended without an exception; `exit_code` is the one given to `sys.exit`, if any was."""

    step: int | None = None
    exit_code: ExitCode | None = None


class Steps(Event, frozen=True, kw_only=True):
    """Cumulative counters since the observer started, at most one line a second.

    `step` is the optimizer step of the whole training (above 0 after a resume), `own_steps` counts those of this
    process, including steps that a gradient scaler skipped. `tokens` excludes padding; with
    `tokens_estimated` tokens and padding were counted in some batches only and scaled. `train_s` is wall time without
    evaluation and saving; `data_wait_s` is the part spent waiting for a batch, `epoch_wait_s` for the first of an
    epoch, `between_s` the part from an optimizer step to the next request for a batch (None without a data loader).
    `rank_wait_s` is the part in calls that wait for other ranks, the computation of gradients included (None for a
    single process and on a GPU). `optimizer_s` is the part in the optimizers (None on a GPU, or with a closure).
    `slowest_step_s` is of the last window, and so is `printed`: of the last steps after which something was printed,
    the bytes of output before the next one.

    `alone`: started as one of several processes, of which nothing connects it with the others.

    `epoch_batch` of `epoch_batches` are read in the current epoch of the training's loader; without a length or loader
    they are None.

    Peaks are of the process so far: `allocated` and `reserved` of CUDA's allocator, and `rss_peak_bytes`, the largest
    resident set (VmHWM). `allocated_bytes` (CUDA's allocator) and `anonymous_bytes` (RssAnon) are the values at this
    moment.
    """

    story: ClassVar[bool] = False
    step: int
    own_steps: int
    micro_steps: int = 0
    samples: int = 0
    tokens: int | None = None
    padding_tokens: int | None = None
    tokens_estimated: bool = False
    train_s: Figure = 0.0
    data_wait_s: Figure = 0.0
    epoch_wait_s: Figure = 0.0
    between_s: Figure | None = None
    rank_wait_s: Figure | None = None
    optimizer_s: Figure | None = None
    alone: bool = False
    eval_s: Figure = 0.0
    save_s: Figure = 0.0
    epoch_batch: int | None = None
    epoch_batches: int | None = None
    slowest_step_s: Figure | None = None
    printed: tuple[tuple[int, int], ...] = ()
    batch_shape: tuple[int, ...] | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    alloc_retries: int | None = None
    rss_peak_bytes: int | None = None
    allocated_bytes: int | None = None
    anonymous_bytes: int | None = None


class Metrics(Event, frozen=True, kw_only=True):
    """What the trainer logged. Values that are not finite are kept.

    `summary`: logged together with an evaluation, so the loss is the mean of an epoch or of other batches than the
    last. `part`: by its name, such as `losses/value_loss`, the loss is one of several that add up. `parts` are such
    losses by their names, `others` what else was logged with them.
    """

    story: ClassVar[bool] = False
    step: int
    summary: bool = False
    part: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, float] = field(default_factory=dict)
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    epoch: float | None = None

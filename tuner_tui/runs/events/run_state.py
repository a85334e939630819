"""The state of a run, folded from its events. Frozen; the screen, the findings and `--json` all read it.

The trend of memory is the minimum of each window of steps, in constant memory, and its growth. Memory rises and falls
within a step; what a training retains from step to step shows in the minima.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from tuner_tui.runs.events import types as ev

MAX_WINDOWS = 16
"""Between 8 and 16 windows cover the run: enough to tell even growth from growth that slows down."""
MIN_KNOWN_WINDOWS = 3
"""The fewest minima that have an earlier and a later half."""


class WindowMinima(Struct, frozen=True):
    """The minimum of each window of `stride` steps, from step 0; None where nothing was measured."""

    stride: int = 1
    values: tuple[int | None, ...] = ()


NO_MINIMA = WindowMinima()


class MemoryGrowth(Struct, frozen=True):
    """Recent growth in bytes a step; total growth over `steps` steps, and the value it started from."""

    bytes_a_step: float
    total_bytes: int
    steps: int
    from_bytes: int


def with_value(minima: WindowMinima, step: int, value: int | None) -> WindowMinima:
    """`minima` with a value measured at `step`. When there are too many windows, their width doubles."""
    if value is None or step < 0:
        return minima
    stride, values = minima.stride, minima.values
    while step // stride >= MAX_WINDOWS:
        stride, values = stride * 2, tuple(_known_min(*values[i : i + 2]) for i in range(0, len(values), 2))
    kept = [*values, *[None] * (step // stride + 1 - len(values))]
    kept[step // stride] = _known_min(kept[step // stride], value)
    return WindowMinima(stride, tuple(kept))


def find_growth(minima: WindowMinima, least: int) -> MemoryGrowth | None:
    """The growth since the last minimum that was not above the one before; None if it slows down, or covers less than
    half of the windows.

    The first window, in which caches and optimizer states are allocated, is left out; at least `least` others must have
    grown.
    """
    measured = [(n * minima.stride, value) for n, value in enumerate(minima.values) if value is not None][1:]
    start = max((n for n, ((_, a), (_, b)) in enumerate(pairwise(measured), 1) if b <= a), default=0)
    windows = measured[start:]
    if len(windows) < max(MIN_KNOWN_WINDOWS, least, len(measured) / 2):
        return None
    # A cache that fills up grows ever more slowly, whereas memory retained at each step grows evenly: the second half
    # must grow at least half as fast as the first. Half, not equally fast, because windows differ by the batches in
    # them.
    (first_step, first), (middle_step, middle), (last_step, last) = windows[0], windows[len(windows) // 2], windows[-1]
    early, late = (middle - first) / (middle_step - first_step), (last - middle) / (last_step - middle_step)
    return MemoryGrowth(late, last - first, last_step - first_step, first) if 2 * late >= early else None


def _known_min(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


DIVERGED = 10.0
"""A loss that many times the lowest one is far beyond the noise of a batch."""
HIGH_LOSSES = 3
"""Consecutive losses far above the lowest: one bad batch does not make a divergence."""
SWING, MAX_SWINGS = 3.0, 1
"""A loss that falls so much at once, more often than that after it had risen, has no level to diverge from."""


class LossTrend(Struct, frozen=True):
    """The `lowest` loss so far, how many of the newest in a row are `DIVERGED` times that or more, and the `swings`."""

    first: float = 0.0
    newest: float | None = None
    lowest: float | None = None
    high: int = 0
    swings: int = 0

    def with_loss(self, loss: float) -> LossTrend:
        """The trend after another loss. One that is not finite says nothing of it."""
        if not math.isfinite(loss):
            return self
        if self.newest is None or self.lowest is None:
            return LossTrend(loss, loss, loss)
        # A sum over an episode, or a loss of either sign as in reinforcement learning, is close to 0 by chance.
        swings = self.newest > self.lowest and self.newest >= SWING * loss and not self.diverged
        high = loss >= DIVERGED * self.lowest > 0
        lowest = min(loss, self.lowest)
        return LossTrend(self.first, loss, lowest, self.high + 1 if high else 0, self.swings + swings)

    @property
    def diverged(self) -> bool:
        """Whether a loss that had a level has left it for good. One that is below the first has only spikes."""
        above = (self.lowest or 0.0) > 0 and (self.newest or 0.0) >= self.first
        return self.high >= HIGH_LOSSES and self.swings <= MAX_SWINGS and above


class RankState(Struct, frozen=True):
    """One rank: its process and host, latest counters, and recent counters for rates (oldest first, at most 30).

    `lulls` are the newest pauses within the training, such as rollouts: after which of its own steps, and the seconds.
    `allocated_minima` and `anonymous_minima` are the trends of its GPU and host memory over its own steps.
    `planned_steps` is its own guess. `independent`: see `Started`. `exit_code` is what it gave to `sys.exit`.
    `trial` is its measurement in a trial of a tuning.
    """

    rank: int
    pid: int | None = None
    latest: ev.Steps | None = None
    recent: tuple[ev.Steps, ...] = ()
    allocated_minima: WindowMinima = NO_MINIMA
    anonymous_minima: WindowMinima = NO_MINIMA
    ended: bool = False
    independent: bool = False
    planned_steps: int | None = None
    exit_code: int | None = None
    trial: ev.TrialMeasured | None = None
    lulls: tuple[tuple[int, float], ...] = ()
    host: str | None = None


class Rates(Struct, frozen=True):
    """Speed over the last seconds of training, summed over ranks. Shares are of step time, 0 to 1.

    `between_share` is the time from an optimizer step to the next request for a batch.
    """

    steps_s: float | None = None
    samples_s: float | None = None
    tokens_s: float | None = None
    padding_share: float | None = None
    data_wait_share: float | None = None
    between_share: float | None = None
    step_time_s: float | None = None


class RunState(Struct, frozen=True):
    """What is known of a run. Times are seconds since the epoch.

    `total_guessed`: `total_steps` is a guess (`Plan.guessed`). `total_source` is where the output says it, None for
    what the observer reports. `source` names the file that steps were read from when there is no observer. `startup`
    are the phases before the first step with the times at which they began, `first_step_t` when that step was reported.
    `accepts_orders`: an observed trainer that obeys the control file. `last_step_t` is when a step last completed.
    `planned_epochs` is the number of epochs by a `Plan`. `evaluations` are downsampled to a few hundred, newest last;
    `evaluation_output`: the bytes of output that some printed, the last of which may not have ended, and up to where
    nothing trained. `printed`: see `Steps`.
    `loss_trust`: the `trust` in the source of the loss; `not_finite_since`: the step from which on the loss is nan or
    infinite, if one has seen it become so; `zero_rate_since`: the step since which the learning rate is 0;
    `logged_parts`: losses whose names say that they are parts of it, `backward_parts` those that `backward` was called
    on for several optimizers. `options` and `switches` are those of the script's
    argument parsers. `saved` is what the script itself saved last. `unobserved`: why the observer does not run.
    `fell_back`: the fallback continued the run; `fallback_ended`: why it did not.
    """

    phase: str = "starting"
    phase_since_t: float | None = None
    launched_t: float | None = None
    training_since_t: float | None = None
    startup: tuple[tuple[float, str], ...] = ()
    first_step_t: float | None = None
    last_event_t: float | None = None
    last_step_t: float | None = None
    pid: int | None = None
    generates: bool = False
    step: int | None = None
    total_steps: int | None = None
    total_guessed: bool = False
    total_source: str | None = None
    planned_epochs: float | None = None
    first_step: int = 0
    accepts_orders: bool = False
    source: str | None = None
    epoch: float | None = None
    loss: float | None = None
    loss_trust: int = 0
    not_finite_since: int | None = None
    logged_parts: Mapping[str, float] = field(default_factory=dict)
    backward_parts: Mapping[str, float] = field(default_factory=dict)
    loss_trend: LossTrend = LossTrend()
    learning_rate: float | None = None
    zero_rate_since: int | None = None
    grad_norm: float | None = None
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    world_size: int | None = None
    rates: Rates = Rates()
    parameters: int | None = None
    trainable_parameters: int | None = None
    evaluations: tuple[ev.Evaluated, ...] = ()
    printed: tuple[tuple[int, int], ...] = ()
    evaluation_output: tuple[tuple[int, int | None, int | None], ...] = ()
    checkpoint: ev.Checkpoint | None = None
    in_effect: Mapping[str, Any] = field(default_factory=dict)
    injected: Mapping[str, Any] = field(default_factory=dict)
    not_injected: tuple[str, ...] = ()
    injection_limits: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    saved: ev.Saved | None = None
    unobserved: ev.Unobserved | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    stop_requested: str | None = None
    out_of_memory: ev.OutOfMemory | None = None
    raised: ev.Raised | None = None
    hung: ev.Hung | None = None
    profiled: ev.Profiled | None = None
    exited: ev.Exited | None = None
    finished: ev.Finished | None = None
    fell_back: ev.FellBack | None = None
    fallback_ended: ev.FallbackEnded | None = None

    @property
    def counters(self) -> list[ev.Steps]:
        """The latest counters of each rank that has any."""
        return [rank.latest for rank in self.ranks.values() if rank.latest is not None]

    @property
    def knows_evaluations(self) -> bool:
        """Whether each evaluation that was observed has a value; that of the last one may still come."""
        return all(evaluation.metrics for evaluation in self.evaluations[:-1])

    @property
    def outcome(self) -> str | None:
        """How the run ended, or None while it runs."""
        return None if self.finished is None else self.finished.outcome

    @property
    def loss_problem(self) -> str:
        """`loss nan since step 41` while the loss is not finite; else empty."""
        if self.loss is None or math.isfinite(self.loss):
            return ""
        return f"loss {self.loss}" + ("" if self.not_finite_since is None else f" since step {self.not_finite_since:,}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the machines that the ranks run on, in the order of the ranks."""
        ranks = (self.ranks[number] for number in sorted(self.ranks))
        return tuple(dict.fromkeys(rank.host for rank in ranks if rank.host is not None))

    def pids_on(self, host: str | None) -> frozenset[int]:
        """The processes of the ranks on `host`, and of those whose host is unknown; None: of all."""
        ranks = (rank for rank in self.ranks.values() if host is None or rank.host in (None, host))
        return frozenset(rank.pid for rank in ranks if rank.pid is not None)

    @property
    def replicas(self) -> int | None:
        """Micro batches in one forward pass: processes times the GPUs that share a process (a Trainer with
        DataParallel).

        None until the training was observed. A custom loop with `DataParallel` splits the batch of its loader: 1.
        """
        if "optimizer" not in self.in_effect:
            return None
        if self.independent:
            return 1
        gpus = self.in_effect.get("n_gpu")
        return max(1, not self.unconnected and len(self.ranks)) * max(1, gpus if isinstance(gpus, int) else 1)

    @property
    def independent(self) -> bool:
        """Whether the ranks are processes that train at the same time, each by its own steps."""
        return any(rank.independent for rank in self.ranks.values())

    @property
    def unconnected(self) -> bool:
        """Whether the ranks train copies of their own, as nothing connects them."""
        return any(counters.alone for counters in self.counters)

    def follows_rank(self, rank: int | None) -> bool:
        """Whether phase and metrics of the run are taken from `rank`: the first, or the first that has not ended.

        Ranks of a distributed training move together, so one of them is enough.
        """
        if not rank:
            return True
        return self.independent and all(rank_state.ended for number, rank_state in self.ranks.items() if number < rank)

    @property
    def first_rank(self) -> RankState | None:
        return self.ranks[min(self.ranks)] if self.ranks else None

    @property
    def last_step(self) -> int | None:
        """The step at which the run ended, or the one that is planned to be its last."""
        return self.total_steps if self.finished is None else self.step

    @property
    def position(self) -> tuple[int, int] | None:
        """Batches read of the current epoch, and batches of an epoch; None where the loader has no length."""
        latest = None if self.first_rank is None else self.first_rank.latest
        if latest is None or latest.epoch_batch is None or latest.epoch_batches is None:
            return None
        return latest.epoch_batch, latest.epoch_batches

    @property
    def loss_parts(self) -> Mapping[str, float]:
        """The losses of which there are several, each once: by the names that are logged, if they are all."""
        return max(self.logged_parts, self.backward_parts, key=len)

    @property
    def ended_without_step(self) -> bool:
        """Whether every observed process imported torch and ended without an optimizer step.

        What computed a gradient or saved a checkpoint may have trained in a way that the observer does not see. A loss
        of 0 from the first to the last is that of no batch.
        """
        is_zero = not self.loss and not self.loss_trend.first
        if not is_zero or self.loss_parts or self.saved is not None or self.checkpoint is not None:
            return False
        ended = bool(self.ranks) and all(rank.ended for rank in self.ranks.values())
        stepped = bool(self.step) or any(rank.latest and rank.latest.own_steps for rank in self.ranks.values())
        return ended and "torch" in self.versions and not stepped


def checkpoint_refusal(state: RunState) -> str | None:
    """Why the training cannot be asked for a checkpoint, in a sentence; None if it can."""
    if state.accepts_orders:
        return None
    if state.step is None:
        return "Nothing to save yet: no step has finished."
    return "This training cannot save on request; only transformers and Lightning Trainers can."


OUT_OF_MEMORY = "Out of memory"


def strip_allocator_message(sentence: str) -> str:
    """Return an outcome's sentence without the message of the allocator."""
    return f"{sentence.partition(': ')[0].rstrip('.')}." if sentence.startswith(OUT_OF_MEMORY) else sentence

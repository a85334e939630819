"""How long a training will take, from earlier runs on this machine or else from the field notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.recommend.notes import fill_in, read_notes
from tuner_tui.advice.recommend.workload import workload_of
from tuner_tui.advice.situation import chosen_settings, effective_settings
from tuner_tui.core.units import format_rough_duration, format_share
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.runs.read.comparison import samples_a_step
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.store.record import RunRecord, recorded_runs, redact_job
from tuner_tui.settings.command_training import own_settings
from tuner_tui.settings.job import BuiltinJob, Job, same_training
from tuner_tui.settings.model import AppliedRemedy, Settings, Value

MIN_TRAIN_S = 5.0
MIN_POINTS = 5
SPREAD = 0.1
"""Relative uncertainty of a run that is too short to measure its own."""
MIN_TRIAL_SPREAD = 0.03
"""Minimum relative uncertainty of a trial of some seconds: later steps differ from those that it measured."""
OTHER_SETTINGS = 0.3
"""Relative uncertainty for runs of the same job with other settings; judgement, shown with the estimate."""
BERT_BASE_WIDTH = 12 * 768
"""Layers × hidden size."""
NOTED_TOKENS = 192
NOTED_SIZES = (24_000, 50_000, 100_000)
CHECKPOINTING = 1.2
"""Time of a step with gradient checkpointing over one without: about 20 % slower (001, 003, 004)."""
LEAST_16_BIT_GAIN = 1.3
LARGER_BATCH = 1.3
"""Judgement: the least gain of 16 bits, and the most that a batch larger than the noted one gains."""
MAX_READ = 8
SPEED_FIELDS = (
    "per_device_train_batch_size", "precision", "tf32", "optim", "gradient_checkpointing", "attn_implementation",
    "torch_compile", "max_length", "train_sampling_strategy", "peft_method", "dataloader_num_workers",
)  # fmt: skip
LEFT_OPEN = (None, "auto")
"""Values that leave the choice to the training; its run shows what it chose."""


class EarlierRun(Struct, frozen=True):
    """Speed measured by an earlier run: samples/s as a range, evaluation and saving as a share of training time.

    `settings` are those in effect; a command may train another number of epochs than the `requested_epochs`, which are
    the default where nobody chose. `overhead_share` is None for a trial, which does neither; `samples_an_epoch` is None
    if unknown. Where the samples were not `counted`, they are the steps times the batch of the settings.
    `failed`: it ended with an error, so that its settings are no example.
    """

    id: str
    job: Job
    settings: Settings
    low_samples_s: float
    high_samples_s: float
    overhead_share: float | None = None
    samples_an_epoch: float | None = None
    counted: bool = True
    requested_epochs: float | None = None
    failed: bool = False


class NotedSpeed(Struct, frozen=True):
    """Samples/s measured in the field notes (a row of `notes.yaml`)."""

    gpu: str
    batch: int
    samples_s: tuple[float, float]
    untuned: float
    source: str
    model: str = ""
    checkpointing: bool = False


class DurationEstimate(Struct, frozen=True):
    """The expected duration of a training. `samples` is None if unknown; `rests_on` says where the speed comes from.

    `counted` is False where samples stand for steps, and so are not shown.
    """

    samples: float | None
    low_samples_s: float
    high_samples_s: float
    overhead_share: float
    measured: bool
    rests_on: str
    counted: bool = True

    def seconds(self, samples: float) -> tuple[float, float]:
        """Shortest and longest time for `samples`, in seconds."""
        stretch = 1 + self.overhead_share
        return samples / self.high_samples_s * stretch, samples / self.low_samples_s * stretch

    @property
    def range_s(self) -> tuple[float, float] | None:
        """Shortest and longest time of this training, in seconds; None if its samples are unknown."""
        return None if self.samples is None else self.seconds(self.samples)


def earlier_runs(job: Job, root: Path) -> tuple[EarlierRun, ...]:
    """The speeds of runs of the same job, newest first, without those whose record cannot be read."""
    recorded, command_settings = redact_job(job), own_settings(job)
    same = (folder for folder, record in recorded_runs(root) if same_training(record.job, recorded))
    runs = (
        earlier_run(RunReader(folder).poll(with_samples=False), command_settings) for folder in islice(same, MAX_READ)
    )
    return tuple(run for run in runs if run is not None)


UNMEASURED, VARIED = "unknown until a run measures it", "unknown: earlier runs differ too much"
MOST_SPREAD = 5.0
"""Speeds further apart say nothing of the time."""


def describe_duration(expected: DurationEstimate | None, epochs: float) -> str:
    """`12 to 15 min for 24,000 samples`, the speed, what it rests on; several sizes where the samples are unknown."""
    if expected is None:
        return UNMEASURED
    if expected.samples is not None and not expected.counted:
        return f"{_format_range(*expected.seconds(expected.samples))}, {expected.rests_on}"
    if expected.samples is not None:
        text = f"{_format_range(*expected.seconds(expected.samples))} for {expected.samples:,.0f} samples"
    else:
        sizes = (f"{size:,} samples {_format_range(*expected.seconds(size * epochs))}" for size in NOTED_SIZES)
        text = f"{' · '.join(sizes)} ({epochs:g} epochs; number of samples unknown)"
    return f"{text}; {_format_speed(expected)} samples/s, {expected.rests_on}"


def summarise_duration(expected: DurationEstimate | None) -> str:
    """`12 to 15 min`; the speed where the number of samples is unknown."""
    if expected is None:
        return UNMEASURED
    if expected.range_s is not None and expected.low_samples_s * MOST_SPREAD < expected.high_samples_s:
        return VARIED
    if expected.range_s is not None:
        return _format_range(*expected.range_s)
    if not expected.counted:
        return "unknown, as is the number of steps"
    return f"{_format_speed(expected)} samples/s; number of samples unknown"


def _format_speed(expected: DurationEstimate) -> str:
    return "–".join(dict.fromkeys(f"{speed:,.0f}" for speed in (expected.low_samples_s, expected.high_samples_s)))


def _format_range(low_s: float, high_s: float) -> str:
    low, high = format_rough_duration(low_s), format_rough_duration(high_s)
    (least, unit), (_, other_unit) = low.split(maxsplit=1), high.split(maxsplit=1)
    is_shared = unit == other_unit in ("s", "min", "h")
    return low if low == high else f"{least if is_shared else low} to {high}"


def estimate_duration(
    job: Job,
    settings: Settings,
    replicas: int,
    earlier: Sequence[EarlierRun],
    gpus: Sequence[str] = (),
    remedies: Sequence[AppliedRemedy] = (),
) -> DurationEstimate | None:
    """The expected duration of `job`; None if neither earlier runs nor the notes have a figure.

    `earlier` are runs on this machine, newest first; `gpus` the names of the GPUs used. What `remedies` promise counts
    as long as no run has shown it.
    """
    recorded = redact_job(job)
    same = [run for run in earlier if same_training(run.job, recorded)]
    same = [run for run in same if not run.failed] or same
    alike = [run for run in same if _is_as_fast(run.settings, settings)]
    samples = total_samples(job, settings, replicas, same)
    if alike:
        return _estimate_from_runs(samples, alike, 0.0, "with these settings")
    if same:
        effects = {remedy.title: remedy.speed for remedy in remedies if remedy.speed is not None}
        slowest, fastest = (math.prod(speeds) for speeds in zip((1.0, 1.0), *effects.values(), strict=True))
        doubt, how = OTHER_SETTINGS, f"with other settings (± {format_share(OTHER_SETTINGS)} added)"
        if effects:
            doubt, how = 0.0, f"and the expected effect of {' and '.join(effects)}"
        run = _estimate_from_runs(samples, same, doubt, how)
        return replace(run, low_samples_s=run.low_samples_s * slowest, high_samples_s=run.high_samples_s * fastest)
    noted = noted_speed(job, settings, gpus)
    if noted is None:
        return None
    slowest, fastest, differing = noted_share(noted, settings)
    low, high = noted.samples_s[0] * slowest * (1 - SPREAD), noted.samples_s[1] * fastest * (1 + SPREAD)
    words = f", with another {' and another '.join(differing)}" if differing else ""
    basis = f"not measured here; from {fill_in(noted.source)}{words}"
    return DurationEstimate(samples, low, high, 0.0, False, basis)


def total_samples(job: Job, settings: Settings, replicas: int, same: Sequence[EarlierRun]) -> float | None:
    """Samples that the training will process; None if the size of the dataset is unknown."""
    if settings.max_steps is not None:
        return float(settings.max_steps * settings.effective_batch(replicas))
    epochs = settings.num_train_epochs
    run = next((run for run in same if run.samples_an_epoch is not None), None)
    if run is not None and run.samples_an_epoch is not None:
        return run.samples_an_epoch * (run.settings.num_train_epochs if run.requested_epochs == epochs else epochs)
    limit = job.max_samples if isinstance(job, BuiltinJob) else None
    return None if limit is None else limit * epochs


def noted_speed(job: Job, settings: Settings, gpus: Sequence[str]) -> NotedSpeed | None:
    """The notes' speed for a single such GPU, if the job is comparable with theirs."""
    job = modelled_job(job) or job
    if not isinstance(job, BuiltinJob) or job.task != "classification" or len(gpus) != 1:
        return None
    words = gpus[0].replace("-", " ").split()
    speeds = (NotedSpeed(**row) for row in read_notes("speeds"))
    return next((speed for speed in speeds if speed.gpu in words and _matches_note(speed, job, settings)), None)


def noted_share(noted: NotedSpeed, settings: Settings) -> tuple[float, float, tuple[str, ...]]:
    """The least and the greatest share of the noted speed that `settings` reach, and the settings that differ.

    A smaller batch is at worst slower in proportion, at best as fast; 32 bits are at worst as slow as the defaults
    were. Nothing is slower than those. A larger batch than the noted one may be somewhat faster.
    """
    slowest, fastest, differing = 1.0, 1.0, []
    batch = settings.per_device_train_batch_size / noted.batch
    if batch != 1:
        slowest, fastest = min(1.0, batch), 1.0 if batch < 1 else LARGER_BATCH
        differing.append("micro batch")
    if settings.precision == "fp32":
        slowest, fastest = slowest * noted.untuned, fastest / LEAST_16_BIT_GAIN
        differing.append("precision")
    if settings.gradient_checkpointing != noted.checkpointing:
        change = 1 / CHECKPOINTING if settings.gradient_checkpointing else CHECKPOINTING
        slowest, fastest = slowest * min(1.0, change), fastest * max(1.0, change)
        differing.append("gradient checkpointing")
    return max(noted.untuned, slowest), fastest, tuple(differing)


def _matches_note(noted: NotedSpeed, job: BuiltinJob, settings: Settings) -> bool:
    if noted.model:
        return noted.model in job.model.lower() and "1b" in job.model.lower() and settings.peft_method == "dora"
    shape = workload_of(job, settings.max_length).shape
    width = 0 if shape is None else shape.layers * shape.hidden
    return width == BERT_BASE_WIDTH and settings.max_length <= NOTED_TOKENS


def earlier_run(view: RunView, command_settings: Mapping[str, Value] = MappingProxyType({})) -> EarlierRun | None:
    """The speed that a run measured; None if it trained too briefly or its record is unreadable.

    A trial of a tuning is short, but measured only steady steps; one that measured nothing was ended early. A command
    trains with the settings that it names itself, `command_settings`, and with those observed, as far as it was given
    no others.
    """
    if view.record is None:
        return None
    resolved = view.record.resolved.with_own(command_settings)
    chosen, in_effect = chosen_settings(resolved, view.record.job), view.state.in_effect
    settings = effective_settings(resolved.settings, chosen, in_effect)
    run = _measured_speed(view, view.record, settings)
    if run is None:
        return None
    # How often a command that names no number of epochs passes its data is only known at its end.
    is_open = _total_steps(view) is None and chosen is not None and "num_train_epochs" not in {*chosen, *in_effect}
    epoch = None if is_open else run.samples_an_epoch
    failed = view.state.outcome not in (None, "completed", "stopped")
    return replace(run, samples_an_epoch=epoch, requested_epochs=resolved.settings.num_train_epochs, failed=failed)


def _measured_speed(view: RunView, record: RunRecord, settings: Settings) -> EarlierRun | None:
    if record.tuning is not None:
        return _earlier_trial(view, record, settings)
    ranks = view.state.counters
    trained_s = max((rank.train_s for rank in ranks), default=0.0)
    epoch = _samples_per_epoch(view, settings)
    if trained_s < MIN_TRAIN_S or not any(rank.samples for rank in ranks):
        return _by_steps(view, record, settings, epoch)
    low, high = _spread(view, sum(rank.samples / rank.train_s for rank in ranks if rank.train_s > 0))
    if view.state.finished is None and (now := view.state.rates.samples_s):  # by which its time left is known
        low, high = min(low, now), max(high, now)
    overhead = max((rank.eval_s + rank.save_s) / rank.train_s for rank in ranks if rank.train_s > 0)
    return EarlierRun(record.id, record.job, settings, low, high, overhead, epoch)


def _by_steps(view: RunView, record: RunRecord, settings: Settings, epoch: float | None) -> EarlierRun | None:
    """The speed of a run whose samples nobody counted, as its output shows steps only; None if it was too short.

    The samples are those of the settings: right or not, a training with the same batch takes as long.
    """
    state, each = view.state, samples_a_step(view, settings)
    begun, last = state.training_since_t, state.last_step_t
    if not state.step or each is None or begun is None or last is None or last - begun < MIN_TRAIN_S:
        return None
    mean = state.step * each / (last - begun)
    low, high = mean * (1 - SPREAD), mean * (1 + SPREAD)
    return EarlierRun(record.id, record.job, settings, low, high, 0.0, epoch, counted=False)


def _earlier_trial(view: RunView, record: RunRecord, settings: Settings) -> EarlierRun | None:
    """The speed that a trial of a tuning measured; None if it measured nothing."""
    ranks = [rank.trial for rank in view.state.ranks.values() if rank.trial is not None]
    if not ranks or not all(rank.samples and rank.seconds > 0 for rank in ranks):
        return None
    mean = sum(rank.samples / rank.seconds for rank in ranks)
    doubt = max(MIN_TRIAL_SPREAD, *(SPREAD if rank.spread is None else rank.spread for rank in ranks))
    planned = next((rank.planned_steps for rank in ranks), None)
    samples = None
    if planned and settings.max_steps is None and all(rank.steps for rank in ranks):
        samples = planned * sum(rank.samples / rank.steps for rank in ranks) / settings.num_train_epochs
    # As a factor: a spread of more than the mean leaves a speed above zero.
    return EarlierRun(record.id, record.job, settings, mean / (1 + doubt), mean * (1 + doubt), samples_an_epoch=samples)


def faster_workers(earlier: Sequence[EarlierRun], count: int) -> tuple[EarlierRun, EarlierRun] | None:
    """The run that gained most over an otherwise equal one with `count` workers, and that; None if none was faster."""
    bases = [run for run in earlier if run.settings.dataloader_num_workers == count]
    pairs = [
        (run, base)
        for run in earlier
        for base in bases
        if not run.failed and run.settings.dataloader_num_workers != count and run.low_samples_s > base.high_samples_s
        if _is_as_fast(run.settings.changed(dataloader_num_workers=count), base.settings)
    ]
    return max(pairs, key=lambda pair: pair[0].low_samples_s / pair[1].high_samples_s, default=None)


def _is_as_fast(earlier: Settings, planned: Settings) -> bool:
    """Whether both agree in all settings that speed depends on; what one leaves open, the other has decided."""
    pairs = ((getattr(earlier, name), getattr(planned, name)) for name in SPEED_FIELDS)
    return all(first == second or first in LEFT_OPEN or second in LEFT_OPEN for first, second in pairs)


def _estimate_from_runs(samples: float | None, runs: Sequence[EarlierRun], doubt: float, how: str) -> DurationEstimate:
    low, high = min(run.low_samples_s for run in runs), max(run.high_samples_s for run in runs)
    overheads = [run.overhead_share for run in runs if run.overhead_share is not None]
    overhead = sum(overheads) / len(overheads) if overheads else 0.0
    names = ", ".join(run.id for run in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    return DurationEstimate(
        samples, low * (1 - doubt), high * (1 + doubt), overhead, True, f"measured here by {names} {how}",
        all(run.counted for run in runs),
    )  # fmt: skip


def _spread(view: RunView, mean: float) -> tuple[float, float]:
    """The middle half of the run's throughput, or a fixed range around its mean for few points."""
    points = sorted(y for y in view.history.samples_s.ys if y is not None)
    if len(points) < MIN_POINTS:
        return mean * (1 - SPREAD), mean * (1 + SPREAD)
    quarter = len(points) // 4
    return min(mean, points[quarter]), max(mean, points[-1 - quarter])


def _total_steps(view: RunView) -> int | None:
    state = view.state
    return state.step if state.total_steps is None and state.outcome == "completed" else state.total_steps


def _samples_per_epoch(view: RunView, settings: Settings) -> float | None:
    each, total = samples_a_step(view, settings), _total_steps(view)
    if each is not None and total is not None and settings.max_steps is None:
        return total * each / settings.num_train_epochs
    ranks = view.state.counters
    batches = [rank.epoch_batches for rank in ranks if rank.epoch_batches is not None]
    if not ranks or len(batches) < len(ranks) or not all(rank.micro_steps for rank in ranks):
        return None
    # The length of the loader, which is what `batch 26 of 125` shows.
    return sum(rank.samples / rank.micro_steps * (rank.epoch_batches or 0) for rank in ranks)

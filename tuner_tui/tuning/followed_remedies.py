"""Did a remedy help? What it promised, against the run before it and the run with it.

`judge_remedies` is pure. Speeds are compared by the noise that the tuner expects of runs: that within them, from blocks
of their steps, and that between runs of the same settings. What differs in more than the remedy is not compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress

from msgspec import Struct

from tuner_tui.advice.crash.oom_analysis import read_figures
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.expected_memory import measured_peak
from tuner_tui.advice.finding import speed_words
from tuner_tui.advice.settings_check import differing_settings
from tuner_tui.advice.situation import Situation, situation_of_run
from tuner_tui.core.units import format_rate, format_share, format_size
from tuner_tui.runs.read.comparison import changed_settings
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, runs_dir
from tuner_tui.runs.store.record import readable_record
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome, RemedyVerdict, read_outcomes, record_outcome
from tuner_tui.settings.job import same_program, same_training
from tuner_tui.settings.model import FIELDS, AppliedRemedy
from tuner_tui.tuning.measurement import others_cpu_share
from tuner_tui.tuning.search.paired_test import MAX_PAIR_NOISE, MIN_SIGMA, confidence_half_width
from tuner_tui.tuning.search.results import DEFAULT_SIGMA
from tuner_tui.tuning.search.space import MAX_CPU_SHARE_IN_TRIAL, MAX_CPU_SHARE_WITH_GPU

NEUTRAL = frozenset({
    "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "lora_alpha", "lora_dropout",
    "num_train_epochs", "max_steps", "per_device_eval_batch_size", "eval_strategy", "eval_steps", "save_strategy",
    "save_steps", "save_total_limit", "logging_steps", "seed",
})  # fmt: skip
"""Settings that change neither the speed of training nor its peak memory."""
DISTURBING: Mapping[str, str] = {
    "cpu-contended": "other programs used the training's cores",
    "other-process": "another program used the training's GPU",
    "throttled": "the GPU lowered its clocks",
    "swapping": "the machine swapped memory to disk",
}
"""Causes of findings on a machine on which nothing can be compared, in words."""
WARM_UP, MAX_BLOCKS, MIN_BLOCKS = 1, 8, 3
"""Rates left out at the start, and blocks into which a run is divided: of one rate, that of some seconds, or more."""
MAX_DATA_DIFFERENCE = 0.1
"""Difference of tokens a sample, or of samples an epoch, above which the data are others."""
LEAST_GAIN = 1.02
"""A promise of more speed than this is one of a gain; a gain of less is none."""
ORDER: Sequence[RemedyVerdict] = ("not kept", "not comparable", "exceeded", "kept", "unknown")
"""Of several promises the first of these verdicts is that of all."""
Judged = tuple[RemedyVerdict, str]
BETWEEN_RUNS = 1.96 * math.sqrt(2) * DEFAULT_SIGMA


class RunMeasurement(Struct, frozen=True):
    """A run, as far as a comparison needs it.

    `rates` are samples per second over its steps, `peak_bytes` is that of a GPU's or the host's memory, and `causes`
    are those of its findings.
    """

    id: str
    situation: Situation
    rates: tuple[float, ...] = ()
    peak_bytes: int | None = None
    causes: frozenset[str] = frozenset()


def judge_remedies(remedies: Sequence[AppliedRemedy], before: RunMeasurement, after: RunMeasurement) -> RemedyOutcome:
    """What came of `remedies`, which were applied together after the run `before`."""
    changed = {name for remedy in remedies for name in remedy.before}
    answered = {remedy.cause for remedy in remedies}
    variables = {name for remedy in remedies for name in remedy.env_before}
    other = _other_training(before, after, changed) or _not_alone(changed, variables, before, after)
    reason = other or _disturbances(before, after, answered)
    measured = measured_speed(before.rates, after.rates)
    speed = None if reason else measured
    rates = " → ".join(format_rate(statistics.fmean(run.rates or (0.0,))) for run in (before, after))
    words = "" if measured is None else f"{speed_words(measured[0])}, {rates} samples/s"
    parts = [*_ended_failures(remedies, before, after)]
    judged = _speed_part(remedies, measured, words)
    if reason is None:
        parts += [judged, *_peak_part(remedies, before, after)]
    elif not other and judged[0] in ("kept", "exceeded") and _disturbance(answered, after):  # which adds no speed
        parts.append((judged[0], f"{judged[1]}, not exact: {reason}"))
    elif not parts:
        parts = [("not comparable", reason + f"; it was {words}, for whichever reason" * bool(words))]
    verdicts, sentences = zip(*parts, strict=True)
    verdict = next(name for name in ORDER if name in verdicts)
    names, titles = zip(*((remedy.name, remedy.title) for remedy in remedies), strict=True)
    same = (tensors := _failed_tensors(after)) is not None and tensors == _failed_tensors(before)
    if same and verdict == "not kept":
        sentences += (f"tensors took {format_size(tensors)} in both runs, so this is not what fills the memory",)
    return RemedyOutcome(names, " and ".join(titles), before.id, after.id, verdict, "; ".join(sentences), speed, same)


def _failed_tensors(run: RunMeasurement) -> int | None:
    """The bytes of the tensors that the out-of-memory error names which ended the run."""
    error = run.situation.state.out_of_memory
    return None if error is None else read_figures(error.message).allocated


def incomparable(
    before: RunMeasurement, after: RunMeasurement, changed: Set[str], answered: Set[str] = frozenset()
) -> str | None:
    """Why speed, memory and loss of two runs say little of the settings `changed` between them; None if they do.

    `answered` are the causes of findings that the change is for.
    """
    return _other_training(before, after, changed) or _disturbances(before, after, answered)


def _other_training(before: RunMeasurement, after: RunMeasurement, changed: Set[str]) -> str | None:
    first, second = before.situation, after.situation
    if first.job is None or second.job is None or not same_program(first.job, second.job):
        return f"{before.id} and {after.id} train different jobs"
    if first.host is not None and second.host is not None and first.host != second.host:
        return f"{before.id} and {after.id} ran on different machines"
    models = first.state.trainable_parameters, second.state.trainable_parameters
    if None not in models and models[0] != models[1] and not any(name.startswith("peft") for name in changed):
        return f"the models differ: {models[0]:,} and {models[1]:,} trained parameters"
    return _other_data(changed, before, after)


def _disturbances(before: RunMeasurement, after: RunMeasurement, answered: Set[str]) -> str | None:
    disturbances = dict[str, list[str]]()
    for run in (before, after):
        if disturbance := _disturbance(answered, run):
            disturbances.setdefault(disturbance, []).append(run.id)
    return " and ".join(f"{words} during {' and '.join(runs)}" for words, runs in disturbances.items()) or None


def _not_alone(changed: Set[str], variables: Set[str], before: RunMeasurement, after: RunMeasurement) -> str | None:
    """What keeps a difference of two runs from being that of the settings `changed` and the `variables`."""
    first, second = before.situation, after.situation
    if first.job is None or second.job is None or not same_training(first.job, second.job):
        return "the command changed, too"
    if ignored := changed & {check.name for check in differing_settings(second)}:
        return f"not in effect in {after.id}: {', '.join(FIELDS[name].label for name in sorted(ignored))}"
    others = [*({name for name, _ in first.job.env.items() ^ second.job.env.items()} - variables)]
    for name in FIELDS.keys() - NEUTRAL - changed:
        values = [getattr(situation.settings, name, None) for situation in (first, second)]
        if None not in values and values[0] != values[1]:  # one without a value follows from others, as prefetch does
            others.append(FIELDS[name].label)
    return f"other settings changed, too: {', '.join(sorted(others))}" if others else None


def _other_data(changed: Set[str], before: RunMeasurement, after: RunMeasurement) -> str | None:
    """How the data differ: in tokens a sample, or in samples an epoch."""
    figures = []
    for run in (before, after):
        rank = run.situation.state.first_rank
        latest = None if rank is None else rank.latest
        if latest is None or not latest.samples or not latest.micro_steps:
            return None
        epoch = None
        if latest.epoch_batches and run.situation.resumed_from is None:  # else its first epoch is the rest of one
            epoch = latest.epoch_batches * latest.samples / latest.micro_steps
        figures.append((None if latest.tokens is None else latest.tokens / latest.samples, epoch))
    for unit, first, second in zip(("tokens a sample", "samples an epoch"), *figures, strict=True):
        as_before = unit == "samples an epoch" or not changed & {"max_length", "train_sampling_strategy"}
        if first and second and as_before and abs(second / first - 1) > MAX_DATA_DIFFERENCE:
            return f"the data differ: {first:,.0f} {unit} in {before.id}, {second:,.0f} in {after.id}"
    return None


def _disturbance(answered: Set[str], run: RunMeasurement) -> str | None:
    """What else kept the machine busy, unless that is what was `answered`."""
    causes = [cause for cause in DISTURBING if cause in run.causes and cause not in answered]
    share = others_cpu_share(run.situation) or 0.0
    if not causes and share > (MAX_CPU_SHARE_WITH_GPU if run.situation.has_gpu else MAX_CPU_SHARE_IN_TRIAL):
        return f"other programs used {format_share(share)} of the CPU"
    return DISTURBING[causes[0]] if causes else None


def measured_speed(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float] | None:
    """The speed of `after` relative to `before` with its 95 % interval; None with too few steps."""
    # Consecutive rates are alike, so that each block of them counts once. Blocks of both runs are paired, which gives
    # the noise within runs; that between runs of the same settings does not show in them and is added.
    rates = [sequence[WARM_UP:] for sequence in (before, after)]
    count = min(MAX_BLOCKS, *map(len, rates))
    if count < MIN_BLOCKS:
        return None
    blocks = [
        [statistics.fmean(run[len(run) * n // count : len(run) * (n + 1) // count]) for n in range(count)]
        for run in rates
    ]
    logs = [math.log(new / old) for old, new in zip(*blocks, strict=True)]
    low = math.sqrt(2) * MIN_SIGMA
    within = confidence_half_width(logs, low, max(low, MAX_PAIR_NOISE * statistics.stdev(logs)))
    mean, half = statistics.fmean(logs), math.hypot(within, BETWEEN_RUNS)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _ended_failures(
    remedies: Sequence[AppliedRemedy], before: RunMeasurement, after: RunMeasurement
) -> Iterator[Judged]:
    """Whether the failure that a remedy answers came again."""
    first, second = before.situation.state, after.situation.state
    for cause in dict.fromkeys(remedy.cause for remedy in remedies):
        if first.outcome in (None, "completed", "stopped") or cause not in before.causes:
            continue
        if cause in after.causes and second.outcome not in (None, "completed", "stopped"):
            yield "not kept", f"{after.id} failed in the same way again"
        elif second.outcome in ("completed", "stopped") or (second.step or 0) > (first.step or 0):
            yield "kept", f"no such failure again up to step {second.step or 0:,}"
        else:
            yield "unknown", f"{after.id} has not come as far as {before.id}"


def _speed_part(remedies: Sequence[AppliedRemedy], speed: tuple[float, float, float] | None, words: str) -> Judged:
    promises = [remedy.speed for remedy in remedies if remedy.speed is not None]
    if speed is None:
        return "unknown", "too few steps to compare the speed"
    ratio, low, high = speed
    measured = f"{words} (between {speed_words(low)} and {speed_words(high)})"
    if not promises:
        return "unknown", f"no speed was predicted; measured {measured}"
    least, most = math.prod(bound for bound, _ in promises), math.prod(bound for _, bound in promises)
    is_gain = most > LEAST_GAIN
    verdict: RemedyVerdict = "unknown"
    if high < (max(least, LEAST_GAIN) if is_gain else least):
        verdict = "not kept"
    elif ratio >= least and (low > 1 or not is_gain):
        verdict = "kept" if ratio <= most or speed_words(ratio) == speed_words(most) else "exceeded"
    expected = speed_words(least, most) if least != 1 else f"at most {speed_words(most)}"
    return verdict, f"expected {expected}, measured {measured}"


def _peak_part(remedies: Sequence[AppliedRemedy], before: RunMeasurement, after: RunMeasurement) -> Iterator[Judged]:
    limits = [remedy.peak_bytes for remedy in remedies if remedy.peak_bytes is not None]
    if after.peak_bytes is None or not limits:
        return
    peaks = [None if run.peak_bytes is None else format_size(run.peak_bytes) for run in (before, after)]
    verdict: RemedyVerdict = "kept" if after.peak_bytes <= max(limits) else "not kept"
    came = "" if peaks[0] is None else f" (before {peaks[0]})"
    yield verdict, f"expected a peak of at most {format_size(max(limits))}, measured {peaks[1]}{came}"


def follow_remedies(folder: RunFolder) -> RemedyOutcome | None:
    """What came of the remedies that the run was launched with; None without any, or if the run before is gone.

    The outcome of a run of this machine that has ended is recorded for later promises. Raises `OSError`.
    """
    record = readable_record(folder)
    remedies = () if record is None else record.resolved.last_remedies
    if not remedies or remedies[0].run == folder.id or record is None or record.tuning is not None:
        return None
    base = RunFolder(folder.path.parent / remedies[0].run)
    is_recorded = base.path.parent == runs_dir()
    for outcome in read_outcomes():
        if is_recorded and (outcome.before, outcome.after) == (base.id, folder.id):
            return outcome
    if not base.record.exists():
        return None
    outcome = judge_remedies(remedies, measure_run(base), measure_run(folder))
    if is_recorded and read_status(folder).kind == "ended":
        with suppress(OSError):  # a full disk: it is judged again the next time
            record_outcome(outcome)
    return outcome


def measure_run(folder: RunFolder, view: RunView | None = None) -> RunMeasurement:
    """What a comparison needs of a run, of which `view` was read."""
    view = view or RunReader(folder).poll()
    situation = situation_of_run(folder, view)
    peak = measured_peak(situation)
    resident = [y for y in view.history.memory_bytes.ys if y is not None and situation.has_gpu is False]
    return RunMeasurement(
        folder.id,
        situation,
        tuple(rate for rate in view.history.samples_s.ys if rate),
        peak.used_bytes if peak is not None else round(resident[-1]) if resident else None,
        frozenset(finding.cause for finding in diagnose(situation)),
    )


def find_doubt(
    before: tuple[RunFolder, RunView],
    after: tuple[RunFolder, RunView],
    measure: Callable[[RunFolder, RunView], RunMeasurement] = measure_run,
) -> str:
    """Why a comparison of the speed and loss of two runs says little; empty if nothing speaks against it.

    `measure` keeps what it measured of a run that has ended.
    """
    changed = {setting.name for setting in changed_settings(before[1], after[1])}
    answered = {
        remedy.cause for _, view in (before, after) if view.record for remedy in view.record.resolved.last_remedies
    }
    return incomparable(measure(*before), measure(*after), changed, answered) or ""

"""The measurement of a finished trial, from the events of its run. Pure."""

from __future__ import annotations

import math
import signal
import statistics
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.settings_check import differing_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.core.text import format_observed
from tuner_tui.runs.events.progress import Figure
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import TrialMeasured
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.fallback import out_of_memory_finding
from tuner_tui.tuning.search.space import MICRO
from tuner_tui.tuning.trial import Measurement, StepBreakdown, Trial, TrialOutcome

MIN_MEASURED_STEPS = 2
KILL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Signals sent by others; the remaining ones are the program's own faults."""
NO_STEP = "The training ended without an optimizer step: try `tuner-tui run` with the same command."
NOT_OBSERVED = (
    "The training was not observed: the observer cannot be loaded into this command (a container, `python -I`)."
)


BATCHES_UNSEEN = "batches not observed: samples are counted from the settings"


class FinishedTrial(Struct, frozen=True):
    """A trial's run at its end.

    Attributes:
        measured: What each rank measured.
        seconds: Wall time of the whole run.
        stop_reason: Why it was ended because of its own state, such as a stall; empty if it was not.
        aborted: Why it was ended regardless of its state; empty if it was not.
        transient: Whether the stop reason may not occur again.
    """

    run_id: str
    situation: Situation
    measured: tuple[TrialMeasured, ...]
    seconds: float
    stop_reason: str = ""
    aborted: str = ""
    transient: bool = False


def measure_trial(finished: FinishedTrial, trial: Trial) -> Measurement:
    if finished.aborted:
        return _no_figures(finished, "aborted", finished.aborted)
    if out_of_memory_finding(finished.situation) is not None:
        return _no_figures(finished, "out-of-memory", _sentence(finished))
    if finished.stop_reason:
        return replace(_no_figures(finished, "no-step", finished.stop_reason), passing=finished.transient)
    if not finished.measured:
        return _unmeasured(finished)
    figures = _figures(finished, trial)
    if figures.steps < MIN_MEASURED_STEPS:
        return replace(figures, outcome="no-step", sentence=_too_few(finished))
    if figures.throughput is None:
        return replace(
            figures, outcome="failed", sentence="Its batches cannot be observed, so there is no speed to compare."
        )
    wrong = _wrong_batch(finished, trial.settings)
    if wrong is not None:
        return replace(figures, outcome="not-applied", sentence=wrong, not_applied=(MICRO,))
    marks = [mark for mark in differing_settings(finished.situation) if mark.name in trial.changed]
    if not marks:
        return figures
    details = "; ".join(
        f"{mark.name}: requested {format_observed(mark.asked)}, observed {format_observed(mark.seen)}" for mark in marks
    )
    names, sentence = tuple(mark.name for mark in marks), f"It ignores its settings: {details}."
    return replace(figures, outcome="not-applied", sentence=sentence, not_applied=names)


def _unmeasured(finished: FinishedTrial) -> Measurement:
    state = finished.situation.state
    if state.outcome == "completed" and not state.step:
        return _no_figures(finished, "no-step", NO_STEP if state.ranks else NOT_OBSERVED)
    if state.outcome == "completed":
        return _no_figures(finished, "no-step", _too_few(finished))
    killed = state.outcome in ("stopped", "lost") or (state.exited is not None and state.exited.signal in KILL_SIGNALS)
    return replace(_no_figures(finished, "failed", _sentence(finished)), passing=killed)


def _figures(finished: FinishedTrial, trial: Trial) -> Measurement:
    """The figures over all ranks: throughput is summed, memory is that of the fullest GPU."""
    ranks, state = finished.measured, finished.situation.state
    seconds = [rank.seconds for rank in ranks]
    steps = min(rank.steps for rank in ranks)
    notes = (ranks[0].longest, ranks[0].evaluated)  # the peak leaves out the longest batch, or an evaluation step
    missing = [note for note in notes if "batch not first" in note or note.startswith("no eval")]
    return Measurement(
        outcome="measured",
        seconds=finished.seconds,
        run_id=finished.run_id,
        steps=steps,
        samples_s=_rate(ranks, lambda rank: rank.samples or _requested_samples(rank, finished.situation, trial)),
        tokens_s=_rate(ranks, lambda rank: rank.tokens),
        spread=max(_known(ranks, lambda rank: rank.spread), default=None),
        step_time_s=max(seconds) / steps if steps else None,
        peak_bytes=max(_known(ranks, _peak), default=None),
        batch_peak_bytes=max(_known(ranks, _batch_peak), default=None),
        resident_bytes=min(_known(ranks, lambda rank: rank.resident_bytes), default=None),
        breakdown=_breakdown(ranks, finished.situation),
        dataset_samples=next(iter(_known(ranks, lambda rank: rank.dataset_samples)), None),
        room_bytes=min(_known(ranks, _room), default=None),
        sentence="; ".join([*missing, *(() if ranks[0].samples else (BATCHES_UNSEEN,))]),
        overhead_s=_overhead_s(ranks, state),
        job_steps=next((rank.planned_steps for rank in ranks if rank.planned_steps), None) or state.total_steps or None,
        others_cpu_share=others_cpu_share(finished.situation),
        workers_repeat=any(rank.workers_repeat for rank in ranks),
        repeated_samples=ranks[0].repeated_samples,
    )


def _known(ranks: Sequence[TrialMeasured], of: Callable[[TrialMeasured], Figure | None]) -> list[Figure]:
    return [figure for rank in ranks if (figure := of(rank)) is not None]


def _peak(rank: TrialMeasured) -> int | None:
    """GPU memory, else private memory (which a memory limit counts), else resident memory."""
    peaks = (rank.reserved_peak_bytes, rank.data_peak_bytes, rank.rss_peak_bytes)
    return next((peak for peak in peaks if peak is not None), None)


def _batch_peak(rank: TrialMeasured) -> int | None:
    """Peak of forward and backward, with the allocator's unused reserve."""
    if rank.batch_peak_bytes is None or rank.reserved_peak_bytes is None or rank.allocated_peak_bytes is None:
        return None
    return rank.batch_peak_bytes + max(0, rank.reserved_peak_bytes - rank.allocated_peak_bytes)


def _room(rank: TrialMeasured) -> int | None:
    """Memory of the GPU without the context and other programs."""
    if rank.device_total_bytes is None or rank.device_outside_bytes is None:
        return None
    return rank.device_total_bytes - rank.device_outside_bytes


def others_cpu_share(situation: Situation) -> float | None:
    """Share of the usable cores that other processes used, over the samples in which all of the run's were seen."""
    if situation.inventory is None:
        return None
    cores, shares = situation.inventory.cpu.load_cores, []
    for sample in situation.samples:
        percentages = [process.cpu_pct for process in sample.processes]
        measured = [pct for pct in percentages if pct is not None]
        if sample.host.cpu_pct is not None and measured and len(measured) == len(percentages):
            shares.append(max(0.0, sample.host.cpu_pct - sum(measured) / cores) / 100)
    return statistics.fmean(shares) if shares else None


def _overhead_s(ranks: Sequence[TrialMeasured], state: RunState) -> float | None:
    """Seconds from the launch to steady training beyond the time of the steps taken, and the evaluation of one batch.

    That is start-up, compilation and what the first steps take longer. Looking for the longest batch is the trial's.
    """
    launched = state.launched_t
    late = [
        rank.begun_t - launched - rank.lookup_s - rank.warmup_steps * rank.seconds / rank.steps
        for rank in ranks
        if rank.begun_t is not None and launched is not None and rank.steps
    ]
    if len(late) < len(ranks):
        return None
    return max(0.0, *late) + max((rank.evaluation_s or 0.0 for rank in ranks), default=0.0)


def _requested_samples(rank: TrialMeasured, situation: Situation, trial: Trial) -> int | None:
    """Samples of the measured steps by the settings that the command was given; None if it was given no batch size.

    For a loop without a DataLoader, whose batches are not seen.
    """
    given = situation.chosen is None or MICRO in situation.chosen
    if not given or MICRO in situation.not_applied or MICRO in situation.state.not_injected:
        return None
    return rank.steps * trial.settings.effective_batch()


def _rate(ranks: Sequence[TrialMeasured], of: Callable[[TrialMeasured], int | None]) -> float | None:
    counts = [(of(rank), rank.seconds) for rank in ranks]
    rates = [count / seconds for count, seconds in counts if count is not None and seconds > 0]
    return sum(rates) if len(rates) == len(ranks) else None


def _breakdown(ranks: Sequence[TrialMeasured], situation: Situation) -> StepBreakdown:
    slowest = max(ranks, key=lambda rank: rank.seconds)
    seconds, tokens, padding = slowest.seconds, slowest.tokens, slowest.padding_tokens
    return StepBreakdown(
        cpu_busy=_cpu_busy(situation),
        data_wait=_share(slowest.data_wait_s, seconds),
        optimizer=_share(slowest.optimizer_s, seconds),
        padding=None if padding is None or not tokens else padding / (padding + tokens),
    )


def _cpu_busy(situation: Situation) -> float | None:
    """Share of the usable cores that the run used while it trained."""
    since_t, until_t = situation.state.training_since_t, situation.state.last_event_t or math.inf
    if situation.inventory is None or since_t is None:
        return None
    shares = [
        sum(process.cpu_pct or 0.0 for process in sample.processes) / 100 / situation.inventory.cpu.load_cores
        for sample in situation.samples
        if sample.processes and since_t <= sample.time_s <= until_t
    ]
    return statistics.fmean(shares) if shares else None


def _share(part: float | None, seconds: float) -> float | None:
    return None if part is None or seconds <= 0 else min(1.0, part / seconds)


def _wrong_batch(finished: FinishedTrial, settings: Settings) -> str | None:
    """Return a sentence if the training did not use the micro batch that was passed to it."""
    situation, micro = finished.situation, settings.per_device_train_batch_size
    if situation.chosen is not None and MICRO not in situation.chosen:
        return None
    arguments = situation.state.in_effect.get(MICRO)
    if situation.state.accepts_orders and type(arguments) is int:
        return None if arguments == micro else f"A micro batch of {micro} was requested, but it uses {arguments}."
    wrong = [size for rank in finished.measured if (size := _odd_size(rank, micro, situation)) is not None]
    return f"A micro batch of {micro} was requested, but batches of {wrong[0]} were observed." if wrong else None


def _odd_size(rank: TrialMeasured, micro: int, situation: Situation) -> int | None:
    """Return the observed batch size if it is neither the requested one, nor its multiple for all GPUs of one process,
    nor the last batch of an epoch."""
    if not rank.batch_shape:
        return None
    size, samples = rank.batch_shape[0], rank.dataset_samples
    gpus = 1 if situation.inventory is None else max(1, len(situation.inventory.gpus))
    rest = None if samples is None else samples % (micro * gpus)
    return None if size in (micro, micro * gpus, rest) else size


def _too_few(finished: FinishedTrial) -> str:
    taken = finished.situation.state.step or 0
    samples = next((rank.dataset_samples for rank in finished.measured if rank.dataset_samples is not None), None)
    of = "" if samples is None else f" of {samples:,} samples"
    return f"The training is too short to measure: {taken:,} optimizer steps{of}. Use more data or epochs."


def _sentence(finished: FinishedTrial) -> str:
    """The cause if it was found, and what the run recorded about its end."""
    findings = crash_findings(finished.situation)
    end = finished.situation.state.finished
    recorded = "" if end is None else end.sentence
    if findings and findings[0].cause != "unknown":
        return f"{findings[0].sentence.rstrip('.')}. {recorded}".rstrip()
    return recorded or "It failed without an error message."


def _no_figures(finished: FinishedTrial, outcome: TrialOutcome, sentence: str) -> Measurement:
    return Measurement(outcome=outcome, seconds=finished.seconds, run_id=finished.run_id, sentence=sentence)

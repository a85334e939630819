"""The measurement of a finished trial, from the events of its run. Pure."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner_tui.advice.crash.cause import crash_findings
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.verification import differing_settings, format_setting
from tuner_tui.runs.events.types import TrialMeasured
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.fallback import out_of_memory_finding
from tuner_tui.tuning.search.space import MICRO
from tuner_tui.tuning.trial import Measurement, StepBreakdown, Trial, TrialOutcome

MIN_MEASURED_STEPS = 2
KILL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Signals that somebody else sends; the others are a program's own faults."""
NO_STEP = "The training ended and took no optimizer step: `tuner-tui run` with the same command shows what it does."
NOT_OBSERVED = "The training ended unseen: the observer cannot get into this command (a container, `python -I`)."


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial's run at its end: its situation, what each rank measured, and how long all of it took.

    `given_up` is why it was ended from outside, one sentence, where that says something of its settings; `aborted`
    where it says nothing of them. `disturbed`: what it was given up for may not come again.
    """

    run_id: str
    situation: Situation
    measured: tuple[TrialMeasured, ...]
    seconds: float
    given_up: str = ""
    aborted: str = ""
    disturbed: bool = False


def measure_trial(ended: FinishedTrial, trial: Trial) -> Measurement:
    """What `trial` came to."""
    if ended.aborted:
        return _no_figures(ended, "aborted", ended.aborted)
    memory = out_of_memory_finding(ended.situation)
    if memory is not None:
        return _no_figures(ended, "out-of-memory", _sentence(ended))
    if ended.given_up:
        return replace(_no_figures(ended, "no-step", ended.given_up), passing=ended.disturbed)
    if not ended.measured:
        return _unmeasured(ended)
    figures = _figures(ended)
    if figures.steps < MIN_MEASURED_STEPS:
        return replace(figures, outcome="no-step", sentence=_too_few(ended))
    if figures.throughput is None:
        return replace(figures, outcome="failed", sentence="Its batches cannot be seen: there is no speed to compare.")
    return _checked(figures, ended, trial)


def _unmeasured(ended: FinishedTrial) -> Measurement:
    """It ended by itself, and nothing was measured."""
    state = ended.situation.state
    if state.outcome == "completed" and not state.step:
        return _no_figures(ended, "no-step", NO_STEP if state.ranks else NOT_OBSERVED)
    if state.outcome == "completed":
        return _no_figures(ended, "no-step", _too_few(ended))
    killed = state.outcome in ("stopped", "lost") or (state.exited is not None and state.exited.signal in KILL_SIGNALS)
    return replace(_no_figures(ended, "failed", _sentence(ended)), passing=killed)


def _figures(ended: FinishedTrial) -> Measurement:
    """Sums over ranks where the ranks add up, the largest of them where one card decides."""
    ranks = ended.measured
    seconds = [rank.seconds for rank in ranks]
    steps = min(rank.steps for rank in ranks)
    known = [peak for peak in map(_peak, ranks) if peak is not None]
    batch = [peak for peak in map(_batch_peak, ranks) if peak is not None]
    return Measurement(
        outcome="measured",
        seconds=ended.seconds,
        run_id=ended.run_id,
        steps=steps,
        samples_s=_rate(ranks, lambda rank: rank.samples or None),
        tokens_s=_rate(ranks, lambda rank: rank.tokens),
        spread=max((rank.spread for rank in ranks if rank.spread is not None), default=None),
        step_time_s=max(seconds) / steps if steps else None,
        peak_bytes=max(known, default=None),
        batch_peak_bytes=max(batch, default=None),
        breakdown=_breakdown(ranks, ended.situation),
        dataset_samples=next((rank.dataset_samples for rank in ranks if rank.dataset_samples is not None), None),
        room_bytes=min((room for room in map(_room, ranks) if room is not None), default=None),
        sentence=_caveats(ranks[0]),
    )


def _rate(ranks: Sequence[TrialMeasured], of: Callable[[TrialMeasured], int | None]) -> float | None:
    counts = [(of(rank), rank.seconds) for rank in ranks]
    rates = [count / seconds for count, seconds in counts if count is not None and seconds > 0]
    return sum(rates) if len(rates) == len(ranks) else None


def _peak(rank: TrialMeasured) -> int | None:
    """What the training takes of what bounds it: of a card, of a limit on private memory, else of the host."""
    for peak in (rank.reserved_peak_bytes, rank.data_peak_bytes, rank.rss_peak_bytes):
        if peak is not None:
            return peak
    return None


def _room(rank: TrialMeasured) -> int | None:
    """What the card has for the training's tensors, its context and other programs taken off."""
    if rank.device_total_bytes is None or rank.device_outside_bytes is None:
        return None
    return rank.device_total_bytes - rank.device_outside_bytes


def _caveats(rank: TrialMeasured) -> str:
    """What the figure of memory leaves out: a longest batch that was not met, an evaluation that was not made."""
    missing = [said for said in (rank.longest, rank.evaluated) if "not put first" in said or said.startswith("no eval")]
    return "; ".join(missing)


def _batch_peak(rank: TrialMeasured) -> int | None:
    """Forward's and backward's, with what the allocator reserves beyond what it gives out."""
    if rank.batch_peak_bytes is None or rank.reserved_peak_bytes is None or rank.allocated_peak_bytes is None:
        return None
    return rank.batch_peak_bytes + max(0, rank.reserved_peak_bytes - rank.allocated_peak_bytes)


def _breakdown(ranks: Sequence[TrialMeasured], situation: Situation) -> StepBreakdown:
    """The slowest rank's shares."""
    slowest = max(ranks, key=lambda rank: rank.seconds)
    seconds, tokens, padding = slowest.seconds, slowest.tokens, slowest.padding_tokens
    busy = [
        card.utilisation_pct / 100
        for sample in situation.samples
        for card in sample.gpus
        if card.utilisation_pct is not None and _is_training_at(sample.time_s, situation)
    ]
    return StepBreakdown(
        data_wait=_share(slowest.data_wait_s, seconds),
        optimizer=_share(slowest.optimizer_s, seconds),
        padding=None if padding is None or not tokens else padding / (padding + tokens),
        gpu_busy=sum(busy) / len(busy) if busy and len(situation.samples[-1].gpus) == 1 else None,
    )


def _is_training_at(time_s: float, situation: Situation) -> bool:
    since = situation.state.training_since_t
    return since is not None and since <= time_s <= (situation.state.last_event_t or time_s)


def _share(part: float | None, seconds: float) -> float | None:
    return None if part is None or seconds <= 0 else min(1.0, part / seconds)


def _checked(figures: Measurement, ended: FinishedTrial, trial: Trial) -> Measurement:
    """The figures, unless the training was seen to have had other settings than it was given."""
    wrong = _wrong_batch(ended, trial.settings)
    if wrong is not None:
        return replace(figures, outcome="not-applied", sentence=wrong, not_applied=(MICRO,))
    marks = [mark for mark in differing_settings(ended.situation) if mark.name in trial.changed]
    if not marks:
        return figures
    told = "; ".join(
        f"{mark.name}: asked {format_setting(mark.asked)}, seen {format_setting(mark.seen)}" for mark in marks
    )
    names, sentence = tuple(mark.name for mark in marks), f"It does not take its settings: {told}."
    return replace(figures, outcome="not-applied", sentence=sentence, not_applied=names)


def _wrong_batch(ended: FinishedTrial, settings: Settings) -> str | None:
    """What is wrong with the batches that were seen, where the micro batch was handed over."""
    situation, asked = ended.situation, settings.per_device_train_batch_size
    if situation.chosen is not None and MICRO not in situation.chosen:
        return None
    arguments = situation.state.in_effect.get(MICRO)
    if situation.state.accepts_orders and type(arguments) is int:
        return None if arguments == asked else f"A micro batch of {asked} was asked for, and it has {arguments}."
    wrong = [size for rank in ended.measured if (size := _odd_size(rank, asked, situation)) is not None]
    return f"A micro batch of {asked} was asked for, and batches of {wrong[0]} were seen." if wrong else None


def _odd_size(rank: TrialMeasured, asked: int, situation: Situation) -> int | None:
    """A size that neither is the one asked for (of one device or of all cards in one process) nor an epoch's rest."""
    if not rank.batch_shape:
        return None
    size, samples = rank.batch_shape[0], rank.dataset_samples
    cards = 1 if situation.inventory is None else max(1, len(situation.inventory.gpus))
    rest = None if samples is None else samples % (asked * cards)
    return None if size in (asked, asked * cards, rest) else size


def _too_few(ended: FinishedTrial) -> str:
    taken = ended.situation.state.step or 0
    samples = next((rank.dataset_samples for rank in ended.measured if rank.dataset_samples is not None), None)
    of = "" if samples is None else f" of {samples:,} samples"
    return f"The training is too short to be measured: {taken:,} optimizer steps{of}. More data or epochs would do."


def _sentence(ended: FinishedTrial) -> str:
    """In plain words: the cause where it was found, and what the run says of its end."""
    findings = crash_findings(ended.situation)
    finished = ended.situation.state.finished
    said_by_run = "" if finished is None else finished.sentence
    if findings and findings[0].cause != "unknown":
        return f"{findings[0].sentence.rstrip('.')}. {said_by_run}".rstrip()
    return said_by_run or "It failed, and nothing says why."


def _no_figures(ended: FinishedTrial, outcome: TrialOutcome, sentence: str) -> Measurement:
    return Measurement(outcome=outcome, seconds=ended.seconds, run_id=ended.run_id, sentence=sentence)

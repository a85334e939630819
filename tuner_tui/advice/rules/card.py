"""The card itself: throttled, shared, lost, near the end of its memory."""

from __future__ import annotations

from collections import Counter

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import (
    card_figures,
    cards,
    enough,
    gigabytes,
    own_pids,
    recent,
    seconds,
    span_s,
    warmed_up,
)
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_share
from tuner_tui.hardware.gpu.xid import format_xid, xid_meaning
from tuner_tui.hardware.sample import GpuSample

HARMFUL = ("thermal", "hardware slowdown", "power brake", "reliability", "board limit")
"""Throttle reasons that are no one's choice; a power cap or set clocks are how the card is meant to run."""

FAULTS = {
    "card": "by NVIDIA's list the card's own fault, or its power's, heat's or slot's",
    "program": "by NVIDIA's list mostly a program's fault, seldom broken memory's",
    "unknown": "by NVIDIA's list of more than one possible cause",
}


def throttled(situation: Situation) -> Finding | None:
    """A card held its clocks down for most of the last seconds."""
    samples = recent(situation)
    if not enough(samples) or situation.state.outcome is not None:
        return None
    for index in cards(situation, samples):
        figures = card_figures(samples, index)
        reasons = Counter(word for gpu in figures for word in gpu.throttle if word.startswith(HARMFUL))
        word, count = reasons.most_common(1)[0] if reasons else ("", 0)
        if figures and count / len(figures) >= thresholds.THROTTLED_SHARE.value:
            return _throttled(situation, figures[-1], word, count / len(figures), span_s(samples))
    return None


def _throttled(situation: Situation, gpu: GpuSample, word: str, part: float, span: float) -> Finding:
    figures = [f"{word} in {format_share(part)} of the last {seconds(span)}"]
    if gpu.temperature_c is not None:
        figures.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.clock_sm_mhz is not None:
        figures.append(f"clock {gpu.clock_sm_mhz} MHz")
    return Finding(
        cause="throttled",
        severity="warning",
        sentence=f"GPU {gpu.index} holds its clocks down: {word}",
        evidence=tuple(figures),
        confidence="certain",
        where=f"gpu {gpu.index}",
        remedies=remedies_for("throttled", situation),
    )


def other_process(situation: Situation) -> Finding | None:
    """Somebody else computes on the training's card. Told only where our own processes are visible on it."""
    samples = recent(situation)
    if not samples or situation.state.outcome is not None:
        return None
    pids = own_pids(situation)
    for gpu in samples[-1].gpus:
        listed = gpu.processes or ()
        if not {process.pid for process in listed} & pids:
            continue
        others = [process for process in listed if process.pid not in pids]
        held = sum(process.memory_bytes or 0 for process in others)
        if held >= thresholds.OTHER_PROCESS_BYTES.value:
            named = ", ".join(f"{process.command or 'process'} ({process.pid})" for process in others[:3])
            return Finding(
                cause="other-process",
                severity="warning",
                sentence=f"Another process is on GPU {gpu.index}: {named}",
                evidence=(f"it holds {gigabytes(held)} of the card",),
                confidence="certain",
                where=f"gpu {gpu.index}",
                remedies=remedies_for("other-process", situation),
            )
    return None


def lost_card(situation: Situation) -> Finding | None:
    """A card stopped answering the driver."""
    newest = situation.samples[-1] if situation.samples else None
    lost = [] if newest is None or situation.state.outcome else [gpu for gpu in newest.gpus if gpu.lost]
    if not lost:
        return None
    age = "" if lost[0].age_s is None else f", for {seconds(lost[0].age_s)}"
    return Finding(
        cause="gpu-lost",
        severity="failed",
        sentence=f"GPU {lost[0].index} does not answer any more",
        evidence=(f"the driver lost {lost[0].name}{age}",),
        confidence="certain",
        where=f"gpu {lost[0].index}",
    )


def driver_error(situation: Situation) -> Finding | None:
    """The driver reported a critical error (Xid) on a card of the training; worth knowing after its end, too."""
    if not situation.samples:
        return None
    mine = {index for sample in situation.samples for index in cards(situation, (sample,))}
    told = [gpu for gpu in situation.samples[-1].gpus if gpu.xid is not None and (not mine or gpu.index in mine)]
    gpu = told[0] if told else None
    if gpu is None or gpu.xid is None:
        return None
    number = gpu.xid
    fault = xid_meaning(number).fault
    age = () if gpu.xid_age_s is None else (f"reported {seconds(gpu.xid_age_s)} before the newest sample",)
    return Finding(
        cause="gpu-error",
        severity="warning",
        sentence=f"GPU {gpu.index} reported {format_xid(number)}",
        evidence=(*age, FAULTS[fault]),
        confidence="certain",
        where=f"gpu {gpu.index}",
        remedies=remedies_for("gpu-error", situation, fault),
    )


def memory_near_limit(situation: Situation) -> Finding | None:
    """The card is almost full, or the allocator had to give its cache back to go on."""
    samples = recent(situation)
    if not samples or not warmed_up(situation):
        return None
    retries = max((rank.latest.alloc_retries or 0 for rank in situation.state.ranks.values() if rank.latest), default=0)
    for index in cards(situation, samples):
        figures = card_figures(samples[-1:], index)
        used, total = (figures[0].memory_used_bytes, figures[0].memory_total_bytes) if figures else (None, None)
        if used is None or not total or used / total < thresholds.VRAM_NEAR_LIMIT_SHARE.value:
            continue
        evidence = (f"{gigabytes(used)} of {gigabytes(total)} used", *_retried(retries))
        return Finding(
            cause="gpu-memory-near-limit",
            severity="warning" if retries else "hint",
            sentence=f"GPU {index} has {gigabytes(total - used)} left: a longer batch would not fit",
            evidence=evidence,
            confidence="likely" if retries else "possible",
            where="training",
            remedies=remedies_for("gpu-memory-near-limit", situation, "training"),
        )
    return None


def _retried(retries: int) -> tuple[str, ...]:
    return (f"the allocator emptied its cache {retries} times to go on",) if retries else ()

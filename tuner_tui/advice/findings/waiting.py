"""Findings on steps that wait: for batches, or for the slowest rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.host import other_programs_share
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    cpu_pct,
    cpu_queue_pct,
    gpu_busy_pct,
    is_warmed_up,
    median_known,
    recent_samples,
    training_s,
    training_share,
    worker_loads,
)
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.host import own_data_of
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share, format_short_duration
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.progress import RankTimes, rank_times


@dataclass(frozen=True, slots=True)
class SlowRank:
    """The rank that the others wait for, `lost_s` of each step of `step_s` seconds.

    `by_data`: it waits longer for its batches than the others do; else its own work takes longer. `others` are the
    medians of the other ranks.
    """

    slow: RankTimes
    others: RankTimes
    lost_s: float
    by_data: bool

    @property
    def lost_share(self) -> float:
        """The share of each step in which the other ranks wait."""
        return min(1.0, self.lost_s / self.others.step_s)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The two sides in figures."""
        slow, others = self.slow, self.others
        return (
            f"rank {slow.rank}: waits {_ms(slow.data_wait_s)} for data and works {_ms(slow.own_s)} a step; "
            f"the others: {_ms(others.data_wait_s)} and {_ms(others.own_s)}",
            f"in calls that wait for other ranks (backward, collectives): rank {slow.rank} {_ms(slow.rank_wait_s)} "
            f"a step, the others {_ms(others.rank_wait_s)}",
        )


def find_slow_rank(situation: Situation) -> SlowRank | None:
    """The rank that is last at the collectives, by the least time in them, if the others lose much by it."""
    times = rank_times(situation.state.ranks.values())
    if not times or not is_warmed_up(situation):
        return None
    # All ranks leave a collective together. The last to arrive waits for nobody, so the slow rank is the one with the
    # least time in collectives, not the one with the longest step: steps of all ranks take equally long.
    slow = min(times, key=lambda rank: rank.rank_wait_s)
    rest = [rank for rank in times if rank is not slow]
    others = RankTimes(
        -1,
        step_s=median(rank.step_s for rank in rest),
        data_wait_s=median(rank.data_wait_s for rank in rest),
        rank_wait_s=median(rank.rank_wait_s for rank in rest),
        between_s=median(rank.between_s for rank in rest),
    )
    more_data_s, more_work_s = slow.data_wait_s - others.data_wait_s, slow.own_s - others.own_s
    # Late by what it does longer than the others, as far as they are seen to wait for it.
    lost_s = min(others.rank_wait_s - slow.rank_wait_s, max(0.0, more_data_s) + max(0.0, more_work_s))
    found = SlowRank(slow, others, lost_s, by_data=more_data_s > more_work_s)
    serious = found.lost_share >= thresholds.SLOW_RANK_SHARE and lost_s >= thresholds.SLOW_RANK_S
    return found if serious else None


def slow_rank(situation: Situation) -> Finding | None:
    """One rank computes longer than the others, which wait for it. One that waits for data is `data_wait`'s."""
    found = find_slow_rank(situation)
    if found is None or found.by_data:
        return None
    slow, others = found.slow, found.others
    after_step = slow.between_s - others.between_s > found.lost_s / 2
    what = "in the loop's own code after the optimizer step" if after_step else "in its forward pass or optimizer"
    return Finding(
        cause="slow-rank",
        severity="warning",
        sentence=f"Rank {slow.rank} is slow {what}: the other ranks wait for it for "
        f"{format_share(found.lost_share)} of each step",
        evidence=found.evidence,
        confidence="likely",
        where=f"rank {slow.rank}",
        remedies=remedies_for("slow-rank", situation, f"rank {slow.rank}"),
        lost_share=found.lost_share * training_share(situation),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def data_wait(situation: Situation) -> Finding | None:
    """Data wait ÷ step time exceeds its threshold. The remedy depends on the load of workers and cores."""
    part = situation.state.rates.data_wait_share
    if part is None or part < thresholds.DATA_WAIT_HINT or not is_warmed_up(situation):
        return None
    serious = part >= thresholds.DATA_WAIT_WARNING
    step_s = situation.state.rates.step_time_s
    if not serious and step_s is not None and part * step_s < thresholds.DATA_WAIT_HINT_S:
        return None
    where, why = _bottleneck(situation)
    late = find_slow_rank(situation)
    rank = late.slow.rank if late is not None and late.by_data else None
    cause = "too-many-workers" if where == "cpu" and has_too_many_workers(situation) else "data-wait"
    return Finding(
        cause=cause,
        severity="warning" if serious else "hint",
        sentence=f"{_who_waits(rank, format_share(part))}: {why}",
        evidence=(*_evidence(situation, part), *(late.evidence if late is not None and rank is not None else ())),
        confidence="certain" if serious else "likely",
        where=where,
        remedies=(*(() if rank is None else (own_data_of(rank),)), *remedies_for(cause, situation, where)),
        lost_share=part * training_share(situation),
    )


def _who_waits(rank: int | None, share: str) -> str:
    if rank is None:
        return f"Training waits for data for {share} of each step"
    return f"Rank {rank} waits for data for {share} of each step, and the other ranks wait for rank {rank}"


WORKER_WARNING = re.compile(
    r"This DataLoader will create (\d+) worker processes in total\. Our suggested max number of worker in current "
    r"system is (\d+)"
)
"""PyTorch's own warning (torch/utils/data/dataloader.py), by the cores that the process may use."""


def worker_warning(situation: Situation) -> Finding | None:
    """PyTorch warned that a DataLoader has more workers than there are cores."""
    found = next((match for line in situation.log if (match := WORKER_WARNING.search(line))), None)
    if found is None or (situation.state.rates.data_wait_share is not None and is_warmed_up(situation)):
        return None  # measured: the rule on data wait says whether they are too many
    workers, cores = found.groups()
    return Finding(
        cause="too-many-workers",
        severity="hint",
        sentence=f"{workers} loader workers share {cores} {'core' if cores == '1' else 'cores'}, which PyTorch "
        "warns about",
        evidence=(found[0],),
        confidence="likely",
        where="cpu",
        remedies=remedies_for("too-many-workers", situation, "cpu"),
    )


def _bottleneck(situation: Situation) -> tuple[str | None, str]:
    """What limits the loader, as location and reason."""
    # From the most specific evidence to the least: cores that are full make workers look slow, and other programs make
    # them look too many; only then does the load of the workers say whether they compute or wait for storage.
    samples, settings = recent_samples(situation), situation.settings
    loads, cpu = worker_loads(samples), cpu_pct(samples)
    full = covers_window(samples) and cpu is not None and cpu >= thresholds.CPU_FULL_PCT
    if full and has_too_many_workers(situation):
        return "cpu", "every core is busy"
    if other_programs_share(situation) is not None and _queues_for_cpu(samples):
        return "others", "other programs use the cores"
    if full and loads and not _workers_idle(loads):
        return "cpu", "every core is busy"
    if covers_window(samples) and _one_worker_busy(loads):
        return "one-worker", f"1 of {len(loads)} workers is busy, the others are idle"
    if covers_window(samples) and loads and _workers_idle(loads):
        return "storage", "the workers wait too: for storage, the network or each other"
    if not loads and (settings is None or settings.dataloader_num_workers == 0):
        return "main-process", "no workers: the training process prepares batches itself"
    return "workers", "too few workers, or slow ones"


def _one_worker_busy(loads: tuple[float, ...]) -> bool:
    """Whether one worker is at full load and all others idle: the dataset is not sharded."""
    full, idle = thresholds.CORE_FULL_PCT, thresholds.WORKER_IDLE_PCT
    return len(loads) > 1 and loads[0] >= full and all(load < idle for load in loads[1:])


def _workers_idle(loads: tuple[float, ...]) -> bool:
    return loads[0] < thresholds.WORKER_IDLE_PCT


def has_too_many_workers(situation: Situation) -> bool:
    """Whether there are more workers than free cores, and the workers themselves cause the contention.

    They do if they use a large share of all cores. If other programs use the cores, workers cannot reach that share;
    then they cause it if they are more than twice the cores and wait for one.
    """
    samples = recent_samples(situation)
    cores, loads = situation.usable_cores, worker_loads(samples)
    if cores is None or len(loads) <= max(1, cores - situation.processes):
        return False
    queue = cpu_queue_pct(samples, "worker")
    queueing = queue is not None and queue >= thresholds.CPU_QUEUE_PCT and len(loads) > 2 * cores
    return queueing or sum(loads) >= 100 * cores * thresholds.WORKERS_FILL_SHARE


def _queues_for_cpu(samples: tuple[Sample, ...]) -> bool:
    """Whether a process of the training waits for a core; True if that is not measured."""
    queue = cpu_queue_pct(samples)
    return queue is None or queue >= thresholds.CPU_QUEUE_PCT


def _evidence(situation: Situation, part: float) -> tuple[str, ...]:
    rates, samples = situation.state.rates, recent_samples(situation)
    since = format_short_duration(training_s(situation) or 0)
    lines = [f"data wait {format_share(part)} of step time, {since} into the training"]
    if rates.step_time_s is not None:
        lines.append(f"a step takes {rates.step_time_s:.3g} s, of it {rates.step_time_s * part:.3g} s waiting")
    loads, busy, cpu = worker_loads(samples), gpu_busy_pct(situation, samples), cpu_pct(samples)
    if loads:
        lines.append("workers at " + ", ".join(format_percent(load) for load in loads[:8]) + " of a core")
    if busy is not None:
        lines.append(f"GPU busy {format_percent(busy)}")
    if cpu is not None:
        lines.append(f"all cores {format_percent(cpu)}")
    reads = median_known(sample.host.disk_read_bytes_s for sample in samples)
    if reads is not None and reads >= thresholds.DISK_BUSY_BYTES_S:
        lines.append(f"the disk reads {reads / 1e6:.0f} MB/s")
    return tuple(lines)

"""Findings on where the time of a step goes: data, a slow rank, other programs, evaluation, saving, padding, stalls."""

from __future__ import annotations

from functools import partial
from statistics import median

from msgspec import Struct
from msgspec.structs import astuple, replace

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.rows import finding, warning_figures
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    cpu_pct,
    cpu_queue_pct,
    gpu_busy_pct,
    is_warmed_up,
    loading_is_idle,
    median_known,
    reads_disk,
    recent_samples,
    span_s,
    training_cpu_pct,
    training_share,
    worker_loads,
)
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_ms, format_percent, format_share, format_short_duration
from tuner_tui.runs.events.progress import RankTimes, phase_at, rank_times


def cpu_contended(situation: Situation) -> Finding | None:
    samples, share = recent_samples(situation), _other_programs_share(situation)
    queue = cpu_queue_pct(samples, "main")
    if share is None or queue is None or queue < thresholds.CPU_QUEUE_PCT or not is_warmed_up(situation):
        return None
    # A long start does not hide that the training waits: the whole run is only what is said of it.
    queue = queue if situation.core_wait_share is None else 100 * situation.core_wait_share
    free_cores = max(1, int((situation.usable_cores or 1) * (1 - share)))
    counted = any(process.cpu_queue_pct is not None for process in samples[-1].processes)
    sampled = "" if counted else " (sampled once a second; this kernel does not count it)"
    return finding(
        "cpu-contended", situation,
        f"CPU {format_percent(cpu_pct(samples))} busy in the last {format_short_duration(span_s(samples))}",
        f"the training's processes use {format_percent(training_cpu_pct(samples))} of one core",
        f"its main thread waited for a core {format_percent(queue)} of the time{sampled}",
        severity=None if queue >= thresholds.CPU_QUEUE_PCT else "hint",
        confidence="certain" if counted else "likely", ladder=str(free_cores), lost_share=queue / 100,
        share=format_share(share), queue=format_percent(queue),
    )  # fmt: skip


def _other_programs_share(situation: Situation) -> float | None:
    """The share of all usable cores that other programs use; None unless the cores are full and the share is high."""
    samples = recent_samples(situation)
    mine, cpu = training_cpu_pct(samples), cpu_pct(samples)
    if mine is None or cpu is None or situation.inventory is None or not covers_window(samples):
        return None
    processor = situation.inventory.cpu
    cores = min(processor.affinity_cores, processor.quota_cores or processor.affinity_cores)
    share = cpu / 100 - mine / (100 * cores)
    full = cpu >= thresholds.CPU_FULL_PCT and share >= thresholds.CPU_OTHERS_SHARE
    return share if full else None


class SlowRank(Struct, frozen=True):
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
    def is_late_after_step(self) -> bool:
        """Whether the time is lost in the loop's own code after the optimizer step."""
        return not self.by_data and self.slow.between_s - self.others.between_s > self.lost_s / 2

    @property
    def evidence(self) -> tuple[str, ...]:
        """The two sides in figures."""
        slow, others = self.slow, self.others
        return (
            f"rank {slow.rank}: waits {format_ms(slow.data_wait_s)} for data and works {format_ms(slow.own_s)} a step; "
            f"the others: {format_ms(others.data_wait_s)} and {format_ms(others.own_s)}",
            f"in calls that wait for other ranks (backward, collectives): rank {slow.rank} "
            f"{format_ms(slow.rank_wait_s)} a step, the others {format_ms(others.rank_wait_s)}",
        )


def _find_slow_rank(situation: Situation) -> SlowRank | None:
    """The rank that is last at the collectives, by the least time in them, if the others lose much by it."""
    times = rank_times(situation.state.ranks.values())
    if not times or not is_warmed_up(situation):
        return None
    # All ranks leave a collective together. The last to arrive waits for nobody, so the slow rank is the one with the
    # least time in collectives, not the one with the longest step: steps of all ranks take equally long.
    slow = min(times, key=lambda rank: rank.rank_wait_s)
    figures = zip(*(astuple(rank) for rank in times if rank is not slow), strict=True)
    others = RankTimes(*map(median, figures))
    more_data_s, more_work_s = slow.data_wait_s - others.data_wait_s, slow.own_s - others.own_s
    # Late by what it does longer than the others, as far as they are seen to wait for it.
    lost_s = min(others.rank_wait_s - slow.rank_wait_s, max(0.0, more_data_s) + max(0.0, more_work_s))
    late = SlowRank(slow, others, lost_s, by_data=more_data_s > more_work_s)
    serious = late.lost_share >= thresholds.SLOW_RANK_SHARE and lost_s >= thresholds.SLOW_RANK_S
    return late if serious else None


def slow_rank(situation: Situation) -> Finding | None:
    late = _find_slow_rank(situation)
    if late is None or late.by_data:
        return None
    part = "the loop's code after the optimizer step" if late.is_late_after_step else "its forward pass or optimizer"
    lost_share, share = late.lost_share * training_share(situation), format_share(late.lost_share)
    rank = late.slow.rank
    return finding("slow-rank", situation, *late.evidence, lost_share=lost_share, rank=rank, place=part, share=share)


def data_wait(situation: Situation) -> Finding | None:
    share = situation.state.rates.data_wait_share
    if share is None or share < thresholds.DATA_WAIT_HINT or not is_warmed_up(situation):
        return None
    serious = share >= thresholds.DATA_WAIT_WARNING
    measured_s = min(counters.train_s for counters in situation.state.counters)
    step_s = situation.state.rates.step_time_s
    if not serious and step_s is not None and share * step_s < thresholds.DATA_WAIT_HINT_S:
        return None
    where, reason = _bottleneck(situation)
    late = _find_slow_rank(situation)
    cause = "too-many-workers" if where == "cpu" and has_too_many_workers(situation) else "data-wait"
    remedies, evidence, row = remedies_for(cause, situation, where), _data_wait_evidence(situation, share), "data-wait"
    rank = None
    if late is not None and late.by_data:
        rank, row, evidence = late.slow.rank, "data-wait-of-a-rank", (*evidence, *late.evidence)
        remedies = (remedy("own-data-of-rank", rank=rank), *remedies)
    return finding(
        cause, situation, *evidence, row=row, where=where, severity="warning" if serious else "hint",
        confidence="certain" if serious and where != "storage" and measured_s >= thresholds.WINDOW_FULL_S else "likely",
        lost_share=share * training_share(situation), remedies=remedies, share=format_share(share), reason=reason,
        rank=rank,
    )  # fmt: skip


def worker_warning(situation: Situation) -> Finding | None:
    warning = warning_figures("too-many-workers", situation)
    if warning is None or (situation.state.rates.data_wait_share is not None and is_warmed_up(situation)):
        return None  # measured: the rule on data wait says whether they are too many
    if loading_is_idle(situation, int(warning["workers"])):
        return None  # workers that only wait need no cores
    settings, cores = situation.settings, f"{warning['cores']} {'core' if warning['cores'] == '1' else 'cores'}"
    if settings is not None:  # of a program that is not observed they are those that a launch would have
        situation = replace(situation, settings=replace(settings, dataloader_num_workers=int(warning["workers"])))
    suggested = f"PyTorch's suggestion: at most {warning['cores']}"
    return finding("too-many-workers", situation, suggested, workers=warning["workers"], cores=cores)


def _bottleneck(situation: Situation) -> tuple[str | None, str]:
    """What limits the loader, as location and reason."""
    # From the most specific evidence to the least: cores that are full make workers look slow, and other programs make
    # them look too many; only then does the load of the workers say whether they compute or wait.
    samples, settings = recent_samples(situation), situation.settings
    loads, cpu = worker_loads(samples), cpu_pct(samples)
    busy = cpu is not None and cpu >= thresholds.CPU_FULL_PCT
    full = busy and covers_window(samples)
    if full and has_too_many_workers(situation):
        return "cpu", "every core is busy"
    rank = situation.state.first_rank
    restarts = settings is not None and settings.dataloader_num_workers and not settings.dataloader_persistent_workers
    if restarts and rank is not None and rank.recent:
        first, *_, last = (rank.recent[0], *rank.recent)
        if 0 < last.data_wait_s - first.data_wait_s < 2 * (last.epoch_wait_s - first.epoch_wait_s):
            return "epoch-start", "most of it while the workers restart in each epoch"
    if not loads and (settings is None or settings.dataloader_num_workers == 0):  # slowed no more than the steps are
        return "main-process", "the training process prepares batches itself, without workers"
    queue = cpu_queue_pct(samples)  # not measured: other programs are taken to be in the way
    queues = busy and (queue is None or queue >= thresholds.CPU_QUEUE_PCT)
    if queues and queue is not None and settings is not None:
        queues = not loading_is_idle(situation, settings.dataloader_num_workers)
    if queues and _other_programs_share(situation) is not None:
        return "others", "other programs use the cores"
    idle = thresholds.WORKER_IDLE_PCT
    if queues or (full and loads and loads[0] >= idle):  # another worker would have no core, whoever uses them
        return "cpu", "every core is busy"
    # One worker at full load and all others idle: the dataset is not sharded.
    unshared = len(loads) > 1 and loads[0] >= thresholds.CORE_FULL_PCT and all(load < idle for load in loads[1:])
    if covers_window(samples) and unshared:
        return "one-worker", f"1 of {len(loads)} workers is busy, the others are idle"
    if covers_window(samples) and loads and loads[0] < idle:
        if reads_disk(samples):
            return "storage", "the workers wait for the disk"
        return "workers", "the workers are slow though they compute little: they sleep or wait, but not for the disk"
    workers = len(loads) if settings is None else settings.dataloader_num_workers
    crowded = workers > (situation.usable_cores or workers)
    return "workers", "slow workers, as there are more than cores" if crowded else "too few workers, or slow ones"


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


def _data_wait_evidence(situation: Situation, share: float) -> tuple[str, ...]:
    rates, samples = situation.state.rates, recent_samples(situation)
    loads, busy, cpu = worker_loads(samples), gpu_busy_pct(situation, samples), cpu_pct(samples)
    ends = dict.fromkeys(map(format_percent, (min(loads), max(loads)) if loads else ()))
    reads = median_known(sample.host.disk_read_bytes_s for sample in samples) or 0.0
    profiled, step_s = situation.state.profiled, rates.step_time_s
    lines = (
        f"data wait {format_share(share)} of step time"
        if step_s is None
        else f"waits {format_ms(step_s * share)} of each {format_ms(step_s)} step",
        f"workers at {' to '.join(ends)} of a core" if loads else "",
        "" if busy is None else f"GPU busy {format_percent(busy)}",
        "" if cpu is None else f"CPU {format_percent(cpu)} busy",
        f"the disk reads {reads / 1e6:.0f} MB/s" if reads >= thresholds.DISK_BUSY_BYTES_S else "",
        f"profiled: {profiled.sentence}" if profiled is not None and profiled.bound == "input" else "",
    )
    return tuple(filter(None, lines))


def stalled(situation: Situation) -> Finding | None:
    state, samples = situation.state, recent_samples(situation)
    hung = state.hung
    if state.outcome is None and hung is not None:
        since = format_short_duration(situation.now_s - (state.last_step_t or state.launched_t or hung.t))
        return finding(
            "stalled", situation, *hung.evidence, row="hung", where=hung.cause, quiet=since, why=hung.sentence
        )
    if state.outcome is not None or phase_at(state, situation.now_s) != "stalled":
        return None
    quiet = format_short_duration(situation.now_s - (state.last_event_t or state.launched_t or situation.now_s))
    evidence = [f"last sign of life {quiet} ago, at step {state.step or 0}"]
    if len(state.ranks) > 1:  # counters are written once a second, so that the last step of a rank is not on record
        evidence.append("which rank the others wait for is unknown")
    loads = worker_loads(samples)
    if state.phase == "training" and sum(loads) >= thresholds.CORE_FULL_PCT:
        # With many workers, batches come in bursts after long waits.
        crowded = has_too_many_workers(situation)
        cause, where = ("too-many-workers", "cpu") if crowded else ("data-wait", "workers")
        evidence.append(f"{len(loads)} workers at {format_percent(sum(loads))} of a core together")
        return finding(cause, situation, *evidence, row="waiting-for-workers", where=where, quiet=quiet)
    busy = [process.cpu_pct for sample in samples[-1:] for process in sample.processes if process.cpu_pct is not None]
    if busy:
        evidence.append(f"its busiest process uses {format_percent(max(busy))} of a core")
    return finding("stalled", situation, *evidence, where=state.phase, quiet=quiet)


def own_code(situation: Situation) -> Finding | None:
    profiled = situation.state.profiled
    if profiled is None or profiled.bound != "host" or profiled.share < thresholds.OWN_CODE_SHARE:
        return None
    lost_share = profiled.share * training_share(situation)
    return finding(
        "own-code", situation, profiled.sentence, *profiled.evidence, lost_share=lost_share,
        share=format_share(profiled.share), place=profiled.where,
    )  # fmt: skip


def between_steps(situation: Situation) -> Finding | None:
    # A GPU computes asynchronously, and reading the loss waits for it here: so this time is only lost on a CPU,
    # or where the GPU is seen to idle.
    rates, samples = situation.state.rates, recent_samples(situation)
    share, busy = rates.between_share, gpu_busy_pct(situation, samples)
    if share is None or share < thresholds.BETWEEN_SHARE or not is_warmed_up(situation) or own_code(situation):
        return None
    if (late := _find_slow_rank(situation)) is not None and late.is_late_after_step:
        return None  # that of one rank, which has a finding of its own
    idle = covers_window(samples) and busy is not None and busy < thresholds.GPU_LOW_PCT
    on_cpu = situation.state.in_effect.get("device") == "cpu"
    if not on_cpu and not idle:
        return None
    spent = "" if rates.step_time_s is None else f": {rates.step_time_s * share:.3g} of {rates.step_time_s:.3g} s"
    idle_gpu = () if on_cpu else (f"GPU busy {format_percent(busy)}",)
    lost = (f"from the optimizer step to the next request for a batch{spent}", *idle_gpu)
    lost_share = share * training_share(situation)
    return finding("between-steps", situation, *lost, lost_share=lost_share, share=format_share(share))


def _share_finding(situation: Situation, cause: str, threshold: float) -> Finding | None:
    # As of the last step, since what follows all of them is done only once; the rank that spends most time evaluating
    # and saving: the others wait for it.
    counters = (rank.recent[-1] for rank in situation.state.ranks.values() if rank.recent)
    latest = max(counters, key=lambda rank: rank.eval_s + rank.save_s, default=None)
    if latest is None or not is_warmed_up(situation):
        return None
    spent_s = latest.eval_s if cause == "evaluation-share" else latest.save_s
    total_s = latest.train_s + latest.eval_s + latest.save_s
    share = spent_s / total_s if total_s > 0 else 0.0
    if share < threshold:
        return None
    evidence = "{} of {}, training {}".format(*map(format_short_duration, (spent_s, total_s, latest.train_s)))
    return finding(cause, situation, evidence, lost_share=share, share=format_share(share))


evaluation_share = partial(_share_finding, cause="evaluation-share", threshold=thresholds.EVAL_SHARE)
save_share = partial(_share_finding, cause="save-share", threshold=thresholds.SAVE_SHARE)


def padding(situation: Situation) -> Finding | None:
    share = situation.state.rates.padding_share
    if share is None or share < thresholds.PADDING_SHARE or not is_warmed_up(situation):
        return None
    return finding("padding", situation, f"padding {format_share(share)} of recent tokens", share=format_share(share))


def no_steps(situation: Situation) -> Finding | None:
    """Programs that evaluated are left out, since they did not mean to train."""
    state = situation.state
    if state.outcome != "completed" or not state.ended_without_step or state.evaluations:
        return None
    return finding("no-step", situation, "it imported torch and exited with code 0")

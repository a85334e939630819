"""Figures that several rules need: medians over the recent samples, warm-up, loads of GPUs, workers and cores."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from statistics import median

from tuner_tui.advice import thresholds
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.sample import GpuSample, ProcessSample, Sample
from tuner_tui.runs.events.progress import phase_at

LEAST_LOADING_SAMPLES = 3
"""Samples, each the mean of a second, from which the load of the loader is judged: short runs have few."""
MIN_SCHEDULING_SAMPLES = 12
"""Samples of a process needed to estimate how often it was runnable."""


def process_steps(situation: Situation) -> int:
    """Optimizer steps of this process, not counting a resumed run's earlier ones; the slowest rank's."""
    return min((counters.own_steps for counters in situation.state.counters), default=0)


def is_warmed_up(situation: Situation) -> bool:
    """Whether the training can be judged: caches are filled, the allocator has grown, compilation is over."""
    since, steps = situation.state.training_since_t, process_steps(situation)
    if since is None or situation.state.outcome is not None or situation.state.phase == "compiling":
        return False
    if phase_at(situation.state, situation.now_s) == "stalled":
        return False
    seconds = max(0.0, situation.now_s - since)
    requested = situation.settings is not None and situation.settings.torch_compile
    if situation.state.in_effect.get("torch_compile", requested) and seconds < thresholds.COMPILE_WARM_UP_S:
        return False
    slow = seconds >= thresholds.WARM_UP_SLOW_S and steps >= thresholds.WARM_UP_SLOW_STEPS
    return steps >= thresholds.WARM_UP_STEPS or slow


def recent_samples(situation: Situation) -> tuple[Sample, ...]:
    """The samples of the last window, taken while the training ran."""
    start = situation.now_s - thresholds.WINDOW_S
    begin = max(start, situation.state.training_since_t or start)
    return tuple(sample for sample in situation.samples if begin <= sample.time_s <= situation.now_s)


def span_s(samples: tuple[Sample, ...]) -> float:
    """Seconds between the first and the last of `samples`."""
    return samples[-1].time_s - samples[0].time_s if len(samples) > 1 else 0.0


def covers_window(samples: tuple[Sample, ...]) -> bool:
    """Whether `samples` cover enough time to judge the hardware."""
    return span_s(samples) >= thresholds.WINDOW_FULL_S


def median_known(values: Iterable[float | None]) -> float | None:
    """The median of the known values; None if there are none."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def training_pids(situation: Situation) -> frozenset[int]:
    """All processes known to belong to the training, on the machine of the samples."""
    sampled = {process.pid for sample in situation.samples[-1:] for process in sample.processes}
    launched = set() if situation.state.pid is None else {situation.state.pid}
    return frozenset(sampled | launched | situation.state.pids_on(situation.host))


def gpu_indexes(situation: Situation, samples: tuple[Sample, ...]) -> tuple[int, ...]:
    """Indexes of the training's GPUs: those that hold its processes, else the only GPU of the machine.

    None of a training on the CPU.
    """
    if not samples or not samples[-1].gpus or situation.state.in_effect.get("device") == "cpu":
        return ()
    pids = training_pids(situation)
    mine = [gpu.index for gpu in samples[-1].gpus if {p.pid for p in gpu.processes or ()} & pids]
    everything = tuple(gpu.index for gpu in samples[-1].gpus)
    return tuple(mine) or (everything if len(everything) == 1 else ())


def gpu_samples(samples: tuple[Sample, ...], index: int) -> tuple[GpuSample, ...]:
    """The samples of GPU `index`, without those in which it was lost."""
    return tuple(gpu for sample in samples for gpu in sample.gpus if gpu.index == index and not gpu.lost)


def gpu_figures(situation: Situation, samples: tuple[Sample, ...]) -> list[tuple[GpuSample, ...]]:
    """The samples of each of the training's GPUs."""
    return [gpu_samples(samples, index) for index in gpu_indexes(situation, samples)]


def gpu_busy_pct(situation: Situation, samples: tuple[Sample, ...]) -> float | None:
    """Median GPU-Util of the training's least busy GPU."""
    gpus = gpu_figures(situation, samples)
    busy = (median_known(gpu.utilisation_pct for gpu in figures) for figures in gpus)
    return min((value for value in busy if value is not None), default=None)


def worker_loads(samples: tuple[Sample, ...]) -> tuple[float, ...]:
    """Median CPU load of each loader worker, or of those that ended last, in % of one core, highest first."""
    alive = ([process.pid for process in sample.processes if process.role == "worker"] for sample in reversed(samples))
    pids = next(filter(None, alive), ())
    loads = [median_known(process.cpu_pct for process in _process_samples(samples, pid)) for pid in pids]
    return tuple(sorted((load for load in loads if load is not None), reverse=True))


def reads_disk(samples: tuple[Sample, ...]) -> bool:
    """Whether the disk is busy with reads, or the workers are often seen to wait for one."""
    states = [process.state for sample in samples for process in sample.processes if process.role == "worker"]
    reads = median_known(sample.host.disk_read_bytes_s for sample in samples) or 0.0
    waits = states.count("D") >= thresholds.DISK_WAIT_SHARE * max(1, len(states))
    return waits or reads >= thresholds.DISK_BUSY_BYTES_S


def cpu_pct(samples: tuple[Sample, ...]) -> float | None:
    """Median CPU load of the host, in % of all cores."""
    return median_known(sample.host.cpu_pct for sample in samples)


def training_cpu_pct(samples: tuple[Sample, ...]) -> float | None:
    """Median CPU load of all the training's processes together, in % of one core; None if unknown."""
    totals = [
        sum(process.cpu_pct for process in sample.processes if process.cpu_pct is not None)
        for sample in samples
        if any(process.role == "main" and process.cpu_pct is not None for process in sample.processes)
    ]
    return median_known(totals)


def loading_is_idle(situation: Situation, workers: int) -> bool:
    """Whether the loader neither computes nor waits for a core for most of the time that training waits for data.

    Then it waits for storage, the network or a timer, as each further worker can do at the same time.
    """
    samples, share = recent_samples(situation), situation.state.rates.data_wait_share
    if not share or len(samples) < LEAST_LOADING_SAMPLES:
        return False
    loads, busy_pct = worker_loads(samples), training_cpu_pct(samples)
    if busy_pct is None:
        return False
    if workers:
        queue = cpu_queue_pct(samples, "worker") or 0.0
        if not loads or loads[0] + queue >= thresholds.WORKER_IDLE_PCT:
            return False
        busy_pct = min(busy_pct, 100 * (1 - share))  # the main process does not compute while it waits for its workers
    # What the main process neither computes nor waits for a core, it waits for something else.
    return busy_pct + (cpu_queue_pct(samples, "main") or 0.0) < 100 * (1 - share / 2)


def training_share(situation: Situation) -> float:
    """The share of the run's time spent in steps rather than evaluating and saving, of the slowest rank."""
    totals = [(each.train_s, each.train_s + each.eval_s + each.save_s) for each in situation.state.counters]
    return min((train_s / total_s for train_s, total_s in totals if total_s > 0), default=1.0)


def cpu_queue_pct(samples: tuple[Sample, ...], role: str | None = None) -> float | None:
    """Median % of the time that a process waits for a core, of the process that waits longest.

    Counts processes of any role, or only those of `role`.
    """
    newest = [process.pid for sample in samples[-1:] for process in sample.processes if role in (None, process.role)]
    waits = [_wait_for_core_pct(_process_samples(samples, pid)) for pid in newest]
    return max((wait for wait in waits if wait is not None), default=None)


def _wait_for_core_pct(figures: list[ProcessSample]) -> float | None:
    """The wait as counted by the kernel, else estimated from samples of the process state.

    The estimate is the share of samples in which the process was runnable, less its standard error, less the share of
    time for which it ran. Threads of one process count as running all the time, so it is never too large.
    """
    counted = median_known(figure.cpu_queue_pct for figure in figures)
    moments = [figure.state == "R" for figure in figures if figure.state is not None]
    ran_pct = median_known(figure.cpu_pct for figure in figures)
    if counted is not None or len(moments) < MIN_SCHEDULING_SAMPLES or ran_pct is None:
        return counted
    # `/proc/PID/stat` says R for a process that runs as well as for one that waits for a core. Of the share with R,
    # its CPU load is the part in which it ran; the rest it waited.
    could = sum(moments) / len(moments)
    doubt = sqrt(could * (1 - could) / len(moments))
    return max(0.0, 100 * (could - doubt) - min(100.0, ran_pct))


def _process_samples(samples: tuple[Sample, ...], pid: int) -> list[ProcessSample]:
    return [process for sample in samples for process in sample.processes if process.pid == pid]

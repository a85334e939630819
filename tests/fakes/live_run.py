"""A machine and a run that never were: samples, states, histories and logs, all from a few numbers and no clock."""

from __future__ import annotations

import math

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.hardware.inventory import Ability, Cpu, Gpu, GpuProblem, GpuProblemKind, HostMemory, Inventory, Space
from tuner_tui.hardware.sample import GpuSample, HostSample, ProcessSample, Sample
from tuner_tui.runs.events.progress import History, Series, rates_of
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Evaluated, Finished, Steps

GIB = 1024**3
LOSS, EVAL_LOSS = 1.8404, 1.7131
START_S = 1_700_000_000.0
H100 = "NVIDIA H100 80GB HBM3"


def wave(time_s: float, base: float, amplitude: float, period_s: float, phase: float = 0.0) -> float:
    return base + amplitude * math.sin(2 * math.pi * time_s / period_s + phase)


def gpu_sample(index: int, time_s: float, busy_pct: int = 90, **changes: object) -> GpuSample:
    shown = GpuSample(
        index=index,
        name=H100,
        utilisation_pct=round(min(100, wave(time_s, busy_pct, 9, 37, index))),
        memory_used_bytes=int(61.2 * GIB),
        memory_total_bytes=int(79.6 * GIB),
        power_w=wave(time_s, 6.8 * busy_pct, 40, 23, index),
        power_limit_w=700.0,
        temperature_c=round(wave(time_s, 68, 4, 120, index)),
        clock_sm_mhz=round(wave(time_s, 1950, 30, 11, index)),
    )
    return replace(shown, **changes)


def sample(time_s: float = START_S, gpus: int = 2, cores: int = 64, workers: int = 8, busy_pct: int = 90) -> Sample:
    loads = tuple(max(0.0, min(100.0, wave(time_s, 35, 60, 17, core * 1.7))) for core in range(cores))
    host = HostSample(
        cpu_pct=sum(loads) / cores if cores else None,
        per_core_pct=loads,
        ram_used_bytes=int(wave(time_s, 210, 3, 90) * GIB),
        ram_total_bytes=512 * GIB,
        swap_used_bytes=0,
        swap_total_bytes=8 * GIB,
        swap_in_bytes_s=0.0,
        disk_read_bytes_s=wave(time_s, 120e6, 60e6, 13),
        disk_write_bytes_s=3e6,
        disk_free_bytes=812 * 10**9,
        shm_free_bytes=63 * GIB,
    )
    main = ProcessSample(pid=100, role="main", cpu_pct=wave(time_s, 104, 6, 9), rss_bytes=12 * GIB, rank=0)
    loaders = tuple(
        ProcessSample(pid=200 + n, role="worker", cpu_pct=wave(time_s, 40, 30, 19, n), rss_bytes=int(1.4 * GIB))
        for n in range(workers)
    )
    shown = (gpu_sample(n, time_s, busy_pct) for n in range(gpus))
    return Sample(time_s, tuple(shown), host, (main, *loaders))


def samples(count: int, until_s: float = START_S, **shape: int) -> tuple[Sample, ...]:
    return tuple(sample(until_s - count + 1 + n, **shape) for n in range(count))


def steps(t: float, step: int, rank: int = 0, step_time_s: float = 0.32, data_wait: float = 0.02) -> Steps:
    return Steps(
        t=t,
        rank=rank,
        step=step,
        own_steps=step,
        micro_steps=step * 4,
        samples=step * 64,
        tokens=step * 64 * 240,
        padding_tokens=step * 64 * 16,
        train_s=step * step_time_s,
        data_wait_s=step * step_time_s * data_wait,
        eval_s=16.0,
        save_s=4.0,
        allocated_peak_bytes=int(61.2 * GIB),
        reserved_peak_bytes=int(66 * GIB),
    )


def rank_state(
    rank: int, now_s: float, step: int = 1240, step_time_s: float = 0.32, data_wait: float = 0.02
) -> RankState:
    recent = tuple(steps(now_s - ago, step - 3 * ago, rank, step_time_s, data_wait) for ago in range(20, -1, -1))
    return RankState(rank=rank, pid=1000 + rank, latest=recent[-1], recent=recent)


def running(
    now_s: float = START_S, ranks: int = 1, step: int = 1240, data_wait: float = 0.02, **changes: object
) -> RunState:
    times_s = [0.32 + (0.04 if n == 3 else 0.001 * n) for n in range(ranks)]
    states = {n: rank_state(n, now_s, step, time_s, data_wait) for n, time_s in enumerate(times_s)}
    metrics = {
        "eval_loss": EVAL_LOSS,
        "eval_accuracy": 0.8412,
        "eval_runtime": 15.8,
        "eval_samples_per_second": 900.0,
    }
    state = RunState(
        accepts_orders=True,
        phase="training",
        phase_since_t=now_s - 400,
        launched_t=now_s - 460,
        training_since_t=now_s - 400,
        last_event_t=now_s,
        last_step_t=now_s,
        step=step,
        total_steps=9000,
        epoch=0.41,
        loss=LOSS,
        learning_rate=4e-5,
        grad_norm=0.83,
        ranks=states,
        rates=rates_of(states.values()),
        evaluations=(Evaluated(t=now_s - 80, step=step // 1000 * 1000, metrics=metrics, seconds=15.8),),
        in_effect={
            "per_device_train_batch_size": 16,
            "tf32": False,
            "optim": "adamw_torch_fused",
            "precision": "bf16",
        },
    )
    return replace(state, **changes)


def finished(outcome: str, sentence: str, now_s: float = START_S) -> RunState:
    last = Finished(t=now_s - 5, outcome=outcome, sentence=sentence, step=1240, total_steps=9000)
    return running(now_s, finished=last, phase="ending")


def history(points: int = 200, last: int = 1240) -> History:
    xs = tuple(n * last / (points - 1) for n in range(points))

    def fallen(x: float) -> float:
        return 1.95 * math.exp(-x / 350) + math.exp(-x / 3500)

    noise = (min(0.06, n / 100) * math.sin(1.3 * n) for n in range(points - 1))
    loss = (*(LOSS + fallen(x) - fallen(last) + extra for x, extra in zip(xs, noise, strict=False)), LOSS)
    evaluated = tuple(float(step) for step in range(500, last // 1000 * 1000 + 1, 500))
    eval_loss = tuple(EVAL_LOSS + fallen(x) - fallen(evaluated[-1]) for x in evaluated)
    return History(
        loss=Series("loss", "", xs, loss),
        eval_loss=Series("eval loss", "", evaluated, eval_loss),
        samples_s=Series("throughput", "samples/s", xs, tuple(198 + 6 * math.sin(n / 9) for n in range(points))),
        memory_bytes=Series("peak memory", "B", xs, tuple(61e9 + 2e9 * (n > 60) for n in range(points))),
        grad_norm=Series("gradient norm", "", xs, tuple(0.8 + 2 * math.exp(-n / 20) for n in range(points))),
        learning_rate=Series("learning rate", "", xs, tuple(5e-5 * (1 - x / 9000) for x in xs)),
    )


class FakeView(Struct, frozen=True):
    """What a panel sees of a followed run."""

    state: RunState
    history: History = field(default_factory=History)
    sample: Sample | None = None
    samples: tuple[Sample, ...] = ()
    status: object = None
    record: object = None
    host: str | None = None


ABILITIES = (
    Ability("fp16", True, "capability 9.0 has FP16 tensor cores"),
    Ability("bf16", True, "capability 9.0 is at least 8.0"),
    Ability("tf32", True, "capability 9.0 is at least 8.0"),
    Ability("flash", True, "capability 9.0 is at least 8.0"),
    Ability("fused", True, "CUDA"),
)


def inventory(gpus: int = 2, problems: tuple[GpuProblem, ...] = ()) -> Inventory:
    return Inventory(
        hostname="box42",
        gpus=tuple(
            Gpu(
                n,
                H100,
                f"GPU-{n}",
                "Hopper",
                (9, 0),
                int(79.6 * GIB),
                power_limit_w=700.0,
                abilities=ABILITIES,
            )
            for n in range(gpus)
        ),
        cpu=Cpu("AMD EPYC 9554 64-Core Processor", 64, 128, 64, 32.0),
        memory=HostMemory(512 * GIB, 300 * GIB, 256 * GIB, 8 * GIB),
        driver_version="580.65.06" if gpus else None,
        cuda_version="13.0" if gpus else None,
        problems=problems,
        shm=Space("/dev/shm", 64 * GIB, 63 * GIB),
        disk=Space("/data/runs", 2 * 10**12, 812 * 10**9),
    )


NO_DRIVER = GpuProblem(
    GpuProblemKind.NO_DRIVER,
    "The NVIDIA driver is installed but not loaded.",
    "Load it with `sudo modprobe nvidia`, or reboot after a kernel update.",
)

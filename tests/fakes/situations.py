"""Builders of situations: a healthy training, changed by keyword arguments."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.inventory import Cpu, Gpu, HostMemory, Inventory
from tuner_tui.hardware.sample import GpuSample, HostSample, ProcessSample, Sample
from tuner_tui.runs.events.run_state import RankState, Rates, RunState
from tuner_tui.runs.events.types import Steps
from tuner_tui.settings.model import Settings

NOW = 1_000_000.0
PID = 4242
GB = 1_000_000_000
HEALTHY_RATES = {"steps_s": 2.0, "step_time_s": 0.5, "data_wait_share": 0.02, "padding_share": 0.06}


def make_gpu(**changes: Any) -> Gpu:
    """An RTX 3090."""
    fields: dict[str, Any] = {"index": 0, "name": "RTX 3090", "capability": (8, 6), "memory_total_bytes": 24 * GB}
    return Gpu(**{**fields, **changes})


def box(*gpus: Gpu, cores: int = 16) -> Inventory:
    """A machine with the GPUs given; none given means no GPU."""
    return Inventory("box", gpus, Cpu("cpu", cores // 2, cores, cores), HostMemory(64 * GB))


def worker(pid: int, cpu_pct: float) -> ProcessSample:
    """A loader worker at a load in % of one core."""
    return ProcessSample(pid, "worker", cpu_pct, GB)


def sample(time_s: float, gpu: dict[str, Any] | None = None, workers: tuple[float, ...] = (), **host: Any) -> Sample:
    """One second of a healthy box with one busy GPU."""
    figures: dict[str, Any] = {
        "utilisation_pct": 96.0, "memory_used_bytes": 20 * GB, "memory_total_bytes": 24 * GB, "power_w": 330.0,
        "power_limit_w": 350.0, "temperature_c": 70.0, "processes": (),
    }  # fmt: skip
    gpus = () if gpu is None else (GpuSample(0, "RTX 3090", **{**figures, **gpu}),)
    fields: dict[str, Any] = {"cpu_pct": 55.0, "ram_used_bytes": 20 * GB, "ram_total_bytes": 64 * GB}
    main = ProcessSample(PID, "main", 80.0, 4 * GB)
    loaders = tuple(worker(PID + 1 + n, load) for n, load in enumerate(workers))
    return Sample(time_s, gpus, HostSample(**{**fields, **host}), (main, *loaders))


def samples(seconds: int = 30, **changes: Any) -> tuple[Sample, ...]:
    """One sample a second up to now, all alike."""
    return tuple(sample(NOW - n, **changes) for n in range(seconds, -1, -1))


def counters(**changes: Any) -> Steps:
    """The counters of rank 0 after five minutes at two steps a second."""
    fields: dict[str, Any] = {
        "t": NOW - 0.5, "rank": 0, "step": 600, "own_steps": 600, "micro_steps": 600, "samples": 4800,
        "train_s": 300.0, "data_wait_s": 6.0, "slowest_step_s": 0.7,
    }  # fmt: skip
    return Steps(**{**fields, **changes})


def training(rates: dict[str, Any] | None = None, steps: dict[str, Any] | None = None, **changes: Any) -> RunState:
    """A training five minutes old, 2 % of its step time waiting for data; its counters have the share of `rates`."""
    figures = {**HEALTHY_RATES, **(rates or {})}
    latest, share = counters(**(steps or {})), figures["data_wait_share"] or 0.0
    latest = replace(latest, data_wait_s=share * latest.train_s)
    earlier = replace(
        latest, t=latest.t - 20, own_steps=latest.own_steps - 40, train_s=latest.train_s - 20,
        data_wait_s=latest.data_wait_s - 20 * share,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "phase": "training", "phase_since_t": NOW - 300, "launched_t": NOW - 320, "training_since_t": NOW - 300,
        "last_event_t": NOW - 0.5, "last_step_t": NOW - 0.5, "pid": PID, "step": 600, "total_steps": 9000,
        "loss": 1.2, "grad_norm": 0.9, "ranks": {0: RankState(0, PID, latest, (earlier, latest))},
        "rates": Rates(**figures),
    }  # fmt: skip
    return RunState(**{**fields, **changes})


def situation(**changes: Any) -> Situation:
    """A healthy training on a 3090 with eight workers."""
    fields: dict[str, Any] = {
        "state": training(), "now_s": NOW, "inventory": box(make_gpu()),
        "settings": Settings(dataloader_num_workers=8, dataloader_persistent_workers=True, dataloader_prefetch_factor=4,
                             optim="adamw_torch_fused", per_device_train_batch_size=48, gradient_accumulation_steps=2,
                             precision="bf16"),
        "samples": samples(gpu={}, workers=(50.0,) * 8),
    }  # fmt: skip
    return Situation(**{**fields, **changes})

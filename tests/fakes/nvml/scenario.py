"""Scenarios for the fake driver: how many GPUs, what they show over time, how slowly and wrongly they answer.

The file is lines of `key values…`; the keys of the driver come first, and `gpu` opens the next GPU. A wave is
`base amplitude period_s phase`: base + amplitude · sin(2π·t/period + phase), t counted from the library's load.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

GIB = 1024**3
ERROR_NOT_SUPPORTED = 3
ERROR_NO_PERMISSION = 4
ERROR_DRIVER_NOT_LOADED = 9
ERROR_GPU_IS_LOST = 15
ERROR_VERSION_MISMATCH = 18
REASON_POWER_CAP = 0x4
SLOW_CALLS_S = {
    "nvmlDeviceGetPcieThroughput": 0.020,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 0.0045,
}
"""What these two cost on a real driver: PCIe throughput is defined as a 20 ms window, the other was measured."""


@dataclass(frozen=True)
class Wave:
    """A figure over time; a period of 0 is a constant."""

    base: float
    amplitude: float = 0.0
    period_s: float = 0.0
    phase: float = 0.0

    def __str__(self) -> str:
        return f"{self.base} {self.amplitude} {self.period_s} {self.phase}"


@dataclass(frozen=True)
class FakeProcess:
    """A process on a GPU; `pid` None is whoever loads the library, `sm` its share of the GPU, None for no figure."""

    pid: int | None
    memory_bytes: int
    graphics: bool = False
    sm: Wave | None = None

    def __str__(self) -> str:
        who = "self" if self.pid is None else self.pid
        share = "-1" if self.sm is None else self.sm
        return f"{who} {self.memory_bytes} {'graphics' if self.graphics else 'compute'} {share}"


@dataclass(frozen=True)
class FakeGpu:
    """One GPU of a scenario. `errors` and `delays_s` are by NVML function name; None leaves a field NOT_SUPPORTED.

    `slices` are those of MIG: UUID, name, total and used bytes.
    `xids` are critical errors: a number, and when it happens, in seconds after the library's load.
    """

    name: str = "NVIDIA A100-SXM4-80GB"
    uuid: str | None = None
    architecture: int | None = 7
    capability: tuple[int, int] | None = (8, 0)
    memory_total_bytes: int | None = 80 * GIB
    memory_reserved_bytes: int = 600 * 1024**2
    memory_used: Wave = Wave(40 * GIB, 8 * GIB, 60)
    utilisation: Wave = Wave(75, 24, 20)
    power_w: Wave | None = Wave(290, 90, 20)
    power_limit_w: float | None = 400
    temperature_c: Wave | None = Wave(62, 8, 60)
    fan_pct: Wave | None = None
    clock_sm_mhz: Wave = Wave(1350, 60, 20)
    clock_sm_max_mhz: int = 1410
    clock_memory_mhz: Wave = Wave(1593)
    clock_memory_max_mhz: int = 1593
    reasons: int = 0
    mig: bool = False
    slices: tuple[tuple[str, str, int, int], ...] = ()
    processes: tuple[FakeProcess, ...] = (FakeProcess(None, 38 * GIB),)
    latency_s: float = 0.0
    lost_at_s: float | None = None
    lost_after_calls: int | None = None
    delays_s: Mapping[str, float] = field(default_factory=lambda: dict(SLOW_CALLS_S))
    errors: Mapping[str, int] = field(default_factory=dict)
    xids: tuple[tuple[int, float], ...] = ()

    def lines(self, index: int) -> list[str]:
        values: dict[str, object] = {
            "name": self.name,
            "uuid": self.uuid or f"GPU-00000000-0000-0000-0000-{index:012d}",
            "architecture": self.architecture,
            "capability": None if self.capability is None else f"{self.capability[0]} {self.capability[1]}",
            "mig": int(self.mig),
            "memory_total": self.memory_total_bytes,
            "memory_reserved": self.memory_reserved_bytes,
            "memory_used": self.memory_used,
            "utilisation": self.utilisation,
            "power_mw": None if self.power_w is None else milli(self.power_w),
            "power_limit_mw": None if self.power_limit_w is None else round(self.power_limit_w * 1000),
            "temperature": self.temperature_c,
            "fan": self.fan_pct,
            "sm_clock": self.clock_sm_mhz,
            "sm_clock_max": self.clock_sm_max_mhz,
            "memory_clock": self.clock_memory_mhz,
            "memory_clock_max": self.clock_memory_max_mhz,
            "reasons": hex(self.reasons),
            "latency_s": self.latency_s,
            "lost_at_s": self.lost_at_s,
            "lost_after_calls": self.lost_after_calls,
        }
        rows = ["gpu", *(f"{key} {value}" for key, value in values.items() if value is not None)]
        rows += [f"process {process}" for process in self.processes]
        rows += [f"xid {number} {at_s}" for number, at_s in self.xids]
        rows += [f"delay {function} {seconds}" for function, seconds in self.delays_s.items()]
        rows += [f"error {function} {code}" for function, code in self.errors.items()]
        return rows + [f"slice {total} {used} {uuid} {name}" for uuid, name, total, used in self.slices]


def milli(wave: Wave) -> Wave:
    return Wave(wave.base * 1000, wave.amplitude * 1000, wave.period_s, wave.phase)


@dataclass(frozen=True)
class Scenario:
    """A driver and its GPUs. `frozen_s` stops the waves at one moment, so that figures can be compared exactly."""

    gpus: tuple[FakeGpu, ...] = ()
    driver: str = "580.65.06"
    cuda: int = 13000
    init_error: int = 0
    init_latency_s: float = 0.0
    frozen_s: float | None = None

    def text(self) -> str:
        rows = [f"driver {self.driver}", f"cuda {self.cuda}", f"init_error {self.init_error}"]
        rows.append(f"init_latency_s {self.init_latency_s}")
        if self.frozen_s is not None:
            rows.append(f"frozen_s {self.frozen_s}")
        for index, gpu in enumerate(self.gpus):
            rows += gpu.lines(index)
        return "\n".join(rows) + "\n"

    def environment(self, library: Path, folder: Path, calls: Path | None = None) -> dict[str, str]:
        """Writes the scenario into `folder` and gives the whole environment of a process that sees it.

        `library` is the built `libnvidia-ml.so.1`. Each call is written to the file `calls` where one is given; a
        benchmark gives none.
        """
        path = folder / "scenario"
        path.write_text(self.text(), encoding="utf-8")
        seen = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_SCENARIO": str(path)}
        return seen if calls is None else {**seen, "FAKE_NVML_CALLS": str(calls)}


def a100(index: int, *processes: FakeProcess) -> FakeGpu:
    """A busy A100 whose waves are shifted against those of its neighbours; `processes` default to its own."""
    return FakeGpu(
        processes=processes or FakeGpu.processes,
        utilisation=Wave(75, 24, 20, index),
        power_w=Wave(290, 90, 20, index),
        memory_used=Wave(40 * GIB, 8 * GIB, 60, index),
    )


T4 = FakeGpu(
    name="Tesla T4",
    architecture=6,
    capability=(7, 5),
    memory_total_bytes=16106127360,
    memory_reserved_bytes=450 * 1024**2,
    memory_used=Wave(11 * GIB, GIB, 30),
    utilisation=Wave(88, 11, 15),
    power_w=Wave(66, 6, 15),
    power_limit_w=70,
    temperature_c=Wave(71, 5, 40),
    clock_sm_mhz=Wave(1200, 150, 15),
    clock_sm_max_mhz=1590,
    clock_memory_mhz=Wave(5000),
    clock_memory_max_mhz=5001,
    reasons=REASON_POWER_CAP,
    processes=(FakeProcess(None, 10 * GIB),),
)
H100 = FakeGpu(
    name="NVIDIA H100 80GB HBM3",
    architecture=9,
    capability=(9, 0),
    memory_total_bytes=85520809984,
    memory_used=Wave(60 * GIB, 2 * GIB, 60),
    utilisation=Wave(96, 3, 20),
    power_w=Wave(610, 60, 20),
    power_limit_w=700,
    clock_sm_mhz=Wave(1755, 60, 20),
    clock_sm_max_mhz=1980,
    clock_memory_mhz=Wave(2619),
    clock_memory_max_mhz=2619,
    processes=(FakeProcess(None, 59 * GIB),),
)

two_gpus = Scenario((a100(0), a100(1)))
eight_gpus = Scenario(tuple(a100(index) for index in range(8)))
hung_gpu = Scenario((a100(0), replace(a100(1), delays_s={**SLOW_CALLS_S, "nvmlDeviceGetUtilizationRates": 3.0})))
"""The second GPU takes 3 s to say how busy it is."""
lost_gpu = Scenario((a100(0), FakeGpu(lost_after_calls=40)))
"""The second GPU falls off the bus after it has answered 40 calls."""
broken_gpu = Scenario((a100(0), replace(a100(1), xids=((48, 3.0), (45, 3.1)))))
"""The second GPU meets a memory error after three seconds, and its program is cleaned up."""
no_driver = Scenario(init_error=ERROR_DRIVER_NOT_LOADED)
mismatch = Scenario(init_error=ERROR_VERSION_MISMATCH)
t4 = Scenario((T4,))
h100 = Scenario((H100,))

ALL: Mapping[str, Scenario] = {
    "two_gpus": two_gpus,
    "eight_gpus": eight_gpus,
    "hung_gpu": hung_gpu,
    "lost_gpu": lost_gpu,
    "broken_gpu": broken_gpu,
    "no_driver": no_driver,
    "mismatch": mismatch,
    "t4": t4,
    "h100": h100,
}

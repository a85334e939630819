"""What others use of the machine, between two readings of a made-up /proc, and by spinning processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.procfs import write_process
from tuner_tui.core.procfs import TICKS_PER_S
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.other_load import BusyProcess, OtherLoad, measure_other_load
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
from tuner_tui.hardware.sampler import open_sampler

OWN, SPINS, IDLES, OTHER = 10, 11, 12, 13


def measure(
    proc: Path,
    after: Sample,
    second: dict[int, float],
    affinity: dict[int, set[int]] | None = None,
    names: dict[int, str] | None = None,
) -> OtherLoad:
    """Four cores, and processes that use `second` seconds of them in one second; `affinity` pins some to cores."""
    now = [0.0]

    def write(seconds: dict[int, float]) -> None:
        for pid in (OWN, SPINS, IDLES, OTHER):
            ticks = int(seconds.get(pid, 0.0) * TICKS_PER_S)
            script = (names or {}).get(pid, f"/home/ann/job{pid}.py")
            write_process(proc, pid, ["/usr/bin/python3", script, "--token=hf_secret"], ticks=ticks)

    def wait(seconds: float) -> None:
        now[0] += seconds
        write(second)

    write({})
    return measure_other_load(
        partial(next, iter((Sample(time_s=0.0), after))),
        4,
        wait=wait,
        clock=lambda: now[0],
        proc=proc,
        own_pid=OWN,
        affinity=lambda pid: (affinity or {}).get(pid, {0, 1, 2, 3}),
    )


def test_what_this_process_uses_is_not_others(tmp_path: Path) -> None:
    after = Sample(time_s=1.0, host=HostSample(cpu_pct=75.0))
    load = measure(tmp_path, after, {OWN: 1.0, SPINS: 2.0, IDLES: 0.05})
    assert load.cpu_share == pytest.approx(0.5)
    assert load.processes == (BusyProcess(command="python job11.py", cores=2.0),)


def test_a_process_pinned_to_other_cores_is_not_named(tmp_path: Path) -> None:
    after = Sample(time_s=1.0, host=HostSample(cpu_pct=30.0))
    used = {SPINS: 1.0, IDLES: 0.3}
    load = measure(tmp_path, after, used, {OWN: {3}, SPINS: {0, 1, 2}})
    assert load.processes == (BusyProcess(command="python job12.py", cores=0.3),)


def test_processes_of_one_name_are_named_once_with_their_sum(tmp_path: Path) -> None:
    after = Sample(time_s=1.0, host=HostSample(cpu_pct=90.0))
    load = measure(tmp_path, after, {SPINS: 1.0, IDLES: 0.5, OTHER: 1.25}, names={SPINS: "-c", IDLES: "-c"})
    assert [(each.command, each.cores) for each in load.processes] == [
        ("2 × python -c", 1.5),
        ("python job13.py", 1.25),
    ]


def test_the_busiest_gpu_and_the_programs_on_it(tmp_path: Path) -> None:
    on_it = (GpuProcess(77, None, command="python serve.py"), GpuProcess(78, None))
    gpus = (GpuSample(0, "T4", utilisation_pct=3.0), GpuSample(1, "T4", utilisation_pct=64.0, processes=on_it))
    load = measure(tmp_path, Sample(time_s=1.0, gpus=gpus), {})
    assert (load.cpu_share, load.gpu_share, load.gpu_processes) == (None, 0.64, ("python serve.py",))


@pytest.fixture
def spinning() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.alone
def test_a_process_that_spins_is_seen(tmp_path: Path, spinning: int) -> None:
    cores = len(os.sched_getaffinity(0))
    sampler = open_sampler(tmp_path)
    sampler.wait_ready(5.0)
    load = measure_other_load(sampler.sample, cores)
    sampler.close()
    assert load.cpu_share is not None
    assert load.cpu_share > 0.6 / cores
    assert sum(process.cores for process in load.processes) > 0.5, (
        "the busiest three, of which it is one on an idle machine"
    )

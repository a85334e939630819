from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.fakes.gpu_reader import FakeHandle, FakeReader
from tuner_tui.hardware.host_sampler import HostSampler
from tuner_tui.hardware.inventory import GpuProblemKind
from tuner_tui.hardware.process_sampler import ProcessSampler
from tuner_tui.hardware.sampler import Sampler

SOON_S = 300.0
"""How long a test waits for a thread before it fails; none of it is spent when all is well."""


class Ticks:
    """A clock for the meters."""

    def __call__(self) -> float:
        return 0.0


def sampler_of(reader: FakeReader, tmp_path: Path) -> Sampler:
    ticks = Ticks()
    return Sampler(reader, HostSampler(tmp_path, ticks), ProcessSampler(ticks))


def test_every_gpu_has_a_row_in_the_drivers_order(tmp_path: Path):
    sampler = sampler_of(FakeReader(FakeHandle("first"), FakeHandle("second")), tmp_path)
    sampler.start()
    assert sampler.wait_ready(SOON_S)
    before, sample = time.time(), sampler.sample()
    sampler.close()
    assert before <= sample.time_s <= time.time()
    assert [(gpu.index, gpu.name, gpu.power_limit_w) for gpu in sample.gpus] == [
        (0, "first", 70.0),
        (1, "second", 70.0),
    ]


def test_only_the_gpus_of_an_allocation_are_read(tmp_path: Path):
    ticks, reader = Ticks(), FakeReader(FakeHandle("first"), FakeHandle("second"), FakeHandle("third"))
    sampler = Sampler(reader, HostSampler(tmp_path, ticks), ProcessSampler(ticks), allocated=frozenset({1, 2, 7}))
    sampler.start()
    assert sampler.wait_ready(SOON_S)
    sample = sampler.sample()
    sampler.close()
    assert [(gpu.index, gpu.name) for gpu in sample.gpus] == [(1, "second"), (2, "third")]


def test_a_hung_gpu_holds_up_neither_its_neighbour_nor_the_sample(tmp_path: Path):
    well, hung = FakeHandle(), FakeHandle()
    hung.gate.clear()
    sampler = sampler_of(FakeReader(well, hung), tmp_path)
    sampler.start()
    assert hung.asked.wait(SOON_S)
    assert not sampler.wait_ready(0.0)
    gpus = sampler.sample().gpus
    sampler.close()
    hung.gate.set()
    assert gpus[1].utilisation_pct is None
    assert len(gpus) == 2


def test_a_driver_that_hangs_at_its_start_leaves_samples_without_gpus(tmp_path: Path):
    reader = FakeReader(FakeHandle())
    reader.opening.clear()
    sampler = sampler_of(reader, tmp_path)
    sampler.start()
    assert sampler.sample().gpus == ()
    assert sampler.sample().host.ram_total_bytes
    reader.opening.set()
    assert sampler.wait_ready(SOON_S)
    assert len(sampler.sample().gpus) == 1
    sampler.close()


def test_a_driver_that_is_loaded_later_is_found(tmp_path: Path):
    reader = FakeReader(FakeHandle("late"), problem=GpuProblemKind.NO_DRIVER)
    ticks = Ticks()
    sampler = Sampler(reader, HostSampler(tmp_path, ticks), ProcessSampler(ticks), reopen_s=0.01)
    sampler.start()
    assert sampler.wait_ready(SOON_S)
    assert sampler.problem is not None
    assert sampler.problem.kind is GpuProblemKind.NO_DRIVER
    assert sampler.sample().gpus == ()
    reader.problem = None
    deadline = time.monotonic() + SOON_S
    while not sampler.sample().gpus and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert sampler.wait_ready(SOON_S)
    assert [gpu.name for gpu in sampler.sample().gpus] == ["late"]
    assert sampler.problem is None
    sampler.close()


@pytest.mark.parametrize("paused", [False, True])
def test_closing_ends_the_threads(tmp_path: Path, paused: bool):
    before = set(threading.enumerate())
    sampler = sampler_of(FakeReader(FakeHandle(), FakeHandle()), tmp_path)
    sampler.start()
    assert sampler.wait_ready(SOON_S)
    if paused:
        sampler.pause()
    threads = set(threading.enumerate()) - before
    sampler.close()
    for thread in threads:
        thread.join(SOON_S)
    assert not any(thread.is_alive() for thread in threads)
    assert all(thread.daemon for thread in threads)


def test_a_paused_sampler_leaves_the_gpus_alone(tmp_path: Path):
    gpu = FakeHandle()
    sampler = sampler_of(FakeReader(gpu), tmp_path)
    sampler.pause()
    sampler.start()
    assert not sampler.wait_ready(0.1)
    assert not gpu.asked.is_set()
    sampler.resume()
    assert sampler.wait_ready(SOON_S)
    sampler.close()


@pytest.mark.parametrize("watched", [(), (2**22 + 1,)])
def test_no_processes_where_there_are_none(tmp_path: Path, watched: tuple[int, ...]):
    assert sampler_of(FakeReader(), tmp_path).sample(watched).processes == ()

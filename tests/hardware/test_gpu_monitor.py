from __future__ import annotations

from tests.fakes.gpu_reader import Clock, FakeHandle
from tuner_tui.hardware.sampler import FAST_PERIOD_S, LOST_PERIOD_S, SLOW_EVERY, STALE_AFTER_S, GpuMonitor


def watch(gpu: FakeHandle) -> tuple[GpuMonitor, Clock]:
    clock = Clock()
    return GpuMonitor(gpu, clock), clock


def test_a_gpu_not_yet_read_is_unknown_and_says_how_long_it_has_been_silent():
    watched, clock = watch(FakeHandle())
    assert watched.newest().utilisation_pct is None
    assert watched.newest().age_s is None
    clock.now_s += STALE_AFTER_S + 3
    assert watched.newest().age_s == STALE_AFTER_S + 3


def test_the_slow_tier_is_read_every_third_time():
    gpu = FakeHandle()
    watched, _ = watch(gpu)
    temperatures = []
    for _ in range(2 * SLOW_EVERY):
        watched.refresh()
        temperatures.append(watched.newest().temperature_c)
    assert gpu.fast_reads == 2 * SLOW_EVERY
    assert temperatures == [61, 61, 61, 62, 62, 62]


def test_figures_grow_stale_and_fresh_again():
    watched, clock = watch(FakeHandle())
    watched.refresh()
    clock.now_s += STALE_AFTER_S
    assert watched.newest().age_s is None
    clock.now_s += 0.5
    assert watched.newest().age_s == STALE_AFTER_S + 0.5
    watched.refresh()
    assert watched.newest().age_s is None


def test_a_lost_gpu_keeps_its_row_without_figures_and_can_come_back():
    gpu = FakeHandle("NVIDIA H100")
    watched, clock = watch(gpu)
    watched.refresh()
    gpu.lost = True
    clock.now_s += 1
    watched.refresh()
    gone = watched.newest()
    assert (gone.name, gone.lost, gone.utilisation_pct, gone.processes) == ("NVIDIA H100", True, None, None)
    assert gone.age_s == 1.0
    assert gone.memory_total_bytes == 16
    assert watched.pause_s() == LOST_PERIOD_S
    gpu.lost = False
    watched.refresh()
    assert not watched.newest().lost
    assert watched.pause_s() == FAST_PERIOD_S
    assert watched.newest().temperature_c is not None

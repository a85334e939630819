"""The driver's critical errors (XIDs): detected, sorted by severity, shown with their meaning."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.gpu_reader import Clock, FakeHandle
from tests.fakes.nvml import scenario
from tests.fakes.nvml.scenario import Scenario
from tests.hardware.conftest import Box
from tuner_tui.hardware.driver import format_xid, xid_meaning, xid_meanings
from tuner_tui.hardware.sampler import LOST_PERIOD_S, GpuMonitor

LISTEN = """
import json
from tuner_tui.hardware.nvml import NvmlReader
first, second = NvmlReader().open()
reported = [second.xids()]
second.fast()
reported += [second.xids(), second.xids(), first.xids()]
print(json.dumps(reported))
"""


def test_words() -> None:
    assert format_xid(79) == "Xid 79: the GPU has fallen off the bus"
    assert format_xid(13).startswith("Xid 13: exception in a kernel")
    assert format_xid(9999) == "Xid 9999: see NVIDIA's list of Xid errors"
    assert (xid_meaning(31).fault, xid_meaning(48).fault, xid_meaning(9999).fault) == ("program", "gpu", "unknown")
    assert set(xid_meanings()) >= {13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119}


def test_the_driver_is_listened_to(box: Callable[[Scenario], Box]) -> None:
    shown = Scenario((scenario.a100(0), scenario.FakeGpu(xids=((48, 0.0), (45, 0.0)))), frozen_s=0.0)
    assert box(shown).python(LISTEN) == [[], [48, 45], [], []], "nobody listens before the GPU was first asked"


def test_a_driver_that_tells_nothing_is_asked_once(box: Callable[[Scenario], Box]) -> None:
    deaf = scenario.FakeGpu(errors={"nvmlDeviceRegisterEvents": scenario.ERROR_NOT_SUPPORTED}, xids=((48, 0.0),))
    machine = box(Scenario((scenario.a100(0), deaf), frozen_s=0.0))
    assert machine.python(LISTEN) == [[], [], [], []]
    reported = [line for line in machine.calls_file.read_text("ascii").splitlines() if "RegisterEvents" in line]
    assert reported == ["nvmlDeviceRegisterEvents 1"]


def watched(gpu: FakeHandle) -> tuple[GpuMonitor, Clock]:
    clock = Clock()
    return GpuMonitor(gpu, clock, lambda processes: processes), clock


def test_a_gpus_own_error_stands_whatever_comes_of_it() -> None:
    gpu = FakeHandle()
    watch, clock = watched(gpu)
    watch.refresh()
    assert watch.newest().xid is None
    for xids, shown in (([31], 31), ([43, 48, 45], 48), ([13], 48), ([95], 95)):
        gpu.reported = list(xids)
        for _ in range(3):
            watch.refresh()
        assert watch.newest().xid == shown
    clock.now_s += 1.5
    assert watch.newest().xid_age_s == 1.5


def test_a_lost_gpu_says_why() -> None:
    gpu = FakeHandle()
    watch, _ = watched(gpu)
    watch.refresh()
    gpu.lost, gpu.reported = True, [79]
    watch.refresh()
    newest = watch.newest()
    assert (newest.lost, newest.xid) == (True, 79)
    assert watch.pause_s() == LOST_PERIOD_S

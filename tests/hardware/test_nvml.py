""""""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fakes.gpu_reader import FakeHandle, FakeReader
from tests.fakes.nvml import scenario
from tests.fakes.nvml.scenario import FakeGpu, FakeProcess, Scenario, Wave
from tests.hardware.conftest import Box
from tuner_tui.hardware.detect import read_gpus
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.hardware.nvml import throttle_reasons


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("power cap",)),
        (0x5, ("power cap",)),
        (0x8 | 0x40, ("thermal slowdown (hardware)",)),
        (0x8 | 0x80, ("power brake (power supply)",)),
        (0x8, ("hardware slowdown",)),
        (0x4 | 0x20, ("thermal slowdown (driver)", "power cap")),
        (0x8000, ()),
    ],
)
def test_reasons_in_words_most_urgent_first(bits: int, words: tuple[str, ...]):
    assert throttle_reasons(bits) == words


BoxOf = Callable[[Scenario], Box]
INVENTORY = """
import json
from msgspec import to_builtins
from pathlib import Path
from tuner_tui.hardware.detect import read_inventory
print(json.dumps(to_builtins(read_inventory(Path("/tmp")))))
"""
SAMPLE = """
import json
from msgspec import to_builtins
from pathlib import Path
from tuner_tui.hardware.sampler import open_sampler
sampler = open_sampler(Path("/tmp"))
sampler.wait_ready(300)
print(json.dumps(to_builtins(sampler.sample())))
"""
SHARES = """
import json
from tuner_tui.hardware.nvml import NvmlReader
GPU, *_ = NvmlReader().open()
looks = [{row.pid: row.sm_pct for row in GPU.slow().processes} for _ in range(2)]
print(json.dumps(looks))
"""
LIVE = replace(scenario.two_gpus, frozen_s=0.0)


def test_a_gpu_is_described(box: BoxOf):
    gpu = box(replace(scenario.h100, frozen_s=0.0)).python(INVENTORY)["gpus"][0]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert (gpu["architecture"], gpu["capability"]) == ("Hopper", [9, 0])
    assert gpu["memory_total_bytes"] == 85520809984
    assert gpu["memory_used_bytes"] == 60 * scenario.GIB
    assert (gpu["power_limit_w"], gpu["mig"]) == (700.0, False)
    assert gpu["uuid"].startswith("GPU-")
    assert {ability["name"]: ability["able"] for ability in gpu["abilities"]}["fp8"]


def test_driver_and_cuda_versions(box: BoxOf):
    inventory = box(LIVE).python(INVENTORY)
    assert (inventory["driver_version"], inventory["cuda_version"]) == ("580.65.06", "13.0")
    assert inventory["problems"] == []


def test_a_sample_holds_the_figures_of_the_moment(box: BoxOf):
    gpu = box(replace(scenario.t4, frozen_s=0.0)).python(SAMPLE)["gpus"][0]
    assert (gpu["utilisation_pct"], gpu["power_w"], gpu["power_limit_w"]) == (88, 66, 70)
    assert gpu["memory_used_bytes"] == 11 * scenario.GIB
    assert (gpu["clock_sm_mhz"], gpu["temperature_c"]) == (1200, 71)
    assert gpu["throttle"] == ["power cap"]
    assert gpu["fan_pct"] is None
    assert not gpu["lost"]


def test_calls_that_cost_the_driver_milliseconds_are_never_made(box: BoxOf):
    machine = box(LIVE)
    machine.python(INVENTORY)
    machine.python(SAMPLE)
    calls = machine.calls()
    assert "nvmlDeviceGetUtilizationRates" in calls
    assert not {call for call in calls if "Pcie" in call or "Graphics" in call}


def test_fields_the_gpu_does_not_give_are_none(box: BoxOf):
    silent = FakeGpu(
        name="NVIDIA GB10", capability=None, architecture=None, memory_total_bytes=None, power_limit_w=None,
        power_w=None, temperature_c=None, clock_sm_max_mhz=0, processes=(),
        errors={"nvmlDeviceGetUUID": 3, "nvmlDeviceGetUtilizationRates": 3,
                "nvmlDeviceGetComputeRunningProcesses_v3": 3, "nvmlDeviceGetCurrentClocksEventReasons": 3,
                "nvmlDeviceGetCurrentClocksThrottleReasons": 3, "nvmlDeviceGetMigMode": 3},
    )  # fmt: skip
    machine = box(Scenario((silent,)))
    gpu = machine.python(INVENTORY)["gpus"][0]
    assert [gpu[key] for key in ("uuid", "memory_total_bytes", "memory_used_bytes", "power_limit_w", "mig")] == [
        None
    ] * 5
    assert (gpu["architecture"], gpu["capability"]) == ("Blackwell", [12, 1]), "known by its name"
    sample = machine.python(SAMPLE)["gpus"][0]
    unknown = ("utilisation_pct", "memory_used_bytes", "power_w", "temperature_c", "fan_pct", "processes")
    assert [sample[key] for key in unknown] == [None] * 6
    assert sample["throttle"] == []


def test_an_old_driver_answers_by_the_first_interfaces(box: BoxOf):
    old = FakeGpu(
        capability=(8, 0), memory_used=Wave(10 * scenario.GIB), reasons=0x40 | 0x8, temperature_c=Wave(80),
        errors={"nvmlDeviceGetMemoryInfo_v2": 13, "nvmlDeviceGetTemperatureV": 13,
                "nvmlDeviceGetCurrentClocksEventReasons": 13},
    )  # fmt: skip
    machine = box(Scenario((old,)))
    assert machine.python(INVENTORY)["gpus"][0]["memory_used_bytes"] is not None
    sample = machine.python(SAMPLE)["gpus"][0]
    assert sample["temperature_c"] == 80
    assert sample["throttle"] == ["thermal slowdown (hardware)"]


def test_the_slices_of_mig_are_described_by_their_own_handles(box: BoxOf):
    """As an A100 with 40 GB reports them: 3g.20gb has 19,968 MiB, 2g.10gb 9,856."""
    slices = (
        ("MIG-aaaa", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19_968 * 2**20, 38 * 2**20),
        ("MIG-bbbb", "NVIDIA A100-SXM4-40GB MIG 2g.10gb", 9_856 * 2**20, 25 * 2**20),
    )
    gpu = box(Scenario((FakeGpu(name="NVIDIA A100-SXM4-40GB", mig=True, slices=slices),))).python(INVENTORY)["gpus"][0]
    assert [tuple(gpu_slice[key] for key in ("uuid", "name", "memory_total_bytes", "memory_used_bytes"))
            for gpu_slice in gpu["slices"]] == list(slices)  # fmt: skip


def test_mig_is_shown_and_its_utilisation_unknown(box: BoxOf):
    machine = box(Scenario((FakeGpu(mig=True),)))
    assert machine.python(INVENTORY)["gpus"][0]["mig"] is True
    assert machine.python(SAMPLE)["gpus"][0]["utilisation_pct"] is None


def test_processes_come_largest_first_and_graphics_ones_are_left_out(box: BoxOf):
    rows = (FakeProcess(101, 5), FakeProcess(102, 9), FakeProcess(103, 7, graphics=True))
    gpu = box(Scenario((FakeGpu(processes=rows),))).python(INVENTORY)["gpus"][0]
    assert [(row["pid"], row["memory_bytes"]) for row in gpu["processes"]] == [(102, 9), (101, 5)]


def test_each_process_has_its_share_of_the_gpu(box: BoxOf):
    rows = (FakeProcess(101, 5, sm=Wave(60)), FakeProcess(102, 9, sm=Wave(12)), FakeProcess(103, 1))
    first, later = box(Scenario((FakeGpu(processes=rows),))).python(SHARES)
    assert first == later == {"101": 60.0, "102": 12.0, "103": 0.0}


def test_a_process_without_new_figures_did_nothing_since(box: BoxOf):
    frozen = Scenario((FakeGpu(processes=(FakeProcess(101, 5, sm=Wave(60)),)),), frozen_s=0.0)
    assert box(frozen).python(SHARES) == [{"101": 60.0}, {"101": 0.0}]


@pytest.mark.parametrize(
    "gpu",
    [
        FakeGpu(processes=(FakeProcess(101, 5),)),
        FakeGpu(processes=(FakeProcess(101, 5, sm=Wave(60)),), mig=True),
        FakeGpu(processes=(FakeProcess(101, 5, sm=Wave(60)),), errors={"nvmlDeviceGetProcessUtilization": 4}),
        FakeGpu(processes=(FakeProcess(101, 5, sm=Wave(4294967295)),)),
    ],
    ids=["no figures", "MIG", "no permission", "nonsense"],
)
def test_where_the_driver_does_not_count_shares_are_unknown(box: BoxOf, gpu: FakeGpu):
    assert box(Scenario((gpu,))).python(SHARES)[0] == {"101": None}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (scenario.no_driver, "no-driver"),
        (scenario.mismatch, "version-mismatch"),
        (Scenario(init_error=scenario.ERROR_NO_PERMISSION), "no-permission"),
        (Scenario(init_error=999), "unknown"),
        (Scenario(), "no-gpu"),
    ],
)
def test_each_way_to_have_no_gpu_has_its_own_problem(box: BoxOf, wrong: Scenario, kind: str):
    inventory = box(wrong).python(INVENTORY)
    assert [problem["kind"] for problem in inventory["problems"]] == [kind]
    assert inventory["gpus"] == []
    assert inventory["problems"][0]["advice"]


def test_without_the_library_pynvml_is_not_even_imported(box: BoxOf):
    machine = box(scenario.two_gpus)
    del machine.environment["LD_LIBRARY_PATH"]
    answer = machine.python(
        "import json, sys\n"
        "from tuner_tui.hardware.driver import GpuUnavailable\n"
        "from tuner_tui.hardware.nvml import NvmlReader\n"
        "try: NvmlReader('libno-such-driver.so.1').open()\n"
        "except GpuUnavailable as e: print(json.dumps([e.problem.kind, 'pynvml' in sys.modules]))\n"
    )
    assert answer == ["no-library", False]


def test_a_gpu_lost_from_the_start_keeps_its_place_among_the_others(box: BoxOf):
    machine = box(Scenario((FakeGpu(), FakeGpu(lost_after_calls=0), FakeGpu())))
    inventory = machine.python(INVENTORY)
    assert [gpu["index"] for gpu in inventory["gpus"]] == [0, 1, 2]
    assert [(problem["kind"], problem["gpu_index"]) for problem in inventory["problems"]] == [("gpu-lost", 1)]
    assert [gpu["lost"] for gpu in machine.python(SAMPLE)["gpus"]] == [False, True, False]


@pytest.mark.parametrize(
    "hung", [Scenario((FakeGpu(latency_s=60.0),)), Scenario(scenario.two_gpus.gpus, init_latency_s=60.0)]
)
def test_a_hung_driver_delays_neither_a_sample_nor_the_end_of_the_program(box: BoxOf, hung: Scenario):
    script = SAMPLE.replace("sampler.wait_ready(300)", "sampler.wait_ready(0.2)")
    sample = box(hung).python(script, timeout_s=50)
    assert [gpu["utilisation_pct"] for gpu in sample["gpus"]] in ([], [None])
    assert sample["host"]["ram_total_bytes"]


def test_gpus_are_asked_side_by_side():
    together = threading.Barrier(8)

    class MeetingGpu(FakeHandle):
        def describe(self) -> Gpu:
            together.wait()  # returns once all GPUs are being asked
            return Gpu(self.index, self.name)

    names = [f"GPU {index}" for index in range(together.parties)]
    _, gpus, problems = read_gpus(FakeReader(*map(MeetingGpu, names)), timeout_s=300.0)
    assert [gpu.name for gpu in gpus] == names
    assert problems == ()


def test_an_inventory_gives_up_on_a_gpu_that_does_not_answer(box: BoxOf):
    script = """
import json
from tuner_tui.hardware.nvml import NvmlReader
from tuner_tui.hardware.detect import read_gpus
_, gpus, problems = read_gpus(NvmlReader(), timeout_s=5.0)
print(json.dumps([[gpu.name for gpu in gpus], [[problem.kind, problem.sentence] for problem in problems]]))
"""
    names, problems = box(Scenario((FakeGpu(), FakeGpu(latency_s=600.0)))).python(script, timeout_s=300)
    assert names == ["NVIDIA A100-SXM4-80GB", "GPU 1"]
    assert problems == [["no-answer", "GPU 1 does not respond."]]

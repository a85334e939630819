"""What a tuning may try on a machine: nothing that GPUs, packages, or the way settings are applied cannot carry."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.benchmarks.tuning.simulated_training import GIB, PYTHON
from tests.fakes.situations import box, make_gpu
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import HostMemory
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.space import SearchSpace, build_space

START = Settings()
HOPPER = make_gpu(name="H100", capability=(9, 0), memory_total_bytes=80 * GIB)
TURING = make_gpu(name="Tesla T4", capability=(7, 5), memory_total_bytes=16 * GIB)


def with_package(name: str) -> Interpreter:
    return replace(PYTHON, packages={**PYTHON.packages, name: "2.8.0"})


def rejected(space: SearchSpace, knob: str) -> dict[str, str]:
    return {rejection.value: rejection.reason for rejection in space.rejected if rejection.knob == knob}


def test_a_gpu_before_ampere_trains_in_fp16() -> None:
    space = build_space(box(TURING), PYTHON, BuiltinJob(), START)
    assert set(space.candidates["precision"]) == {"fp32", "fp16"}
    assert "bf16" in rejected(space, "precision")["bf16"]
    assert space.candidates["tf32"] == (None,)
    assert "8.0" in rejected(space, "tf32")["on"]


def test_where_bf16_runs_fp16_is_left() -> None:
    space = build_space(box(make_gpu()), PYTHON, BuiltinJob(), START)
    assert set(space.candidates["precision"]) == {"fp32", "bf16"}
    assert "loss scaler" in rejected(space, "precision")["fp16"]


@pytest.mark.parametrize(
    ("gpu", "package", "kernel", "offered"),
    [
        (make_gpu(), "flash-attn", "flash_attention_2", True),
        (make_gpu(), "peft", "flash_attention_2", False),
        (TURING, "flash-attn", "flash_attention_2", False),
        (HOPPER, "flash-attn-3", "flash_attention_3", True),
        (make_gpu(), "flash-attn-3", "flash_attention_3", False),
    ],
)
def test_flash_attention_needs_gpu_and_package(gpu: object, package: str, kernel: str, offered: bool) -> None:
    space = build_space(box(gpu), with_package(package), BuiltinJob(), START)  # type: ignore[arg-type]
    assert (kernel in space.candidates["attn_implementation"]) is offered
    assert (kernel in rejected(space, "attn_implementation")) is not offered


def test_of_an_unknown_python_only_what_every_torch_has_is_tried() -> None:
    space = build_space(box(make_gpu()), None, BuiltinJob(), START)
    assert "flash_attention_2" not in space.candidates["attn_implementation"]
    assert "bf16" in space.candidates["precision"]


def test_workers_stay_within_the_cores_of_each_process() -> None:
    job = CommandJob(command=("train.py",), apply="inject", launcher="torchrun", processes=2)
    space = build_space(box(make_gpu(), make_gpu(index=1), cores=8), PYTHON, job, START)
    assert space.cores == 4
    assert space.processes == 2
    assert space.candidates["dataloader_num_workers"] == (0, 1, 2, 4)


def test_no_workers_are_tried_although_they_prefetch_now() -> None:
    start = Settings(dataloader_num_workers=2, dataloader_prefetch_factor=4, dataloader_persistent_workers=True)
    space = build_space(box(cores=4), PYTHON, BuiltinJob(), start)
    assert 0 in space.candidates["dataloader_num_workers"]


def test_processes_share_the_data() -> None:
    job = CommandJob(command=("train.py",), apply="inject", launcher="torchrun", processes=2)
    space = build_space(box(make_gpu(), make_gpu(index=1)), PYTHON, job, START, dataset_size=100)
    assert space.max_micro == 50


@pytest.mark.parametrize(
    ("limit", "capacity"), [(None, 24_000_000_000), (6 * GIB, 6 * GIB), (40 * GIB, 24_000_000_000)]
)
def test_a_limit_counts_where_it_is_below_the_gpu(limit: int | None, capacity: int) -> None:
    assert (
        build_space(box(make_gpu()), PYTHON, BuiltinJob(), START, memory_limit_bytes=limit).capacity_bytes == capacity
    )


def test_memory_of_the_host_is_bounded_by_a_limit_else_by_what_is_available() -> None:
    busy = replace(box(), memory=HostMemory(64 * GIB, available_bytes=10 * GIB, limit_bytes=32 * GIB))
    assert build_space(busy, PYTHON, BuiltinJob(), START).capacity_bytes == 10 * GIB
    assert build_space(box(), PYTHON, BuiltinJob(), START).capacity_bytes == box().memory.total_bytes
    assert build_space(box(), PYTHON, BuiltinJob(), START, memory_limit_bytes=3 * GIB).capacity_bytes == 3 * GIB


def test_without_a_gpu_nothing_is_pinned() -> None:
    start = Settings(dataloader_pin_memory=False)
    space = build_space(box(), PYTHON, BuiltinJob(), start)
    assert space.candidates["dataloader_pin_memory"] == (False,)
    assert rejected(space, "dataloader_pin_memory") == {"on": "it has no effect without a GPU"}


def test_a_command_that_is_only_watched_has_nothing_to_tune() -> None:
    space = build_space(box(make_gpu()), PYTHON, CommandJob(command=("train.py",)), START)
    assert all(len(values) == 1 for values in space.candidates.values())


def test_a_command_that_cannot_take_its_settings_is_an_error() -> None:
    job = CommandJob(command=("train.py", "--bs={batch}"), apply="placeholders")
    with pytest.raises(SettingsError):
        build_space(box(make_gpu()), PYTHON, job, START)


def test_a_free_effective_batch_grows_rather_than_shrinks() -> None:
    space = SearchSpace(hold_effective_batch=False)
    start = Settings(per_device_train_batch_size=16, gradient_accumulation_steps=2)
    assert space.with_micro(start, start, 24).effective_batch() == 48
    assert space.with_micro(start, start, 31).effective_batch() == 31

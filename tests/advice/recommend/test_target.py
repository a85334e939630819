"""What a recommendation is made for: the weakest GPU, and what all GPUs can do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fakes import inventories
from tuner_tui.advice.estimate import estimate_by_trace
from tuner_tui.advice.recommend.batch_and_learning_rate import samples_per_gpu
from tuner_tui.advice.recommend.target import TrainingTarget, describe_gpus, select_gpus, with_memory_of_others
from tuner_tui.core.units import GIB
from tuner_tui.hardware.inventory import Gpu, GpuProcess
from tuner_tui.hardware.sample import GpuSample, ProcessSample, Sample
from tuner_tui.memory.trace import TraceError
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

V100, A100, T4 = (inventories.make_gpu(name) for name in ("V100", "A100", "T4"))


def target(*gpus: Gpu, replicas: int = 1, processes: int = 1) -> TrainingTarget:
    return TrainingTarget(inventories.box(*gpus), None, BuiltinJob(), gpus, replicas, processes)


def test_memory_is_estimated_for_the_weakest_gpu() -> None:
    device = target(A100, T4).device
    assert (device.on_gpu, device.capability) == (True, (7, 5))
    assert not target().device.on_gpu
    assert target().device.capability is None


def test_traces_of_several_settings_share_their_time() -> None:
    unknown = replace(target(A100), job=BuiltinJob(model="acme/pond"))
    with pytest.raises(TraceError, match="took longer than 240 s together"):
        estimate_by_trace(unknown, Settings(), before=lambda: 0.0)


@pytest.mark.parametrize(("processes", "gpus"), [(1, 2), (2, 1)])
def test_one_process_splits_a_batch_among_its_gpus(processes: int, gpus: int) -> None:
    assert target(A100, A100, replicas=2, processes=processes).device.gpu_count == gpus


MINE, THEIRS = GpuProcess(7, 9 * GIB), GpuProcess(8, 6 * GIB)


@pytest.mark.parametrize(
    ("used_gib", "processes", "trained_by", "others_gib"),
    [
        (6.0, (THEIRS,), (), 6.0),
        (15.0, (MINE, THEIRS), (7,), 6.0),
        (10.0, (MINE,), (7,), 1.0),  # the driver's own is notable
        (2.4, (), (), 2.0),  # too little has changed
        (0.0, (), (), 0.0),
        (9.0, None, (7,), 2.0),  # in a container it is not known whose the memory is
        (9.0, None, (), 9.0),
        (9.0, (GpuProcess(7, None),), (7,), 2.0),
    ],
)
def test_the_memory_of_other_programs_is_what_they_hold_now(
    used_gib: float, processes: tuple[GpuProcess, ...] | None, trained_by: tuple[int, ...], others_gib: float
) -> None:
    gpu = replace(T4, memory_used_bytes=2 * GIB)
    figures = GpuSample(gpu.index, gpu.name, memory_used_bytes=int(used_gib * GIB), processes=processes)
    sample = Sample(0.0, (figures,), processes=tuple(ProcessSample(pid, "main") for pid in trained_by))
    machine = inventories.box(gpu)
    current = with_memory_of_others(machine, sample)
    assert [each.memory_used_bytes for each in current.gpus] == [others_gib * GIB]
    assert (current is machine) == (others_gib == 2.0)


@pytest.mark.parametrize(
    ("gpus", "name", "able"),
    [
        ((A100,), "bf16", True),
        ((A100, T4), "bf16", False),
        ((A100, V100), "fp16", True),
        ((T4,), "tf32", False),
        ((), "fp16", False),
    ],
)
def test_a_feature_is_there_where_all_gpus_have_it(gpus: tuple[Gpu, ...], name: str, able: bool) -> None:
    assert target(*gpus).able(name) == able


@pytest.mark.parametrize(
    ("machine", "gpus", "label"),
    [
        ((), (), "this machine has no GPU"),
        ((A100,), (), "no GPU is visible"),
        ((T4, A100), (A100, T4), "(Turing 7.5)"),
        ((replace(T4, capability=None),), (replace(T4, capability=None),), "(capability unknown)"),
    ],
)
def test_the_weakest_gpu_in_words(machine: tuple[Gpu, ...], gpus: tuple[Gpu, ...], label: str) -> None:
    target_machine = replace(target(*gpus), inventory=inventories.box(*machine))
    assert target_machine.gpu_label.endswith(label)


@pytest.mark.parametrize(
    ("replicas", "max_samples", "wanted", "share"),
    [
        (1, None, 96, 96),
        (8, None, 48, 32),  # 256 samples in all
        (1, 1000, 48, 16),  # fifty steps
        (4, 1000, 48, 4),
        (1, 10, 48, 1),
    ],
)
def test_many_gpus_or_few_samples_make_a_step_smaller(
    replicas: int, max_samples: int | None, wanted: int, share: int
) -> None:
    target_machine = replace(target(A100, replicas=replicas), job=BuiltinJob(max_samples=max_samples))
    assert samples_per_gpu(target_machine, wanted) == share


def test_gpus_in_words() -> None:
    assert describe_gpus((A100, A100)).startswith("2 × ")
    assert describe_gpus((T4,)).startswith("GPU 0 (")
    assert select_gpus((T4,)).startswith("CUDA_VISIBLE_DEVICES=")

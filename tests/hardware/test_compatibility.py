from __future__ import annotations

import pytest

from tuner_tui.hardware.interpreter import Interpreter, find_incompatibilities
from tuner_tui.hardware.inventory import Cpu, Gpu, HostMemory, Inventory

T4 = Gpu(0, "Tesla T4", architecture="Turing", capability=(7, 5))
V100 = Gpu(0, "Tesla V100", architecture="Volta", capability=(7, 0))


def box(*gpus: Gpu, cuda: str | None = "13.0") -> Inventory:
    return Inventory("box", gpus, Cpu(None, None, 8, 8), HostMemory(1), cuda_version=cuda)


def python(version: str = "2.13.0", cuda: str | None = "13.0", archs: tuple[str, ...] = ()) -> Interpreter:
    return Interpreter("python", "3.12.1", {"torch": version}, cuda, archs)


@pytest.mark.parametrize(
    ("inventory", "interpreter", "words"),
    [
        (box(T4), python(), None),
        (box(T4, cuda=None), python(), None),
        (box(), python("2.13.0+cpu", None), None),
        (box(T4), Interpreter("python"), None),
        (box(Gpu(0, "?")), python(archs=("sm_90",)), None),
        (box(T4), python("2.13.0+cpu", None), "CPU-only"),
        (box(T4), python("2.13.0+rocm6.4", None), "not built for CUDA"),
        (box(T4, cuda="12.4"), python(), "needs CUDA 13.0"),
        (box(T4, cuda="12.4"), python(cuda="12.8"), None),
        (box(V100), python(), "no kernels for Tesla V100 (Volta 7.0)"),
        (box(V100), python(cuda="12.6"), None),
        (box(V100), python(cuda="12.8", archs=("sm_75", "sm_80")), "no kernels for Tesla V100"),
        (box(T4), python(archs=("sm_75", "compute_120")), None),
    ],
)
def test_what_does_not_fit(inventory: Inventory, interpreter: Interpreter, words: str | None):
    incompatibilities = find_incompatibilities(inventory, interpreter)
    if words is None:
        assert incompatibilities == ()
    else:
        assert len(incompatibilities) == 1
        assert words in incompatibilities[0].sentence


def test_equal_gpus_are_told_of_once():
    assert len(find_incompatibilities(box(V100, V100), python())) == 1


@pytest.mark.parametrize(("driver_cuda", "wheels"), [("13.0", "cu130"), ("12.4", "cu126"), (None, "cu126")])
def test_the_advice_names_wheels_the_driver_can_run(driver_cuda: str | None, wheels: str):
    assert wheels in find_incompatibilities(box(T4, cuda=driver_cuda), python("2.13.0+cpu", None))[0].advice

"""Checks before a training, and the findings on interpreter and GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu, python
from tests.fakes.live_run import inventory
from tuner_tui.advice.preflight import PreflightCheck, environment_findings, preflight_checks
from tuner_tui.advice.recommend.target import occupied_gpus
from tuner_tui.hardware.driver import gpu_problem
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import GpuProblemKind, HostMemory, Inventory, Space
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Settings

T4 = make_gpu("T4", gib=15.0)
WHOLE = python(accelerate="1.15.0")
GIB = 2**30


def checks(
    inventory: Inventory, interpreter: Interpreter = WHOLE, job: Job | None = None, **settings: Any
) -> tuple[PreflightCheck, ...]:
    return preflight_checks(inventory, interpreter, Settings(**settings), job or BuiltinJob())


def test_a_good_box_has_nothing_but_good_marks() -> None:
    result = checks(box(T4, disk=Space("/runs", 100 * GIB, 50 * GIB)))
    assert {check.state for check in result} == {"good"}
    assert [check.name for check in result] == [
        "Python", "GPU", "torch and GPU", "Cores", "Memory", "Shared memory", "Disk", "Settings",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inventory", "name", "state", "expected"),
    [
        (box(T4, shm_mib=64), "Shared memory", "warning", "64.0 MiB are free"),
        (box(T4, disk=Space("/runs", GIB, GIB // 2)), "Disk", "wrong", "0.5 GiB are free in /runs"),
        (
            box(T4, disk=Space("/runs", GIB, GIB, writable=False)),
            "State folder",
            "wrong",
            "/runs, where runs are stored",
        ),
        (box(T4, cores=64, quota=2.0), "Cores", "warning", "2 cores are usable, of 64"),
        (box(T4, cores=2), "Cores", "warning", "competes"),
        (box(T4, ram_gib=2), "Memory", "warning", "2.0 GiB"),
        (replace(box(T4), memory=HostMemory(64 * GIB, available_bytes=GIB)), "Memory", "warning", "1.0 GiB"),
        (box(T4, cuda_visible_devices="-1"), "GPU", "wrong", "hides every GPU"),
        (box(T4, make_gpu("A100", 1, 80)), "GPU", "warning", "differ"),
        (box(make_gpu("RTX 3090", memory_used_bytes=10 * GIB)), "GPU", "warning", "use 10.0 of 24.0 GiB of GPU 0"),
        (box(problems=(gpu_problem(GpuProblemKind.NO_LIBRARY),)), "GPU", "warning", "No NVIDIA driver"),
        (box(T4, problems=(gpu_problem(GpuProblemKind.GPU_LOST, 1),)), "GPU", "wrong", "fallen off the bus"),
        (box(make_gpu("V100", gib=15.8)), "torch and GPU", "wrong", "no kernels for NVIDIA V100"),
    ],
)
def test_what_is_wrong_with_a_box(inventory: Inventory, name: str, state: str, expected: str) -> None:
    result = [check for check in checks(inventory) if check.name == name and expected in check.sentence]
    assert [check.state for check in result] == [state]
    assert result[0].advice


def test_what_is_wrong_with_the_python() -> None:
    bare = replace(WHOLE, packages={"torch": "2.13.0"})
    wrong = next(check for check in checks(box(T4), bare) if check.name == "Python")
    assert (wrong.state, wrong.advice) == ("wrong", "/env/bin/python -m pip install transformers accelerate")
    command = CommandJob(command=("python", "train.py"))
    assert next(check for check in checks(box(T4), bare, command) if check.name == "Python").state == "good"
    broken = replace(WHOLE, packages={}, problem="/env/bin/python does not exist.")
    assert [check.sentence for check in checks(box(T4), broken) if check.name == "Python"] == [broken.problem]


def test_settings_that_do_not_fit_the_box() -> None:
    result = [check for check in checks(box(T4), precision="bf16") if check.name == "Settings"]
    assert [(check.state, check.advice) for check in result] == [("wrong", "--set precision=fp16")]


@pytest.mark.parametrize(
    ("ram_gib", "nodes", "sharding", "expected"),
    [
        (512, 1, "zero3_offload", ["good"]),
        (160, 1, "zero3_offload", ["warning"]),
        (64, 1, "zero3_offload", ["wrong"]),
        (64, 4, "zero3_offload", ["good"]),
        (64, 1, "zero3", []),
    ],
)
def test_what_is_offloaded_has_to_fit_the_memory_of_the_host(
    ram_gib: int, nodes: int, sharding: str, expected: list[str]
) -> None:
    command = f"torchrun --nproc_per_node 2 --nnodes {nodes} train.py --model_name_or_path meta-llama/Llama-3.1-8B"
    job = CommandJob(command=(*command.split(), "--deepspeed", sharding))
    gpus = make_gpu("A100", gib=80), make_gpu("A100", 1, 80)
    result = checks(box(*gpus, ram_gib=ram_gib), job=job, precision="bf16")
    assert [check.state for check in result if check.name == "Offload"] == expected


COMMAND = CommandJob(command=("python", "train.py"))


def interpreter_with(**packages: str) -> Interpreter:
    return Interpreter("/opt/bin/python", "3.12.4", packages)


def test_a_torch_for_the_cpu_on_a_box_with_gpus_is_a_finding() -> None:
    [finding] = environment_findings(inventory(), interpreter_with(torch="2.13.0+cpu"), COMMAND)
    assert finding.severity == "warning"
    assert "CPU-only" in finding.sentence
    assert finding.evidence == ('/opt/bin/python -c "import torch; print(torch.version.cuda)" prints None',)
    assert "pip install --force-reinstall torch" in finding.remedies[0].title
    assert not finding.remedies[0].change


def test_nothing_is_said_before_both_are_known() -> None:
    assert environment_findings(None, interpreter_with(torch="2.13.0+cpu"), COMMAND) == ()
    assert environment_findings(inventory(), None, COMMAND) == ()


def test_packages_that_are_missing_are_named_with_the_command_that_installs_them() -> None:
    [finding] = environment_findings(inventory(0), interpreter_with(), BuiltinJob())
    assert finding.cause == "missing-package"
    assert finding.sentence == "/opt/bin/python has no torch and no transformers and no accelerate."
    assert finding.remedies[0].title == "/opt/bin/python -m pip install torch transformers accelerate"
    assert "another interpreter" in finding.remedies[1].title


def test_a_command_needs_torch_alone() -> None:
    assert environment_findings(inventory(0), interpreter_with(torch="2.13.0+cpu"), COMMAND) == ()
    [finding] = environment_findings(inventory(0), interpreter_with(), COMMAND)
    assert finding.sentence == "/opt/bin/python has no torch."


def test_a_python_that_does_not_answer_says_why() -> None:
    dead = Interpreter("/opt/bin/python", problem="/opt/bin/python cannot be started.")
    [finding] = environment_findings(inventory(0), dead, BuiltinJob())
    assert finding.sentence == "/opt/bin/python cannot be started."


def test_nothing_is_missing_before_the_job_is_known() -> None:
    assert environment_findings(inventory(0), interpreter_with(), None) == ()


@pytest.mark.parametrize(
    ("used_gib", "expected"),
    [
        ((0.2, 0.2), None),
        ((6.0,), "Other programs use 6.0 of 15.0 GiB of GPU 0"),
        ((6.0, 0.2), "Other programs use 6.0 GiB of GPU 0; GPU 1 has the most free, 15 GiB"),
        ((6.0, 2.5), "Other programs use 2.5–6.0 GiB of each of 2 GPUs; GPU 1 has the most free, 12 GiB"),
    ],
)
def test_what_others_hold_is_one_sentence(used_gib: tuple[float, ...], expected: str | None) -> None:
    gpus = [
        replace(make_gpu("T4", gib=15.0), index=index, memory_used_bytes=int(gib * GIB))
        for index, gib in enumerate(used_gib)
    ]
    assert occupied_gpus(gpus) == expected

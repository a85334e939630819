"""`tuner-tui doctor --hardware` as a person runs it: a process of its own, on machines with and without GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.nvml import scenario
from tests.fakes.nvml.scenario import FakeGpu, FakeProcess, Scenario

Box = Callable[[Scenario], dict[str, str]]
SELF = [sys.executable, "-c", "from tuner_tui.cli.main import main; main()"]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A training interpreter that answers with known versions."""
    answer = {"python_version": "3.12.1", "packages": {"torch": "2.13.0", "peft": "0.21.2"}, "torch_cuda": "13.0"}
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\ncat >/dev/null\necho 'tuner-tui-interpreter {json.dumps(answer)}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def tuner(environment: Mapping[str, str], *words: str) -> str:
    """What the command prints; it must end with exit code 0 and write nothing else."""
    done = subprocess.run([*SELF, *words], env=dict(environment), capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def hardware(environment: Mapping[str, str], *words: str) -> str:
    return tuner(environment, "doctor", "--hardware", *words)


@pytest.fixture
def box(nvml_library: Path, tmp_path: Path) -> Box:
    """The environment of a machine whose driver follows a scenario."""

    def environment(seen: Scenario) -> dict[str, str]:
        values = replace(seen, frozen_s=0.0).environment(nvml_library, tmp_path)
        return {name: value for name, value in values.items() if name != "CUDA_VISIBLE_DEVICES"}

    return environment


def test_a_box_without_a_gpu_is_told_what_to_do(box: Box, python: Path):
    text = hardware(box(Scenario()), "--interpreter", str(python))
    assert "! The NVIDIA driver works but sees no GPU." in text
    assert "--gres=gpu:1" in text
    assert "torch 2.13.0  peft 0.21.2" in text


def test_the_report_of_a_t4(box: Box, python: Path):
    text = hardware(box(scenario.t4), "--interpreter", str(python))
    assert "driver    580.65.06  CUDA 13.0" in text
    assert "0 Tesla T4\n  15.0 GiB  compute capability 7.5  Turing  70 W" in text
    assert "  ✗ bf16   BF16 needs Ampere (capability 8.0) or newer" in text
    assert "GPU 0: 11.0 GiB used by " in text
    assert "!" not in text
    assert "\x1b" not in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_cuda_visible_devices_is_spelled_out(box: Box, python: Path):
    environment = {**box(scenario.eight_gpus), "CUDA_VISIBLE_DEVICES": "3,1"}
    text = hardware(environment, "--interpreter", str(python))
    assert "CUDA_VISIBLE_DEVICES=3,1: runs started here use GPU 3, 1" in text


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (scenario.no_driver, "! The NVIDIA driver is installed but not loaded into the kernel."),
        (scenario.mismatch, "! The NVIDIA driver's library and its loaded kernel module have different versions."),
        (Scenario((FakeGpu(lost_after_calls=0),)), "! GPU 0 has fallen off the bus."),
    ],
)
def test_problems_stand_with_their_advice(box: Box, python: Path, wrong: Scenario, sentence: str):
    lines = hardware(box(wrong), "--interpreter", str(python)).splitlines()
    assert sentence in lines
    assert lines[lines.index(sentence) + 1].startswith("  ")


def test_a_missing_interpreter_is_a_line_of_the_report(tmp_path: Path):
    text = hardware(os.environ, "--interpreter", str(tmp_path / "none"))
    assert f"! {tmp_path / 'none'} does not exist: choose another interpreter." in text.replace("\n  ", " ")


def test_json_is_one_document(box: Box, python: Path):
    gpus = (FakeGpu(name="Tesla V100-SXM2-16GB", architecture=5, capability=(7, 0), processes=(FakeProcess(1, 5),)),)
    document = json.loads(hardware(box(Scenario(gpus)), "--json", "--interpreter", str(python)))
    assert set(document) == {"inventory", "usable", "interpreter", "misfits"}
    assert document["usable"]["gpus"] == [0]
    assert document["usable"]["cores"] >= 1
    gpu = document["inventory"]["gpus"][0]
    assert gpu["capability"] == [7, 0]
    assert gpu["processes"][0]["pid"] == 1
    assert {ability["name"]: ability["able"] for ability in gpu["abilities"]}["bf16"] is False
    assert document["interpreter"]["packages"]["torch"] == "2.13.0"
    assert "no kernels for Tesla V100" in document["misfits"][0]["sentence"]
    assert document["inventory"]["cpu"]["affinity_cores"] >= 1


@pytest.mark.parametrize(("visible", "fits"), [(None, "t4-16gb"), ("", "cpu"), ("0", "t4-16gb"), ("7", "cpu")])
def test_a_preset_is_checked_against_the_gpus_that_a_training_would_see(
    box: Box, visible: str | None, fits: str
) -> None:
    environment = box(scenario.t4) | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    suits = {preset["name"]: preset["suits"] for preset in json.loads(tuner(environment, "presets", "list", "--json"))}
    assert [name for name in ("t4-16gb", "cpu") if suits[name]] == [fits]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_wait_for_an_unknown_interpreter_is_told_to_a_person(
    box: Box, python: Path, tmp_path: Path, terminal: bool
) -> None:
    environment = box(scenario.t4) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    reader, writer = os.openpty() if terminal else os.pipe()
    words = ["recommend", "--json", "--interpreter", str(python)]
    done = subprocess.run(
        [*SELF, *words], env=environment, stdout=subprocess.PIPE, stderr=writer, check=True, timeout=300
    )
    os.write(writer, b"\n")
    output = os.read(reader, 4096).decode()
    os.close(reader)
    os.close(writer)
    assert json.loads(done.stdout)["recommended"]
    assert (f"Reading the packages of {python}" in output) is terminal

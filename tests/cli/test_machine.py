"""The machine that commands speak of, on a made-up driver: each a process of its own, as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.nvml import scenario
from tests.fakes.nvml.build import NO_COMPILER, build_library

SELF = [sys.executable, "-c", "from tuner_tui.cli.main import main; main()"]


@pytest.fixture
def t4(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with a T4, and a cache where no interpreter is known."""
    library = build_library(tmp_path)
    if library is None:
        pytest.skip(NO_COMPILER)
    environment = replace(scenario.t4, frozen_s=0.0).environment(library, tmp_path)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    return environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize(("visible", "fits"), [(None, "t4-16gb"), ("", "cpu"), ("0", "t4-16gb"), ("7", "cpu")])
def test_a_preset_is_checked_against_the_cards_that_a_training_would_see(
    t4: dict[str, str], visible: str | None, fits: str
) -> None:
    environment = t4 if visible is None else t4 | {"CUDA_VISIBLE_DEVICES": visible}
    words = ["presets", "check", "t4-16gb", "cpu", "--json"]
    done = subprocess.run([*SELF, *words], env=environment, capture_output=True, text=True, check=True, timeout=300)
    other = {
        item["name"]: [w["sentence"] for w in item["warnings"] if "different hardware" in w["sentence"]]
        for item in json.loads(done.stdout)
    }
    assert [name for name, said in other.items() if not said] == [fits]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_wait_for_an_unknown_interpreter_is_told_to_a_person(
    t4: dict[str, str], tmp_path: Path, terminal: bool
) -> None:
    python = tmp_path / "python"
    answer = {"python_version": "3.12.1", "packages": {"torch": "2.13.0"}, "torch_cuda": "13.0"}
    python.write_text(f"#!/bin/sh\ncat >/dev/null\necho 'tuner-tui-interpreter {json.dumps(answer)}'\n")
    python.chmod(0o755)
    reader, writer = os.openpty() if terminal else os.pipe()
    words = ["recommend", "--json", "--interpreter", str(python)]
    done = subprocess.run([*SELF, *words], env=t4, stdout=subprocess.PIPE, stderr=writer, check=True, timeout=300)
    os.write(writer, b"\n")
    said = os.read(reader, 4096).decode()
    os.close(reader)
    os.close(writer)
    assert json.loads(done.stdout)["recommended"]
    assert (f"Reading the packages of {python}" in said) is terminal

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.procfs import write_tree
from tuner_tui.core.files import read_data_file
from tuner_tui.hardware.environment import (
    allocated_gpus,
    detect_container,
    hides_all_gpus,
    sees_host_pids,
    visible_indexes,
)
from tuner_tui.hardware.inventory import Gpu

CASES = read_data_file(Path(__file__).with_name("environment.yaml"))


@pytest.mark.parametrize("case", CASES["containers"])
def test_containers(case: dict[str, Any], tmp_path: Path):
    root = write_tree(tmp_path, case.get("files", {}))
    assert detect_container(case.get("variables", {}), root) == case.get("container")


@pytest.mark.parametrize(
    ("sliced", "variable", "seen"),
    [("", *row) for row in CASES["visible"]] + [("bc", *row) for row in CASES["slices"]] + [("", "MIG-5f", [])],
)
def test_gpus_cuda_shows_a_training(sliced: str, variable: str | None, seen: list[int]):
    gpus = [Gpu(index, "gpu", uuid=f"GPU-{name}1", mig=name in sliced) for index, name in enumerate("abc")]
    assert visible_indexes(gpus, variable) == tuple(seen)


def test_a_variable_that_hides_every_gpu():
    for hidden in (True, False):
        values = CASES["hides_all" if hidden else "hides_some"]
        assert {value: hides_all_gpus(value) for value in values} == dict.fromkeys(values, hidden)


@pytest.mark.parametrize(("link", "host"), [("pid:[4026531836]", True), ("pid:[4026532999]", False)])
def test_the_hosts_pids_are_known_by_their_namespace(link: str, host: bool, tmp_path: Path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(link)
    assert sees_host_pids(tmp_path) is host
    assert sees_host_pids(tmp_path / "none") is False


@pytest.mark.parametrize(("visible", "expected"), CASES["allocated"])
def test_the_gpus_of_an_allocation(visible: str | None, expected: list[int] | None):
    named = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert allocated_gpus({"SLURM_JOB_ID": "12", **named}) == (None if expected is None else set(expected))
    assert allocated_gpus(named) is None

"""`tuner-tui presets`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.invoke import invoke
from tuner_tui.hardware.inventory import Cpu, Gpu, HostMemory, Inventory
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.preset_file import Preset, save_preset
from tuner_tui.settings.presets import load_preset, preset_path

T4 = Gpu(0, "Tesla T4", capability=(7, 5), memory_total_bytes=16 * 2**30)
Call = Callable[..., Result]


def machine(*gpus: Gpu) -> Inventory:
    return Inventory("box", gpus, Cpu(None, 16, 16, 16), HostMemory(64 * 2**30))


@pytest.fixture
def call() -> Call:
    return partial(invoke, "presets", machine=lambda: machine(T4))


@pytest.mark.parametrize(
    ("gpus", "first"),
    [
        ((T4,), ["t4-16gb"]),
        (
            (Gpu(0, "NVIDIA A100-SXM4-80GB", capability=(8, 0), memory_total_bytes=80 * 2**30),),
            ["a100-80gb", "a100-40gb"],
        ),
        ((Gpu(0, "NVIDIA A100-SXM4-40GB", capability=(8, 0), memory_total_bytes=40 * 2**30),), ["a100-40gb"]),
        ((), ["cpu"]),
        ((Gpu(0, "GeForce GTX 1650", capability=(7, 5), memory_total_bytes=4 * 2**30),), []),
    ],
)
def test_list_has_the_presets_of_this_machine_first(gpus: tuple[Gpu, ...], first: list[str]) -> None:
    lines = invoke("presets", "list", machine=lambda: machine(*gpus)).stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("* ")] == first
    assert [line.split()[1] for line in lines[: len(first)]] == first


def test_list_as_json_is_one_document(call):
    save_preset(Preset(name="own", settings={"seed": 1}), preset_path("own"))
    listed = {item["name"]: item for item in json.loads(call("list", "--json").stdout)}
    assert listed["demo"]["shipped"] is True
    assert listed["demo"]["job"]["kind"] == "builtin"
    assert listed["own"]["shipped"] is False
    assert listed["own"]["settings"] == {"seed": 1}


def test_list_shows_a_broken_preset_and_goes_on(call):
    path = preset_path("own")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("settings: {sed: 1}")
    result = call("list")
    assert result.exit_code == 0
    assert "did you mean 'seed'?" in result.stdout
    assert "demo " in result.stdout
    path.unlink()


def test_show_prints_yaml_that_can_be_loaded(call, tmp_path):
    result = call("show", "cpu")
    assert result.exit_code == 0
    copy = tmp_path / "cpu.yaml"
    copy.write_text(result.stdout)
    assert load_preset(copy).preset.name == "cpu"


def test_show_tells_what_was_left_out_of_a_flat_file(call, tmp_path):
    flat = tmp_path / "flat.yaml"
    flat.write_text("fp16: true\nfp16_opt_level: O2\n")
    result = call("show", str(flat))
    assert "precision: fp16" in result.stdout
    assert "fp16_opt_level ignored" in result.stderr
    assert json.loads(call("show", str(flat), "--json").stdout)["notes"]


def test_save_takes_a_preset_and_changes(call):
    result = call("save", "own", "--from", "cpu", "--set", "learning_rate=1e-5", "--set", "seed=7")
    assert result.exit_code == 0
    assert str(preset_path("own")) in result.stdout
    saved = load_preset(preset_path("own")).preset
    assert saved.name == "own"
    assert saved.settings["learning_rate"] == 1e-5
    assert saved.settings["precision"] == "fp32"
    assert "learning_rate: 1.0e-05" in preset_path("own").read_text()


def test_import_saves_no_preset_without_settings_or_a_command(call, tmp_path):
    makefile = tmp_path / "Makefile"
    makefile.write_text("first:\n\tpython train.py --data a\nsecond:\n\tpython train.py --data b\n")
    (tmp_path / "train.py").write_text("loss.backward()\n")
    refused = call("import", str(makefile), "--name", "two")
    assert refused.exit_code == 2
    assert "gives no setting and no whole command" in refused.output
    assert "it has 2 parts that train: first, second" in refused.output
    assert not preset_path("two").exists()
    makefile.write_text("first:\n\tpython train.py --data a\n")
    assert call("import", str(makefile), "--name", "two").exit_code == 0
    job = load_preset(preset_path("two")).preset.job
    assert isinstance(job, CommandJob)
    assert job.command == ("python", "train.py", "--data", "a")


def test_save_does_not_replace_without_a_yes(call):
    assert call("save", "own", "--set", "seed=1").exit_code == 0
    refused = call("save", "own", "--set", "seed=2")
    assert refused.exit_code == 2
    assert "add --yes to replace it" in refused.stderr
    assert load_preset(preset_path("own")).preset.settings == {"seed": 1}
    replaced = call("save", "own", "--set", "seed=2", "--yes", "--json")
    assert json.loads(replaced.stdout) == {"name": "own", "path": str(preset_path("own"))}
    assert load_preset(preset_path("own")).preset.settings == {"seed": 2}


def test_what_was_measured_with_other_settings_is_not_kept(call, tmp_path):
    source = tmp_path / "measured.yaml"
    save_preset(Preset(name="measured", after="285 samples/s", source="a table", settings={"seed": 1}), source)
    call("save", "own", "--from", str(source), "--set", "seed=2")
    saved = load_preset(preset_path("own")).preset
    assert saved.after is None
    assert saved.source == "a table"


def test_shipped_presets_are_good(repository: Path) -> None:
    files = sorted((repository / "presets").glob("*.yaml"))
    assert files
    assert not [path for path in files if load_preset(path).notes]

"""`tuner-tui recommend`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from tests.cli.invoke import invoke
from tests.fakes.inventories import box, make_gpu, python
from tuner_tui.cli.machine import LocalMachine
from tuner_tui.hardware.inventory import Inventory

Call = Callable[..., Result]
T4 = box(make_gpu("T4", gib=15.0), cores=8)


def caller(inventory: Inventory) -> Call:
    return partial(invoke, "recommend", machine=lambda path: LocalMachine(inventory, python()))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    return caller(T4)


def test_setting_value_reason_and_source_stand_in_columns(call: Call) -> None:
    lines = call().stdout.splitlines()
    row = next(line for line in lines if line.startswith("  precision"))
    assert row[:51] == f"  {'precision':<29} {'fp16':<18} "
    assert "T4 (Turing 7.5) has fp16 tensor cores" in row
    assert all(len(line) <= 120 for line in lines)
    assert "Effective batch  32 × 1 = 32  (micro batch × accumulation)" in lines
    assert any("left its GPU idle" in line for line in lines)


def test_what_was_considered_and_left_is_told(call: Call) -> None:
    text = call().stdout.partition("Considered, not recommended")[2]
    assert "flash_attention_2" in text
    assert "flash attention needs compute capability 8.0" in text


def test_json_is_one_document(call: Call) -> None:
    document = json.loads(call("--json", "--set", "max_steps=100").stdout)
    advised = {recommended_setting["name"]: recommended_setting for recommended_setting in document["recommended"]}
    assert advised["precision"]["value"] == "fp16"
    assert advised["precision"]["reason"]
    assert advised["precision"]["source"]
    assert document["effective_batch"] == 32
    assert document["given"]["max_steps"] == {"value": 100, "origin": "flag", "detail": "--set max_steps"}
    assert document["expected_time"]["samples"] == 3200
    assert document["expected_time"]["low_s"] < document["expected_time"]["high_s"]
    assert document["expected_time"]["measured"] is False
    assert {rejected["name"] for rejected in document["rejected"]} >= {"torch_compile", "tf32"}


def test_a_presets_values_and_job_stay(call: Call) -> None:
    document = json.loads(call("--json", "--preset", "demo").stdout)
    assert document["job"]["model"] == "tiny"
    assert document["given"]["learning_rate"]["value"] == 1e-3
    assert "learning_rate" not in {recommended_setting["name"] for recommended_setting in document["recommended"]}
    assert document["expected_time"] is None
    text = call("--preset", "demo").stdout
    assert "  learning_rate                 0.001              preset demo" in text
    assert "unknown until a run measures it" in " ".join(text.split())


def test_another_effective_batch_than_the_presets_is_told_with_its_learning_rate(call: Call) -> None:
    words = ("--preset", "rtx3070-8gb", "--set", "per_device_train_batch_size=40")
    text = " ".join(call(*words).stdout.split())
    assert (
        "! The effective batch is now 80 (was 96): per_device_train_batch_size=32 gradient_accumulation_steps=3" in text
    )
    assert json.loads(call(*words, "--json").stdout)["batch_change"]["held"]["accumulation"] == 3
    assert "The effective batch is now" not in call("--preset", "rtx3070-8gb").stdout


TOOL_FILE = """base_model: acme/base-1b  # a comment
dataloader_num_workers: 0
micro_batch_size: 2
sequence_len: 512
bf16: true
plugins: [a.b]
"""


def test_a_tools_file_is_patched_and_the_rest_stays(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "my.yml"
    file.write_text(TOOL_FILE)
    file.chmod(0o640)
    shown = call(str(file), "--patch")
    assert shown.exit_code == 0, shown.stderr
    assert file.read_text() == TOOL_FILE
    assert "causal language modelling with acme/base-1b, 512 tokens" in call(str(file)).stdout
    assert "-bf16: true\n" in shown.stdout  # a T4 has fp16 only
    assert "+fp16: true\n" in shown.stdout
    assert call(str(file), "--write").exit_code == 0
    lines = file.read_text().splitlines()
    assert [line for line in TOOL_FILE.splitlines() if line not in lines] == ["dataloader_num_workers: 0", "bf16: true"]
    assert file.stat().st_mode & 0o777 == 0o640
    assert "needs no change" in call(str(file), "--write").stderr


def test_what_the_tool_chooses_is_left_to_it_and_a_value_given_is_written(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "my.yml"
    file.write_text("base_model: m\nbf16: auto\nmicro_batch_size: 2\n")
    assert call(str(file), "--write", "--set", "per_device_train_batch_size=4").exit_code == 0
    assert file.read_text().startswith("base_model: m\nbf16: auto\nmicro_batch_size: 4\n")
    assert "fp16" not in file.read_text()


def test_the_tuners_preset_is_written_into_the_file(call: Call, tmp_path: Path) -> None:
    file, tuned = tmp_path / "my.yml", tmp_path / "tuned.yaml"
    file.write_text(TOOL_FILE)
    tuned.write_text("settings: {per_device_train_batch_size: 8, dataloader_num_workers: 3, precision: bf16}\n")
    assert call(str(file), "--preset", str(tuned), "--write").exit_code == 0
    expected = TOOL_FILE.replace("workers: 0", "workers: 3").replace("micro_batch_size: 2", "micro_batch_size: 8")
    assert [line for line in expected.splitlines() if line not in file.read_text().splitlines()] == []


def test_a_file_gets_values_of_the_gpu_that_is_named(tmp_path: Path) -> None:
    file, call = tmp_path / "my.yml", caller(box(cores=8))
    file.write_text(TOOL_FILE)
    assert call(str(file), "--write", "--gpu", "T4").exit_code == 0
    assert "fp16: true\n" in file.read_text()  # a T4 has no bf16
    several = call(str(file), "--write", "--gpu", "T4,A100")
    assert (several.exit_code, "need one kind of GPU" in several.stderr) == (2, True)


def test_without_a_gpu_only_given_values_are_written(tmp_path: Path) -> None:
    file, call = tmp_path / "my.yml", caller(box(cores=8))
    file.write_text(TOOL_FILE)
    refused = call(str(file), "--write")
    assert (refused.exit_code, "name the GPU (--gpu A100-80GB)" in refused.stderr) == (2, True)
    assert call(str(file), "--write", "--set", "max_length=256").exit_code == 0
    assert file.read_text() == TOOL_FILE.replace("sequence_len: 512", "sequence_len: 256")
    assert call(str(file), "--write", "--gpu", "cpu").exit_code == 0
    assert "bf16: false\n" in file.read_text()


def test_what_needs_workers_is_off_without_them(tmp_path: Path) -> None:
    file = tmp_path / "my.yml"
    file.write_text(
        "model_name_or_path: gpt2\ndataset_name: d\nper_device_train_batch_size: 2\ndataloader_num_workers: 4\n"
        "dataloader_persistent_workers: true\ndataloader_prefetch_factor: 2\n"
    )
    one_core = caller(box(make_gpu("T4", gib=15.0), cores=1))
    assert one_core(str(file), "--write").exit_code == 0
    values = yaml.safe_load(file.read_text())
    assert values["dataloader_num_workers"] == 0
    assert not values["dataloader_persistent_workers"]
    assert values.get("dataloader_prefetch_factor") is None


def test_workers_stay_where_what_needs_them_cannot_be_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "my.yml"
    text = (
        "model_name_or_path: gpt2\ndataset_name: d\nper_device_train_batch_size: 2\nbf16: true\n"
        "dataloader_num_workers: 4\ndataloader_persistent_workers: &on true\nuse_cache: *on\n"
    )
    file.write_text(text)
    result = caller(box(make_gpu("T4", gib=15.0), cores=1))(str(file), "--write")
    assert result.exit_code == 0
    assert "dataloader_num_workers: 4\n" in file.read_text()
    assert "bf16: false\n" in file.read_text()
    assert "dataloader_num_workers stay as they are" in result.stderr


def test_a_file_that_keeps_its_training_on_the_processor_gets_its_values(tmp_path: Path) -> None:
    file = tmp_path / "arguments.yaml"
    file.write_text("model_name_or_path: gpt2\ndataset_name: d\nuse_peft: true\nbf16: true\nuse_cpu: true\n")
    assert caller(box(cores=8))(str(file), "--write").exit_code == 0
    assert "bf16: false\n" in file.read_text()


def test_a_script_that_can_be_run_is_a_file_to_write_to(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text("python train.py --per_device_train_batch_size 4 --fp16 True --seed 1\n")
    file.chmod(0o755)
    assert call(str(file), "--write", "--set", "seed=2").exit_code == 0
    assert "--seed 2" in file.read_text()


def test_a_configuration_that_can_be_run_is_a_file(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "eval.yaml"
    file.write_text("benchmarks: [a, b]\nmax_new_tokens: 9\n")
    file.chmod(0o755)
    assert "is for an evaluation" in call(str(file)).output


def test_a_file_is_said_to_show_its_command_or_none(call: Call, tmp_path: Path) -> None:
    script, settings = tmp_path / "train.sh", tmp_path / "own.yaml"
    script.write_text("python fit.py --seed 1\n")
    script.chmod(0o755)
    assert "Starts python fit.py --seed 1" in call(str(script)).stdout
    settings.write_text("train: {lr: 0.1, batch_size: 2, epochs: 3}\n")
    document = json.loads(call(str(settings), "--json").stdout)
    assert document["job"]["command"] is None
    assert any("the command that reads own.yaml is unknown" in note for note in document["notes"])


def test_a_preset_is_not_patched(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("settings: {seed: 3}\n")
    result = call(str(file), "--write")
    assert (result.exit_code, "is a preset" in result.stderr) == (2, True)
    assert call("--write").exit_code == 2


QWEN = ("--model", "Qwen/Qwen2.5-7B", "--task", "causal-lm", "--set", "max_length=1024")


def test_a_named_model_takes_the_place_of_the_notes_job(call: Call) -> None:
    document = json.loads(call(*QWEN, "--json").stdout)
    assert (document["job"]["model"], document["job"]["task"]) == ("Qwen/Qwen2.5-7B", "causal-lm")
    assert {
        recommended_setting["name"]: recommended_setting["value"] for recommended_setting in document["recommended"]
    }["peft_method"] == "lora"


def test_gpus_that_are_not_here(call: Call) -> None:
    document = json.loads(call(*QWEN, "--gpu", "T4,2x3090,A100-80GB", "--json").stdout)
    precision = {
        gpu["gpu"]: next(
            recommended_setting["value"]
            for recommended_setting in gpu["recommended"]
            if recommended_setting["name"] == "precision"
        )
        for gpu in document["gpus"]
    }
    assert precision == {"T4 16.0 GiB": "fp16", "2 × RTX 3090 24.0 GiB": "bf16", "A100 80.0 GiB": "bf16"}
    text = call("--gpu", "T4").stdout
    assert text.startswith("On T4 16.0 GiB")
    assert call("--gpu", "T5").exit_code == 2


def test_a_size_of_memory_stands_for_a_gpu_of_today(call: Call) -> None:
    document = json.loads(call("--gpu", "24GiB", "--json").stdout)
    (planned,) = document["gpus"]
    assert planned["gpu"] == "24.0 GiB GPU, assumed to be Ampere or newer"
    assert {
        recommended_setting["name"]: recommended_setting["value"] for recommended_setting in planned["recommended"]
    }["precision"] == "bf16"


def test_a_command_and_the_model_that_it_names(call: Call) -> None:
    words = ("--json", "--", "python", "run_clm.py", "--model_name_or_path", "Qwen/Qwen2.5-7B")
    document = json.loads(call(*words).stdout)
    assert document["job"]["command"] == list(words[2:])
    plain = call("--", "python", "train.py").stdout
    assert "For your command; its model and task are unknown" in plain
    assert all(part not in plain for part in ("per_device_train_batch_size", "learning_rate", "Effective batch"))
    assert "causal language modelling with Qwen/Qwen2.5-7B" in call(*words[1:]).stdout
    of_images = (
        "--",
        "accelerate",
        "launch",
        "train_text_to_image_lora.py",
        "--pretrained_model_name_or_path",
        "acme/pond-v1",
    )
    shown = call(*of_images).stdout
    assert "For acme/pond-v1" in shown
    assert "The memory model does not know this training" in shown


def test_the_batch_line_says_what_the_file_leaves_open(call: Call, tmp_path: Path) -> None:
    tmp_path.joinpath("a.yaml").write_text("trainer: {devices: -1, max_epochs: 3}\nlr: 0.1\nbatch_size: 4\n")
    tmp_path.joinpath("b.sh").write_text("python fit.py --lr 0.1 --batch_size 4 --epochs 3 --global_batch_size 64\n")
    tmp_path.joinpath("c.sh").write_text(f"{tmp_path.joinpath('b.sh').read_text().strip()} --grad_accum_steps 2\n")
    lines = [line for name in ("a.yaml", "b.sh", "c.sh") for line in call(name).stdout.splitlines()]
    assert [line.partition("batch  ")[2] for line in lines if line.startswith("Effective batch")] == [
        "4 × 1 = 4  (micro batch × accumulation, on each GPU; no accumulation was read: 1 is assumed)",
        "64  (of all GPUs together, by the file)",
        "4 × 2 = 8  (micro batch × accumulation)",
    ]


def test_no_optimizer_replaces_that_of_an_unknown_command(call: Call, tmp_path: Path) -> None:
    tmp_path.joinpath("Makefile").write_text(
        "a:\n\tpython a.py --lr 0.1 --epochs 2\nb:\n\tpython b.py --lr 0.1 --epochs 4\n"
    )
    tmp_path.joinpath("a.yaml").write_text("learning_rate: 0.1\nnum_train_epochs: 2\nper_device_train_batch_size: 4\n")
    assert "optim" not in re.findall(r"(?m)^  (\w+)", call("Makefile").stdout)
    assert "optim" in re.findall(r"(?m)^  (\w+)", call("a.yaml").stdout)

"""`tuner-tui presets export` and `presets import`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.cli.invoke import invoke
from tuner_tui.settings.presets import preset_path

run = partial(invoke, "presets")


def written(tmp_path: Path, text: str, name: str = "mine.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_preset_in_a_tools_words(tmp_path: Path) -> None:
    preset = written(tmp_path, "settings:\n  max_length: 512\n  precision: bf16\n  learning_rate: 1e-5\n")
    result = run("export", str(preset), "--to", "llama-factory")
    assert result.exit_code == 0, result.stderr
    assert yaml.safe_load(result.stdout) == {"bf16": True, "fp16": False, "learning_rate": 1e-5, "cutoff_len": 512}
    assert "llamafactory-cli train FILE" in result.stderr


def test_what_the_tool_has_no_place_for_is_said(tmp_path: Path) -> None:
    preset = written(tmp_path, "settings:\n  dataloader_persistent_workers: on\n  seed: 3\n")
    result = run("export", str(preset), "--to", "axolotl")
    assert yaml.safe_load(result.stdout) == {"seed": 3}
    assert "Left out: no key of axolotl is known for dataloader_persistent_workers" in result.stderr
    document = json.loads(run("export", str(preset), "--to", "axolotl", "--json").stdout)
    assert document["not_carried"] == ["dataloader_persistent_workers"]


def test_a_tools_file_becomes_a_preset(tmp_path: Path) -> None:
    file = written(tmp_path, "base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 1024\nadapter: lora\n")
    result = run("import", str(file), "--name", "ax", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["settings"] == {"per_device_train_batch_size": 2, "max_length": 1024, "peft_method": "lora"}
    assert document["left_out"] == []
    assert document["job"]["command"] == ["axolotl", "train", str(file)]
    assert (document["job"]["model"], document["job"]["apply"]) == ("gpt2", "yaml")
    again = run("import", str(file), "--name", "ax")
    assert again.exit_code == 2
    assert "--yes" in again.stderr


def test_an_imported_command_is_saved_with_its_secrets_and_shown_without(tmp_path: Path) -> None:
    secret = "https://discord.com/api/webhooks/77/q7Wd2kPz9LmX4vTb"
    script = f"export WANDB_API_KEY=q7Wd2kPz\nsrun --mail-user q7Wd2@acme.org python a.py --seed 3 --tell {secret}\n"
    file = written(tmp_path, script, "job.sh")
    shown = [run("import", str(file), "--yes", *more) for more in ([], ["--json"])]
    shown += [run("show", name, *more) for name in ("job", str(file)) for more in ([], ["--json"])]
    assert all(result.exit_code == 0 and "q7Wd2" not in result.output for result in shown)
    assert preset_path("job").read_text().count("q7Wd2") == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "not valid YAML"),
        ("- a", "key: value"),
        ("1: a", "words as keys"),
        ("x: 1", "nor a known configuration file"),
        ("a: 2024-99-99", "month must be in 1..12"),
        (f"seed: {'1' * 5000}", "Exceeds the limit"),
        (f"a: {'[' * 3000}", "nested deeper than 16 levels"),
    ],
)
def test_a_file_that_gives_nothing(tmp_path: Path, text: str, expected: str) -> None:
    result = run("import", str(written(tmp_path, text)), "--name", "x")
    assert result.exit_code == 2
    assert expected in result.stderr


MANY = "settings: {warmup_steps: 0.1, max_length: 64, learning_rate: 1e-5, train_sampling_strategy: sequential}\n"


@pytest.mark.parametrize(
    ("tool", "start"),
    [
        ("hf-args", "--learning_rate 1e-05 "),
        ("hf-python", 'training_arguments = TrainingArguments(\n    output_dir="output",\n    learning_rate=1e-05,'),
        ("unsloth", 'training_arguments = SFTConfig(\n    output_dir="output",\n    learning_rate=1e-05,'),
        ("hydra", "model.optimizer.lr=1e-05 "),
        ("lightning", "optimizer:\n  init_args:\n    lr: 1.0e-05\n"),
        ("deepspeed", '{\n  "optimizer": {\n    "params": {\n      "lr": 1e-05\n'),
    ],
)
def test_each_form_of_text(tmp_path: Path, tool: str, start: str) -> None:
    result = run("export", str(written(tmp_path, MANY)), "--to", tool)
    text = "".join(line for line in result.stdout.splitlines(keepends=True) if not line.startswith("#"))
    assert text.startswith(start), text


def test_one_tools_file_for_another(tmp_path: Path) -> None:
    file = written(tmp_path, "base_model: acme/m\nmicro_batch_size: 2\nadapter: lora\nsequence_len: 64\n", "a.yml")
    exported = yaml.safe_load(run("export", str(file), "--to", "llama-factory").stdout)
    assert exported == {
        "model_name_or_path": "acme/m", "per_device_train_batch_size": 2, "cutoff_len": 64, "finetuning_type": "lora",
    }  # fmt: skip

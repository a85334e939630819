"""The ways in which settings reach a command."""

from __future__ import annotations

import copy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from msgspec import convert

from tests.settings.strategies import all_settings
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.settings.apply import TRAINER, AppliedCommand, build_command
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.dialects.hf import SWITCHES
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, job_from_json
from tuner_tui.settings.model import FIELDS, Settings

SETTINGS = Settings(learning_rate=1e-5, precision="bf16", per_device_train_batch_size=16)
CHOSEN = ("learning_rate", "precision", "per_device_train_batch_size")
EXAMPLES = yaml.load(Path(__file__).with_name("apply.yaml").read_text(), yaml.CSafeLoader)


def applied(
    command: str, mode: str, settings: Settings = SETTINGS, chosen: tuple[str, ...] | None = CHOSEN, **job: object
) -> AppliedCommand:
    made = convert({"command": tuple(shlex.split(command)), "apply": mode, **job}, CommandJob)
    return build_command(made, settings, None, "/runs/1/out", chosen=chosen)


def test_the_built_in_job_is_an_ordinary_command_with_one_flat_file():
    job = BuiltinJob(task="causal-lm", model="gpt2", max_samples=100)
    command = build_command(job, SETTINGS, Interpreter("/env/bin/python"), "/runs/1/out", chosen=())
    assert command.argv == ("/env/bin/python", str(TRAINER), "{config}")
    assert command.config_yaml is not None
    config = yaml.safe_load(command.config_yaml)
    assert config["learning_rate"] == 1e-5
    assert config["bf16"] is True
    assert config["task"] == "causal-lm"
    assert config["model"] == "gpt2"
    assert config["max_samples"] == 100
    assert config["max_length"] == 128
    assert config["output_dir"] == "/runs/1/out"
    assert config["report_to"] == "none"
    assert config["max_steps"] == -1
    assert None not in config.values()
    assert "learning_rate: 1.0e-05" in command.config_yaml
    assert command.not_applied == ()


def test_the_built_in_job_runs_on_this_python_where_no_other_is_named():
    assert build_command(BuiltinJob(), Settings(), None, "out").argv[0] == sys.executable
    assert (TRAINER / "__main__.py").is_file()


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_what_reaches_a_command(example: dict[str, Any]) -> None:
    values = example.get("settings")
    job = CommandJob(command=tuple(shlex.split(example["command"])), apply=example["apply"], **example.get("job", {}))
    settings = SETTINGS if values is None else Settings(**values)
    own_values = copy.deepcopy(example.get("own"))
    chosen = CHOSEN if values is None else tuple(values)
    command = build_command(job, settings, None, "/runs/1/out", chosen=chosen, own_config=own_values)
    assert shlex.join(command.argv) == example["argv"]
    if "config" in example:
        assert yaml.safe_load(command.config_yaml or "") == example["config"]
    assert command.inject == example.get("inject")
    assert list(command.not_applied) == example.get("not_applied", list(command.not_applied))
    assert own_values == example.get("own"), "the command's own file is not changed"


def test_the_target_interpreter_decides_the_names():
    old = Interpreter("/old/python", training_arguments={"gradient_checkpointing": False, "warmup_ratio": 0.0})
    config = yaml.safe_load(build_command(BuiltinJob(), Settings(warmup_steps=0.1), old, "out").config_yaml or "")
    assert config["gradient_checkpointing"] is False
    assert config["warmup_ratio"] == 0.1
    assert "activation_checkpointing" not in config


@pytest.mark.parametrize(
    ("word", "expected"),
    [("{learning_rat}", "did you mean {learning_rate}?"), ("{zzz}", "is not a setting"), ("{tf32}", "which is empty")],
)
def test_a_placeholder_nobody_can_fill_is_an_error(word, expected):
    with pytest.raises(FieldError) as caught:
        applied(f"python t.py {word}", "placeholders")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("python t.py", "python t.py"),
        ("python t.py --learning_rate 3e-4 data", "python t.py data"),
        ("python t.py --learning-rate=3e-4 data", "python t.py data"),
        ("torchrun -n 2 t.py --fp16 data.json", "torchrun -n 2 t.py data.json"),
        ("python t.py --bf16 False --seed 1", "python t.py --seed 1"),
        ("python t.py --no_bf16 --seed 1", "python t.py --seed 1"),
        ("python t.py --per_device_train_batch_size -1 -v", "python t.py -v"),
        ("python t.py --learning_rate", "python t.py"),
        ("python t.py --learning_rate_decay 0.1", "python t.py --learning_rate_decay 0.1"),
    ],
)
def test_hf_args_take_the_place_of_what_the_command_says(command, kept):
    argv = applied(command, "hf-args").argv
    assert shlex.join(argv) == (
        f"{kept} --per_device_train_batch_size 16 --bf16 True --fp16 False --learning_rate 1e-05"
    )


def test_without_a_choice_every_setting_reaches_the_command():
    every = applied("t.py", "hf-args", Settings(), None)
    assert "--seed" in every.argv
    assert every.not_applied == tuple(name for name in FIELDS if name in every.not_applied)
    assert "max_length" in every.not_applied


def test_a_yaml_command_must_say_where_the_file_goes():
    with pytest.raises(SettingsError, match=r"\{config\}"):
        applied("tool train", "yaml")


@pytest.mark.parametrize(
    ("dialect", "mode"), [("hf", "placeholders"), ("hydra", "placeholders"), ("llama-factory", "yaml")]
)
def test_the_mode_hydra_of_earlier_versions_is_still_read(dialect, mode):
    values = {"kind": "command", "command": ["t.py", "x.yaml"], "apply": "hydra", "dialect": dialect}
    job = job_from_json({**values, "aliases": {"learning_rate": "lr"}})
    assert isinstance(job, CommandJob)
    assert job.apply == mode


def test_a_dialect_nobody_knows_is_an_error():
    with pytest.raises(SettingsError, match=r"'axolotol' is not a supported format.*did you mean 'axolotl'"):
        applied("t.py", "hf-args", dialect="axolotol")


@given(all_settings)
def test_the_built_in_jobs_file_is_plain_yaml_of_all_settings(settings):
    config = yaml.safe_load(build_command(BuiltinJob(), settings, None, "out").config_yaml or "")
    assert config["learning_rate"] == settings.learning_rate
    assert config["seed"] == settings.seed
    assert config["lora_alpha"] == settings.lora_alpha
    assert None not in config.values()


def test_a_switch_before_a_file_name_does_not_take_it():
    assert remove_options(("t.py", "--bf16", "data.json"), {"bf16"}) == ("t.py", "data.json")
    assert {"bf16", "tf32", "torch_compile"} <= SWITCHES

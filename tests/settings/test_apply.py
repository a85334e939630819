"""The ways in which settings reach a command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given

from tests.settings.strategies import all_settings
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.settings.apply import AppliedCommand, build_command, trainer_folder
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.dialects.hf import SWITCHES
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Settings

SETTINGS = Settings(learning_rate=1e-5, precision="bf16", per_device_train_batch_size=16)
CHOSEN = ("learning_rate", "precision", "per_device_train_batch_size")


def applied(
    command: str, mode: str, settings: Settings = SETTINGS, chosen: tuple[str, ...] | None = CHOSEN, **job: object
) -> AppliedCommand:
    made = CommandJob.model_validate({"command": tuple(shlex.split(command)), "apply": mode, **job})
    return build_command(made, settings, None, "/runs/1/out", chosen=chosen)


def test_the_built_in_job_is_an_ordinary_command_with_one_flat_file():
    job = BuiltinJob(task="causal-lm", model="gpt2", max_samples=100)
    command = build_command(job, SETTINGS, Interpreter("/env/bin/python"), "/runs/1/out", chosen=())
    assert command.argv == ("/env/bin/python", str(trainer_folder()), "{config}")
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
    assert (trainer_folder() / "__main__.py").is_file()


def test_the_target_interpreter_decides_the_names():
    old = Interpreter("/old/python", training_arguments={"gradient_checkpointing": False, "warmup_ratio": 0.0})
    config = yaml.safe_load(build_command(BuiltinJob(), Settings(warmup_steps=0.1), old, "out").config_yaml or "")
    assert config["gradient_checkpointing"] is False
    assert config["warmup_ratio"] == 0.1
    assert "activation_checkpointing" not in config


def test_placeholders_are_filled_in():
    command = applied(
        "python t.py --lr={learning_rate} -b {per_device_train_batch_size} --p {precision} --bf16 {bf16} "
        "--steps {max_steps} --ckpt {gradient_checkpointing} -o {output_dir} --json '{\"a\": 1}'",
        "placeholders",
    )
    assert shlex.join(command.argv) == (
        "python t.py --lr=1e-05 -b 16 --p bf16 --bf16 true --steps -1 --ckpt false -o /runs/1/out --json '{\"a\": 1}'"
    )
    assert command.not_applied == ()


def test_settings_without_a_placeholder_are_not_applied():
    assert applied("python t.py {learning_rate}", "placeholders").not_applied == (
        "per_device_train_batch_size",
        "precision",
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [("{learning_rat}", "did you mean {learning_rate}?"), ("{zzz}", "is not a setting"), ("{tf32}", "which is empty")],
)
def test_a_placeholder_nobody_can_fill_is_an_error(word, said):
    with pytest.raises(FieldError) as caught:
        applied(f"python t.py {word}", "placeholders")
    assert said in str(caught.value)


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


def test_an_old_spelling_on_the_command_line_goes_too():
    argv = applied("t.py --warmup_ratio 0.1", "hf-args", Settings(warmup_steps=10.0), ("warmup_steps",)).argv
    assert argv == ("t.py", "--warmup_steps", "10")


def test_an_empty_value_takes_the_commands_own_away():
    argv = applied("t.py --tf32 True --seed 1", "hf-args", Settings(), ("tf32",)).argv
    assert argv == ("t.py", "--seed", "1")


def test_only_what_was_chosen_reaches_another_command():
    assert applied("t.py --seed 1", "hf-args", Settings(), ()).argv == ("t.py", "--seed", "1")
    every = applied("t.py", "hf-args", Settings(), None)
    assert "--seed" in every.argv
    assert every.not_applied == tuple(name for name in FIELDS if name in every.not_applied)
    assert "max_length" in every.not_applied


def test_an_alias_gives_a_setting_a_place():
    command = applied(
        "t.py --max_seq_length 512", "hf-args", Settings(max_length=64), ("max_length",),
        aliases={"max_length": "max_seq_length"},
    )  # fmt: skip
    assert command.argv == ("t.py", "--max_seq_length", "64")
    assert command.not_applied == ()


def test_settings_without_a_placeholder_go_through_the_alias_map():
    command = applied(
        "python t.py training.lr=3e-4 +extra.bs=1 model=big dir=${name}",
        "placeholders",
        aliases={"learning_rate": "training.lr", "per_device_train_batch_size": "extra.bs"},
    )
    assert command.argv == ("python", "t.py", "training.lr=1e-05", "+extra.bs=16", "model=big", "dir=${name}")
    assert command.not_applied == ("precision",)


def test_hydra_writes_empty_and_boolean_values_its_way():
    names = {"tf32": "a.tf32", "torch_compile": "a.compile"}
    argv = applied("t.py", "placeholders", Settings(), tuple(names), aliases=names).argv
    assert argv == ("t.py", "a.tf32=null", "a.compile=false")


def test_a_yaml_file_holds_what_was_chosen():
    command = applied("tool train {config}", "yaml", aliases={"learning_rate": "lr"})
    assert command.argv == ("tool", "train", "{config}")
    assert yaml.safe_load(command.config_yaml or "") == {
        "per_device_train_batch_size": 16, "bf16": True, "fp16": False, "lr": 1e-5,
    }  # fmt: skip


def test_a_yaml_command_must_say_where_the_file_goes():
    with pytest.raises(SettingsError, match=r"\{config\}"):
        applied("tool train", "yaml")


def test_the_commands_own_file_is_kept_and_the_settings_put_into_it():
    job = CommandJob(command=("axolotl", "train", "my.yml", "--debug"), apply="yaml", dialect="axolotl")
    own = {
        "base_model": "gpt2",
        "datasets": [{"path": "a"}],
        "bf16": "auto",
        "warmup_ratio": 0.1,
        "micro_batch_size": 1,
    }
    chosen = ("precision", "per_device_train_batch_size", "warmup_steps", "dataloader_persistent_workers")
    settings = Settings(precision="fp16", per_device_train_batch_size=4, warmup_steps=20.0)
    command = build_command(job, settings, None, "/out", chosen=chosen, own_config=own)
    assert command.argv == ("axolotl", "train", "{config}", "--debug")
    assert yaml.safe_load(command.config_yaml or "") == {
        "base_model": "gpt2",
        "datasets": [{"path": "a"}],
        "micro_batch_size": 4,
        "bf16": False,
        "fp16": True,
        "warmup_steps": 20,
    }
    assert command.not_applied == ("dataloader_persistent_workers",)
    assert own["micro_batch_size"] == 1


@pytest.mark.parametrize("option", ["--config=", "config="])
def test_a_file_may_be_named_after_an_equals_sign(option):
    job = CommandJob(command=("t.py", f"{option}c.yaml"), apply="yaml", dialect="own-script")
    command = build_command(job, Settings(), None, "/out", chosen=("learning_rate",), own_config={"lr": 1})
    assert command.argv == ("t.py", f"{option}{{config}}")


def test_an_alias_leads_into_a_section():
    job = CommandJob(command=("t.py", "c.yaml"), apply="yaml", aliases={"learning_rate": "optimizer.args.lr"})
    own = {"optimizer": {"name": "adam", "args": {"lr": 1.0, "eps": 2.0}}}
    command = build_command(job, Settings(learning_rate=1e-5), None, "/out", chosen=("learning_rate",), own_config=own)
    assert yaml.safe_load(command.config_yaml or "") == {
        "optimizer": {"name": "adam", "args": {"lr": 1e-5, "eps": 2.0}}
    }


@pytest.mark.parametrize(
    ("dialect", "mode"), [("hf", "placeholders"), ("hydra", "placeholders"), ("llama-factory", "yaml")]
)
def test_the_mode_hydra_of_earlier_versions_is_still_read(dialect, mode):
    values = {"command": ["t.py", "x.yaml"], "apply": "hydra", "dialect": dialect, "aliases": {"learning_rate": "lr"}}
    assert CommandJob.model_validate(values).apply == mode


def test_inject_leaves_the_command_alone():
    command = applied("python t.py", "inject", chosen=(*CHOSEN, "max_length"))
    assert command.argv == ("python", "t.py")
    assert command.inject == {
        "per_device_train_batch_size": 16, "bf16": True, "fp16": False, "learning_rate": 1e-5,
    }  # fmt: skip
    assert command.not_applied == ("max_length",)


def test_none_applies_nothing_and_says_so():
    command = applied("python t.py -o {output_dir}", "none")
    assert command.argv == ("python", "t.py", "-o", "/runs/1/out")
    assert command.not_applied == ("per_device_train_batch_size", "precision", "learning_rate")


def test_a_dialect_nobody_knows_is_an_error():
    with pytest.raises(SettingsError, match=r"'axolotol' is not a supported format.*did you mean axolotl"):
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


def test_the_trainer_lies_beside_the_settings():
    assert trainer_folder() == Path(sys.modules["tuner_tui"].__file__ or "").parent / "trainer"

"""Configuration files of training tools, opened as they are: settings, the tool's command on them, model and data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tuner_tui.settings.apply import AppliedCommand, build_command, default_apply_mode
from tuner_tui.settings.dialects.dialect import dialects
from tuner_tui.settings.dialects.dialect_choice import dialect_of_file
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.file_update import update_tool_file
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.presets import load_preset
from tuner_tui.settings.resolve import LaunchOptions, resolve_training
from tuner_tui.settings.tool_choice import tool_of_file
from tuner_tui.settings.yaml_reader import read_tool_file

AXOLOTL = """base_model: acme/base-1b
datasets:
  - path: acme/chat
    type: chat_template
  - path: local.jsonl
adapter: qlora
load_in_4bit: true
sequence_len: 2048
micro_batch_size: 2
bf16: auto
"""
TRL = "model_name_or_path: acme/base-1b\ndataset_name: acme/pairs\nbeta: 0.1\nmax_length: 512\n"


def opened(folder: Path, text: str, name: str = "my.yaml") -> CommandJob:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    job = load_preset(path).preset.job
    assert isinstance(job, CommandJob)
    return job


def test_what_the_file_says_beyond_the_settings_stays(tmp_path: Path) -> None:
    opened(tmp_path, AXOLOTL)
    path = tmp_path / "my.yaml"
    training = resolve_training(LaunchOptions(str(path), {"per_device_train_batch_size": "4"}, project=None))
    assert isinstance(training.job, CommandJob)
    file_values = read_tool_file(path).values
    applied = build_command(
        training.job, training.resolved.settings, None, "out", chosen=training.resolved.chosen, own_config=file_values
    )
    assert applied.argv == ("axolotl", "train", "{config}")
    assert applied.config_yaml is not None
    assert yaml.safe_load(applied.config_yaml) == file_values | {"micro_batch_size": 4}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model_name_or_path: a\ntemplate: t\ninfer_backend: vllm\n", "do not train"),
        ("# tune run x_eval --config a\nmodel: {_component_: a}\ncheckpointer: {a: b}\ntasks: [b]\n", "not train"),
        ("model_name_or_path: a\ntemplate: t\nexport_dir: out\n", "llamafactory-cli export"),
        ("a: &a [*a]\nbase_model: x\n", "aliases expand"),
        ("".join(f"k{n}: &k{n} {{<<: [*k{n - 1}, *k{n - 1}]}}\n" if n else "k0: &k0 {x: 1}\n" for n in range(40)),
         "aliases expand"),
    ],
)  # fmt: skip
def test_a_file_that_trains_nothing_or_is_unsafe_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PresetError, match=expected):
        opened(tmp_path, text)


def test_a_tool_has_defaults_of_its_own_that_are_not_written(tmp_path: Path) -> None:
    opened(tmp_path, "base_model: m\nsequence_len: 64\n")
    resolved = resolve_training(LaunchOptions(str(tmp_path / "my.yaml"), {"seed": "3"}, project=None)).resolved
    assert (resolved.settings.per_device_train_batch_size, resolved.settings.max_length) == (1, 64)
    assert resolved.chosen == {"max_length", "seed"}
    assert resolved.origin("per_device_train_batch_size").detail == "default of axolotl"


@pytest.mark.parametrize(
    "values",
    [
        {"optimizer": {"name": "adam"}, "num_epochs": 5, "backbone": "unet"},  # one key of axolotl's
        {"train": "lm1b", "valid": "lm1b", "wrap": True},  # one of litgpt's
        {"trainer": {"logger": ["console"], "n_gpus_per_node": 8}},  # one of Lightning's
        {"defaults": {"rng_seed": 1}},  # Hydra's is a list
    ],
)
def test_one_common_key_makes_no_file_of_a_tool(values: dict[str, object]) -> None:
    assert dialect_of_file(values).name == "hf"


def test_accelerate_gets_no_deepspeed_section_without_deepspeed() -> None:
    exported = write_settings(dialects()["accelerate"], Settings(), None, ["gradient_accumulation_steps", "precision"])
    assert exported.values == {"mixed_precision": "no"}
    file_values = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"gradient_accumulation_steps": 4}}
    assert read_settings(dialects()["accelerate"], file_values).settings == {"gradient_accumulation_steps": 4}


def applied(path: Path, **flags: str) -> AppliedCommand:
    """The command on the file at `path`, with settings of the person."""
    training = resolve_training(LaunchOptions(str(path), flags, project=None))
    assert isinstance(training.job, CommandJob)
    file_values, chosen = read_tool_file(path).values, training.resolved.chosen
    return build_command(training.job, training.resolved.settings, None, "out", chosen=chosen, own_config=file_values)


def test_a_file_for_deepspeed_takes_settings_and_stays_json(tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text(ZERO_3)
    (tmp_path / "train.py").touch()
    (tmp_path / "README.md").write_text("Start it by `deepspeed train.py --deepspeed z3.json`.")
    command = applied(tmp_path / "z3.json", per_device_train_batch_size="4")
    assert command.argv == ("deepspeed", "train.py", "--deepspeed", "{config}")
    assert json.loads(command.config_yaml or "") == json.loads(ZERO_3) | {"train_micro_batch_size_per_gpu": 4}


def test_a_file_of_sharding_at_the_path_of_a_container_is_that_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds.json").write_text(ZERO_3)
    text = "arguments = TrainingArguments(deepspeed='/workspace/configs/ds.json', seed=1)\nTrainer().train()\n"
    assert opened(tmp_path, text, "train.py").stated["sharding"] == str(tmp_path / "configs" / "ds.json")


def test_a_file_for_deepspeed_is_not_the_commands_configuration() -> None:
    command = ("swift", "sft", "--model", "acme/base-1b", "--deepspeed", "zero3.json")
    assert default_apply_mode(command) == "inject"
    assert default_apply_mode(("swift", "sft", "my.yaml")) == "yaml"


ZERO_3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\n"


def test_a_launchers_file_in_a_tree_of_hydra_is_no_group_of_it(tmp_path: Path) -> None:
    checkout(tmp_path, {"train.py": "@hydra.main(config_path='configs')\ndef main(cfg): ...\n"})
    (tmp_path / "configs" / "train.yaml").write_text("defaults: [_self_, {launcher: fsdp}]\n")
    (tmp_path / "configs" / "launcher").mkdir()
    (tmp_path / "configs" / "launcher" / "fsdp.yaml").write_text(ACCELERATE)
    loaded = load_preset(tmp_path / "configs" / "launcher" / "fsdp.yaml")
    assert loaded.dialect is dialects()["accelerate"]
    strategy = tmp_path / "configs" / "launcher" / "deepspeed.yaml"
    strategy.write_text("_target_: lightning.pytorch.strategies.DeepSpeedStrategy\nzero_optimization: true\n")
    assert tool_of_file(read_tool_file(strategy), strategy) is dialects()["hydra"]


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(TRL.encode("utf-8-sig"))
    written = update_tool_file(path, Settings(seed=9), ["seed"])
    assert written.content.startswith(b"\xef\xbb\xbf")
    assert written.content.decode("utf-8-sig") == written.after
    path.write_text(TRL)
    assert update_tool_file(path, Settings(seed=9), ["seed"]).content == written.after.encode()


def checkout(root: Path, files: dict[str, str]) -> None:
    """Write the files of a checkout, whose top has a pyproject.toml."""
    for name, text in {"pyproject.toml": "", "configs/.keep": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


REFERENCES = """\
model_dir: /models/acme-1b
width: 4
output_dir: ${model_dir}/out
model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_rank: 8}
tokenizer: {_component_: a.b, path: "${model_dir}/tokenizer.model"}
checkpointer: {_component_: c.d, checkpoint_dir: "${model_dir}"}
teacher_model: {_component_: torchtune.models.llama3.llama3_70b}
batch_size: ${width}
"""


def test_a_deepspeed_file_leaves_auto_to_the_trainer(tmp_path: Path) -> None:
    path = tmp_path / "z2.json"
    path.write_text(
        '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto", "steps_per_print": 9}'
    )
    names = ["per_device_train_batch_size", "logging_steps"]
    wanted = Settings(per_device_train_batch_size=4, logging_steps=7)
    update = update_tool_file(path, wanted, names, despite_auto=names)
    assert update.after == path.read_text().replace("9", "7")
    (why,) = update.left_out
    assert why.startswith("per_device_train_batch_size is auto in z2.json, so that the Trainer puts its own in")


def test_a_reference_stays_unless_its_value_changes(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(REFERENCES)
    name = ["per_device_train_batch_size"]
    assert update_tool_file(path, Settings(per_device_train_batch_size=4), name, despite_auto=name).diff == ""
    changed_to = update_tool_file(path, Settings(per_device_train_batch_size=6), name, despite_auto=name).after
    assert changed_to == REFERENCES.replace("batch_size: ${width}", "batch_size: 6")


def test_scripts_are_not_searched_in_a_folder_for_everybodys_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import yaml\nyaml.safe_load(open('my.yaml'))\nmodel.fit()\n")
    text = "batch_size: 4\nlr: 0.1\n"
    assert opened(tmp_path, text, "conf/my.yaml").command == ("python", str(tmp_path / "train.py"))
    tmp_path.chmod(0o1777)
    assert load_preset(tmp_path / "conf" / "my.yaml").preset.job is None

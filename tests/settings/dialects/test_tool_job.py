"""Configuration files of training tools, opened as they are: settings, the tool's command on them, model and data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tuner_tui.settings.apply import AppliedCommand, build_command, default_apply_mode
from tuner_tui.settings.dialects.dialect import dialect_of_file, dialects, read_settings, write_settings
from tuner_tui.settings.dialects.file_formats import file_changes, parse_file, patch_file, patch_text
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.job import BuiltinJob, CommandJob, modelled_job
from tuner_tui.settings.model import Settings
from tuner_tui.settings.presets import load_preset, tool_of_file, update_tool_file
from tuner_tui.settings.resolve import Sources, resolve_training
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
LLAMA_FACTORY = """model_name_or_path: acme/base-1b
stage: sft
finetuning_type: lora
lora_rank: 4
dataset: identity,mine
cutoff_len: 1024
learning_rate: 1e-5
deepspeed: ds_z3.json
"""
TRL = "model_name_or_path: acme/base-1b\ndataset_name: acme/pairs\nbeta: 0.1\nmax_length: 512\n"
HANDBOOK = "model_name_or_path: acme/base-1b\ndataset_mixer:\n  acme/a: 1.0\n  acme/b: 0.5\nbf16: true\n"
SWIFT = "model: acme/base-1b\ntuner_type: lora\ndataset: [acme/a, acme/b]\nrlhf_type: dpo\nmax_length: 512\n"
LLAMA_FACTORY_V1 = (
    "model: acme/base-1b\nmodel_class: llm\npeft_config: {name: lora, r: 8}\ntrain_dataset: d.yaml\ncutoff_len: 256\n"
)

TORCHTUNE = (
    "model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b, lora_rank: 8}\n"
    "checkpointer: {checkpoint_dir: acme/base-1b}\ntokenizer: {max_seq_len: 512}\n"
    "dataset: {_component_: torchtune.datasets.alpaca_dataset}\nepochs: 1\ndtype: bf16\n"
)
LITGPT = (
    "checkpoint_dir: acme/base-1b\nprecision: bf16-true\nlora_r: 8\n"
    "data: {class_path: litgpt.data.Alpaca}\ntrain: {micro_batch_size: 2, epochs: 2}\n"
)


def opened(folder: Path, text: str, name: str = "my.yaml") -> CommandJob:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    job = load_preset(path).preset.job
    assert isinstance(job, CommandJob)
    return job


@pytest.mark.parametrize(
    ("text", "command", "data", "env"),
    [
        (AXOLOTL, "axolotl train FILE", "acme/chat, local.jsonl", {}),
        (LLAMA_FACTORY, "llamafactory-cli train FILE", "identity,mine", {"FORCE_TORCHRUN": "1"}),
        (LLAMA_FACTORY_V1, "llamafactory-cli sft FILE", "d.yaml", {"USE_V1": "1"}),
        (TRL, "trl dpo --config FILE", "acme/pairs", {}),
        (HANDBOOK, "accelerate launch scripts/sft.py --config FILE", "acme/a, acme/b", {}),
        (SWIFT, "swift rlhf FILE", "acme/a, acme/b", {}),
        (TORCHTUNE, "tune run lora_finetune_single_device --config FILE", "torchtune.datasets.alpaca_dataset", {}),
        (LITGPT, "litgpt finetune_lora acme/base-1b --config FILE", "litgpt.data.Alpaca", {}),
    ],
)
def test_a_tools_file_brings_its_job(tmp_path: Path, text: str, command: str, data: str, env: dict[str, str]) -> None:
    job = opened(tmp_path, text)
    assert " ".join(job.command) == command.replace("FILE", str(tmp_path / "my.yaml"))
    assert (job.apply, job.model, job.data, job.env) == ("yaml", "acme/base-1b", data, env)
    assert modelled_job(job) == BuiltinJob(task="causal-lm", model="acme/base-1b")


def test_the_script_of_the_checkout_trains_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "setup.py").touch()
    for name, parser in (("orpo", "H4ArgumentParser"), ("run_sft", "TrlParser")):
        (tmp_path / "scripts" / f"{name}.py").write_text(f"parser = {parser}((ModelArguments, Config))\n")
    job = opened(tmp_path, TRL, "recipes/model/orpo/full.yaml")
    start = ("accelerate", "launch", f"{tmp_path}/scripts/orpo.py")
    assert job.command == (*start, f"{tmp_path}/recipes/model/orpo/full.yaml")
    job = opened(tmp_path, TRL, "configs/sft/full.yaml")
    assert job.command[2:4] == (f"{tmp_path}/scripts/run_sft.py", "--config")


def test_what_the_file_says_beyond_the_settings_stays(tmp_path: Path) -> None:
    opened(tmp_path, AXOLOTL)
    path = tmp_path / "my.yaml"
    training = resolve_training(Sources(str(path), {"per_device_train_batch_size": "4"}, project=None))
    assert isinstance(training.job, CommandJob)
    own = read_tool_file(path).values
    applied = build_command(
        training.job, training.resolved.settings, None, "out", chosen=training.resolved.chosen, own_config=own
    )
    assert applied.argv == ("axolotl", "train", "{config}")
    assert applied.config_yaml is not None
    assert yaml.safe_load(applied.config_yaml) == own | {"micro_batch_size": 4}


def test_a_section_takes_a_setting(tmp_path: Path) -> None:
    job = opened(tmp_path, LLAMA_FACTORY_V1)
    own = read_tool_file(tmp_path / "my.yaml").values
    training = resolve_training(Sources(str(tmp_path / "my.yaml"), {"lora_r": "32", "seed": "7"}, project=None))
    applied = build_command(
        job, training.resolved.settings, None, "out", chosen=training.resolved.chosen, own_config=own
    )
    expected = own | {"peft_config": {"name": "lora", "r": 32}, "seed": 7}
    assert yaml.safe_load(applied.config_yaml or "") == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model_name_or_path: a\ntemplate: t\ninfer_backend: vllm\n", "do not train"),
        ("model_name_or_path: a\ntemplate: t\nexport_dir: out\n", "llamafactory-cli export"),
        ("base_model: !!python/object/apply:os.system [true]\n", ":1: YAML tags"),
        ("a: &a [*a]\nbase_model: x\n", "aliases expand"),
        ("".join(f"k{n}: &k{n} {{<<: [*k{n - 1}, *k{n - 1}]}}\n" if n else "k0: &k0 {x: 1}\n" for n in range(40)),
         "aliases expand"),
    ],
)  # fmt: skip
def test_a_file_that_trains_nothing_or_is_unsafe_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PresetError, match=said):
        opened(tmp_path, text)


def test_anchors_json_and_toml_are_read(tmp_path: Path) -> None:
    opened(tmp_path, "defaults: &d {micro_batch_size: 3}\n<<: *d\nbase_model: m\nsequence_len: 64\n")
    assert load_preset(tmp_path / "my.yaml").preset.settings == {"per_device_train_batch_size": 3, "max_length": 64}
    (tmp_path / "a.json").write_text('{"model_name_or_path": "m", "dataset_name": "d", "bf16": true}')
    (tmp_path / "a.toml").write_text('model_name_or_path = "m"\ndataset_name = "d"\nbf16 = true\n')
    for name in ("a.json", "a.toml"):
        assert load_preset(tmp_path / name).preset.settings == {"precision": "bf16"}


def test_a_value_that_no_setting_has_stays_with_the_tool(tmp_path: Path) -> None:
    opened(tmp_path, "base_model: m\nlora_alpha: 0.5\nmicro_batch_size: 2\n")
    loaded = load_preset(tmp_path / "my.yaml")
    assert loaded.preset.settings == {"per_device_train_batch_size": 2}
    assert any(note.startswith("lora_alpha ignored") for note in loaded.notes)


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        (
            "t.yaml",
            TORCHTUNE,
            {"lora_r": 8, "max_length": 512, "num_train_epochs": 1.0, "precision": "bf16", "peft_method": "lora"},
        ),
        (
            "l.yaml",
            LITGPT,
            {
                "precision": "bf16",
                "lora_r": 8,
                "per_device_train_batch_size": 2,
                "num_train_epochs": 2.0,
                "peft_method": "lora",
            },
        ),
        ("a.yaml", "compute_environment: LOCAL_MACHINE\nmixed_precision: 'no'\n", {"precision": "fp32"}),
        (
            "d.json",
            '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "gradient_clipping": "auto",'
            ' "train_micro_batch_size_per_gpu": 4}',
            {"precision": "bf16", "per_device_train_batch_size": 4},
        ),
    ],
)
def test_sections_are_read(tmp_path: Path, name: str, text: str, settings: dict[str, object]) -> None:
    (tmp_path / name).write_text(text)
    assert load_preset(tmp_path / name).preset.settings == settings


def test_a_tool_has_defaults_of_its_own_that_are_not_written(tmp_path: Path) -> None:
    opened(tmp_path, "base_model: m\nsequence_len: 64\n")
    resolved = resolve_training(Sources(str(tmp_path / "my.yaml"), {"seed": "3"}, project=None)).resolved
    assert (resolved.settings.per_device_train_batch_size, resolved.settings.max_length) == (1, 64)
    assert resolved.chosen == {"max_length", "seed"}
    assert resolved.origin("per_device_train_batch_size").detail == "default of axolotl"


SECTIONS = """project: mine  # kept
model: acme/base-1b
training_args:
  learning_rate: 1.0e-05
  per_device_train_batch_size: 2
  bf16: true
"""


def test_arguments_in_a_section_are_read_and_changed_there(tmp_path: Path) -> None:
    job = opened(tmp_path, SECTIONS)
    loaded = load_preset(tmp_path / "my.yaml")
    assert loaded.preset.settings == {"learning_rate": 1e-5, "per_device_train_batch_size": 2, "precision": "bf16"}
    assert (job.command, job.model) == (("python", "train.py", str(tmp_path / "my.yaml")), "acme/base-1b")
    file = read_tool_file(tmp_path / "my.yaml")
    wanted = Settings(per_device_train_batch_size=8, dataloader_num_workers=4)
    tool = tool_of_file(file, tmp_path / "my.yaml")
    changes = file_changes(tool, file.values, wanted, ["per_device_train_batch_size", "dataloader_num_workers"])
    expected = SECTIONS.replace("batch_size: 2", "batch_size: 8").replace(
        "training_args:\n", "training_args:\n  dataloader_num_workers: 4\n"
    )
    assert patch_text(SECTIONS, changes.values, "my.yaml") == expected


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


def test_no_argument_is_added_for_the_users_own_class(tmp_path: Path) -> None:
    text = "seed_everything: 1\ntrainer: {max_epochs: 3}\ndata: {batch_size: 4, num_workers: 1}\n"
    own = {"seed_everything": 1, "trainer": {"max_epochs": 3}, "data": {"batch_size": 4, "num_workers": 1}}
    wanted = Settings(dataloader_num_workers=8, dataloader_pin_memory=True, precision="bf16")
    names = ["dataloader_num_workers", "dataloader_pin_memory", "precision"]
    changes = file_changes(dialects()["lightning"], own, wanted, names)
    assert changes.values == {("data", "num_workers"): 8, ("trainer", "precision"): "bf16-mixed"}
    assert "data.init_args.pin_memory is not in the file" in changes.notes[0]
    assert "num_workers: 8" in patch_text(text, changes.values, "my.yaml")


def test_litgpts_global_batch_and_warmup_are_of_its_own_kind() -> None:
    """64 samples of 2 devices with 4 each: 8 steps; a tenth of the first of 2 epochs: a twentieth of all."""
    own = {
        "checkpoint_dir": "m", "out_dir": "out", "devices": 2,
        "train": {"global_batch_size": 64, "micro_batch_size": 4, "epochs": 2, "lr_warmup_fraction": 0.1},
    }  # fmt: skip
    tool = dialects()["litgpt"]
    read = read_settings(tool, own).settings
    assert (read["gradient_accumulation_steps"], read["warmup_steps"]) == (8, 0.05)
    wanted = Settings(gradient_accumulation_steps=4, per_device_train_batch_size=16)
    changes = file_changes(tool, own, wanted, ["gradient_accumulation_steps", "per_device_train_batch_size"])
    assert changes.values == {("train", "micro_batch_size"): 16, ("train", "global_batch_size"): 128}


def test_accelerate_gets_no_deepspeed_section_without_deepspeed() -> None:
    exported = write_settings(dialects()["accelerate"], Settings(), None, ["gradient_accumulation_steps", "precision"])
    assert exported.values == {"mixed_precision": "no"}
    own = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"gradient_accumulation_steps": 4}}
    assert read_settings(dialects()["accelerate"], own).settings == {"gradient_accumulation_steps": 4}


@pytest.mark.parametrize(
    "text", [f"{TRL}use_cpu: true\n", "seed_everything: 1\ntrainer: {accelerator: cpu, max_steps: 2}\n"]
)
def test_a_file_may_say_that_it_trains_on_the_cpu(tmp_path: Path, text: str) -> None:
    assert opened(tmp_path, text).on_cpu
    assert not opened(tmp_path, TRL).on_cpu


def test_a_value_that_the_tool_chooses_is_known_as_open(tmp_path: Path) -> None:
    opened(tmp_path, AXOLOTL)
    assert load_preset(tmp_path / "my.yaml").left_open == ("precision",)


def test_a_deepspeed_file_of_open_values_alone_is_opened(tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    loaded = load_preset(tmp_path / "z3.json")
    assert (loaded.preset.settings, loaded.left_open) == ({}, ("precision",))
    assert isinstance(loaded.preset.job, CommandJob)
    assert loaded.preset.job.command == ("deepspeed", "train.py", "--deepspeed", str(tmp_path / "z3.json"))


def changed(folder: Path, text: str, name: str, settings: Settings, *names: str) -> str:
    path = folder / name
    path.write_text(text)
    file = parse_file(text, path)
    return patch_file(text, file_changes(tool_of_file(file, path), file.values, settings, names).values, path)


def test_an_old_name_in_the_file_keeps_its_place(tmp_path: Path) -> None:
    """Without the release that reads it, the file's own release is the one to write for."""
    old = TRL.replace("max_length", "max_seq_length") + "warmup_ratio: 0.1\nevaluation_strategy: steps\n"
    settings = Settings(max_length=256, warmup_steps=0.2, eval_strategy="epoch")
    found = changed(tmp_path, old, "my.yaml", settings, "max_length", "warmup_steps", "eval_strategy")
    expected = old.replace("max_seq_length: 512", "max_seq_length: 256").replace("ratio: 0.1", "ratio: 0.2")
    assert found == expected.replace("evaluation_strategy: steps", "evaluation_strategy: epoch")


def test_deepspeed_gets_the_section_of_a_precision(tmp_path: Path) -> None:
    text = '{\n  "zero_optimization": {"stage": 2},\n  "bf16": {"enabled": true}\n}\n'
    found = changed(tmp_path, text, "ds.json", Settings(precision="fp16"), "precision")
    assert json.loads(found) == {
        "fp16": {"enabled": True}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": False},
    }  # fmt: skip
    assert found.endswith(text[2:].replace("true", "false"))


def test_accumulation_in_a_file_for_deepspeed(tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 1\n"
    found = changed(tmp_path, text, "a.yaml", Settings(gradient_accumulation_steps=4), "gradient_accumulation_steps")
    assert found == text.replace("steps: 1", "steps: 4")


@pytest.mark.parametrize(
    ("name", "head", "recipe"),
    [
        ("x.yaml", "#   tune run --nproc_per_node 4 lora_dpo_distributed --config x\n",
         "--nproc_per_node 4 lora_dpo_distributed"),
        ("8B_lora_dpo_single_device.yaml", "", "lora_dpo_single_device"),
        ("8B_to_1B_KD_lora_distributed.yaml", "", "knowledge_distillation_distributed"),
        ("8B_full_single_device.yaml", "", "lora_finetune_single_device"),
    ],
)  # fmt: skip
def test_the_recipe_of_torchtune(tmp_path: Path, name: str, head: str, recipe: str) -> None:
    job = opened(tmp_path, head + TORCHTUNE, name)
    assert " ".join(job.command) == f"tune run {recipe} --config {tmp_path / name}"


def applied(path: Path, **flags: str) -> AppliedCommand:
    """The command on the file at `path`, with settings of the person."""
    training = resolve_training(Sources(str(path), flags, project=None))
    assert isinstance(training.job, CommandJob)
    own, chosen = read_tool_file(path).values, training.resolved.chosen
    return build_command(training.job, training.resolved.settings, None, "out", chosen=chosen, own_config=own)


def test_a_file_for_deepspeed_takes_settings_and_stays_json(tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text(ZERO_3)
    command = applied(tmp_path / "z3.json", per_device_train_batch_size="4")
    assert command.argv == ("deepspeed", "train.py", "--deepspeed", "{config}")
    assert json.loads(command.config_yaml or "") == json.loads(ZERO_3) | {"train_micro_batch_size_per_gpu": 4}


def test_a_file_for_deepspeed_is_not_the_commands_configuration() -> None:
    command = ("swift", "sft", "--model", "acme/base-1b", "--deepspeed", "zero3.json")
    assert default_apply_mode(command) == "inject"
    assert default_apply_mode(("swift", "sft", "my.yaml")) == "yaml"


def test_a_new_micro_batch_keeps_litgpts_accumulation(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(LITGPT.replace("micro_batch_size: 2", "micro_batch_size: 2, global_batch_size: 16"))
    found = update_tool_file(path, Settings(per_device_train_batch_size=4), ["per_device_train_batch_size"])
    assert yaml.safe_load(found.after)["train"] == {"micro_batch_size": 4, "global_batch_size": 32, "epochs": 2}
    assert found.left_out == ()
    assert found.before == path.read_text()


ZERO_3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\n"
TRAINER = "from transformers import Trainer\n\nclass MyTrainer(Trainer):\n    pass\n\nMyTrainer(model).train()\n"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("configs/z3.json", ZERO_3, "deepspeed {root}/finetune_mine.py --deepspeed {root}/configs/z3.json"),
        (
            "configs/fsdp.yaml",
            ACCELERATE,
            "accelerate launch --config_file {root}/configs/fsdp.yaml {root}/finetune_mine.py",
        ),
    ],
)
def test_a_launchers_file_starts_the_script_that_trains(tmp_path: Path, name: str, text: str, command: str) -> None:
    checkout(tmp_path, {"finetune_mine.py": TRAINER, "eval.py": "print()\n"})
    assert " ".join(opened_in(tmp_path, name, text).command) == command.format(root=tmp_path)


def test_the_script_that_a_shell_script_names_is_no_placeholder(tmp_path: Path) -> None:
    checkout(tmp_path, {"train.py": TRAINER, "run.sh": "accelerate launch --config_file configs/z.yaml train.py\n"})
    opened_in(tmp_path, "configs/z.yaml", ACCELERATE)
    assert load_preset(tmp_path / "configs/z.yaml").notes == ()


def test_a_script_for_images_or_sound_has_no_task_of_text(tmp_path: Path) -> None:
    options = "--model_name_or_path acme/base --per_device_train_batch_size 2"
    for script, task in (("train_text_to_image.py", None), ("run_tts_training.py", None), ("sft.py", "causal-lm")):
        (tmp_path / "go.sh").write_text(f"accelerate launch {script} {options}\n")
        job = load_preset(tmp_path / "go.sh").preset.job
        assert isinstance(job, CommandJob)
        assert (job.model, job.task) == ("acme/base", task)
        modelled = modelled_job(job)
        assert (None if modelled is None else modelled.task) == task


def test_a_launchers_file_is_started_as_the_shell_script_that_names_it_does(tmp_path: Path) -> None:
    run = "export X=1\ntorchrun --nproc_per_node=2 sft.py \\\n --deepspeed configs/z3.json --model_name_or_path a/b\n"
    checkout(tmp_path, {"sft.py": TRAINER, "scripts/train.sh": run})
    job = opened_in(tmp_path, "configs/z3.json", ZERO_3)
    config = f"{tmp_path}/configs/z3.json"
    assert job.command[:5] == ("torchrun", "--nproc_per_node=2", "sft.py", "--deepspeed", config)
    assert (job.cwd, job.model) == (str(tmp_path), "a/b")
    assert (job.apply, job.dialect, job.env) == ("yaml", "deepspeed", {"X": "1"})


def test_the_script_of_the_method_counts_before_a_nearer_one(tmp_path: Path) -> None:
    reads = "parser = TrlParser((ModelConfig,))\n"
    checkout(tmp_path, {f"{one}.py": reads for one in ("scripts/run_benchmarks", "src/mine/sft", "src/mine/grpo")})
    job = opened_in(tmp_path, "recipes/acme/grpo/config_v1.yaml", f"{TRL}num_generations: 4\n")
    assert job.command[:3] == ("accelerate", "launch", f"{tmp_path}/src/mine/grpo.py")


def test_a_launchers_file_in_a_tree_of_hydra_is_no_group_of_it(tmp_path: Path) -> None:
    checkout(tmp_path, {"train.py": "@hydra.main(config_path='configs')\ndef main(cfg): ...\n"})
    (tmp_path / "configs" / "train.yaml").write_text("defaults: [_self_, {launcher: fsdp}]\n")
    opened_in(tmp_path, "configs/launcher/fsdp.yaml", ACCELERATE)
    loaded = load_preset(tmp_path / "configs" / "launcher" / "fsdp.yaml")
    assert loaded.dialect is dialects()["accelerate"]
    strategy = tmp_path / "configs" / "launcher" / "deepspeed.yaml"
    strategy.write_text("_target_: lightning.pytorch.strategies.DeepSpeedStrategy\nzero_optimization: true\n")
    assert tool_of_file(read_tool_file(strategy), strategy) is dialects()["hydra"]


def test_arguments_two_sections_deep_are_read(tmp_path: Path) -> None:
    text = "model: {name: acme/base-1b}\ntraining:\n  training_args:\n    learning_rate: 1.0e-05\n    max_steps: 9\n"
    assert opened(tmp_path, text).model == "acme/base-1b"
    assert load_preset(tmp_path / "my.yaml").preset.settings == {"learning_rate": 1e-5, "max_steps": 9}


def test_data_in_a_file_is_named_by_the_file(tmp_path: Path) -> None:
    text = AXOLOTL[: AXOLOTL.index("datasets:")] + "datasets: [{path: json, data_files: [a.jsonl, b.jsonl]}]\n"
    assert opened(tmp_path, text).data == "a.jsonl"


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(TRL.encode("utf-8-sig"))
    found = update_tool_file(path, Settings(seed=9), ["seed"])
    assert found.content.startswith(b"\xef\xbb\xbf")
    assert found.content.decode("utf-8-sig") == found.after
    path.write_text(TRL)
    assert update_tool_file(path, Settings(seed=9), ["seed"]).content == found.after.encode()


def checkout(root: Path, files: dict[str, str]) -> None:
    """Write the files of a checkout, whose top has a pyproject.toml."""
    for name, text in {"pyproject.toml": "", "configs/.keep": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def opened_in(root: Path, name: str, text: str) -> CommandJob:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    return opened((root / name).parent, text, (root / name).name)


USERS_SECTIONS = """\
base_model: acme/base-1b
max_seq_length: 1024
bf16: false
loading:
  attn_impl: sdpa
lora:
  r: 8
  alpha: 16
  dropout: 0.1
train:
  per_device_train_batch_size: 1
  learning_rate: 2e-4
  num_train_epochs: 1
  torch_dtype: auto
  load_in_4bit: true
  dataset_path: data/train.jsonl
evaluation:
  batch_size: 4
profiles:
  full:
    train:
      num_train_epochs: 9
      torch_dtype: bfloat16
"""


def test_sections_of_the_users_own(tmp_path: Path) -> None:
    job = opened(tmp_path, USERS_SECTIONS)
    assert load_preset(tmp_path / "my.yaml").preset.settings == {
        "max_length": 1024, "precision": "fp32", "peft_method": "lora", "lora_r": 8, "lora_alpha": 16,
        "lora_dropout": 0.1, "quantization": "nf4", "attn_implementation": "sdpa",
        "per_device_train_batch_size": 1, "learning_rate": 2e-4, "num_train_epochs": 1.0,
    }  # fmt: skip
    assert (job.model, job.data, job.dialect) == ("acme/base-1b", "data/train.jsonl", "hf-sections")
    wanted = Settings(precision="bf16", lora_alpha=32)
    assert changed(tmp_path, USERS_SECTIONS, "my.yaml", wanted, "precision", "lora_alpha") == USERS_SECTIONS.replace(
        "bf16: false", "bf16: true"
    ).replace("alpha: 16", "alpha: 32")


def test_a_module_that_defines_the_parser_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    (tmp_path / "spin").mkdir()
    (tmp_path / "spin" / "configs.py").write_text("class H4ArgumentParser(HfArgumentParser):\n    ...\n")
    (tmp_path / "spin" / "run_spin.py").write_text("parser = H4ArgumentParser((A, B))\n")
    job = opened(tmp_path, "model_name_or_path: m\ndataset_mixer: {d: 1.0}\nlearning_rate: 1.0e-5\n")
    assert job.command == ("accelerate", "launch", str(tmp_path / "spin" / "run_spin.py"), str(tmp_path / "my.yaml"))


def test_sections_name_the_precision_as_accelerate_does(tmp_path: Path) -> None:
    opened(tmp_path, "solver:\n  learning_rate: 1.0e-5\n  mixed_precision: fp16\n  max_grad_norm: 1.0\n")
    assert load_preset(tmp_path / "my.yaml").preset.settings["precision"] == "fp16"


LOOP = "cfg = yaml.safe_load(open(path))\nfor batch in loader:\n    model(batch).backward()\n"
OPTIONED = f'parser.add_argument("-c", "--config")\npath = parser.parse_args().config\n{LOOP}'
FLAT = "batch_size: 32\nlr: 0.001\nepochs: 10\nnum_workers: 4\namp: true\ndataset: cifar10\nmodel: resnet18\n"
NESTED = """{
  "loader": {"type": "Mnist", "args": {"data_dir": "data/", "batch_size": 128, "num_workers": 2}},
  "optimizer": {"type": "Adam", "args": {"LR": 0.001}},
  "trainer": {"epochs": 100},
  "eval": {"batch_size": 7}
}"""


@pytest.mark.parametrize(
    ("name", "text", "source", "command", "apply"),
    [
        ("c.yaml", FLAT, OPTIONED, "--config {file}", "yaml"),
        ("c.json", NESTED, OPTIONED, "--config {file}", "yaml"),
        ("c.yaml", FLAT, f"path = sys.argv[1]\n{LOOP}", "{file}", "yaml"),
        ("c.yaml", FLAT, f'path = "c.yaml"\n{LOOP}', "", "inject"),
        ("c.yaml", FLAT, f"path = OmegaConf.from_cli().config\n{LOOP}", "config={file}", "yaml"),
        ("c.toml", "lr = 0.1\n[data]\nbatch_size = 2\n", OPTIONED, "--config {file}", "inject"),
    ],
)
def test_a_file_that_a_script_of_the_users_own_reads(
    tmp_path: Path, name: str, text: str, source: str, command: str, apply: str
) -> None:
    checkout(tmp_path, {"main.py": source, "eval.py": OPTIONED, "data.py": "import yaml\n"})
    job = opened_in(tmp_path, name, text)
    words = f"python {tmp_path}/main.py {command.format(file=tmp_path / name)}".split()
    assert (list(job.command), job.apply) == (words, apply)
    assert (job.model, job.task) == (None, None)


def test_an_option_for_the_configuration_of_a_part_takes_no_file(tmp_path: Path) -> None:
    part = 'parser.add_argument("--dataset_config")\n'
    checkout(tmp_path, {"train.py": f"{part}{OPTIONED}"})
    assert opened_in(tmp_path, "c.yaml", FLAT).command[2] == "--config"
    (tmp_path / "train.py").write_text(f"{part}args = parser.parse_args()\nloss.backward()\n")
    assert load_preset(tmp_path / "c.yaml").notes == (
        "train.py stands for your script: none is found that reads this file",
    )


def test_the_settings_of_a_script_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FLAT)
    assert load_preset(tmp_path / "a.yaml").preset.settings == {
        "per_device_train_batch_size": 32,
        "learning_rate": 0.001,
        "num_train_epochs": 10.0,
        "dataloader_num_workers": 4,
        "precision": "fp16",
    }
    (tmp_path / "b.json").write_text(NESTED)
    assert load_preset(tmp_path / "b.json").preset.settings == {
        "per_device_train_batch_size": 128,
        "learning_rate": 0.001,
        "num_train_epochs": 100.0,
        "dataloader_num_workers": 2,
    }
    command = applied(tmp_path / "b.json", per_device_train_batch_size="64", max_grad_norm="2")
    assert command.not_applied == ("max_grad_norm",)
    expected = json.loads(NESTED)
    expected["loader"]["args"]["batch_size"] = 64
    assert json.loads(command.config_yaml or "") == expected


def test_files_of_a_users_own_in_other_spellings(tmp_path: Path) -> None:
    texts = {
        "wandb.yaml": "lr: {value: 0.1, desc: rate}\nbatch_size: {value: 4}\nseed: {value: 1}\n",
        "tags.yaml": "lr: !!float 1e-1\nbatch_size: 4\nseed: 1\n",
        "upper.yaml": "LR: 0.1\nBATCH_SIZE: 4\nSEED: 1\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        found = load_preset(path).preset.settings
        assert found == {"learning_rate": 0.1, "per_device_train_batch_size": 4, "seed": 1}, name
        update = update_tool_file(path, Settings(per_device_train_batch_size=8), ["per_device_train_batch_size"])
        assert update.after == text.replace("4", "8")


def test_arguments_of_transformers_may_be_read_by_a_script_of_ones_own(tmp_path: Path) -> None:
    checkout(tmp_path, {"main.py": OPTIONED, "lib/__init__.py": "", "lib/train.py": f"path = here\n{LOOP}"})
    job = opened_in(tmp_path, "c.yaml", "learning_rate: 1.0e-05\nper_device_train_batch_size: 2\n")
    assert (job.command[1:3], job.dialect) == ((f"{tmp_path}/main.py", "--config"), "hf")
    (tmp_path / "main.py").unlink()
    assert load_preset(tmp_path / "c.yaml").preset.job is None


def test_sections_are_read_by_the_script_that_loads_yaml_and_trains(tmp_path: Path) -> None:
    loads, trains = "config = yaml.safe_load(open(path))\n", "SFTTrainer(model).train()\n"
    (tmp_path / "requirements.txt").touch()
    for name, source in {"prepare.py": loads, "plain.py": trains, "src/sft.py": f"'--config'\n{loads}{trains}"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    path = tmp_path / "my.yaml"
    job = opened(tmp_path, USERS_SECTIONS)
    assert job.command == ("python", str(tmp_path / "src" / "sft.py"), "--config", str(path))


def test_a_section_with_keys_of_the_users_own_gets_no_new_ones(tmp_path: Path) -> None:
    path, name = tmp_path / "my.yaml", ["dataloader_num_workers"]
    path.write_text(USERS_SECTIONS)
    update = update_tool_file(path, Settings(dataloader_num_workers=2), name)
    assert (update.diff, len(update.left_out)) == ("", 1)


def test_a_base_model_alone_makes_no_file_of_axolotl(tmp_path: Path) -> None:
    path = tmp_path / "pilot.json"
    path.write_text('{"base_model": "m", "lora_rank": 16, "epochs": 3, "learning_rate": 2e-4, "seed": 1}')
    loaded = load_preset(path)
    assert loaded.dialect is dialects()["hf"]
    assert loaded.preset.settings == {
        "lora_r": 16, "num_train_epochs": 3.0, "learning_rate": 2e-4, "seed": 1, "peft_method": "lora",
    }  # fmt: skip


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


def test_references_within_a_file_are_followed(tmp_path: Path) -> None:
    job = opened(tmp_path, REFERENCES)
    assert (job.model, job.task) == ("/models/acme-1b", "causal-lm")
    assert job.command[:3] == ("tune", "run", "knowledge_distillation_single_device")
    assert load_preset(tmp_path / "my.yaml").preset.settings["per_device_train_batch_size"] == 4


def test_old_name_and_new_one_change_together(tmp_path: Path) -> None:
    text = "model_name_or_path: m\nuse_peft: true\nmax_seq_length: 512\nmax_length: 512\n"
    assert changed(tmp_path, text, "my.yaml", Settings(max_length=256), "max_length") == text.replace("512", "256")


def test_a_file_that_names_no_model_has_no_task(tmp_path: Path) -> None:
    job = opened(tmp_path, "trainer: {max_epochs: 3, precision: 32}\nmodel: {class_path: a.Net}\n")
    assert (job.model, job.task) == (None, None)


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


def test_the_type_of_the_weights_is_the_precision_of_ms_swift(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{SWIFT}torch_dtype: bfloat16\n")
    assert load_preset(tmp_path / "a.yaml").preset.settings["precision"] == "bf16"
    (tmp_path / "a.yaml").write_text(f"{SWIFT}torch_dtype: float32\nbf16: true\n")
    assert load_preset(tmp_path / "a.yaml").preset.settings["precision"] == "bf16"

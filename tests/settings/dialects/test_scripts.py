"""Python scripts, notebooks and shell scripts as files of a training: values read, changed in place, and the job."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tuner_tui.settings.apply import build_command
from tuner_tui.settings.dialects.file_formats import file_changes, parse_file, patch_file
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings, Value
from tuner_tui.settings.presets import load_preset, tool_of_file, update_tool_file
from tuner_tui.settings.resolve import Sources, resolve_training

TRAINER = """import sys
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

CHECKPOINT = "acme/base"
BATCH = 4 * 8
data = load_dataset("acme/reviews")
tokenizer = AutoTokenizer.from_pretrained("acme/other")
model = AutoModelForSequenceClassification.from_pretrained(CHECKPOINT, num_labels=2, attn_implementation="sdpa")
arguments = TrainingArguments(
    output_dir="out",  # über
    per_device_train_batch_size=BATCH, learning_rate=2e-5,
    bf16=torch.cuda.is_bf16_supported(),
    num_train_epochs=-1 + 4,
    evaluation_strategy="epoch")
Trainer(model, arguments).train()
"""
UNSLOTH = """from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained(model_name="acme/llama", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, use_gradient_checkpointing="unsloth")
trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, max_steps=60, seed=3407))
"""
PLAIN = """import torch
loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=4, shuffle=True)
test_loader = torch.utils.data.DataLoader(test, batch_size=128)
"""


def opened(folder: Path, name: str, text: str) -> tuple[dict[str, Value], CommandJob | None]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    preset = load_preset(path).preset
    assert preset.job is None or isinstance(preset.job, CommandJob)
    return preset.settings, preset.job


def test_a_script_brings_its_settings_and_its_job(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.py", TRAINER)
    assert settings == {
        "per_device_train_batch_size": 32, "learning_rate": 2e-5, "num_train_epochs": 3.0, "eval_strategy": "epoch",
        "attn_implementation": "sdpa",
    }  # fmt: skip
    assert job is not None
    assert (job.command, job.apply) == (("python", str(tmp_path / "train.py")), "inject")
    assert (job.model, job.task, job.data) == ("acme/base", "classification", "acme/reviews")


def test_a_cell_of_unsloth(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "cell.py", UNSLOTH)
    assert settings == {
        "per_device_train_batch_size": 2, "max_steps": 60, "seed": 3407, "max_length": 2048, "lora_r": 16,
        "lora_alpha": 16, "peft_method": "lora", "gradient_checkpointing": True,
    } | ({"quantization": settings["quantization"]} if "quantization" in settings else {})  # fmt: skip
    assert job is not None
    assert (job.model, job.task) == ("acme/llama", "causal-lm")


def test_a_plain_loop_gives_the_loader_that_comes_first(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "loop.py", PLAIN)
    assert settings == {"per_device_train_batch_size": 64, "dataloader_num_workers": 4}
    assert job is not None
    assert job.apply == "inject"


def patched(path: Path, settings: Settings, *names: str) -> str:
    text = path.read_text()
    file = parse_file(text, path)
    changes = file_changes(tool_of_file(file, path), file.values, settings, names)
    return patch_file(text, changes.values, path)


def test_only_the_arguments_change(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(TRAINER)
    settings = Settings(learning_rate=1e-4, dataloader_num_workers=2, attn_implementation="eager", seed=1)
    found = patched(path, settings, "learning_rate", "dataloader_num_workers", "attn_implementation", "seed")
    assert found == TRAINER.replace("2e-5", "0.0001").replace('="sdpa"', "='eager'").replace(
        '    evaluation_strategy="epoch")',
        '    evaluation_strategy="epoch",\n    dataloader_num_workers=2,\n    seed=1)',
    )
    ast.parse(found)
    path.write_text("TrainingArguments('ü', seed=1, max_steps=5, bf16=True)\n")
    assert (
        patched(path, Settings(), "seed", "precision") == "TrainingArguments('ü', seed=42, max_steps=5, bf16=False)\n"
    )


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (TRAINER, "per_device_train_batch_size", "computed in the script"),
        ("x = 1\n", "seed", "has no call"),
    ],
)
def test_what_cannot_be_changed_is_refused(tmp_path: Path, text: str, name: str, said: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    with pytest.raises(SettingsError, match=said):
        patched(path, Settings(per_device_train_batch_size=3, seed=5), name)


def notebook(*sources: str) -> str:
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": one.splitlines(True)}
        for one in sources
    ]
    cells.insert(1, {"cell_type": "markdown", "metadata": {}, "source": ["TrainingArguments(seed=9)"]})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def test_a_notebook_is_read_and_changed_in_its_cells(tmp_path: Path) -> None:
    text = notebook("%%bash\npip install x", "!pip install unsloth\n%matplotlib inline\n" + UNSLOTH)
    settings, job = opened(tmp_path, "train.ipynb", text)
    assert (settings["max_steps"], job) == (60, None)
    found = patched(tmp_path / "train.ipynb", Settings(max_steps=61, lora_r=16), "max_steps", "lora_r")
    assert found == text.replace("max_steps=60", "max_steps=61")


def test_a_notebook_that_starts_a_script(tmp_path: Path) -> None:
    text = notebook("!pip install x --quiet", "n = 1\n!deepspeed train.py \\\n  --model_id $n --max_steps 7 --seed 3")
    assert opened(tmp_path, "train.ipynb", text) == ({"max_steps": 7, "seed": 3}, None)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", "def f(:\n", "a.py:1: is not valid Python"),
        ("a.ipynb", "{}", "is not a notebook"),
        ("a.ipynb", "[" * 5000, "is not a notebook"),
        ("a.sh", "echo hello\n", "contains no training command"),
        ("a.py", "(" * 5000, "is not valid Python"),
    ],
)
def test_what_is_no_training_ends_in_a_sentence(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(PresetError, match=said):
        opened(tmp_path, name, text)


SHELL = """#!/bin/bash
# fine-tunes
export MODEL=acme/base
LR=${LR:-3e-5}
pip install x && echo done
CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node 2 run_clm.py \\
    --model_name_or_path $MODEL --per_device_train_batch_size=4 \\
    --learning_rate "$LR" --bf16 --no_gradient_checkpointing \\
    --evaluation_strategy steps > log.txt
"""


def test_a_shell_script_is_its_training_command(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.sh", SHELL)
    assert settings == {
        "per_device_train_batch_size": 4, "learning_rate": 3e-5, "precision": "bf16", "eval_strategy": "steps",
        "gradient_checkpointing": False,
    }  # fmt: skip
    assert job is not None
    assert (job.command[:4], job.apply, job.model) == (
        ("torchrun", "--nproc_per_node", "2", "run_clm.py"),
        "hf-args",
        "acme/base",
    )
    applied = build_command(job, Settings(learning_rate=1e-5), None, "out", chosen={"learning_rate"})
    assert applied.argv[-2:] == ("--learning_rate", "1e-05")
    assert "3e-5" not in applied.argv


@pytest.mark.parametrize(
    ("text", "settings", "command"),
    [
        ("swift sft --model m --dataset a#500 'b#9' --seed 3 # it's it\n", {"seed": 3},
         "swift sft --model m --dataset a#500 b#9 --seed 3"),
        ("n=4\npython t.py --gradient_accumulation_steps $(expr 16 / $n) --seed $((2 + 1))\n",
         {"gradient_accumulation_steps": 4, "seed": 3}, "python t.py --gradient_accumulation_steps 4 --seed 3"),
        ("python t.py --seed $(date +%s) --max_steps 5\n", {"max_steps": 5}, "bash FILE"),
        ("python t.py \\\n  --seed 3 \\", {"seed": 3}, "python t.py --seed 3"),
        ("ls x.yaml\nswift sft my.yaml\n", {}, "swift sft my.yaml"),
        ("python a.py --x 1 --seed 1 && python b.py --seed 2\n", {"seed": 1}, "python a.py --x 1 --seed 1"),
    ],
)  # fmt: skip
def test_words_are_those_of_the_shell(tmp_path: Path, text: str, settings: dict[str, Value], command: str) -> None:
    found, job = opened(tmp_path, "train.sh", text)
    assert job is not None
    assert (found, " ".join(job.command).replace(str(tmp_path / "train.sh"), "FILE")) == (settings, command)


def test_variables_set_for_a_command_reach_it(tmp_path: Path) -> None:
    text = "export WANDB_PROJECT=p\nX=1\nNPROC_PER_NODE=$X swift sft --model m --max_steps 5\n"
    _, job = opened(tmp_path, "train.sh", text)
    assert job is not None
    assert (job.env, job.dialect) == ({"WANDB_PROJECT": "p", "NPROC_PER_NODE": "1"}, "ms-swift")


def test_a_shell_script_that_needs_the_shell_is_run_whole(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.sh", 'python train.py --seed 3 --output_dir "$SCRATCH/x" "$@"\n')
    assert settings == {"seed": 3}
    assert job is not None
    assert (job.command, job.apply) == (("bash", str(tmp_path / "train.sh")), "inject")


CALLED = """\
while [ $# -gt 0 ]; do
  case "$1" in
    --lr) lr="$2"; shift 2 ;;
    --model)
      MODEL=$2
      shift 2 ;;
  esac
done
lr=${lr:-2.0e-6}
MODEL="acme/base-1b"
llamafactory-cli train --model_name_or_path $MODEL --learning_rate ${lr} --cutoff_len 512 \\
    --dataset ${dataset} --quantization_bit 4
"""


def test_what_the_caller_of_a_script_may_give_has_the_default(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.sh", CALLED)
    assert settings == {"learning_rate": 2e-6, "max_length": 512, "quantization": "nf4"}
    assert job is not None
    assert (job.command, job.apply) == (("bash", str(tmp_path / "train.sh")), "inject")
    assert (job.model, job.data) == ("acme/base-1b", None)
    found = patched(tmp_path / "train.sh", Settings(learning_rate=1e-4, max_length=256), "learning_rate", "max_length")
    assert found == CALLED.replace(":-2.0e-6", ":-0.0001").replace("cutoff_len 512", "cutoff_len 256")


ARRAYS = """\
EPOCHS=${EPOCHS:-2}
ARGS=(
    --learning_rate 1e-4   # the rate (of Adam)
    --per_device_train_batch_size 8
    --num_train_epochs "$EPOCHS"
)
ARGS+=(--seed 3)
if [ "$BIG" = 1 ]; then
    ARGS+=(--gradient_checkpointing)
fi
python train.py "${ARGS[@]}" --model_name_or_path acme/base-1b
"""


def test_the_scripts_own_precision_wins_over_the_launchers(tmp_path: Path) -> None:
    text = "accelerate launch --mixed_precision bf16 train.py --bf16=False --fp16=True --learning_rate=1e-4\n"
    assert opened(tmp_path, "train.sh", text)[0] == {"precision": "fp16", "learning_rate": 1e-4}


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("python train.py --per_device_train_batch_size 4 --bf16 True\n", True),
        ("python train.py --batch_size 4 --lr 1e-4\n", False),  # a parser of its own refuses what it does not know
    ],
)
def test_new_options_only_for_a_script_that_takes_all_of_the_trainers(tmp_path: Path, text: str, added: bool) -> None:
    path = tmp_path / "train.sh"
    path.write_text(text)
    update = update_tool_file(path, Settings(dataloader_num_workers=2), ["dataloader_num_workers"])
    assert ("--dataloader_num_workers 2" in update.after) is added
    assert bool(update.left_out) is not added


def test_a_comment_stays_with_its_argument(tmp_path: Path) -> None:
    text = "SFTConfig(\n    seed=1,\n    max_steps=5,  # a few\n)\n"
    (tmp_path / "train.py").write_text(text)
    found = patched(tmp_path / "train.py", Settings(save_steps=7, logging_steps=3), "save_steps", "logging_steps")
    ast.parse(found)
    for line in ("    save_steps=7,\n", "    logging_steps=3,\n"):
        found = found.replace(line, "")
    assert found == text


def test_a_call_that_unpacks_its_arguments_gets_none_twice(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("TrainingArguments(seed=1, **given)\n")
    assert patched(path, Settings(seed=2), "seed") == "TrainingArguments(seed=2, **given)\n"
    with pytest.raises(SettingsError, match="may be among the arguments that the call unpacks"):
        patched(path, Settings(dataloader_num_workers=2), "dataloader_num_workers")


def test_options_in_an_array(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.sh", ARRAYS)
    assert settings == {
        "learning_rate": 1e-4, "per_device_train_batch_size": 8, "num_train_epochs": 2.0, "seed": 3,
    }  # fmt: skip
    assert job is not None
    assert job.command[:4] == ("python", "train.py", "--learning_rate", "1e-4")
    wanted = Settings(per_device_train_batch_size=16, num_train_epochs=4)
    found = patched(tmp_path / "train.sh", wanted, "per_device_train_batch_size", "num_train_epochs")
    assert found == ARRAYS.replace("batch_size 8", "batch_size 16").replace("EPOCHS:-2", "EPOCHS:-4.0")


COMMAND_LINE = """\
@dataclass
class ScriptArguments:
    model_name: str = field(default="acme/base-1b", metadata={"help": "x"})
    rank: Optional[int] = 8
    targets: Optional[str] = None
parser.add_argument("-l", "--learning-rate", type=float, default=2e-4)
parser.add_argument("--seed", type=int)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(script_args.model_name)
LoraConfig(r=script_args.rank, target_modules=script_args.targets)
SFTConfig(learning_rate=args.learning_rate, seed=args.seed, max_steps=data.steps)
"""


def test_arguments_of_a_scripts_command_line_have_their_defaults(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.py", COMMAND_LINE)
    assert settings == {"learning_rate": 2e-4, "lora_r": 8, "peft_method": "lora"}
    assert job is not None
    assert (job.model, job.task) == ("acme/base-1b", "causal-lm")
    found = patched(tmp_path / "train.py", Settings(learning_rate=1e-5, lora_r=4), "learning_rate", "lora_r")
    assert found == COMMAND_LINE.replace("default=2e-4", "default=1e-05").replace("= 8", "= 4")
    with pytest.raises(SettingsError, match="computed in the script"):
        patched(tmp_path / "train.py", Settings(seed=5), "seed")


def test_a_file_of_arguments(tmp_path: Path) -> None:
    settings, job = opened(tmp_path, "train.args", "--seed 3\n--fp16\n--warmup_ratio 0.1\n")
    assert (settings, job) == ({"seed": 3, "precision": "fp16", "warmup_steps": 0.1}, None)


HYDRA = """defaults: [_self_, {data: imdb}]
model:
  name: acme/base
  optimizer: {_target_: torch.optim.AdamW, lr: 1e-4}
data: {batch_size: 32, num_workers: 4}
trainer: {max_epochs: 5, precision: bf16-mixed}
eval_data: {num_workers: '${data.num_workers}'}
seed: 1
"""


def test_a_hydra_file_gives_its_own_keys(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "configs").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import hydra\n@hydra.main(config_path='../configs')\ndef main(c): ...\n"
    )
    settings, job = opened(tmp_path, "configs/run.yaml", HYDRA)
    assert settings == {
        "per_device_train_batch_size": 32, "learning_rate": 1e-4, "dataloader_num_workers": 4, "num_train_epochs": 5.0,
        "precision": "bf16", "seed": 1,
    }  # fmt: skip
    assert job is not None
    command = ("python", f"{tmp_path}/src/train.py", "--config-path", f"{tmp_path}/configs", "--config-name", "run")
    assert (job.command, job.apply, job.model) == (command, "placeholders", "acme/base")
    wanted = Settings(learning_rate=1e-5, precision="fp16", num_train_epochs=2.0, seed=4)
    applied = build_command(job, wanted, None, "out", chosen={"learning_rate", "precision", "num_train_epochs", "seed"})
    assert set(applied.argv[6:]) == {
        "model.optimizer.lr=1e-05", "trainer.precision=16-mixed", "trainer.max_epochs=2", "seed=4",
    }  # fmt: skip


def test_a_hydra_file_is_composed_of_its_groups(tmp_path: Path) -> None:
    files = {
        "configs/train.yaml": "# @package _global_\ndefaults:\n  - _self_\n  - data: imdb\n  - trainer: default\n"
        "  - experiment: null\n  - optional local: none\nseed: 3\n",
        "environment.yaml": "channels:\n  - defaults\n",
        "configs/data/imdb.yaml": "_target_: my.Data\nbatch_size: 64\n",
        "configs/data/small.yaml": "defaults: [imdb]\nbatch_size: 4\n",
        "configs/trainer/default.yaml": "max_epochs: 10\naccumulate_grad_batches: 2\n",
        "configs/trainer/short.yaml": "max_epochs: 1  # quick\n",
        "configs/experiment/one.yaml": "# @package _global_\ndefaults: [{override /data: small}]\nseed: 9\n",
        "src/train.py": "@hydra.main(version_base='1.3')\ndef main(cfg): ...\n",
        "src/eval.py": "@hydra.main(version_base='1.3')\ndef main(cfg): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    main = load_preset(tmp_path / "configs/train.yaml").preset
    assert main.settings == {
        "per_device_train_batch_size": 64, "num_train_epochs": 10.0, "gradient_accumulation_steps": 2, "seed": 3,
    }  # fmt: skip
    assert isinstance(main.job, CommandJob)
    start = ("python", f"{tmp_path}/src/train.py")
    assert main.job.command == (*start, "--config-path", f"{tmp_path}/configs", "--config-name", "train")
    assert main.job.aliases["per_device_train_batch_size"] == "data.batch_size"
    whole = {"num_train_epochs": 10.0, "gradient_accumulation_steps": 2}
    experiment = load_preset(tmp_path / "configs/experiment/one.yaml").preset
    assert experiment.settings == {**whole, "per_device_train_batch_size": 4, "seed": 9}
    assert isinstance(experiment.job, CommandJob)
    assert experiment.job.command == (*start, "experiment=one")
    group = load_preset(tmp_path / "configs/trainer/short.yaml").preset
    assert group.settings == {"num_train_epochs": 1.0, "per_device_train_batch_size": 64, "seed": 3}
    assert isinstance(group.job, CommandJob)
    assert group.job.command == (*start, "trainer=short")
    assert group.job.aliases["num_train_epochs"] == "trainer.max_epochs"
    found = patched(tmp_path / "configs/trainer/short.yaml", Settings(num_train_epochs=4.0), "num_train_epochs")
    assert found == "max_epochs: 4  # quick\n"


LIGHTNING = """seed_everything: 7
trainer: {accelerator: gpu, precision: 16-mixed, max_epochs: 3, accumulate_grad_batches: 2, gradient_clip_val: 0.5}
model: {class_path: my.Module, init_args: {lr: 1e-4, model_name_or_path: acme/base}}
data: {class_path: my.Data, init_args: {train_batch_size: 8, num_workers: 3}}
"""


def test_a_lightning_file_trains_by_the_script_with_the_cli(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Module, Data)\n")
    (tmp_path / "other.py").write_text("print(1)\n")
    settings, job = opened(tmp_path, "config.yaml", LIGHTNING)
    assert settings == {
        "seed": 7, "precision": "fp16", "num_train_epochs": 3.0, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5,
        "learning_rate": 1e-4, "per_device_train_batch_size": 8, "dataloader_num_workers": 3,
    }  # fmt: skip
    assert job is not None
    assert job.command == ("python", f"{tmp_path}/main.py", "fit", "--config", f"{tmp_path}/config.yaml")
    assert (job.model, job.dialect, job.apply) == ("acme/base", "lightning", "yaml")
    found = patched(tmp_path / "config.yaml", Settings(learning_rate=1e-5), "learning_rate")
    assert found == LIGHTNING.replace("lr: 1e-4", "lr: 1.0e-05")


def test_of_two_scripts_neither_is_taken(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("LightningCLI(Module)\n")
    job = opened(tmp_path, "config.yaml", LIGHTNING)[1]
    assert job is not None
    assert job.command == ("python", "train.py", "fit", "--config", f"{tmp_path}/config.yaml")
    assert any("train.py stands for" in note for note in load_preset(tmp_path / "config.yaml").notes)


def test_the_program_of_a_project_trains_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nterra = "terra.__main__:main"\n')
    (tmp_path / "terra").mkdir()
    (tmp_path / "terra" / "cli.py").write_text("class TerraCLI(LightningCLI): ...\n")
    job = opened(tmp_path, "examples/confs/config.yaml", LIGHTNING)[1]
    assert job is not None
    assert job.command == ("terra", "fit", "--config", f"{tmp_path}/examples/confs/config.yaml")


def test_a_cli_that_runs_nothing_itself_has_no_subcommand(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    for name in ("global_forecast", "projection"):
        (tmp_path / "src" / "climate" / name).mkdir(parents=True)
        (tmp_path / "src" / "climate" / name / "train.py").write_text("cli = MyLightningCLI(Module, run=False)\n")
    job = opened(tmp_path, "configs/global_forecast_big.yaml", LIGHTNING)[1]
    assert job is not None
    script = f"{tmp_path}/src/climate/global_forecast/train.py"
    assert job.command == ("python", script, "--config", f"{tmp_path}/configs/global_forecast_big.yaml")


def test_the_opened_script_is_what_runs(tmp_path: Path) -> None:
    opened(tmp_path, "train.py", TRAINER)
    training = resolve_training(Sources(str(tmp_path / "train.py"), project=None))
    assert isinstance(training.job, CommandJob)
    assert training.resolved.settings.learning_rate == 2e-5


def test_a_json_file_stays_what_its_script_reads(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])\n")
    settings, job = opened(tmp_path, "arguments.json", '{"output_dir": "out", "learning_rate": 1e-5, "seed": 3}')
    assert settings == {"learning_rate": 1e-5, "seed": 3}
    assert job is not None
    assert (job.command, job.apply) == (("python", f"{tmp_path}/run.py", f"{tmp_path}/arguments.json"), "inject")


def test_a_shell_script_with_overrides_of_hydra(tmp_path: Path) -> None:
    text = "torchrun -m verl.trainer.sft data.train_batch_size=64 optim.lr=1e-5 \\\n  +trainer.max_epochs=3\n"
    settings, job = opened(tmp_path, "run.sh", text)
    assert settings == {"per_device_train_batch_size": 64, "learning_rate": 1e-5, "num_train_epochs": 3.0}
    assert job is not None
    assert (job.apply, job.dialect) == ("placeholders", "hydra")
    applied = build_command(job, Settings(learning_rate=2e-5), None, "out", chosen={"learning_rate"})
    assert "optim.lr=2e-05" in applied.argv


def test_an_option_that_has_lost_its_command_is_left_to_the_shell(tmp_path: Path) -> None:
    job = opened(tmp_path, "run.sh", "deepspeed train.py \\ \n\n  --learning_rate 1e-5 --seed 3\n")[1]
    assert job is not None
    assert job.command == ("bash", f"{tmp_path}/run.sh")


def test_a_command_put_together_in_a_document_is_left_to_the_shell(tmp_path: Path) -> None:
    text = "read words <<EOF\nopenrlhf.cli.train_sft \\\n --learning_rate 1e-5 --seed 3\nEOF\ndeepspeed $words\n"
    settings, job = opened(tmp_path, "run.sh", text)
    assert settings == {"learning_rate": 1e-5, "seed": 3}
    assert job is not None
    assert job.command == ("bash", f"{tmp_path}/run.sh")


def test_a_group_that_only_an_experiment_chooses(tmp_path: Path) -> None:
    files = {
        "configs/config.yaml": "defaults: [_self_, {experiment: base}]\nseed: 3\n",
        "configs/experiment/base.yaml": "# @package _global_\ndefaults: [{/optimizer: adam}]\n",
        "configs/optimizer/adam.yaml": "lr: 0.1\n",
        "train.py": "@hydra.main(config_path='configs', config_name='config.yaml')\ndef main(cfg): ...\n",
        "setup.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    preset = load_preset(tmp_path / "configs/optimizer/adam.yaml").preset
    assert preset.settings == {"learning_rate": 0.1, "seed": 3}
    assert isinstance(preset.job, CommandJob)
    assert preset.job.command == ("python", f"{tmp_path}/train.py", "optimizer=adam")


FINETUNE = """#!/bin/bash
# torchrun old.py --learning_rate 1 \\
GPUS=${GPUS:-2}
BATCH_SIZE=${BATCH_SIZE:-16}
LR='3e-4'
ACCUMULATION=$((BATCH_SIZE / 4 / GPUS))
torchrun --nproc_per_node=${GPUS} finetune.py \\
    --model_name_or_path acme/base-1b --data_path "my data.json" \\
    --bf16 \\
    --learning_rate $LR \\
    --per-device-train-batch-size="4" \\
    --gradient_accumulation_steps ${ACCUMULATION} \\
    --model_max_length 2048  # the model's
echo "--learning_rate 5"
"""


def test_options_of_a_shell_script_change_in_place(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(FINETUNE)
    loaded = load_preset(path).preset
    assert loaded.settings == {
        "precision": "bf16", "learning_rate": 3e-4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
        "max_length": 2048,
    }  # fmt: skip
    assert isinstance(loaded.job, CommandJob)
    assert (loaded.job.command[:3], loaded.job.data) == (
        ("torchrun", "--nproc_per_node=2", "finetune.py"),
        "my data.json",
    )
    settings = Settings(learning_rate=1e-5, per_device_train_batch_size=8, max_length=512, precision="fp16", seed=3)
    names = ("learning_rate", "per_device_train_batch_size", "max_length", "precision", "seed")
    assert patched(path, settings, *names) == FINETUNE.replace("LR='3e-4'", "LR='1e-05'").replace(
        '-size="4"', '-size="8"'
    ).replace("--bf16 \\", "--bf16 False \\").replace(
        "    --model_max_length 2048", "    --fp16 True \\\n    --seed 3 \\\n    --model_max_length 512"
    )


def test_an_option_that_the_shell_computes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(FINETUNE)
    with pytest.raises(SettingsError, match="computed in the script"):
        patched(path, Settings(gradient_accumulation_steps=3), "gradient_accumulation_steps")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('ARGS="--seed 7 --max_steps 9 \\\n--bf16 True"\neval "torchrun train.py" "$ARGS"\n', ("torchrun", "train.py")),
        ('CMD="train.py --seed 7 --max_steps 9 --bf16 True"\nsrun bash -c "python $CMD"\n', ("bash",)),
        ('export ARGS="--seed 7 --max_steps 9 --bf16 True"\n', ("bash",)),
    ],
)
def test_options_in_a_variable(tmp_path: Path, text: str, command: tuple[str, ...]) -> None:
    settings, job = opened(tmp_path, "job.sh", text)
    assert settings == {"seed": 7, "max_steps": 9, "precision": "bf16"}
    assert job is not None
    assert job.command[: len(command)] == command
    assert patched(tmp_path / "job.sh", Settings(seed=8), "seed") == text.replace("--seed 7", "--seed 8")


def test_a_script_keeps_its_own_names_for_settings(tmp_path: Path) -> None:
    settings, job = opened(
        tmp_path, "job.sh", "python train.py --lr 1e-3 --epochs 4 --batch_size 32 --bits 4 --lora_enable True\n"
    )
    assert settings == {
        "learning_rate": 1e-3, "num_train_epochs": 4.0, "per_device_train_batch_size": 32, "quantization": "nf4",
        "peft_method": "lora",
    }  # fmt: skip
    assert job is not None
    applied = build_command(job, Settings(learning_rate=2e-3), None, "out", chosen=["learning_rate"])
    assert applied.argv[-2:] == ("--lr", "0.002")
    assert "1e-3" not in applied.argv


def test_a_variable_that_doubles_on_each_line_is_not_put_in(tmp_path: Path) -> None:
    settings, _ = opened(tmp_path, "job.sh", "A=1\n" + "A=$A$A\n" * 50 + "python train.py --seed 7 --run_name $A\n")
    assert settings == {"seed": 7}


def test_an_evaluation_that_names_the_file_is_not_what_trains_by_it(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("cli = LightningCLI(Module, Data)\n")
    (tmp_path / "evaluate.py").write_text("cli = LightningCLI(run=False)\nfor name in ['bass', 'drums']: ...\n")
    (tmp_path / "cfg").mkdir()
    job = opened(tmp_path, "cfg/bass.yaml", LIGHTNING)[1]
    assert job is not None
    assert job.command == ("python", f"{tmp_path}/main.py", "fit", "--config", f"{tmp_path}/cfg/bass.yaml")


def test_the_micro_batch_goes_before_the_batch_of_all_devices(tmp_path: Path) -> None:
    """As OpenRLHF names them."""
    path = tmp_path / "sft.sh"
    path.write_text("torchrun train.py --train_batch_size 256 --micro_train_batch_size 4 --learning_rate 1e-5\n")
    assert load_preset(path).preset.settings["per_device_train_batch_size"] == 4


def test_the_script_of_older_releases_of_llama_factory(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python src/train_bash.py --stage sft --finetuning_type full --cutoff_len 4096 --bf16 True\n")
    assert load_preset(path).preset.settings["max_length"] == 4096

"""Model, task and settings of a command, from its arguments, its configuration file and its script."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tuner_tui.settings.command_training import CommandTraining, read_command
from tuner_tui.settings.dialects.dialect import Dialect, dialects


def training(folder: Path, command: str, **files: str) -> CommandTraining:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text)
    return read_command(shlex.split(command), folder)


@pytest.mark.parametrize(
    "words",
    [
        "--model_name_or_path gpt2", "--model_name_or_path=gpt2", "--model-name-or-path gpt2", "--model gpt2",
        "--base_model gpt2", "model=gpt2", "model.name_or_path=x model.model_name=gpt2", "+trainer.x=1 model_name=gpt2",
        "--model gpt2 --model_name my-robot",
    ],
)  # fmt: skip
def test_an_argument_names_the_model(tmp_path: Path, words: str) -> None:
    assert training(tmp_path, f"python train.py {words}").model == "gpt2"


@pytest.mark.parametrize("words", ["--model", "--model $MODEL", "model={{ name }}", "--model none", "--lr 1e-5"])
def test_what_names_no_model(tmp_path: Path, words: str) -> None:
    assert training(tmp_path, f"python train.py {words}").model is None


def test_settings_in_arguments(tmp_path: Path) -> None:
    words = "--per_device_train_batch_size 32 --bf16 --gradient_checkpointing true --max_seq_length 512 --own 3"
    assert training(tmp_path, f"torchrun train.py {words}").settings == {
        "per_device_train_batch_size": 32, "precision": "bf16", "gradient_checkpointing": True, "max_length": 512,
    }  # fmt: skip


def test_a_script_with_literals(tmp_path: Path) -> None:
    imported = training(
        tmp_path, "python train.py", train_py="""
from transformers import AutoModelForSequenceClassification, TrainingArguments
NAME = "bert-base-uncased"
model = AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=3)
args = TrainingArguments("out", per_device_train_batch_size=48, fp16=True)
"""
    )  # fmt: skip
    assert (imported.model, imported.task) == ("bert-base-uncased", "classification")
    assert imported.settings == {"per_device_train_batch_size": 48, "precision": "fp16"}
    assert set(imported.sources.values()) == {"train.py"}


ARGPARSE = """
parser.add_argument("--model_name_or_path", "-m", type=str, default="distilgpt2")
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
"""
DATACLASS = """
@dataclass
class ModelArguments:
    config: str = "other"
    model_name: str = field(default="distilgpt2", metadata={"help": "The model"})
model = AutoModelForCausalLM.from_pretrained(arguments.model_name)
"""


@pytest.mark.parametrize("script", [ARGPARSE, DATACLASS], ids=["argparse", "dataclass"])
def test_the_default_of_the_scripts_own_option(tmp_path: Path, script: str) -> None:
    imported = training(tmp_path, "python train.py --lr 3e-5", train_py=script)
    assert (imported.model, imported.task) == ("distilgpt2", "causal-lm")
    assert training(tmp_path, "python train.py --model_name gpt2").model == "gpt2"


def test_a_variable_that_is_called_like_the_option(tmp_path: Path) -> None:
    script = 'def main():\n    model_name = "answerdotai/ModernBERT-base"\n    CrossEncoder(model_name)\n'
    imported = training(tmp_path, "python train.py", train_py=script)
    assert (imported.model, imported.task) == ("answerdotai/ModernBERT-base", None)


@pytest.mark.parametrize(
    ("line", "task"),
    [
        ("ViTForImageClassification.from_pretrained(NAME)", "image-classification"),
        ("AutoModelForSeq2SeqLM.from_pretrained(NAME)", "seq2seq"),
        ("T5ForConditionalGeneration(config)", "seq2seq"),
        ("AutoModelForSeq2SeqLM.from_pretrained(A) if t5 else AutoModelForCausalLM.from_pretrained(A)", None),
        ("Seq2SeqTrainer(model=model)", "seq2seq"),
        ("AutoModelForSpeechSeq2Seq.from_pretrained(NAME)", "speech-to-text"),
        ("ViTForMaskedImageModeling.from_pretrained(NAME)", "other"),
        ("Wav2Vec2ForCTC.from_pretrained(NAME)", "other"),
        ("import timm", "other"),
        ("AutoModelForCausalLM.from_pretrained(NAME); DataCollatorForSeq2Seq(tokenizer)", "causal-lm"),
        ("BertForTokenClassification.from_pretrained(NAME)", "classification"),
        ("DataCollatorForLanguageModeling(tokenizer)", None),
        ("SamplesForToday.collect()", None),
    ],
)
def test_the_task_is_that_of_the_classes_in_the_script(tmp_path: Path, line: str, task: str | None) -> None:
    assert training(tmp_path, "python train.py", train_py=f"{line}\n").task == task


def test_a_configuration_file_in_the_arguments(tmp_path: Path) -> None:
    file_text = "model:\n  name: whatever\n  model_name_or_path: Qwen/Qwen2.5-0.5B\nper_device_train_batch_size: 4\n"
    imported = training(tmp_path, "python train.py --config run.yaml", run_yaml=file_text, train_py="import torch\n")
    assert imported.model == "Qwen/Qwen2.5-0.5B"
    assert training(tmp_path, "python train.py --config=run.yaml --model gpt2").model == "gpt2"


def test_a_module_in_place_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.py").write_text(ARGPARSE)
    assert training(tmp_path, "python -m own.train").model == "distilgpt2"


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    imported = training(tmp_path, "python train.py run.yaml", train_py="def broken(:\n", run_yaml="a: [1,\n")
    assert imported == CommandTraining()


@pytest.mark.parametrize("word", ["x" * 300 + ".py", "a\0.py", "/" + "y" * 5000 + ".yaml", "missing.py", "-m"])
def test_words_that_are_no_files_say_nothing(tmp_path: Path, word: str) -> None:
    assert read_command(["python", word], tmp_path) == CommandTraining()


def test_a_folder_or_a_file_of_bytes_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").mkdir()
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00broken")
    assert training(tmp_path, "python train.py run.yaml") == CommandTraining()


def test_the_options_of_the_scripts_own_parser(tmp_path: Path) -> None:
    script = (
        "import argparse, torch\nfrom torch.utils.data import random_split\n"
        'parser = argparse.ArgumentParser()\nparser.add_argument("--epochs", "-e", type=int, default=5)\n'
        'parser.add_argument("-v", "--verbose", action="store_true")\n'
        'parser.add_argument("--threads", type=int, default=4)\nargs = parser.parse_args()\n'
        "loader = torch.utils.data.DataLoader(data, num_workers=args.threads)\n"
        "torch.Generator().manual_seed(7)\ntorch.optim.Adam(parameters, lr=1e-3)\n"
        "for epoch in range(args.epochs):\n    loss.backward()\n"
    )
    settings = training(tmp_path, "python train.py -e 2 -v --threads 1", train_py=script).settings
    assert settings == {"num_train_epochs": 2, "learning_rate": 1e-3, "dataloader_num_workers": 1}


def test_what_a_branch_changes_in_a_dictionary_is_not_its_value(tmp_path: Path) -> None:
    script = (
        "import os, torch\n\ndef train(config):\n    if os.environ.get('TESTING'):\n        config['num_epochs'] = 2\n"
        "    num_epochs = int(config['num_epochs'])\n    optimizer = torch.optim.Adam(parameters, lr=config['lr'])\n"
        "    for epoch in range(num_epochs):\n        loss.backward()\n        optimizer.step()\n\n"
        "config = {'lr': 1e-3, 'num_epochs': 3}\ntrain(config)\n"
    )
    settings = training(tmp_path, "python train.py", train_py=script).settings
    assert settings == {"num_train_epochs": 3, "learning_rate": 1e-3}


@pytest.mark.parametrize("tool", [tool for tool in dialects().values() if tool.programs], ids=lambda tool: tool.name)
def test_the_program_of_a_tool_is_read_alone(tool: Dialect) -> None:
    assert read_command((tool.programs[0],), Path("/nowhere")).eval_strategy == tool.defaults.get("eval_strategy", "no")


def test_a_script_has_the_variables_of_the_job(tmp_path: Path) -> None:
    lines = ['epochs = int(os.environ.get("EPOCHS", 3))', 'lr = float(os.environ.get("LR", 0.1))', "seed = 1"]
    script = "\n".join(["import os", *lines, "torch.manual_seed(seed)", "for _ in range(epochs): loss.backward(lr)"])
    (tmp_path / "train.py").write_text(script)
    settings = read_command(("python", "train.py"), tmp_path, {"EPOCHS": "7", "LR": "$RATE"}).settings
    assert settings == {"num_train_epochs": 7.0, "seed": 1}


def test_a_trainer_takes_its_seed_from_its_arguments(tmp_path: Path) -> None:
    script = (
        "import torch\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\ntorch.manual_seed(0)\n"
        "Trainer(model=model, args=args).train()\n"
    )
    assert training(tmp_path, "python train.py --max_steps 3", train_py=script).settings == {"max_steps": 3}


def test_how_often_deepspeed_prints_is_no_setting_of_the_command(tmp_path: Path) -> None:
    imported = training(
        tmp_path, "deepspeed train.py --config a.yaml --deepspeed_config ds.json",
        a_yaml="lr: 0.1\nlogging_steps: 50\n",
        ds_json='{"steps_per_print": 2000, "gradient_clipping": 0.5, "zero_optimization": {"stage": 2}}',
        train_py="config.lr, config.logging_steps\nloss.backward()\n",
    )  # fmt: skip
    assert imported.settings == {"learning_rate": 0.1, "logging_steps": 50, "max_grad_norm": 0.5}
    assert imported.sources["logging_steps"] == "a.yaml"


def test_the_name_of_what_a_script_writes_is_no_model(tmp_path: Path) -> None:
    source = """
model_name = f"pond-2B-batch-{4}"
tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
model = LlamaForCausalLM(LlamaConfig())
args = TrainingArguments(output_dir=f"{ROOT}/{model_name}", learning_rate=0.1)
Trainer(model, args).train()
"""
    assert training(tmp_path, "python train.py", train_py=source).model is None
    loaded = source.replace("LlamaForCausalLM(LlamaConfig())", "LlamaForCausalLM.from_pretrained(model_name)")
    assert training(tmp_path, "python train.py", train_py=loaded).model == "pond-2B-batch-4"

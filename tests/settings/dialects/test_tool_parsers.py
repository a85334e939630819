"""What is exported is read by each tool's own parser, asked in a subprocess; skipped where that is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tuner_tui.settings.dialects.dialect import dialects, write_settings
from tuner_tui.settings.dialects.file_formats import render_file
from tuner_tui.settings.model import FIELDS, Settings

pytestmark = pytest.mark.train

SETTINGS = Settings(
    per_device_train_batch_size=3, gradient_accumulation_steps=5, learning_rate=3e-5, warmup_steps=0.1,
    weight_decay=0.01, max_grad_norm=0.5, gradient_checkpointing=True, max_length=777, peft_method="lora", lora_r=4,
    lora_alpha=12, lora_dropout=0.1, quantization="nf4", bnb_4bit_use_double_quant=True, num_train_epochs=2.0,
    dataloader_num_workers=2, dataloader_prefetch_factor=3, save_total_limit=7, logging_steps=9, seed=11,
    train_sampling_strategy="group_by_length", eval_strategy="no", precision="bf16",
)  # fmt: skip
"""Every value is another than the tools' defaults."""

HF = """
from transformers import HfArgumentParser, TrainingArguments
(found,) = HfArgumentParser(TrainingArguments).parse_yaml_file(path)
"""
HF_ARGS = """
import shlex
from transformers import HfArgumentParser, TrainingArguments
words = [word for word in shlex.split(open(path).read()) if word.strip()]
(found,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([word.strip() for word in words])
"""
HF_PYTHON = """
from peft import LoraConfig
from transformers import BitsAndBytesConfig, TrainingArguments
import ast
tree = ast.parse(open(path).read())
tree.body = [one for one in tree.body if one.value.func.__class__ is ast.Name and one.value.func.id != "tokenizer"]
exec(compile(tree, path, "exec"))
found = training_arguments
more = {"lora_r": lora_config.r, "quant": quantization_config.bnb_4bit_quant_type,
        "nested": quantization_config.bnb_4bit_use_double_quant}
"""
TRL = """
from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser
script, found, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config(["--config", path])
more = {"max_length": found.max_length, "lora_r": model.lora_r, "lora_alpha": model.lora_alpha,
        "use_peft": model.use_peft, "load_in_4bit": model.load_in_4bit, "quant": model.bnb_4bit_quant_type,
        "nested": model.use_bnb_nested_quant}
"""
ACCELERATE = """
from accelerate.commands.config.config_args import load_config_from_file
found = load_config_from_file(path)
"""
LIGHTNING = """
import lightning, sys, torch, types
from lightning.pytorch.cli import LightningCLI
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
class Data(lightning.LightningDataModule):
    def __init__(self, batch_size: int = 1, num_workers: int = 0, max_length: int = 8, pin_memory: bool = False,
                 persistent_workers: bool = False):
        super().__init__()
sys.modules["mine"] = types.SimpleNamespace(Module=Module, Data=Data, __name__="mine", __spec__=None)
Data.__module__ = Module.__module__ = "mine"
base = path + ".base.yaml"
open(base, "w").write("optimizer: {class_path: torch.optim.AdamW}\\ndata: {class_path: mine.Data}\\n"
                      "trainer: {logger: false, enable_checkpointing: false}\\n")
cli = LightningCLI(Module, Data, subclass_mode_data=True, run=False, save_config_callback=None,
                   args=["--config", base, "--config", path, "--trainer.accelerator", "cpu"])
found = cli.config.trainer
more = {"seed": cli.config.seed_everything, "lr": cli.config.optimizer.init_args.lr,
        "batch_size": cli.config.data.init_args.batch_size}
"""
LITGPT = """
from jsonargparse import ArgumentParser
from litgpt.finetune.lora import setup
parser = ArgumentParser()
parser.add_function_arguments(setup)
parser.add_argument("--config", action="config")
classes = ["--optimizer", "torch.optim.AdamW", "--data", "litgpt.data.Alpaca"]
config = parser.parse_args([*classes, "--config", path, "--checkpoint_dir", "."])
found = config.train
more = {"lora_r": config.lora_r, "quantize": config.quantize, "precision": config.precision, "seed": config.seed}
"""
AXOLOTL = """
import yaml
from axolotl.utils.schemas.config import AxolotlInputConfig
more = {"base_model": "m", "datasets": [{"path": "d", "type": "alpaca"}]}
found = AxolotlInputConfig(**more, **yaml.safe_load(open(path)))
more["optimizer"] = str(getattr(found.optimizer, "value", found.optimizer))
"""
LLAMA_FACTORY = """
import os, yaml
os.environ["DISABLE_VERSION_CHECK"] = "1"  # its release is older than this transformers
from llamafactory.hparams.parser import _TRAIN_ARGS
from transformers import HfArgumentParser
values = {**yaml.safe_load(open(path)), "output_dir": "out", "model_name_or_path": "m"}
parts = HfArgumentParser(_TRAIN_ARGS).parse_dict(values, allow_extra_keys=True)
model, data, found, tuning, _ = parts
known = {name for part in parts for name in vars(part)}
more = {"cutoff_len": data.cutoff_len, "lora_rank": tuning.lora_rank, "lora_alpha": tuning.lora_alpha,
        "quantization_bit": model.quantization_bit, "double_quantization": model.double_quantization,
        "disable_gradient_checkpointing": model.disable_gradient_checkpointing,
        "unknown": sorted(values.keys() - known - {"warmup_ratio"})}  # which transformers 5.15 removed
"""
DEEPSPEED = """
from deepspeed.runtime.config import DeepSpeedConfig
found = DeepSpeedConfig(path)
more = {"bf16": found.bfloat16_config.enabled, "fp16": found.float16_config.enabled, "lr": found.optimizer_params["lr"]}
"""
TORCHTUNE = """
from omegaconf import OmegaConf
from torchtune.config._parse import TuneRecipeArgumentParser
import sys
config, _ = TuneRecipeArgumentParser().parse_known_args(["--config", path])
found = OmegaConf.create(vars(config))
more = {"max_seq_len": found.tokenizer.max_seq_len, "lr": found.optimizer.lr, "lora_rank": found.model.lora_rank,
        "batch_size": found.batch_size, "dtype": found.dtype, "epochs": found.epochs}
found = config
"""
TRAINER = {
    "per_device_train_batch_size": 3, "gradient_accumulation_steps": 5, "learning_rate": 3e-5, "warmup_steps": 0.1,
    "weight_decay": 0.01, "max_grad_norm": 0.5, "num_train_epochs": 2.0, "dataloader_num_workers": 2,
    "dataloader_prefetch_factor": 3, "save_total_limit": 7, "logging_steps": 9, "seed": 11, "bf16": True,
    "train_sampling_strategy": "group_by_length",
}  # fmt: skip
QUANTIZED = {"lora_r": 4, "quant": "nf4", "nested": True}
CASES: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("hf", "transformers", "yaml", HF, TRAINER),
    ("hf-args", "transformers", "args", HF_ARGS, TRAINER),
    ("hf-python", "peft", "py", HF_PYTHON, {**TRAINER, **QUANTIZED}),
    ("trl", "trl", "yaml", TRL, {
        **TRAINER, **QUANTIZED, "gradient_checkpointing": True, "max_length": 777, "lora_alpha": 12, "use_peft": True,
        "load_in_4bit": True,
    }),
    ("accelerate", "accelerate", "yaml", ACCELERATE, {"mixed_precision": "bf16"}),
    ("lightning", "jsonargparse", "yaml", LIGHTNING, {
        "accumulate_grad_batches": 5, "gradient_clip_val": 0.5, "max_epochs": 2, "precision": "bf16-mixed",
        "log_every_n_steps": 9, "seed": 11, "lr": 3e-5, "batch_size": 3,
    }),
    ("litgpt", "litgpt", "yaml", LITGPT, {
        "micro_batch_size": 3, "max_seq_length": 777, "max_norm": 0.5, "epochs": 2, "log_interval": 9, "lora_r": 4,
        "quantize": "bnb.nf4", "precision": "bf16-mixed", "seed": 11, "global_batch_size": 15,
    }),
    ("axolotl", "axolotl", "yaml", AXOLOTL, {
        "micro_batch_size": 3, "gradient_accumulation_steps": 5, "learning_rate": 3e-5, "sequence_len": 777,
        "adapter": "qlora", "load_in_4bit": True, "lora_r": 4, "lora_alpha": 12, "num_epochs": 2.0, "bf16": True,
        "warmup_ratio": 0.1, "group_by_length": True, "save_total_limit": 7, "seed": 11, "optimizer": "adamw_torch",
    }),
    ("llama-factory", "llamafactory", "yaml", LLAMA_FACTORY, {
        **{name: value for name, value in TRAINER.items() if name != "warmup_steps"}, "cutoff_len": 777,
        "lora_rank": 4, "lora_alpha": 12, "quantization_bit": 4, "double_quantization": True,
        "disable_gradient_checkpointing": False, "unknown": [],
    }),
    ("deepspeed", "deepspeed", "json", DEEPSPEED, {
        "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5, "gradient_clipping": 0.5, "lr": 3e-5,
        "bf16": True, "fp16": False, "steps_per_print": 9,
    }),
    ("torchtune", "torchtune sentencepiece", "yaml", TORCHTUNE, {
        "batch_size": 3, "max_seq_len": 777, "lr": 3e-5, "lora_rank": 4, "epochs": 2, "dtype": "bf16",
    }),
]  # fmt: skip
ASK = """
import json, sys
path, more = sys.argv.pop(), {{}}
{parse}
values = {{name: getattr(value, "value", value) for name, value in vars(found).items()}}
print(json.dumps({{**values, **more}}, default=str))
"""


@pytest.mark.parametrize(
    ("tool", "package", "suffix", "parse", "expected"),
    [pytest.param(*case, id=case[0], marks=() if case[0] == "hf" else pytest.mark.full) for case in CASES],
)
def test_the_tools_own_parser_reads_it(
    tmp_path: Path, tool: str, package: str, suffix: str, parse: str, expected: dict[str, Any]
) -> None:
    if missing := [one for one in package.split() if find_spec(one) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    path = tmp_path / f"exported.{suffix}"
    carried = write_settings(dialects()[tool], SETTINGS, None, FIELDS)
    values = {name: value for name, value in carried.values.items() if value is not None}
    text = render_file(dialects()[tool], values)
    # transformers refuses bf16 on a machine without a card unless its settings say that it trains on the CPU.
    cpu = {"yaml": "\nuse_cpu: true\n", "args": " --use_cpu true --output_dir out"}.get(suffix, "")
    path.write_text(
        text.replace('output_dir="output"', 'output_dir="output", use_cpu=True')
        + (cpu if tool in ("hf", "hf-args", "trl", "llama-factory") else "")
    )
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(parse=parse), str(path)],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert {name: found.get(name) for name in expected} == expected
    if tool != "trl":  # whose own default of gradient_checkpointing warns with transformers 5.23
        assert "deprecated" not in done.stderr

"""What is written is taken by the installed transformers: asked in a subprocess, never imported here."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tuner_tui.settings.apply import build_command
from tuner_tui.settings.dialects.file_formats import to_arguments
from tuner_tui.settings.dialects.hf import BITSANDBYTES_OPTIMIZERS, IGNORED_ARGUMENTS, OPTIMIZERS, SCHEDULES, to_hf
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.settings.presets import list_presets, shipped_folder
from tuner_tui.settings.resolve import resolve

pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs the train extra"),
]

ASK = """
import dataclasses, json, sys, yaml
from transformers import HfArgumentParser, TrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames
from tuner_tui.trainer.job_file import parse_config

given = json.loads(sys.stdin.read())
answer = {"names": [f.name for f in dataclasses.fields(TrainingArguments)]}
answer["optimizers"] = [name.value for name in OptimizerNames]
answer["schedules"] = [name.value for name in SchedulerType]
answer["configs"] = []
for path in given["configs"]:
    job, arguments = parse_config(yaml.safe_load(open(path).read()), path)
    answer["configs"].append({**{k: v for k, v in vars(arguments).items() if k in given["fields"]}, **vars(job)})
(parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(given["argv"])
answer["argv"] = {k: v for k, v in vars(parsed).items() if k in given["fields"]}
print(json.dumps(answer, default=str))
"""

CHANGED = Settings(
    per_device_train_batch_size=4,
    gradient_accumulation_steps=3,
    learning_rate=1e-5,
    warmup_steps=0.06,
    gradient_checkpointing=True,
    train_sampling_strategy="group_by_length",
    dataloader_num_workers=2,
    dataloader_prefetch_factor=3,
    dataloader_pin_memory=False,
    dataloader_persistent_workers=True,
    eval_strategy="steps",
    eval_steps=7,
    save_strategy="no",
    save_total_limit=None,
    max_steps=21,
    max_length=64,
    peft_method="dora",
    lora_dropout=0.1,
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the installed transformers and the built-in job made of what is written here."""
    folder = tmp_path_factory.mktemp("config")
    shipped = [item.loaded.preset for item in list_presets((shipped_folder(),)) if item.loaded]
    # TrainingArguments asks the GPU of this machine, which need not have TF32, so that is left out here.
    theirs = [resolve(preset=preset).settings.changed(tf32=None) for preset in shipped]
    every = [Settings(), CHANGED, *theirs]
    given = {
        "configs": [str(written(settings, folder / f"{index}.yaml")) for index, settings in enumerate(every)],
        "fields": list(FIELDS),
        "argv": ["--output_dir", str(folder / "out"), *to_arguments(to_hf(CHANGED).values)],
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK], input=json.dumps(given), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def written(settings: Settings, path: Path) -> Path:
    path.write_text(build_command(BuiltinJob(), settings, None, str(path.parent / "out")).config_yaml or "")
    return path


def test_the_built_in_job_takes_every_setting(real):
    plain = {
        name: value
        for name, value in structs.asdict(CHANGED).items()
        if name not in ("precision", "gradient_checkpointing") and name in real["configs"][1]
    }
    taken = {name: real["configs"][1][name] for name in plain}
    shown = {**plain, "eval_strategy": taken["eval_strategy"], "save_strategy": taken["save_strategy"]}
    shown |= {"optim": taken["optim"], "lr_scheduler_type": taken["lr_scheduler_type"]}
    assert taken == shown
    assert set(FIELDS) - set(plain) == {"precision", "gradient_checkpointing"}
    assert real["configs"][1]["gradient_checkpointing"] is True


def test_every_shipped_preset_is_taken(real):
    assert len(real["configs"]) >= 17
    assert "tf32" in real["names"]


def test_the_command_line_is_taken(real):
    assert real["argv"]["learning_rate"] == 1e-5
    assert real["argv"]["dataloader_pin_memory"] is False
    assert real["argv"]["warmup_steps"] == 0.06
    assert real["argv"]["save_total_limit"] is None


def test_every_argument_of_transformers_is_known(real):
    """An import of flat YAML then calls none of them the script's own."""
    read_as_settings = {"bf16", "fp16", "activation_checkpointing"}
    assert set(real["names"]) <= set(FIELDS) | set(IGNORED_ARGUMENTS) | read_as_settings


def test_the_known_names_are_those_of_transformers(real):
    assert set(real["optimizers"]) == set(OPTIMIZERS)
    assert set(real["schedules"]) == set(SCHEDULES)
    assert set(BITSANDBYTES_OPTIMIZERS) <= set(OPTIMIZERS)

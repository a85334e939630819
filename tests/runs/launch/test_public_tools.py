"""An installed public training program, run on tiny data without network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.runs.launch.prepare import prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings

pytestmark = [pytest.mark.train, pytest.mark.full]

MODEL = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = ["<pad>", "<eos>", "<unk>", *(f"w{index}" for index in range(40))]
level = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
PreTrainedTokenizerFast(tokenizer_object=level, **special).save_pretrained(sys.argv[1])
shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
LlamaForCausalLM(LlamaConfig(vocab_size=len(words), max_position_embeddings=64, **shape)).save_pretrained(sys.argv[1])
"""
CHOSEN = {"per_device_train_batch_size": 4, "max_steps": 6, "max_length": 8}
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def test_trl_sft_with_its_own_configuration(box: Sandbox) -> None:
    """`trl sft --config sft.yaml`: the settings go into a copy of the file, the rest of it stays."""
    trl = Path(sys.executable).with_name("trl")
    if not trl.exists():
        pytest.skip("needs trl")
    subprocess.run(
        [sys.executable, "-c", MODEL, str(box.root / "model")], env={**os.environ, **ENVIRONMENT}, check=True
    )
    (box.root / "data").mkdir()
    rows = (" ".join(f"w{(row * 7 + at) % 40}" for at in range(4 + row % 9)) for row in range(64))
    (box.root / "data" / "train.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    own = {
        "model_name_or_path": "model", "dataset_name": "data", "output_dir": "out", "use_cpu": True, "bf16": False,
        "report_to": "none", "logging_steps": 1, "save_strategy": "no", "per_device_train_batch_size": 2,
    }  # fmt: skip
    (box.root / "sft.yaml").write_text(yaml.safe_dump(own))
    job = CommandJob(command=(str(trl), "sft", "--config", "sft.yaml"), apply="yaml", dialect="trl", env=ENVIRONMENT)
    chosen = Resolved(Settings.model_validate(CHOSEN), dict.fromkeys(CHOSEN, Origin(OriginKind.FLAG)))
    folder = launch(prepare(replace(box.request("", job=job), resolved=chosen)))
    box.folders.append(folder)
    assert wait_ended(folder).outcome == "completed", folder.output_log.read_text()
    assert yaml.safe_load(folder.config.read_text()) == own | CHOSEN
    assert yaml.safe_load((box.root / "sft.yaml").read_text()) == own, "the person's own file is left as it is"

    state = RunReader(folder).poll().state
    counters = state.ranks[0].latest
    assert counters is not None
    assert (state.step, state.total_steps, counters.samples) == (6, 6, 24)
    assert counters.tokens
    assert 0 < counters.data_wait_s < counters.train_s
    assert (state.in_effect["per_device_train_batch_size"], state.in_effect["max_length"]) == (4, 8)
    assert "trl" in state.in_effect
    assert state.loss is not None

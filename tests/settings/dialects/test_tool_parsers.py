"""What is exported is read by each tool's own parser, asked in a subprocess; skipped where that is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner_tui.settings.dialects.dialect import dialects
from tuner_tui.settings.dialects.file_formats import render_file
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.model import FIELDS, Settings

pytestmark = [pytest.mark.train, pytest.mark.full]

SETTINGS = Settings(
    per_device_train_batch_size=3, gradient_accumulation_steps=5, learning_rate=3e-5, warmup_steps=0.1,
    weight_decay=0.01, max_grad_norm=0.5, gradient_checkpointing=True, max_length=777, peft_method="lora", lora_r=4,
    lora_alpha=12, lora_dropout=0.1, quantization="nf4", bnb_4bit_use_double_quant=True, num_train_epochs=2.0,
    dataloader_num_workers=2, dataloader_prefetch_factor=3, save_total_limit=7, logging_steps=9, seed=11,
    train_sampling_strategy="group_by_length", eval_strategy="no", precision="bf16",
)  # fmt: skip
"""Every value is another than the tools' defaults."""

CASES: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("tool_parsers.yaml").read_text(), yaml.CSafeLoader
)
ASK = """
import json, sys
path, more = sys.argv.pop(), {{}}
{parse}
values = {{name: getattr(value, "value", value) for name, value in vars(found).items()}}
print(json.dumps({{**values, **more}}, default=str))
"""


@pytest.mark.parametrize("tool", CASES)
def test_the_tools_own_parser_reads_it(tmp_path: Path, tool: str) -> None:
    case = CASES[tool]
    suffix, expected = case["suffix"], case["expected"]
    if missing := [name for name in case["packages"].split() if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    path = tmp_path / f"exported.{suffix}"
    carried = write_settings(dialects()[tool], SETTINGS, None, FIELDS)
    values = {name: value for name, value in carried.values.items() if value is not None}
    text = render_file(dialects()[tool], values)
    # transformers refuses bf16 on a machine without a GPU unless its settings say that it trains on the CPU.
    cpu = {"yaml": "\nuse_cpu: true\n", "args": " --use_cpu true --output_dir out"}.get(suffix, "")
    path.write_text(
        text.replace('output_dir="output"', 'output_dir="output", use_cpu=True')
        + (cpu if tool in ("hf", "hf-args", "trl", "llama-factory") else "")
    )
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(parse=case["script"]), str(path)],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    document = json.loads(done.stdout.strip().splitlines()[-1])
    assert {name: document.get(name) for name in expected} == expected
    if tool != "trl":  # whose own default of gradient_checkpointing warns with transformers 5.23
        assert "deprecated" not in done.stderr

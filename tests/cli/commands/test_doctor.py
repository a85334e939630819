"""`tuner-tui doctor`: marks, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import Result

from tests.cli.invoke import invoke
from tests.fakes.inventories import box, make_gpu, python
from tuner_tui.cli.machine import LocalMachine
from tuner_tui.hardware.inventory import Inventory


def call(inventory: Inventory, *words: str) -> Result:
    return invoke("doctor", *words, machine=lambda path: LocalMachine(inventory, python(accelerate="1.15.0")))


def without_spaces(text: str) -> str:
    """The text without the line breaks of a narrow terminal, which fall into a long path as well."""
    return "".join(text.split())


def test_a_good_box_is_told_so() -> None:
    result = call(box(make_gpu("T4", gib=15.0)))
    assert result.exit_code == 0
    assert {line[0] for line in result.stdout.splitlines()} == {"✓"}


def test_what_is_wrong_has_a_mark_advice_and_an_exit_code() -> None:
    result = call(box(make_gpu("T4", gib=15.0), shm_mib=64), "--set", "precision=bf16")
    assert result.exit_code == 1
    assert "! Shared memory  64.0 MiB are free in /dev/shm." in result.stdout
    assert "✗ Settings       NVIDIA T4 (capability 7.5) has no bf16" in result.stdout
    assert "→ --set precision=fp16" in result.stdout


def test_json_is_one_document() -> None:
    document = json.loads(call(box(make_gpu("T4", gib=15.0)), "--preset", "t4-16gb", "--json").stdout)
    assert {check["state"] for check in document} == {"good"}


def test_data_that_is_not_there_is_told_before_the_training(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(f"version: 1\nname: mine\njob: {{kind: builtin, model: tiny, data: {tmp_path}/gone.csv}}\n")
    result = call(box(make_gpu("T4", gib=15.0)), "--preset", str(preset))
    assert result.exit_code == 1
    assert without_spaces(f"✗ Files The data {tmp_path}/gone.csv does not exist") in without_spaces(result.stdout)
    (tmp_path / "gone.csv").write_text("text,label\na,0\n")
    assert call(box(make_gpu("T4", gib=15.0)), "--preset", str(preset)).exit_code == 0


def test_a_hint_in_a_log_is_no_problem(tmp_path: Path) -> None:
    log = tmp_path / "fit.log"
    words = "This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current"
    log.write_text(f"/opt/env/loader.py:6: UserWarning: {words} system is 4, which is smaller.\n")
    result = call(box(make_gpu("T4", gib=15.0)), str(log))
    assert (result.stdout[0], result.exit_code) == ("-", 0)


def test_a_tools_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "my.yml"
    file.write_text(
        f"base_model: gpt2\nsequence_len: 4096\nadapter: lora\ndatasets: [{{path: {tmp_path}/gone.jsonl}}]\n"
    )
    result = call(box(make_gpu("T4", gib=15.0)), str(file))
    output = " ".join(result.stdout.split())
    assert result.exit_code == 1
    assert without_spaces(f"the data {tmp_path}/gone.jsonl does not exist") in without_spaces(output)
    assert "max_length 4,096 is more than the 1,024 positions of gpt2. → --set max_length=1024" in output
    assert "axolotl was not found on PATH. → pip install axolotl" in output


def test_what_a_file_leaves_open_is_shown_for_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("base_model: a/b\nsequence_len: 64\nbf16: auto\n")
    for name, precision in (("T4", "fp16"), ("A100", "bf16")):
        result = call(box(make_gpu(name, gib=15.0)), str(file))
        assert f"On this machine, auto means precision {precision}." in result.stdout


def test_a_script_of_its_own_has_no_strategy_of_the_trainer(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("cfg = load(parser.add_argument('--config'))\nloss.backward()\n")
    (tmp_path / "README.md").write_text("`python fit.py --config mine.yaml`\n")
    file = tmp_path / "mine.yaml"
    file.write_text("learning_rate: 0.1\ntrain_batch_size: 4\nvalidation_steps: 9\ngradient_checkpointing: true\n")
    result = call(box(make_gpu("T4", gib=15.0)), str(file))
    assert "Eval every" not in result.stdout


def test_a_file_without_a_command_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("lr: 0.1\nbatch_size: 4\n")
    result = call(box(make_gpu("T4", gib=15.0)), str(file))
    assert "! Program        The command that reads mine.yaml is unknown: name it, as in" in result.stdout
    assert "bert" not in result.stdout

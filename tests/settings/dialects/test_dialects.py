"""What each tool's file says for the settings, and the settings that each tool's file gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from msgspec.structs import replace

from tests.settings.strategies import all_settings
from tuner_tui.settings.dialects.dialect import Dialect, dialect_by_name, dialect_keys, dialect_of_command, dialects
from tuner_tui.settings.dialects.dialect_choice import dialect_of_file
from tuner_tui.settings.dialects.file_changes import file_changes
from tuner_tui.settings.dialects.file_formats import parse_file, render_file
from tuner_tui.settings.dialects.hf import to_hf
from tuner_tui.settings.dialects.script_search import TABLES
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import FIELDS, Settings

EXAMPLES = yaml.load(Path(__file__).with_name("dialects.yaml").read_text(), yaml.CSafeLoader)

GIVEN: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "precision": "bf16",
    "attn_implementation": "flash_attention_2",
    "gradient_checkpointing": True,
    "warmup_steps": 0.1,
    "max_length": 2048,
    "peft_method": "dora",
    "lora_r": 8,
    "train_sampling_strategy": "group_by_length",
}


@pytest.mark.parametrize(("name", "values"), EXAMPLES["each tool in its own words"].items())
def test_each_tool_in_its_own_words(name: str, values: dict[str, Any]) -> None:
    carried = write_settings(dialects()[name], Settings(**GIVEN), None, GIVEN)
    assert dict(carried.values) == values
    assert carried.unsupported == ()


@pytest.mark.parametrize(("tool", "setting"), EXAMPLES["what a tool has no place for is said"])
def test_what_a_tool_has_no_place_for_is_said(tool: str, setting: dict[str, Any]) -> None:
    carried = write_settings(dialects()[tool], Settings(**setting), None, setting)
    assert (dict(carried.values), carried.unsupported) == ({}, tuple(setting))
    assert carried.notes[0].find(next(iter(setting))) >= 0


def test_hugging_faces_own_names_are_those_of_the_installed_release() -> None:
    targets = {"warmup_ratio", "warmup_steps"}
    carried = write_settings(dialects()["hf"], Settings(**GIVEN), targets, ["warmup_steps"])
    assert carried.values == {"warmup_ratio": 0.1, "warmup_steps": 0}


def read_back(tool: Dialect, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that the tool's file gives, after the values went through its text."""
    text = render_file(tool, {key: value for key, value in values.items() if value is not None})
    if tool.form == "overrides":  # words of a command line; a file has the same keys in sections
        words = (word.partition("=") for word in text.split())
        return read_settings(tool, {key: yaml.safe_load(value) for key, _, value in words}).settings
    suffix, start = {"json": (".json", ""), "python": (".py", ""), "arguments": (".sh", "python train.py --x y ")}.get(
        tool.form, (".yaml", "")
    )
    return read_settings(tool, parse_file(f"{start}{text}", Path(f"file{suffix}")).values).settings


@pytest.mark.parametrize("tool", dialects().values(), ids=lambda tool: tool.name)
@given(settings=all_settings)
def test_what_is_exported_is_imported_again(tool: Dialect, settings: Settings) -> None:
    carried = write_settings(tool, settings, None, FIELDS)
    result = read_back(tool, carried.values)
    for name in set(FIELDS) - set(carried.unsupported):
        written = write_settings(tool, settings, None, [name]).values
        if all(value is None for value in written.values()):
            continue  # the tool's default
        if name in ("save_steps", "eval_steps") and getattr(settings, f"{name[:4]}_strategy") != "steps":
            continue  # some tools refuse an interval without its strategy
        value = getattr(settings, name)
        if name == "warmup_steps" and value >= 1:
            value = float(int(value))  # a tool counts whole steps
        assert result[name] == value


@given(settings=all_settings)
def test_keys_of_covers_all_that_is_written(settings: Settings) -> None:
    for tool in dialects().values():
        for name in FIELDS:
            file_values = replace(tool, complete=None)  # a key that it completes belongs to several settings
            assert set(write_settings(file_values, settings, None, [name]).values) <= dialect_keys(tool, name)


def test_plain_hugging_face_is_the_dialect_without_words() -> None:
    assert write_settings(dialects()["hf"], Settings(**GIVEN), None, FIELDS).values == to_hf(Settings(**GIVEN)).values


@pytest.mark.parametrize(("command", "name"), EXAMPLES["a tool is known by its command"])
def test_a_tool_is_known_by_its_command(command: tuple[str, ...], name: str) -> None:
    assert dialect_of_command(command).name == name


@pytest.mark.parametrize(("keys", "name"), EXAMPLES["a tool is known by its file"])
def test_a_tool_is_known_by_its_file(keys: dict[str, Any], name: str) -> None:
    assert dialect_of_file(keys).name == name


def test_a_tool_nobody_knows() -> None:
    with pytest.raises(SettingsError, match="did you mean 'trl'"):
        dialect_by_name("trll")


@pytest.mark.parametrize(
    ("tool", "values", "settings", "left_out"), EXAMPLES["values that a file leaves open are left out"]
)
def test_values_that_a_file_leaves_open_are_left_out(
    tool: str, values: dict[str, Any], settings: dict[str, Any], left_out: str | None
) -> None:
    settings_in_effect = read_settings(dialects()[tool], values)
    assert dict(settings_in_effect.settings) == settings
    assert left_out is None or left_out in settings_in_effect.ignored
    assert left_out is None or any(note.startswith(left_out) for note in settings_in_effect.notes)


@pytest.mark.parametrize(
    ("tool", "values", "settings", "note"), EXAMPLES["keys of older releases are translated with the release"]
)
def test_keys_of_older_releases_are_translated_with_the_release(
    tool: str, values: dict[str, Any], settings: dict[str, Any], note: str
) -> None:
    settings_in_effect = read_settings(dialects()[tool], values)
    assert dict(settings_in_effect.settings) == settings
    assert note in "\n".join(settings_in_effect.notes)
    assert bool(settings_in_effect.notes) == bool(note)


def test_the_tables_name_every_function_of_hooks() -> None:
    functions = re.findall(r"^def ([a-z]\w+)", TABLES.with_name("hooks.py").read_text(), re.MULTILINE)
    assert not [name for name in functions if f": {name}\n" not in TABLES.read_text()]


def test_an_old_key_goes_when_its_setting_is_written() -> None:
    assert "flash_attention" in dialect_keys(dialects()["axolotl"], "attn_implementation")
    assert "train_type" in dialect_keys(dialects()["ms-swift"], "peft_method")


@pytest.mark.parametrize(("tool", "values", "settings"), EXAMPLES["quantized weights are read"])
def test_quantized_weights_are_read(tool: str, values: dict[str, Any], settings: dict[str, Any]) -> None:
    assert dict(read_settings(dialects()[tool], values).settings) == settings


def test_a_qlora_file_keeps_an_adapter_when_it_is_changed() -> None:
    file_values = {"base_model": "m", "adapter": "qlora", "load_in_4bit": True}
    axolotl = dialects()["axolotl"]
    off = file_changes(axolotl, file_values, Settings(peft_method="lora"), ["quantization"]).values
    assert off == {("load_in_4bit",): False, ("load_in_8bit",): False, ("adapter",): "lora"}
    dora = file_changes(axolotl, file_values, Settings(peft_method="dora", quantization="nf4"), ["peft_method"]).values
    assert dora == {("peft_use_dora",): True}
    plain = {"base_model": "m", "adapter": "lora"}
    on = file_changes(axolotl, plain, Settings(peft_method="lora", quantization="nf4"), ["quantization"]).values
    assert on == {("load_in_4bit",): True, ("load_in_8bit",): False, ("adapter",): "qlora"}


BREWED = """\
base: gpt2  # small
grain: texts.jsonl
kettle:
  micro_batch: 4
  accumulate: 8
heat: {lr: 2.0e-4, decay: 0.1}
rounds: 3
tokens_max: 512
dtype: half  # to change
"""


@pytest.fixture
def brewer(tmp_path: Path) -> Path:
    """A folder with a file of the tool that CONTRIBUTING adds, and the tables of all tools with that one."""
    text = (Path(__file__).parents[3] / ".github" / "CONTRIBUTING.md").read_text()
    section = text.partition("## Add a training tool")[2].partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "tools.yaml").write_text(f"{TABLES.read_text()}\n{section}")
    (tmp_path / "brew.yaml").write_text(BREWED)
    return tmp_path


def with_brewer(folder: Path, *words: str) -> str:
    """What the program prints with the tables in the folder."""
    tables = f"pathlib.Path({str(folder / 'tools.yaml')!r})"
    add = f"import pathlib; from tuner_tui.settings.dialects import dialect; dialect.TABLES = {tables}"
    done = subprocess.run(
        [sys.executable, "-c", f"{add}; from tuner_tui.cli.main import main; main()", *words],
        cwd=folder,
        env={**os.environ, "TUNER_STATE_DIR": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.full
def test_the_section_in_contributing_is_all_that_a_tool_needs(brewer: Path) -> None:
    """By hand: three values change in place, and the exported file says them in the tool's words."""
    flags = ("--set", "precision=bf16", "--set", "per_device_train_batch_size=2", "--set", "learning_rate=1e-4")
    diff = with_brewer(brewer, "recommend", "brew.yaml", "--patch", *flags).splitlines()
    changed = [line for line in diff if re.match(r"[-+](?![-+])", line)]
    assert changed == [
        "-  micro_batch: 4",
        "+  micro_batch: 2",
        "-heat: {lr: 2.0e-4, decay: 0.1}",
        "+heat: {lr: 0.0001, decay: 0.1}",
        "-dtype: half  # to change",
        "+dtype: brain  # to change",
    ]
    exported = yaml.safe_load(with_brewer(brewer, "presets", "export", "brew.yaml", "--to", "brewer"))
    assert (exported["kettle"], exported["rounds"]) == ({"micro_batch": 4, "accumulate": 8}, 3)
    document = json.loads(with_brewer(brewer, "doctor", "brew.yaml", "--json"))
    wrong = {outcome["name"]: outcome["sentence"] for outcome in document if outcome["state"] == "wrong"}
    assert wrong["Files"] == "grain: the data texts.jsonl does not exist."
    assert wrong["Program"].startswith("brewer was not found")

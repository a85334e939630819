"""Single values changed in the text of a tool's file; the rest stays as it is, character by character."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as profile

from tests.settings.strategies import all_settings
from tuner_tui.settings.dialects.dialect import Dialect, dialect_keys, dialects
from tuner_tui.settings.dialects.file_changes import file_changes
from tuner_tui.settings.dialects.nested_values import unflatten
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.text_patch import patch_text
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import FIELDS, Settings

AXOLOTL = """# my training
base_model: "acme/base-1b"   # the model
bf16: auto  # what the GPU can
datasets:
  - path: a   # kept
micro_batch_size:   2 # small
learning_rate: 2e-5
dataloader_num_workers:
chat_template: |
  learning_rate: no key
# the end
"""
QUICK = {"axolotl", "hf-python"}
OTHER_TOOLS = [
    pytest.param(tool, id=name, marks=() if name in QUICK else pytest.mark.full)
    for name, tool in dialects().items()
    if name != "hf"
]


def test_only_the_value_changes() -> None:
    changes: dict[tuple[str, ...], object] = {
        ("micro_batch_size",): 4,
        ("learning_rate",): 1e-5,
        ("dataloader_num_workers",): 3,
        ("tf32",): True,
    }
    expected = (
        AXOLOTL.replace("micro_batch_size:   2 # small", "micro_batch_size:   4 # small")
        .replace("learning_rate: 2e-5", "learning_rate: 1.0e-05")
        .replace("dataloader_num_workers:\n", "dataloader_num_workers: 3\n")
        + "tf32: true\n"
    )
    assert patch_text(AXOLOTL, changes, "x") == expected


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("a: 1\r\nb: 2\r\n", {("b",): 3, ("c",): "x"}, "a: 1\r\nb: 3\r\nc: x\r\n"),
        ("a: 1\nb: 2", {("c",): 3}, "a: 1\nb: 2\nc: 3"),
        ("a: 1 # gone\nb: 2\n", {("a",): None}, "b: 2\n"),
        ("s:\n  # in s\n  a: 1\nt: 2\n", {("s", "a"): 2, ("s", "b"): 3}, "s:\n  # in s\n  b: 3\n  a: 2\nt: 2\n"),
        ('{\n  "a": 1,\n  "s": {"b": false}\n}\n', {("s", "b"): True}, '{\n  "a": 1,\n  "s": {"b": true}\n}\n'),
        ('{\n  "a": 1\n}\n', {("b",): "x"}, '{\n  "b": "x",\n  "a": 1\n}\n'),
        ("d: &d {a: 1}\nb: 'é😀' # ü\nc: 2\n", {("c",): 3}, "d: &d {a: 1}\nb: 'é😀' # ü\nc: 3\n"),
    ],
)
def test_each_layout(text: str, changes: dict[tuple[str, ...], object], expected: str) -> None:
    patched = patch_text(text, changes, "x")
    assert patched == expected
    if text.startswith("{"):
        json.loads(patched)


def test_json_may_be_indented_with_tabs() -> None:
    text = '{\n\t"a":\t1,\n\t"s": {\n\t\t"b": "x"\n\t}\n}\n'
    patched = patch_text(text, {("s", "b"): "y", ("a",): 2}, "x.json", ".json")
    assert patched == text.replace('"x"', '"y"').replace("1", "2")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: &v 1\nb: *v\n", ("a",)),
        ("a: &v 1\nb: *v\n", ("b",)),
        ("a: [1, 2]\n", ("a",)),
        ("d: &d {a: 1}\ns: {<<: *d}\n", ("d", "a")),
        ("a: 1\n", ("s", "b")),
        ("a: 1\n...\n", ("b",)),
    ],
)
def test_what_cannot_be_changed_alone_is_refused(text: str, path: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=r"^x"):
        patch_text(text, {path: 5}, "x")


def sections(tool: Dialect) -> set[str]:
    """The sections that hold settings of the tool."""
    keys = {key for name in FIELDS for key in dialect_keys(tool, name)}
    return {key.rpartition(".")[0] for key in keys if "." in key} if tool.nested else set()


@pytest.mark.parametrize("tool", OTHER_TOOLS)
@profile(max_examples=15)
@given(settings=all_settings)
def test_a_patched_file_gives_the_settings(tool: Dialect, settings: Settings) -> None:
    """An example has a value for half of the fields, and each of twenty tools tries others."""
    file_values = {"unknown": {"kept": 1}, **unflatten({f"{section}.x": 1 for section in sections(tool)})}
    text = yaml.safe_dump(file_values)
    changes = file_changes(tool, file_values, settings, FIELDS)
    patched = yaml.safe_load(patch_text(text, changes.values, "x"))
    assert patched["unknown"] == {"kept": 1}
    again = file_changes(tool, patched, settings, [n for n in FIELDS if n in read_settings(tool, patched).settings])
    assert {path: value for path, value in again.values.items() if path[-1] != "warmup_steps"} == {}


def test_an_old_name_in_another_section_stays() -> None:
    """It is a key of the user's own: the file has the new name where the script reads it."""
    file_values = {"data": {"max_length": 128, "batch_size": 16}, "model": {"max_seq_len": 128, "seed": 1}}
    changes = file_changes(dialects()["hf-sections"], file_values, Settings(max_length=256), ["max_length"])
    assert changes.values == {("data", "max_length"): 256}

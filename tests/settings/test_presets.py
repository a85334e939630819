"""Presets on disk: what is read, what is refused and how it is said, what is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.settings.strategies import presets
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.errors import PresetError, PresetExistsError
from tuner_tui.settings.file_update import update_tool_file
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.preset_file import HardwareRequirements, LoadedPreset, Preset, dump_preset, save_preset
from tuner_tui.settings.presets import (
    find_preset,
    list_presets,
    load_preset,
    parse_preset,
    preset_path,
    shipped_folder,
    suiting_first,
    user_folder,
)

EXAMPLES = yaml.load(Path(__file__).with_name("presets.yaml").read_text(), yaml.CSafeLoader)

GIB = 2**30


def read(text: str) -> LoadedPreset:
    return parse_preset(text, "p.yaml")


def refused(text: str) -> str:
    with pytest.raises(PresetError) as caught:
        read(text)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


def test_a_preset_is_read():
    loaded = read(
        """
version: 1
name: mine
about: two
  lines
for: {gpu: "*RTX 3090*", min_memory_gib: 24, capability: 8.6, min_cores: 8}
settings:
  learning_rate: 1e-5
  per_device_train_batch_size: 48
  eval_strategy: no
  torch_compile: off
  max_steps: null
job:
  kind: command
  command: [python, train.py, --seed, 42, "{config}"]
  apply: yaml
  processes: 2
"""
    )
    preset = loaded.preset
    assert preset.settings == {
        "learning_rate": 1e-5,
        "per_device_train_batch_size": 48,
        "eval_strategy": "no",
        "torch_compile": False,
        "max_steps": None,
    }
    assert preset.for_ == HardwareRequirements(gpu="*RTX 3090*", min_memory_gib=24, capability="8.6", min_cores=8)
    assert preset.job == CommandJob(
        command=("python", "train.py", "--seed", "42", "{config}"), apply="yaml", processes=2
    )
    assert loaded.notes == ()


def test_a_job_without_a_kind_is_the_built_in_one():
    job = read("job: {model: gpt2, trust_remote_code: yes, max_samples: 100}").preset.job
    assert job == BuiltinJob(model="gpt2", trust_remote_code=True, max_samples=100)


@pytest.mark.parametrize(("text", "expected"), EXAMPLES["what is wrong is said with file and line"])
def test_what_is_wrong_is_said_with_file_and_line(text, expected):
    assert refused(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("!!python/object/apply:os.system ['true']", "key: value"),
        ("settings: !!python/object:os.system {}", "YAML tags"),
        ("name: &a [x]\nsettings: [*a, *a]", "aliases"),
        ("name: &base x\nsettings: {optim: *base}", "aliases"),
        ("[" * 10_000, "nested deeper"),
        ("a: " + "{a: " * 200 + "1" + "}" * 200, "nested deeper"),
        ("a: b: c", "is not valid YAML"),
        ("a: 'open", "is not valid YAML"),
        ("\ta: 1", "is not valid YAML"),
        ('a: "\\UFFFFFFFF"', "is not valid YAML"),
        ('settings: {seed: "\\ud800"}', "half of a surrogate pair"),
        ("a: \x00", "is not valid YAML"),
        ("%YAML 9.9\n---\na: 1", "is not valid YAML"),
        ("- x\n" * 10_000, "too many"),
    ],
)
def test_hostile_yaml_ends_in_a_sentence(text, part):
    assert part in refused(text)


def complaint(call: Callable[[], LoadedPreset]) -> str:
    """What is said of a preset that cannot be read; any other error is the test's to fail on."""
    try:
        call()
    except PresetError as error:
        return str(error)
    return ""


@given(st.text() | st.text(alphabet="abcseting: \n-[]{}'\"#&*!|>%@`,?1e.~<"))
def test_any_text_is_a_preset_or_a_preset_error(text):
    output = complaint(lambda: read(text))
    assert not output or (output.startswith("p.yaml") and "\n" not in output)


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_preset_or_a_preset_error(tmp_path, content):
    path = tmp_path / "bytes.yaml"
    path.write_bytes(content)
    output = complaint(lambda: load_preset(path))
    assert not output or output.startswith(str(path))


@given(presets)
def test_what_is_written_is_read_back(preset):
    text = dump_preset(preset)
    assert read(text).preset == preset
    assert read(text).notes == ()


@given(presets)
def test_other_yaml_readers_see_the_same_numbers(preset):
    shown = yaml.safe_load(dump_preset(preset)).get("settings", {})
    assert shown == preset.settings
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(value) for name, value in preset.settings.items()
    }


def test_a_file_keeps_its_name_as_the_presets_name(tmp_path):
    path = tmp_path / "t4.yaml"
    path.write_text("settings: {seed: 1}")
    assert load_preset(path).preset.name == "t4"
    assert load_preset(path).path == path


def test_files_that_are_no_text_files_are_refused(tmp_path):
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"seed: 1\n\xff\xfe")
    with pytest.raises(PresetError, match=r"b\.yaml:2: is not UTF-8 text"):
        load_preset(binary)
    large = tmp_path / "large.yaml"
    large.write_text("#" * 300_000)
    with pytest.raises(PresetError, match="larger than 256 KiB"):
        load_preset(large)
    with pytest.raises(PresetError, match="No such file"):
        load_preset(tmp_path / "none.yaml")
    with pytest.raises(PresetError, match="is not a file"):
        load_preset(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(PresetError, match="is not a file"):
        load_preset(tmp_path / "pipe.yaml")
    with pytest.raises(PresetError, match="is not a file name"):
        load_preset(Path("a\0b.yaml"))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfsettings: {seed: 7}\n")
    assert load_preset(path).preset.settings == {"seed": 7}


def test_saving_never_overwrites_without_a_yes(tmp_path):
    path = tmp_path / "deep" / "mine.yaml"
    save_preset(Preset(name="mine", settings={"seed": 1}), path)
    with pytest.raises(PresetExistsError, match="already exists"):
        save_preset(Preset(name="mine", settings={"seed": 2}), path)
    assert load_preset(path).preset.settings == {"seed": 1}
    save_preset(Preset(name="mine", settings={"seed": 2}), path, overwrite=True)
    assert load_preset(path).preset.settings == {"seed": 2}
    assert [entry.name for entry in path.parent.iterdir()] == ["mine.yaml"]


def test_saving_through_a_link_keeps_the_link(tmp_path):
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    save_preset(Preset(name="real"), real)
    link.symlink_to(real)
    save_preset(Preset(name="new", settings={"seed": 3}), link, overwrite=True)
    assert link.is_symlink()
    assert load_preset(real).preset.settings == {"seed": 3}


def test_line_ends_and_byte_order_mark_stay(tmp_path):
    path, new = tmp_path / "crlf.yaml", tmp_path / "new.yaml"
    path.write_bytes(b"\xef\xbb\xbfversion: 1\r\nname: crlf\r\nsettings:\r\n  seed: 1\r\n")
    preset = load_preset(path).preset
    save_preset(preset, new, source=path)
    save_preset(preset.variant("crlf", {"seed": 2}), path, overwrite=True)
    for written, seed in ((path, 2), (new, 1)):
        content = written.read_bytes()
        assert content.startswith(b"\xef\xbb\xbf")
        assert content.count(b"\r\n") == content.count(b"\n") > 2
        assert load_preset(written).preset.settings == {"seed": seed}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sft.yaml", "learning_rate: 1.0e-4\nlogging_steps: 10"),
        ("sft.json", '{\n  "learning_rate": 1e-4,\n  "logging_steps": 10\n}'),
        ("train.sh", "trl sft \\\n    --logging_steps 10 \\\n    --learning_rate 1e-4\n"),
        ("train.py", "args = TrainingArguments(\n    output_dir='x',\n    learning_rate=1e-4,\n)\n"),
    ],
)
def test_a_tools_file_keeps_its_line_ends(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.replace("\n", "\r\n").encode())
    update = update_tool_file(path, Settings(learning_rate=2e-4, seed=9), ["learning_rate", "seed"])
    assert update.left_out == ()
    assert update.content.count(b"\r\n") == update.content.count(b"\n") > text.count("\n")
    assert update.content.endswith(b"\n") == text.endswith("\n")
    assert b"0.0002" in update.content or b"2.0e-04" in update.content
    assert b"seed" in update.content


CODE_CELL = {"cell_type": "code", "metadata": {}, "outputs": [], "source": ["x = 1\n"] * 500_000}
CHAIN = "from transformers import TrainingArguments\nTrainingArguments(seed=3, learning_rate={})\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("Makefile", "lint:\n\tpython release.py --patch\n", "is a Makefile in which no training command was found"),
        ("Dockerfile.train", 'FROM base\nCMD ["bash"]\n', "is a Dockerfile in which no training command was found"),
        ("serve.sh", "python main.py --config a.yml\n", "is a shell script in which no training command was found"),
        ("keys.toml", ".".join(["a"] * 1_500) + " = 1\n", "is nested deeper than 16 levels"),
        ("tables.toml", "[" + ".".join(["a"] * 3_000) + "]\nx = 1\n", "is nested deeper than 16 levels"),
        ("number.json", '{"seed": ' + "9" * 4_000 + "}", "has a number of hundreds of digits"),
        ("times.yaml", "seed: " + ":".join(["59"] * 10_000), "has a number of hundreds of digits"),
        ("deep.json", '{"a": ' * 900 + "1" + "}" * 900, "is nested deeper than 16 levels"),
        ("brackets.json", '{"a": ' * 9_000, "is nested too deeply"),
        ("values.json", json.dumps({"a": [1] * 9_000}), "has more than 5,000 values"),
        ("lines.ipynb", json.dumps({"cells": [CODE_CELL]}), "has more than 10,000 lines of code"),
        ("cells.ipynb", json.dumps({"cells": [{**CODE_CELL, "source": "x"}] * 20_000}), "has more than 10,000 lines"),
        ("comment.yaml", "#" * 60 + "\nseed: " + ":".join(["59"] * 10_000), "has a number of hundreds of digits"),
        ("brackets.ipynb", '{"cells": ' + "[" * 90_000, "is not a notebook"),
        ("brackets.py", CHAIN.format("(" * 500 + "1" + ")" * 500), "is not valid Python: too many nested parentheses"),
        ("attributes.py", CHAIN.format("a" + ".b" * 20_000), "is not valid Python"),
        (
            "arguments.py",
            f"TrainingArguments({','.join(f'a{i}=x' for i in range(9_000))})",
            "has more than 5,000 arguments",
        ),
    ],
)
def test_what_is_too_large_to_be_read_is_refused(tmp_path, name, text, problem):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(PresetError, match=rf"^\S*{name}(?::\d+)?: {problem}"):
        load_preset(path)


@pytest.mark.parametrize("value", ["1+" * 950 + "1", "a" + ".b" * 950, "-" * 950 + "1", "9" + "*9999999999" * 950])
def test_a_long_computation_is_an_unknown_value(tmp_path, value):
    path = tmp_path / "train.py"
    path.write_text(CHAIN.format(value))
    loaded = load_preset(path)
    assert loaded.preset.settings["seed"] == 3


def test_a_pipe_in_place_of_a_file_or_beside_it_is_not_waited_for(tmp_path):
    for name in ("sft.yaml", "train.py", "pyproject.toml"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(PresetError, match="is not a file"):
        load_preset(tmp_path / "sft.yaml")
    (tmp_path / "mine.yaml").write_text("learning_rate: 1.0e-4\nseed: 1\noutput_dir: x\n")
    assert load_preset(tmp_path / "mine.yaml").preset.settings["seed"] == 1


def test_a_folder_that_takes_no_file_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PresetError, match=r"cannot be written|is not a folder"):
        save_preset(Preset(name="x"), tmp_path / "file" / "x.yaml")
    with pytest.raises(PresetError, match="cannot be written"):
        save_preset(Preset(name="x"), Path("/proc/tuner/x.yaml"))


def test_presets_are_listed_and_found_with_the_first_folder_winning(tmp_path):
    mine, shipped = tmp_path / "mine", tmp_path / "shipped"
    mine.mkdir()
    shipped.mkdir()
    save_preset(Preset(name="t4", settings={"seed": 1}), mine / "t4.yaml")
    save_preset(Preset(name="t4", settings={"seed": 2}), shipped / "t4.yaml")
    save_preset(Preset(name="v100"), shipped / "v100.yml")
    (shipped / "broken.yaml").write_text("settings: {sed: 1}")
    (shipped / "notes.txt").write_text("")
    folders = (mine, shipped, tmp_path / "none")
    listed = list_presets(folders)
    assert [item.name for item in listed] == ["broken", "t4", "v100"]
    assert listed[0].loaded is None
    assert "did you mean 'seed'?" in (listed[0].problem or "")
    assert find_preset("t4", folders).preset.settings == {"seed": 1}
    assert find_preset(str(shipped / "t4.yaml"), folders).preset.settings == {"seed": 2}
    with pytest.raises(PresetError, match="no preset or configuration file 'v10'; did you mean 'v100'"):
        find_preset("v10", folders)
    with pytest.raises(PresetError, match="presets list"):
        find_preset("zzzz", folders)


def test_a_presets_own_name_stays_in_the_users_folder():
    assert preset_path("mine") == user_folder() / "mine.yaml"
    assert preset_path("mine.yaml") == user_folder() / "mine.yaml"
    for name in ("../mine", "", ".hidden", "a/b", "a b", "x" * 200):
        with pytest.raises(PresetError, match="is not a preset name"):
            preset_path(name)


def test_every_shipped_preset_is_good_and_written_so_that_all_tools_read_it():
    listed = list_presets((shipped_folder(),))
    assert {"demo", "cpu"} <= {item.name for item in listed}
    for item in listed:
        assert item.loaded is not None, item.problem
        assert item.loaded.notes == ()
        assert item.loaded.preset.name == item.name
        assert item.loaded.preset.about
        assert item.loaded.preset.source
        assert yaml.safe_load(item.path.read_text())["settings"] == item.loaded.preset.settings


@pytest.mark.parametrize(
    ("hardware", "suits"),
    [
        (HardwareRequirements(), True),
        (HardwareRequirements(gpu="*rtx 3090*"), True),
        (HardwareRequirements(gpu="*3080*"), False),
        (HardwareRequirements(gpu="none"), False),
        (HardwareRequirements(min_memory_gib=24), True),
        (HardwareRequirements(min_memory_gib=40), False),
        (HardwareRequirements(min_gpus=1), True),
        (HardwareRequirements(min_gpus=2), False),
        (HardwareRequirements(capability="8.6"), True),
        (HardwareRequirements(capability="9.0"), False),
        (HardwareRequirements(min_cores=8), True),
        (HardwareRequirements(min_cores=9), False),
    ],
)
def test_a_preset_knows_its_hardware(hardware, suits):
    gpu = Gpu(0, "NVIDIA GeForce RTX 3090", capability=(8, 6), memory_total_bytes=int(23.7 * GIB))
    assert hardware.suits((gpu,), 8) is suits


def test_the_gpus_that_a_preset_needs_are_no_pattern():
    assert (
        HardwareRequirements(gpu="*RTX [34]090*", min_memory_gib=24).gpu_text()
        == "RTX 3090 or 4090 with 24 GiB or more"
    )
    assert HardwareRequirements(gpu="*A100*80GB*").gpu_text() == "A100…80GB"


def test_what_a_machine_lacks_is_named():
    hardware = HardwareRequirements(gpu="*A100*", min_memory_gib=75, min_cores=8)
    gpu = Gpu(0, "NVIDIA A100-SXM4-40GB", capability=(8, 0), memory_total_bytes=40 * GIB)
    assert hardware.lacking((gpu,), 16, any_memory=False) == "A100 with 75 GiB or more"
    assert hardware.lacking((gpu,), 16, any_memory=True) == "", "an estimate says whether it fits"
    assert hardware.lacking((gpu,), 2, any_memory=True) == "8 CPU cores"
    assert hardware.lacking((), 16, any_memory=True) == "A100"


def test_of_presets_for_any_gpu_the_one_that_uses_these_most_is_first():
    gpu = Gpu(0, "NVIDIA A100-SXM4-80GB", capability=(8, 0), memory_total_bytes=80 * GIB)
    names = [entry.name for entry in suiting_first(list_presets([shipped_folder()]), (gpu, replace(gpu, index=1)), 16)]
    assert names.index("lora-8b-80gb") < names.index("lora-8b-24gb") < names.index("full-8b-8x80gb")


def test_each_of_the_gpus_that_a_preset_needs_must_suit():
    large, small = (Gpu(index, "H100", memory_total_bytes=size * GIB) for index, size in ((0, 80), (1, 40)))
    needed = HardwareRequirements(min_memory_gib=80, min_gpus=2)
    assert not needed.suits((large, small))
    assert needed.suits((large, large))


def test_without_a_gpu_only_what_needs_none_suits():
    assert HardwareRequirements(gpu="none").suits(())
    assert HardwareRequirements(min_cores=2).suits((), 4)
    assert not HardwareRequirements(capability="8.0").suits(())
    assert HardwareRequirements(capability="8.0", min_memory_gib=8).suits((Gpu(0, "unknown"),))


@pytest.mark.parametrize("shared", ["folder", "file"])
def test_a_preset_that_others_may_change_is_refused(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = user_folder()
    folder.mkdir(parents=True)
    file = folder / "mine.yaml"
    file.write_text("version: 1\nname: mine\njob:\n  kind: command\n  command: [python, t.py]\n")
    assert find_preset("mine").preset.name == "mine"
    opened = folder if shared == "folder" else file
    opened.chmod(0o777)
    with pytest.raises(PresetError, match="may be changed by every user"):
        find_preset("mine")
    entry = next(preset for preset in list_presets() if preset.name == "mine")
    assert str(opened) in str(entry.problem)
    assert find_preset(str(file)).preset.name == "mine"  # named by the user: not found, chosen


def test_a_note_names_the_settings_of_a_script_in_its_order(tmp_path):
    arguments = "weight_decay=0.1, warmup_steps=5, save_total_limit=2, logging_steps=7, optim='adafactor'"
    (tmp_path / "train.py").write_text(
        "import yaml\nfrom transformers import Trainer, TrainingArguments\nconfig = yaml.safe_load(open('sft.yaml'))\n"
        f"Trainer(args=TrainingArguments(**config, {arguments})).train()\n"
    )
    (tmp_path / "sft.yaml").write_text("learning_rate: 1.0e-4\nper_device_train_batch_size: 4\noutput_dir: out\n")
    names = "weight_decay, warmup_steps, save_total_limit, logging_steps, optim"
    assert f"from train.py: {names}" in load_preset(tmp_path / "sft.yaml").notes

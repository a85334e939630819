"""The launch request built from the options of `run` and `tune`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.inventories import box, card, python
from tuner_tui.cli.launch_request import JobOptions, LaunchOptions, build_request, parse_size, resolve_job
from tuner_tui.cli.machine import LocalMachine
from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.origin import Origin, OriginKind
from tuner_tui.settings.presets.library import find_preset
from tuner_tui.settings.presets.preset import Preset


@pytest.mark.parametrize(
    ("command", "mode"),
    [
        (("python", "train.py"), "inject"),
        (("tool", "train", "{config}"), "yaml"),
        (("train.py", "--lr={learning_rate}"), "placeholders"),
        (("train.py", "{output_dir}"), "inject"),
        (("train.py", '{"json": true}'), "inject"),
        (("train.py", "my.yaml"), "inject"),
        (("axolotl", "train", "my.yml"), "yaml"),
        (("trl", "sft", "--model_name_or_path", "gpt2"), "inject"),
    ],
)
def test_how_settings_reach_a_command_that_does_not_say(command: tuple[str, ...], mode: str) -> None:
    assert default_apply_mode(command) == mode


def test_a_command_takes_the_presets_way() -> None:
    preset = Preset(name="p", job=CommandJob(command=("old",), apply="hf-args", aliases={"seed": "s"}))
    new = CommandJob(command=("new",), apply="hf-args", aliases={"seed": "s"})
    assert resolve_job(JobOptions(("new",)), preset) == new
    assert resolve_job(JobOptions(("new",), "hydra"), preset) == new.model_copy(update={"apply": "hydra"})
    assert resolve_job(JobOptions(apply="none"), preset) == new.model_copy(
        update={"command": ("old",), "apply": "none"}
    )


def test_a_tool_is_spoken_to_in_its_own_words() -> None:
    job = resolve_job(JobOptions(("axolotl", "train", "my.yml")), None)
    assert job == CommandJob(command=("axolotl", "train", "my.yml"), apply="yaml", dialect="axolotl")


def test_several_processes() -> None:
    job = resolve_job(JobOptions(("python", "t.py"), launcher="torchrun", processes=2), None)
    assert job == CommandJob(command=("python", "t.py"), apply="inject", launcher="torchrun", processes=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (JobOptions(("t.py",), processes=2), "need a launcher"),
        (JobOptions(("t.py",), launcher="torchrun", processes=0), "at least one"),
        (JobOptions(("t.py",), launcher="torch"), "did you mean torchrun"),
        (JobOptions(("t.py",), apply="hf_args"), "did you mean hf-args"),
        (JobOptions(), "What shall be trained"),
    ],
)
def test_what_cannot_be_meant(words: JobOptions, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        resolve_job(words, None)


def test_the_built_in_job_takes_a_launcher_and_all_settings_by_itself() -> None:
    preset = Preset(name="p")
    assert resolve_job(JobOptions(), preset) == BuiltinJob()
    assert resolve_job(JobOptions(launcher="torchrun", processes=2), preset) == BuiltinJob(
        launcher="torchrun", processes=2
    )
    with pytest.raises(SettingsError, match="--apply is for a command"):
        resolve_job(JobOptions(apply="inject"), preset)


@pytest.mark.parametrize(
    ("text", "size"),
    [("6GiB", 6 << 30), ("6.5 GB", 6_500_000_000), ("800M", 800_000_000), ("512 mib", 512 << 20), ("1048576", 1 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "six", "6 XB", "1e9", "6GiBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(SettingsError, match="6GiB"):
        parse_size(text)


@pytest.mark.parametrize(("text", "said"), [("24", "24 bytes"), ("900k", "900,000 bytes")])
def test_a_size_without_its_unit_is_asked_for_it(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"--memory '{text}' is {said}; write the unit"):
        parse_size(text, "--memory")


def t4_box(_interpreter: Path | None) -> LocalMachine:
    return LocalMachine(box(card("T4", gib=15.0)), python())


def test_the_built_in_job_gets_what_is_recommended_where_nobody_said_otherwise() -> None:
    resolved = build_request(LaunchOptions(preset="demo", values=("optim=adafactor",)), t4_box).resolved
    demo = find_preset("demo").preset.settings
    assert {name: getattr(resolved.settings, name) for name in demo} == demo
    assert {resolved.origin(name) for name in demo} == {Origin(OriginKind.PRESET, "demo")}
    assert (resolved.settings.precision, resolved.settings.optim) == ("fp16", "adafactor")
    assert resolved.origin("precision").kind is OriginKind.RECOMMENDED
    assert "no bf16" in resolved.origin("precision").detail


def test_a_memory_limit_makes_the_card_as_small_for_the_recommendation(tmp_path: Path) -> None:
    bare = tmp_path / "bare.yaml"
    bare.write_text("settings: {seed: 1}")
    batches = [
        build_request(
            LaunchOptions(preset=str(bare), memory_limit=limit), t4_box
        ).resolved.settings.per_device_train_batch_size
        for limit in (None, "4GiB", "40GiB")
    ]
    assert batches == [32, 8, 32]


def test_a_command_keeps_what_it_says_itself() -> None:
    resolved = build_request(LaunchOptions(JobOptions(("python", "train.py")), values=("seed=7",)), t4_box).resolved
    assert resolved.chosen == {"seed"}

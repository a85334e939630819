"""What the words of `run` ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.advice.boxes import box, card, python
from tuner_tui.cli.box import ThisBox
from tuner_tui.cli.request import Asked, guess_apply, job_for, parse_size, request_for
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.origin import Origin, OriginKind
from tuner_tui.settings.preset import Preset, find_preset


@pytest.mark.parametrize(
    ("text", "size"),
    [("6GiB", 6 << 30), ("6.5 GB", 6_500_000_000), ("800M", 800_000_000), ("512 mib", 512 << 20), ("1024", 1024)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "six", "6 XB", "1e9", "6GiBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(SettingsError, match="6GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("command", "mode"),
    [
        (("python", "train.py"), "inject"),
        (("tool", "train", "{config}"), "yaml"),
        (("train.py", "--lr={learning_rate}"), "placeholders"),
        (("train.py", "{output_dir}"), "inject"),
        (("train.py", '{"json": true}'), "inject"),
    ],
)
def test_how_settings_reach_a_command_that_does_not_say(command: tuple[str, ...], mode: str) -> None:
    assert guess_apply(command) == mode


def test_a_command_takes_the_presets_way() -> None:
    preset = Preset(name="p", job=CommandJob(command=("old",), apply="hf-args", aliases={"seed": "s"}))
    assert job_for(("new",), None, preset) == CommandJob(command=("new",), apply="hf-args", aliases={"seed": "s"})
    assert job_for(("new",), "hydra", preset) == CommandJob(command=("new",), apply="hydra", aliases={"seed": "s"})
    assert job_for((), "none", preset) == CommandJob(command=("old",), apply="none", aliases={"seed": "s"})


def test_a_preset_without_a_job_is_for_the_built_in_one() -> None:
    assert job_for((), None, Preset(name="p")) == BuiltinJob()


def t4_box(_interpreter: Path | None) -> ThisBox:
    return ThisBox(box(card("T4", gib=15.0)), python())


def test_the_built_in_job_gets_what_is_recommended_where_nobody_said_otherwise() -> None:
    resolved = request_for(Asked(preset="demo", values=("optim=adafactor",)), t4_box).resolved
    demo = find_preset("demo").preset.settings
    assert {name: getattr(resolved.settings, name) for name in demo} == demo
    assert {resolved.origin(name) for name in demo} == {Origin(OriginKind.PRESET, "demo")}
    assert (resolved.settings.precision, resolved.settings.optim) == ("fp16", "adafactor")
    assert resolved.origin("precision").kind is OriginKind.RECOMMENDED
    assert "no bf16" in resolved.origin("precision").detail


def test_a_command_keeps_what_it_says_itself() -> None:
    resolved = request_for(Asked(command=("python", "train.py"), values=("seed=7",)), t4_box).resolved
    assert resolved.chosen == {"seed"}

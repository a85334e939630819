"""What the words of `run` ask for."""

from __future__ import annotations

import pytest

from tuner_tui.cli.request import guess_apply, job_for, parse_size
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.preset import Preset


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

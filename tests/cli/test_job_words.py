"""What trains, from the words of `run`."""

from __future__ import annotations

import pytest

from tuner_tui.cli.job_words import JobWords, job_for
from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
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
    assert job_for(JobWords(("new",)), preset) == new
    assert job_for(JobWords(("new",), "hydra"), preset) == new.model_copy(update={"apply": "hydra"})
    assert job_for(JobWords(apply="none"), preset) == new.model_copy(update={"command": ("old",), "apply": "none"})


def test_a_tool_is_spoken_to_in_its_own_words() -> None:
    job = job_for(JobWords(("axolotl", "train", "my.yml")), None)
    assert job == CommandJob(command=("axolotl", "train", "my.yml"), apply="yaml", dialect="axolotl")


def test_several_processes() -> None:
    job = job_for(JobWords(("python", "t.py"), launcher="torchrun", processes=2), None)
    assert job == CommandJob(command=("python", "t.py"), apply="inject", launcher="torchrun", processes=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (JobWords(("t.py",), processes=2), "need a launcher"),
        (JobWords(("t.py",), launcher="torchrun", processes=0), "at least one"),
        (JobWords(("t.py",), launcher="torch"), "did you mean torchrun"),
        (JobWords(("t.py",), apply="hf_args"), "did you mean hf-args"),
        (JobWords(), "What shall be trained"),
    ],
)
def test_what_cannot_be_meant(words: JobWords, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        job_for(words, None)


def test_the_built_in_job_takes_a_launcher_and_all_settings_by_itself() -> None:
    preset = Preset(name="p")
    assert job_for(JobWords(), preset) == BuiltinJob()
    assert job_for(JobWords(launcher="torchrun", processes=2), preset) == BuiltinJob(launcher="torchrun", processes=2)
    with pytest.raises(SettingsError, match="--apply is for a command"):
        job_for(JobWords(apply="inject"), preset)

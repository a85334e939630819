"""Settings from all their sources: who wins, and what is said of a bad one."""

from __future__ import annotations

import pytest
from msgspec import structs

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings
from tuner_tui.settings.preset_file import Preset
from tuner_tui.settings.resolve import (
    LaunchOptions,
    apply_job_options,
    load_project,
    parse_flags,
    resolve,
    resolve_training,
)


def test_each_source_wins_over_the_weaker_ones(tmp_path):
    project = tmp_path / "tuner.yaml"
    project.write_text("settings: {seed: 3, max_length: 3000, lora_r: 3, logging_steps: 3}")
    preset = Preset(
        name="t4", settings={"seed": 2, "max_length": 2000, "lora_r": 2, "logging_steps": 2, "lora_alpha": 2}
    )
    resolved = resolve(
        flags={"seed": "5"},
        environment={"TUNER_SEED": "4", "TUNER_MAX_LENGTH": "4000", "PATH": "/bin"},
        project=load_project(project),
        preset=preset,
    )
    settings = resolved.settings
    assert (settings.seed, settings.max_length, settings.lora_r) == (5, 4000, 3)
    assert (settings.lora_alpha, settings.logging_steps) == (2, 3)
    assert {name: resolved.origin(name) for name in ("seed", "max_length", "lora_r", "lora_alpha")} == {
        "seed": Origin(OriginKind.FLAG, "--set seed"),
        "max_length": Origin(OriginKind.ENVIRONMENT, "TUNER_MAX_LENGTH"),
        "lora_r": Origin(OriginKind.PROJECT, str(project)),
        "lora_alpha": Origin(OriginKind.PRESET, "t4"),
    }
    assert resolved.origin("optim") == Origin(OriginKind.DEFAULT)
    assert resolved.chosen == {"seed", "max_length", "lora_r", "logging_steps", "lora_alpha"}


def test_what_is_given_leaves_out_what_is_recommended():
    origins = {
        "seed": Origin(OriginKind.FLAG),
        "tf32": Origin(OriginKind.RECOMMENDED),
        "optim": Origin(OriginKind.DEFAULT),
    }
    resolved = Resolved(Settings(seed=3, tf32=True), origins)
    assert resolved.given == {"seed": 3}
    assert resolved.chosen == {"seed", "tf32"}


def test_without_sources_everything_is_at_its_default(tmp_path):
    resolved = resolve(project=load_project(tmp_path / "tuner.yaml"))
    assert resolved.settings == Settings()
    assert resolved.chosen == frozenset()


def test_a_project_file_may_be_flat(tmp_path):
    project = tmp_path / "tuner.yaml"
    project.write_text("fp16: true\nwarmup_ratio: 0.1\n")
    settings = resolve(project=load_project(project)).settings
    assert (settings.precision, settings.warmup_steps) == ("fp16", 0.1)


def test_a_strong_source_may_empty_a_value():
    preset = Preset(name="p", settings={"max_steps": 10})
    assert resolve(flags={"max_steps": ""}, preset=preset).settings.max_steps is None


def test_variables_of_the_program_itself_are_no_settings():
    environment = {"TUNER_STATE_DIR": "/x", "TUNER_RUN_DIR": "/y", "TUNER_MEMORY_LIMIT_BYTES": "1"}
    assert resolve(environment=environment).settings == Settings()


def test_a_bad_value_names_its_source(tmp_path):
    project = tmp_path / "tuner.yaml"
    project.write_text("settings:\n  seed: x\n")
    for sources, expected in (
        ({"flags": {"seed": "x"}}, "--set: seed must be a whole number"),
        ({"flags": {"sed": "1"}}, "--set: unknown setting 'sed'; did you mean 'seed'?"),
        ({"environment": {"TUNER_SEED": "x"}}, "TUNER_SEED: seed must be a whole number"),
        ({"environment": {"TUNER_LEARNING_RAT": "1"}}, "did you mean TUNER_LEARNING_RATE?"),
        ({"project": project}, f"{project}:2: seed must be a whole number"),
    ):
        with pytest.raises(SettingsError) as caught:
            resolve_training(LaunchOptions(**{"project": None, **sources}))
        assert expected in str(caught.value)


def test_flags_are_names_and_texts():
    assert parse_flags(["seed=1", "learning-rate=1e-5", "tf32=", "optim=a=b"]) == {
        "seed": "1", "learning_rate": "1e-5", "tf32": "", "optim": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "expected"),
    [("seed", "use name=value"), ("sede=1", "did you mean 'seed'?"), ("=1", "unknown setting ''")],
)
def test_a_flag_that_says_nothing_is_an_error(word, expected):
    with pytest.raises(SettingsError) as caught:
        parse_flags([word])
    assert expected in str(caught.value)


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
    old = CommandJob(command=("old",), apply="hf-args", aliases={"seed": "s"})
    new = CommandJob(command=("new",), apply="hf-args", aliases={"seed": "s"})
    assert apply_job_options(old, LaunchOptions(command=("new",))) == new
    assert apply_job_options(old, LaunchOptions(command=("new",), apply="yaml")) == structs.replace(new, apply="yaml")
    assert apply_job_options(old, LaunchOptions(apply="none")) == structs.replace(old, apply="none")


def test_a_tool_is_spoken_to_in_its_own_words() -> None:
    job = apply_job_options(None, LaunchOptions(command=("axolotl", "train", "my.yml")))
    assert job == CommandJob(command=("axolotl", "train", "my.yml"), apply="yaml", dialect="axolotl")


def test_several_processes() -> None:
    job = apply_job_options(None, LaunchOptions(command=("python", "t.py"), launcher="torchrun", processes=2))
    assert job == CommandJob(command=("python", "t.py"), apply="inject", launcher="torchrun", processes=2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (LaunchOptions(command=("t.py",), processes=2), "need --launcher"),
        (LaunchOptions(command=("t.py",), launcher="torchrun", processes=0), "at least 1"),
        (LaunchOptions(command=("t.py",), launcher="torch"), "did you mean 'torchrun'"),
        (LaunchOptions(command=("t.py",), apply="hf_args"), "did you mean 'hf-args'"),
    ],
)
def test_what_cannot_be_meant(words: LaunchOptions, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        apply_job_options(None, words)


def test_the_built_in_job_takes_a_launcher_and_all_settings_by_itself() -> None:
    builtin = BuiltinJob()
    assert apply_job_options(builtin, LaunchOptions()) == builtin
    spread = BuiltinJob(launcher="torchrun", processes=2)
    assert apply_job_options(builtin, LaunchOptions(launcher="torchrun", processes=2)) == spread
    with pytest.raises(SettingsError, match="--apply only works with a command"):
        apply_job_options(builtin, LaunchOptions(apply="inject"))


def test_the_job_of_the_project_file_wins_over_the_presets(tmp_path):
    preset, project = tmp_path / "p.yaml", tmp_path / "tuner.yaml"
    preset.write_text("job: {kind: command, command: [python, of_preset.py]}")
    project.write_text("job: {kind: command, command: [python, of_project.py], fallback: 1}")
    of_project = CommandJob(command=("python", "of_project.py"), fallback=1)
    assert resolve_training(LaunchOptions(str(preset), project=project)).job == of_project
    assert resolve_training(LaunchOptions(project=project)).job == of_project
    assert resolve_training(LaunchOptions(project=project, fallback=2)).job == structs.replace(of_project, fallback=2)
    given = resolve_training(LaunchOptions(str(preset), project=project, command=("python", "given.py")))
    assert given.job == structs.replace(of_project, command=("python", "given.py"))


def test_the_default_job_counts_where_no_file_has_one(tmp_path):
    preset = tmp_path / "p.yaml"
    preset.write_text("settings: {seed: 1}")
    assert resolve_training(LaunchOptions(str(preset), project=None)).job is None
    assert resolve_training(LaunchOptions(str(preset), project=None, default_job=BuiltinJob())).job == BuiltinJob()


def test_notes_of_the_files_are_kept(tmp_path):
    preset, project = tmp_path / "p.yaml", tmp_path / "tuner.yaml"
    preset.write_text("seed: 1\ngroup_by_length: true\n")
    project.write_text("seed: 1\nhub_token: x\n")
    notes = resolve_training(LaunchOptions(str(preset), project=project)).notes
    assert [note.partition(" ")[0] for note in notes] == ["group_by_length", "the", f"{project}:"]


def test_the_opened_file_of_a_tool_wins_over_the_project_file(tmp_path):
    opened, project = tmp_path / "my.yml", tmp_path / "tuner.yaml"
    opened.write_text("base_model: acme/m\ndatasets: [{path: d}]\nlearning_rate: 1e-5\n")
    project.write_text("settings: {learning_rate: 1e-3, seed: 7}\njob: {kind: command, command: [python, x.py]}\n")
    training = resolve_training(LaunchOptions(str(opened), {}, {"TUNER_SEED": "8"}, project=project))
    assert isinstance(training.job, CommandJob)
    assert training.job.command == ("axolotl", "train", str(opened))
    assert (training.resolved.settings.learning_rate, training.resolved.settings.seed) == (1e-5, 8)
    assert training.resolved.origin("learning_rate").kind == OriginKind.FILE
    opened.write_text("learning_rate: 1e-5\n")  # only its user knows the script that reads it
    of_project = CommandJob(command=("python", "x.py"))
    assert resolve_training(LaunchOptions(str(opened), project=project)).job == of_project


def test_a_script_is_not_passed_what_it_sets_itself(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nargs_batch_size = 16\nopt = torch.optim.SGD(model.parameters(), lr=0.5)\nfor x in loader:\n"
        "    loss = model(x)\n    loss.backward()\n    opt.step()\n"
    )
    training = resolve_training(LaunchOptions(str(script), {"seed": "1"}, project=None))
    assert training.resolved.settings.learning_rate == 0.5
    assert training.resolved.chosen == {"seed"}
    assert training.resolved.origin("learning_rate") == Origin(OriginKind.OBSERVED, "train.py")


def test_a_script_says_nothing_of_a_quantization_that_its_file_turns_off() -> None:
    of_script = {"bnb_4bit_use_double_quant": True, "seed": 7}
    whole = Resolved(Settings(quantization="none"), {"quantization": Origin(OriginKind.PRESET)}).with_own(of_script)
    assert whole.origins.keys() == {"quantization", "seed"}
    assert "bnb_4bit_use_double_quant" in Resolved(Settings()).with_own(of_script).origins

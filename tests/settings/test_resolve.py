"""Settings from all their sources: who wins, and what is said of a bad one."""

from __future__ import annotations

import pytest

from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved
from tuner_tui.settings.presets.preset import Preset
from tuner_tui.settings.resolve import parse_flags, resolve


def test_each_source_wins_over_the_weaker_ones(tmp_path):
    project = tmp_path / "tuner.yaml"
    project.write_text("settings: {seed: 3, max_length: 3000, lora_r: 3, logging_steps: 3}")
    preset = Preset(
        name="t4", settings={"seed": 2, "max_length": 2000, "lora_r": 2, "logging_steps": 2, "lora_alpha": 2}
    )
    resolved = resolve(
        flags={"seed": "5"},
        environment={"TUNER_SEED": "4", "TUNER_MAX_LENGTH": "4000", "PATH": "/bin"},
        project=project,
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
    resolved = resolve(project=tmp_path / "tuner.yaml")
    assert resolved.settings == Settings()
    assert resolved.chosen == frozenset()


def test_a_project_file_may_be_flat(tmp_path):
    project = tmp_path / "tuner.yaml"
    project.write_text("fp16: true\nwarmup_ratio: 0.1\n")
    settings = resolve(project=project).settings
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
    for sources, said in (
        ({"flags": {"seed": "x"}}, "--set: seed must be a whole number"),
        ({"flags": {"sed": "1"}}, "--set: unknown setting 'sed'; did you mean 'seed'?"),
        ({"environment": {"TUNER_SEED": "x"}}, "TUNER_SEED: seed must be a whole number"),
        ({"environment": {"TUNER_LEARNING_RAT": "1"}}, "did you mean TUNER_LEARNING_RATE?"),
        ({"project": project}, f"{project}:2: seed must be a whole number"),
    ):
        with pytest.raises(SettingsError) as caught:
            resolve(**sources)
        assert said in str(caught.value)


def test_flags_are_names_and_texts():
    assert parse_flags(["seed=1", "learning-rate=1e-5", "tf32=", "optim=a=b"]) == {
        "seed": "1", "learning_rate": "1e-5", "tf32": "", "optim": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "said"),
    [("seed", "write name=value"), ("sede=1", "did you mean 'seed'?"), ("=1", "unknown setting ''")],
)
def test_a_flag_that_says_nothing_is_an_error(word, said):
    with pytest.raises(SettingsError) as caught:
        parse_flags([word])
    assert said in str(caught.value)

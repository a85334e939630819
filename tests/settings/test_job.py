"""Where the number of fallbacks comes from."""

from __future__ import annotations

import pytest

from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import MAX_FALLBACKS, BuiltinJob, CommandJob, fallback_limit, same_training
from tuner_tui.settings.presets import dump_preset, parse_preset

JOB = CommandJob(command=("python", "train.py"), fallback=2)


@pytest.mark.parametrize(
    ("flag", "variable", "times"),
    [(None, None, None), (None, "5", 5), (None, " ", None), (0, "5", 0), (1, None, 1), (None, "0", 0)],
)
def test_the_flag_wins_over_the_variable_and_without_both_the_job_decides(
    flag: int | None, variable: str | None, times: int | None
) -> None:
    environment = {} if variable is None else {"TUNER_FALLBACK": variable}
    assert fallback_limit(flag, environment) == times


@pytest.mark.parametrize("text", ["often", "-1", str(MAX_FALLBACKS + 1), "1.5", "²"])
def test_a_variable_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="TUNER_FALLBACK"):
        fallback_limit(None, {"TUNER_FALLBACK": text})


def test_a_preset_keeps_it() -> None:
    text = "version: 1\nname: mine\njob:\n  kind: builtin\n  fallback: 3\n"
    loaded = parse_preset(text, "mine")
    assert loaded.preset.job == BuiltinJob(fallback=3)
    assert parse_preset(dump_preset(loaded.preset), "mine").preset.job == BuiltinJob(fallback=3)


def test_it_is_no_part_of_what_trains() -> None:
    assert same_training(JOB, JOB.model_copy(update={"fallback": 0}))
    assert not same_training(JOB, JOB.model_copy(update={"command": ("python", "other.py")}))
    assert not same_training(JOB, BuiltinJob(fallback=2))

"""Options of `run` and `tune` on the command line."""

from __future__ import annotations

import pytest

from tuner_tui.cli.launch_request import parse_launch_options, parse_size_option
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.resolve import JobOptions


@pytest.mark.parametrize(
    ("text", "size"),
    [("6GiB", 6 << 30), ("6.5 GB", 6_500_000_000), ("800M", 800_000_000), ("512 mib", 512 << 20), ("1048576", 1 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_option("--memory-limit", text) == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "six", "6 XB", "1e9", "6GiBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(SettingsError, match="6GiB"):
        parse_size_option("--memory-limit", text)


@pytest.mark.parametrize(("text", "said"), [("24", "24 bytes"), ("900k", "900,000 bytes")])
def test_a_size_without_its_unit_is_asked_for_it(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"--memory: '{text}' is only {said}; add a unit"):
        parse_size_option("--memory", text)


def test_set_changes_the_job_too() -> None:
    options = parse_launch_options(JobOptions(model="gpt2"), "demo", ["data=my.csv", "task=causal-lm", "seed=3"])
    assert options.sources.job == JobOptions(model="gpt2", task="causal-lm", data="my.csv")
    assert options.sources.flags == {"seed": "3"}

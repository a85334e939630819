"""Names of hosts: what is one, what could be an option of ssh, and which source wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.hosts.address import HostAddress, configured_hosts, parse_hosts
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.presets import load_preset


def test_words_and_lists_are_read_and_repeated_names_dropped() -> None:
    found = parse_hosts(["gpu1, me@gpu2.lab", "gpu1", "10.0.0.7=~/venv/bin/tuner-tui"])
    assert found == (
        HostAddress("gpu1"), HostAddress("me@gpu2.lab"), HostAddress("10.0.0.7", "~/venv/bin/tuner-tui"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "word",
    [
        "-oProxyCommand=touch /tmp/x",
        "gpu 1",
        "gpu1;reboot",
        "$(reboot)",
        "a@-oX",
        "gpu1\nx",
        "%h",
        "`id`",
        "é",
        "x" * 400,
    ],
)
def test_what_ssh_or_a_shell_would_read_otherwise_is_no_host(word: str) -> None:
    with pytest.raises(SettingsError):
        parse_hosts([word])


@pytest.mark.parametrize("word", ["gpu1=", "gpu1=-x", "gpu1=a\x1bb"])
def test_a_program_is_a_path(word: str) -> None:
    with pytest.raises(SettingsError, match="gpu1"):
        parse_hosts([word])


def test_a_program_is_quoted_for_the_shell() -> None:
    assert HostAddress("gpu1", "~/my venv/tuner-tui").shell_program == "\"$HOME\"/'my venv/tuner-tui'"
    assert HostAddress("gpu1", "/x; reboot").shell_program == "'/x; reboot'"


def test_flags_win_over_the_environment_and_that_over_the_project_file(tmp_path: Path) -> None:
    project = tmp_path / "tuner.yaml"
    project.write_text("hosts: [gpu1, gpu2]\n")

    def names(flags: tuple[str, ...], environ: dict[str, str]) -> list[str]:
        return [host.name for host in configured_hosts(flags, environ, project)]

    assert names(("a,b",), {"TUNER_HOSTS": "c"}) == ["a", "b"]
    assert names((), {"TUNER_HOSTS": "c,d"}) == ["c", "d"]
    assert names((), {}) == ["gpu1", "gpu2"]
    assert configured_hosts((), {}, tmp_path / "none.yaml") == ()


@pytest.mark.parametrize(
    "text", ["hosts: gpu1,gpu2\nsettings:\n  learning_rate: 1e-5\n", "hosts:\n  - gpu1\n  - gpu2\n"]
)
def test_the_project_file_takes_hosts_as_text_or_list(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tuner.yaml"
    path.write_text(text)
    assert [host.name for host in parse_hosts(load_preset(path).preset.hosts)] == ["gpu1", "gpu2"]

"""The words of the command line: which module answers, and what stands in a command's place."""

from __future__ import annotations

import pytest

from tuner_tui import __version__
from tuner_tui.cli.app import build
from tuner_tui.cli.main import COMMANDS, main


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `tuner-tui WORDS`."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == (0, f"{__version__}\n", "")


def test_help_names_every_command_but_the_hidden_screen(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--help")
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS if name != "screen")


def test_every_command_is_there_when_only_its_module_is_imported() -> None:
    for name, module in COMMANDS.items():
        registered = [command.name for command in build([module]).registered_commands]
        groups = [group.name for group in build([module]).registered_groups]
        assert name in registered + groups


def test_a_word_that_is_no_command_is_a_preset_or_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "no-such-preset")
    assert (code, out) == (2, "")
    assert "no-such-preset is neither a run nor a preset" in err

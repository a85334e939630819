"""Each command that is printed as the next step exists, takes these options, and means the run that it names."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from tests.cli.commands.test_run import Shell, shell
from tests.docs.texts import program_texts, prose_pages
from tuner_tui.cli.options import build_app
from tuner_tui.runs.read.status import read_status

__all__ = ["shell"]

HINT = re.compile(r"`(tuner-tui(?: [^`]*)?)`")
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
SHOWN = {"RUN", "PRESET", "FILE", "LOG", "RUN|PRESET|FILE", "r001", "r007"}
"""What stands in place of a command: the screen opens it, or of a log its diagnosis is printed."""


def printed_hints() -> list[str]:
    """All commands between backticks in the program's texts and pages, a word in place of each expression."""
    texts = [text.words for text in program_texts()] + [page.read_text("utf-8") for page in prose_pages()]
    return sorted({PLACEHOLDER.sub("r001", hint) for text in texts for hint in HINT.findall(text)})


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` call, and the words behind its name."""
    root = typer.main.get_command(build_app())
    context = typer.Context(root)
    command: Any = root
    while words and isinstance(command, TyperGroup) and (inner := command.get_command(context, words[0])) is not None:
        command, words = inner, words[1:]
    return command, words


def test_printed_commands_exist_with_their_options() -> None:
    hints = printed_hints()
    assert len(hints) > 50
    assert [hint for hint in hints if not exists(shlex.split(hint)[1:])] == []


def exists(hint: list[str]) -> bool:
    command, words = command_of(hint)
    words = words[: words.index("--")] if "--" in words else words
    options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    if any(word.startswith("-") and word not in options for word in words):
        return False
    # without a command it is the screen: on a run, a preset or a file
    return not isinstance(command, TyperGroup) or not words or words[0] in SHOWN or words[0].startswith("--")


SLEEPS = "import signal, sys\nprint('up', flush=True)\nwhile True: signal.pause()\n"


def test_the_commands_printed_for_a_run_elsewhere_name_that_run(shell: Shell, tmp_path: Path) -> None:
    """A run of the same id in this shell's own state folder is not touched."""
    job = ("--apply", "none", "--", sys.executable, shell.script(SLEEPS))
    assert shell("run", "--detach", *job).stdout == "r001\n"
    environment = dict(shell.environ)
    shell.environ["TUNER_STATE_DIR"] = str(tmp_path / "else where")
    assert shell("run", "--detach", *job, "elsewhere").stdout == "r001\n"
    elsewhere, failed = shell.folder("r001"), shell.folder("r002")
    assert shell("run", "--apply", "none", "--", sys.executable, "-c", "raise SystemExit(1)").returncode == 1
    shell.environ |= environment

    printed = shell("stop", str(elsewhere.path)).stderr
    printed += shell("logs", "-f", "--events", str(failed.path)).stderr
    hints = [shlex.split(hint)[1:] for hint in HINT.findall(printed)]
    assert {hint[0] for hint in hints} == {"stop", "diagnose"}
    for hint in hints:
        assert str(failed.path if hint[0] == "diagnose" else elsewhere.path) in hint
        assert shell(*hint).returncode == 0
    assert read_status(shell.folder("r001")).live
    assert shell("stop", "--now", "r001").returncode == 0

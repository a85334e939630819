"""Entry point of the command line: imports the module of the command; the name of a preset or run opens the screen.

Only the module of the command asked for is imported, so that `ps` does not pay for what `run` needs, and the screen
without options pays for none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from tuner_tui import __version__
from tuner_tui.cli.commands import COMMANDS
from tuner_tui.cli.console import INTERRUPTED, fail, protect_streams, reopen_closed_streams, report_io_errors
from tuner_tui.cli.startup_memory import reduce_startup_memory

if TYPE_CHECKING:
    from typer import Typer

COMPLETION = "_TUNER_TUI_COMPLETE"
ALIASES = {
    "attach": ("logs", "--follow", "--events"),
    "detect": ("doctor", "--hardware"),
    "export": ("presets", "export"),
    "hosts": ("watch",),
    "import": ("presets", "import"),
}
"""Commands of the release before, and what they are now."""
PASSED_ON = frozenset({"run", "tune"})
"""Commands that take a training command: options behind its first word belong to it."""
GLOBAL_FLAGS = ("--help", "--version", "--install-completion", "--show-completion")


def main(argv: list[str] | None = None) -> None:
    """Run `tuner-tui`. Without a command, or with a preset or run in its place, open the screen."""
    reopen_closed_streams()
    protect_streams()
    try:
        with report_io_errors():
            dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def dispatch(words: list[str]) -> None:
    """Import the module of the command in `words` and run it."""
    if COMPLETION in os.environ:
        complete()
    for word in words:
        if any("\udc80" <= character <= "\udcff" for character in word):  # how Python shows bytes that are no text
            fail(f"{word!a} is not valid UTF-8; settings, run folders and JSON hold text only. Rename the file.")
    words = [*ALIASES.get(words[0], words[:1]), *words[1:]] if words else []
    if opens_screen(words) or words[0] in ("screen", "watch"):
        reduce_startup_memory()  # before Textual is imported
    if opens_screen(words):
        from tuner_tui.cli.screen_opener import open_named

        open_named(words[0] if words else None)
    if words[:1] == ["watch"] and not any(word.startswith("-") for word in words):
        from tuner_tui.cli.machine_watcher import open_watch

        open_watch(words[1:])
    # A command imports its own module alone. `--help` and an option of the screen need the names of all commands.
    if words[0] not in (*COMMANDS, *GLOBAL_FLAGS):
        words = ["screen", *words]
    names = words[:1] if words[0] in COMMANDS else [] if words[0] == "--version" else COMMANDS
    build_app(names)(words, prog_name="tuner-tui")


def build_app(names: Iterable[str] = COMMANDS) -> Typer:
    """Return the command-line application with the commands of these names."""
    import typer

    from tuner_tui.cli.options import RootGroup

    def show_version(asked: bool) -> None:
        if asked:
            typer.echo(__version__)
            raise typer.Exit

    def root(
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", is_eager=True, callback=show_version
        ),
    ) -> None:
        """Options before the command."""

    app = typer.Typer(
        cls=RootGroup,
        help="Watch, tune and diagnose PyTorch and Hugging Face trainings.\n\n"
        "`tuner-tui` opens the screen; `tuner-tui RUN|PRESET|FILE`, such as `tuner-tui r007`, opens it on that.",
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    for name in names:
        module = import_module(f"tuner_tui.cli.commands.{COMMANDS[name]}")
        if hasattr(module, "register"):
            module.register(app)
        else:
            settings = {"allow_interspersed_args": name not in PASSED_ON}
            app.command(name, hidden=name == "screen", context_settings=settings)(getattr(module, name))
    return app


def complete() -> NoReturn:
    """Answer the shell's completion script. It passes its words in the environment."""
    from tuner_tui.cli.options import answer_bash

    app = partial(build_app(), [], prog_name="tuner-tui")
    if os.environ[COMPLETION] == "complete_bash":
        print(answer_bash(app))  # noqa: T201
    else:
        app()
    raise SystemExit


def opens_screen(words: list[str]) -> bool:
    """True if `words` are empty or one name, or `demo` on a terminal: the screen opens without importing Typer."""
    if words == ["demo"]:
        return sys.stdin.isatty() and sys.stdout.isatty()
    return not words or (len(words) == 1 and words[0] not in COMMANDS and not words[0].startswith("-"))

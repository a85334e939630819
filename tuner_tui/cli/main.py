"""The command line: finds the command's module and runs it; a preset's or run's name opens the screen.

Each module in `tuner_tui.cli` has `register(app)` and holds one command group. Only the module of the command asked for
is imported, so that `ps` does not pay for what `run` needs.
"""

from __future__ import annotations

import sys
from importlib import import_module

import typer

COMMANDS = {
    "screen": "screen",
    "demo": "demo",
    "detect": "detect",
    "recommend": "recommend",
    "run": "run",
    "ps": "ps",
    "attach": "ps",
    "watch": "watch",
    "logs": "logs",
    "stop": "stop",
    "diff": "diff",
    "diagnose": "diagnose",
    "presets": "presets",
}
GLOBAL_FLAGS = ("--help", "--version", "--install-completion", "--show-completion")


def main(argv: list[str] | None = None) -> None:
    """The entry point of `tuner-tui`. Without a command, or with a preset or run in its place, opens the screen."""
    words = list(sys.argv[1:] if argv is None else argv)
    first = words[0] if words else None
    if first is None or (first not in COMMANDS and first not in GLOBAL_FLAGS):
        words, first = ["screen", *words], "screen"
    modules = [COMMANDS[first]] if first in COMMANDS else list(dict.fromkeys(COMMANDS.values()))
    build(modules)(words, prog_name="tuner-tui")


def build(modules: list[str]) -> typer.Typer:
    """The command-line application with the commands of `modules`."""
    app = typer.Typer(
        help="What the box is, which settings suit it, what holds the training back.",
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    for module in modules:
        import_module(f"tuner_tui.cli.{module}").register(app)
    return app


def _version(asked: bool) -> None:
    if asked:
        from tuner_tui import __version__

        typer.echo(__version__)
        raise typer.Exit


def root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", is_eager=True, callback=_version
    ),
) -> None:
    """Options that stand before every command."""

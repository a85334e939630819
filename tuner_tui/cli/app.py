"""The Typer application, built from the modules of the commands asked for."""

from __future__ import annotations

from importlib import import_module

import typer

from tuner_tui.cli.options import RootGroup


def build(modules: list[str]) -> typer.Typer:
    """Return the command-line application with the commands of `modules`."""
    app = typer.Typer(
        cls=RootGroup,
        help="Watch, tune and diagnose PyTorch and Hugging Face trainings.\n\n"
        "`tuner-tui` opens the screen; `tuner-tui RUN|PRESET|FILE`, such as `tuner-tui r007`, opens it on that.",
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    for module in modules:
        import_module(f"tuner_tui.cli.commands.{module}").register(app)
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
    """Options before the command."""

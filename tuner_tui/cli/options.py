"""Options shared by several commands, and what the shell completes: presets, runs, settings and their values."""

from __future__ import annotations

import ast
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from tuner_tui import __version__
from tuner_tui.cli.commands import COMMANDS, PANELS
from tuner_tui.cli.console import fail
from tuner_tui.settings.errors import SettingsError

MOST_RUNS = 30
PASSED_ON = frozenset({"run", "tune"})
"""Commands that take a training command: options behind its first word belong to it."""


def build_app() -> typer.Typer:
    """Return the command-line application, which imports the module of a command when it is named."""

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
        help="Watch, tune and diagnose PyTorch and Hugging Face training runs.\n\n"
        "`tuner-tui` opens the screen, `tuner-tui RUN|PRESET|FILE` opens it on a run, preset or configuration file, "
        "and `tuner-tui -- COMMAND` trains a command without the screen.\n\n"
        "The screen takes --theme light, --ascii, --set K=V, --interpreter PATH and --fallback N: "
        "`tuner-tui screen --help`.",
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    return app


def complete_preset(incomplete: str) -> list[str]:
    from tuner_tui.settings.presets import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Names of runs, the newest first."""
    from tuner_tui.runs.store.folder import list_runs, runs_dir

    return [run.id for run in list_runs(runs_dir()) if run.id.startswith(incomplete)][:MOST_RUNS]


def complete_setting(incomplete: str) -> list[str]:
    """`name=` for each setting, and `name=value` for one with known values."""
    from tuner_tui.settings.model import FIELDS

    name, equals, start = incomplete.partition("=")
    if not equals:
        return [f"{field}=" for field in FIELDS if field.startswith(name)]
    spec = FIELDS.get(name)
    if spec is None:
        return []
    values = ("on", "off") if spec.kind == "bool" else spec.choices or spec.suggestions
    return [f"{name}={value}" for value in values if value.startswith(start)]


class ScreenContext(typer.Context):
    """Of the command that is not typed: `tuner-tui RUN` stands for `tuner-tui screen RUN`."""

    command_path = "tuner-tui"


class RootGroup(TyperGroup):
    """Imports a command when it is named, and lists all under the headings of `PANELS`.

    The sentence of a `SettingsError` ends a command with exit code 2. Presets and runs are completed as commands are.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"tuner_tui.cli.commands.{COMMANDS[cmd_name]}")
        if hasattr(module, "group"):
            return typer.main.get_group(module.group)
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        settings = {"allow_interspersed_args": cmd_name not in PASSED_ON}
        app.command(cmd_name, hidden=cmd_name == "screen", context_settings=settings)(getattr(module, cmd_name))
        command = typer.main.get_command(app)
        command.context_class = ScreenContext if cmd_name == "screen" else command.context_class
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            fail(str(error))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in PANELS.items():
            with formatter.section(title):
                formatter.write_dl([(name, first_sentence(name)) for name in names])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        items = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            return items
        return items + [CompletionItem(name) for name in (*complete_preset(incomplete), *complete_run(incomplete))]


def first_sentence(command: str) -> str:
    """Return what a command does, from the docstring of its function, or of the module of a group.

    It is read without importing the modules, which takes a second for all.
    """
    source = ast.parse(Path(__file__).with_name("commands").joinpath(f"{COMMANDS[command]}.py").read_bytes())
    functions = [node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == command]
    text = ast.get_docstring(functions[0] if functions else source) or ""
    return " ".join(text.partition("\n\n")[0].split())


MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="Limit the memory of the training, such as 6GiB.")
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help="Model: a Hub id, a local folder, or a shape such as llama-1b."),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="T",
        help="Task: classification or causal-lm; for estimates also seq2seq, image-classification or speech-to-text.",
    ),
]
Detached = Annotated[bool, typer.Option("--detach", help="Start in the background and return.")]
InterpreterPath = Annotated[
    Path | None, typer.Option("--interpreter", metavar="PATH", help="Python of the training environment.")
]
RunName = Annotated[
    str | None,
    typer.Argument(metavar="RUN", autocompletion=complete_run, help="A run such as r007; without one, the newest."),
]
PresetName = Annotated[
    str | None, typer.Option("--preset", metavar="P", autocompletion=complete_preset, help="Name or file of a preset.")
]
SettingValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="K=V",
        autocompletion=complete_setting,
        help="Override a setting, as in per_device_train_batch_size=8; with run and tune also model, task or data.",
    ),
]
OtherGpus = Annotated[
    str | None, typer.Option("--gpu", metavar="GPUS", help="Plan for other GPUs, such as T4,2x3090,A100-80GB or 24GiB.")
]
AsciiOnly = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class ThemeName(StrEnum):
    """Names of the themes."""

    DARK = "dark"
    LIGHT = "light"


Theme = Annotated[ThemeName, typer.Option("--theme", help="Colours.")]

"""`tuner-tui export` writes a preset as a tool's YAML file; `tuner-tui import` makes a preset of one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.console import fail, print_json, print_note

if TYPE_CHECKING:
    from tuner_tui.settings.dialects.hf import ExportedSettings
    from tuner_tui.settings.presets.parser import LoadedPreset

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def register(app: typer.Typer) -> None:
    """Add the commands `export` and `import`."""
    app.command("export")(export)
    app.command("import")(import_file)


def export(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="A preset's name or file.")],
    to: Annotated[str, typer.Option(metavar="TOOL", help="hf, trl, axolotl, llama-factory, ms-swift, litgpt …")],
    as_json: AsJson = False,
) -> None:
    """Write what the preset sets as YAML for TOOL on standard output; what TOOL has no place for is said."""
    from tuner_tui.settings.apply import dump_config
    from tuner_tui.settings.dialects.dialect import unflatten
    from tuner_tui.settings.dialects.registry import dialect_by_name
    from tuner_tui.settings.errors import SettingsError

    try:
        tool, carried = dialect_by_name(to), _carried(preset, to)
    except SettingsError as error:
        fail(str(error))
    values = {name: value for name, value in carried.values.items() if value is not None}
    if as_json:
        print_json({"tool": tool.name, "values": values, "not_carried": carried.unsupported, "notes": carried.notes})
        return
    typer.echo(dump_config(unflatten(values) if tool.nested else values).rstrip())
    for why in carried.notes:
        print_note(f"Left out: {why}")
    print_note(f"`{tool.command.replace('{config}', 'FILE')}` reads it.")


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A tool's YAML file.")],
    name: Annotated[str | None, typer.Option(help="The preset's name; else the file's.")] = None,
    tool: Annotated[str | None, typer.Option("--from", metavar="TOOL", help="Whose file it is; else guessed.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Replace a preset of that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save what the file sets as a preset; keys that are no setting are named."""
    from tuner_tui.settings.errors import PresetExistsError, SettingsError
    from tuner_tui.settings.job import CommandJob
    from tuner_tui.settings.presets.library import preset_path, save_preset

    try:
        found = _imported(file, tool)
        path = preset_path(name or file.stem)
        preset = found.preset.model_copy(update={"name": path.stem})
        save_preset(preset, path, overwrite=yes)
    except PresetExistsError as error:
        fail(f"{error}; add --yes to replace it")
    except SettingsError as error:
        fail(str(error))
    if as_json:
        document = {"name": path.stem, "path": str(path), "settings": dict(preset.settings), "left_out": found.ignored}
        print_json({**document, "job": preset.job and preset.job.model_dump(mode="json")})
        return
    for text in found.notes:
        print_note(text)
    if isinstance(preset.job, CommandJob):
        print_note(f"Trains by `{shlex.join(preset.job.command)}`; keys that are no setting stay in {file}.")
    typer.echo(f"Saved {path}")


def _carried(preset: str, to: str) -> ExportedSettings:
    from tuner_tui.settings.dialects.dialect import write_settings
    from tuner_tui.settings.dialects.registry import dialect_by_name
    from tuner_tui.settings.presets.library import find_preset
    from tuner_tui.settings.resolve import resolve

    resolved = resolve(preset=find_preset(preset).preset)
    return write_settings(dialect_by_name(to), resolved.settings, None, resolved.chosen)


def _imported(file: Path, tool: str | None) -> LoadedPreset:
    from tuner_tui.settings.dialects.registry import dialect_by_name
    from tuner_tui.settings.presets.parser import import_tool_file
    from tuner_tui.settings.yaml_reader import read_tool_file

    return import_tool_file(read_tool_file(file), str(file), file, None if tool is None else dialect_by_name(tool))

"""`tuner-tui presets export` writes a preset as a tool's file; `presets import` makes a preset of one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuner_tui.cli.console import copy_to_clipboard, fail, print_json, print_note
from tuner_tui.cli.options import AsJson, complete_preset
from tuner_tui.hardware.interpreter import probe_interpreter
from tuner_tui.settings.dialects.dialect import dialect_by_name, write_settings
from tuner_tui.settings.dialects.file_formats import parse_file, read_file_text, render_export
from tuner_tui.settings.dialects.hf import ExportedSettings
from tuner_tui.settings.errors import PresetExistsError, SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.presets import LoadedPreset, find_preset, import_tool_file, preset_path, save_preset
from tuner_tui.settings.resolve import resolve


def export(
    preset: Annotated[
        str,
        typer.Argument(
            metavar="PRESET", autocompletion=complete_preset, help="A preset's name or file, or a training tool's file."
        ),
    ],
    to: Annotated[str, typer.Option(metavar="TOOL", help="hf, hf-args, hf-python, trl, axolotl, llama-factory …")],
    interpreter: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Take the release of transformers from this Python.")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Also copy it to the clipboard of the terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a preset in the format of another tool.

    Settings that TOOL does not support are listed, and added as comments.

    Without --interpreter the names are those of the newest transformers.
    """
    try:
        tool, carried = dialect_by_name(to), _carried(preset, to, _targets(interpreter))
    except SettingsError as error:
        fail(str(error))
    values = {name: value for name, value in carried.values.items() if value is not None}
    if as_json:
        print_json({"tool": tool.name, "values": values, "not_carried": carried.unsupported, "notes": carried.notes})
        return
    text = render_export(tool, carried)
    typer.echo(text)
    if copy:
        copy_to_clipboard(f"{text}\n", os.environ)
    for why in carried.notes:
        print_note(f"Left out: {why}")
    if tool.form in ("yaml", "json"):
        print_note(f"`{tool.command.replace('{config}', 'FILE').replace('{script}', 'train.py')}` reads it.")


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A training tool's file, a script or a notebook.")],
    name: Annotated[str | None, typer.Option(help="Name of the preset; default: the file's name.")] = None,
    tool: Annotated[
        str | None, typer.Option("--from", metavar="TOOL", help="The tool the file belongs to; default: detected.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Replace an existing preset.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save a training tool's file as a preset.

    Keys that are not settings are listed.
    """
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
        print_note(f"Trains with `{shlex.join(preset.job.command)}`; other keys stay in {file}.")
    typer.echo(f"Saved {path}")


def _targets(interpreter: Path | None) -> Collection[str] | None:
    """The arguments of the transformers that reads the file; None for the newest. Raises `SettingsError`."""
    if interpreter is None:
        return None
    asked = probe_interpreter(interpreter)
    if asked.training_arguments is None:
        raise SettingsError(f"--interpreter: {asked.problem or f'{interpreter} has no transformers'}")
    return asked.training_arguments.keys()


def _carried(preset: str, to: str, targets: Collection[str] | None) -> ExportedSettings:
    """The settings of the preset in the words of the tool, and the model that its job trains."""
    loaded, tool = find_preset(preset).preset, dialect_by_name(to)
    resolved = resolve(preset=loaded)
    carried = write_settings(tool, resolved.settings, targets, resolved.chosen)
    if loaded.job is None or loaded.job.model is None or not tool.programs:
        return carried
    return replace(carried, values={tool.model_keys[0]: loaded.job.model, **carried.values})


def _imported(file: Path, tool: str | None) -> LoadedPreset:
    own = parse_file(read_file_text(file), file)
    return import_tool_file(own, str(file), file, None if tool is None else dialect_by_name(tool))

"""List, show, save, import and export presets."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import structs, to_builtins
from msgspec.structs import replace

from tuner_tui.cli.console import fail, print_json, print_line, print_note, print_report
from tuner_tui.cli.options import AsJson, SettingValues, complete_preset
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter import probe_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.store.folder import state_dir
from tuner_tui.runs.store.record import redact_job
from tuner_tui.settings.dialects.dialect import dialect_by_name
from tuner_tui.settings.dialects.file_formats import parse_file, read_file_text, render_export
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.errors import PresetExistsError, SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import parse_value
from tuner_tui.settings.preset_file import LoadedPreset, Preset, dump_preset, save_preset
from tuner_tui.settings.presets import PresetEntry, find_preset, list_presets, parse_preset, preset_path, suiting_first
from tuner_tui.settings.resolve import parse_flags, resolve
from tuner_tui.settings.tool_file import import_tool_file
from tuner_tui.settings.yaml_reader import MAX_BYTES

group = typer.Typer(help=__doc__, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@group.command("list")
def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """List presets; those for this machine come first, marked with *."""
    inventory: Inventory = read_inventory(state_dir()) if context.obj is None else context.obj()
    gpus, cores = visible_gpus(inventory), inventory.cpu.usable_cores
    presets = suiting_first(list_presets(), gpus, cores)
    documents = []
    for item in presets:
        if not as_json:
            print_line(f"{'*' if item.suits else ' '} {_line(item)}")
            continue
        head = {"name": item.name, "path": str(item.path), "shipped": not item.yours, "problem": item.problem}
        content = {} if item.loaded is None else {**_document(item.loaded), "name": item.name}
        documents.append({**head, **content, "suits": item.suits})
    if as_json:
        print_json(documents)


@group.command()
def show(name: Annotated[str, typer.Argument(help="Name or file of a preset.")], as_json: AsJson = False) -> None:
    """Print a preset as YAML, with the secrets of its command hidden."""
    loaded = find_preset(name)
    print_report(_document(loaded), as_json, [dump_preset(_without_secrets(loaded.preset)).rstrip()])
    for text in loaded.notes:
        print_note(text)


@group.command()
def save(
    name: Annotated[str, typer.Argument(help="Name of your preset.")],
    source: Annotated[
        str | None, typer.Option("--from", help="Preset or file to start from; - reads standard input.")
    ] = None,
    flags: SettingValues = None,
    yes: Annotated[bool, typer.Option("--yes", help="Replace an existing preset.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save your own preset."""
    path = preset_path(name)
    loaded = _read_source(source, name)
    given = {field: parse_value(field, text) for field, text in parse_flags(flags or ()).items()}
    _write(loaded.preset.variant(path.stem, {**loaded.preset.settings, **given}), path, yes, loaded.path)
    for text in loaded.notes:
        print_note(text)
    print_report({"name": path.stem, "path": str(path)}, as_json, [f"Saved {path}"])


def _read_source(source: str | None, name: str) -> LoadedPreset:
    """Return the preset to start from. Raises `SettingsError`."""
    if source is None:
        return LoadedPreset(Preset(name=name))
    if source != "-":
        return find_preset(source)
    raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise SettingsError(f"standard input has more than {MAX_BYTES // 1024} KiB, too much for a preset")
    return parse_preset(raw.decode("utf-8", "replace"), "standard input")


def _write(preset: Preset, path: Path, replace_existing: bool, source: Path | None) -> None:
    """Save a preset; exit with 2 if it exists and may not be replaced. Raises `SettingsError`."""
    try:
        save_preset(preset, path, overwrite=replace_existing, source=source)
    except PresetExistsError as error:
        fail(f"{error}; add --yes to replace it")


def _line(item: PresetEntry) -> str:
    if item.loaded is None:
        return f"{item.name:<24} cannot be read: {item.problem}"
    first = item.about.split(". ")[0].rstrip(".")
    whose = " (yours, replaces the shipped one)" if item.hides_shipped else " (yours)" if item.yours else ""
    return f"{item.name:<24} {first}{whose}".rstrip()


def _document(loaded: LoadedPreset) -> dict[str, Any]:
    data = to_builtins(_without_secrets(loaded.preset))
    return {**data, "path": None if loaded.path is None else str(loaded.path), "notes": loaded.notes}


def _without_secrets(preset: Preset) -> Preset:
    return preset if preset.job is None else structs.replace(preset, job=redact_job(preset.job))


@group.command()
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
    as_json: AsJson = False,
) -> None:
    """Print a preset in the format of another tool.

    Settings that TOOL does not support are listed, and added as comments.

    Without --interpreter the names are those of the newest transformers.
    """
    targets: Collection[str] | None = None
    if interpreter is not None:
        asked = probe_interpreter(interpreter)
        if asked.training_arguments is None:
            raise SettingsError(f"--interpreter: {asked.problem or f'{interpreter} has no transformers'}")
        targets = asked.training_arguments.keys()
    loaded, tool = find_preset(preset).preset, dialect_by_name(to)
    resolved = resolve(preset=loaded)
    carried = write_settings(tool, resolved.settings, targets, resolved.chosen)
    if loaded.job is not None and loaded.job.model is not None and tool.programs:
        carried = replace(carried, values={tool.model_keys[0]: loaded.job.model, **carried.values})
    values = {name: value for name, value in carried.values.items() if value is not None}
    if as_json:
        print_json({"tool": tool.name, "values": values, "not_carried": carried.unsupported, "notes": carried.notes})
        return
    typer.echo(render_export(tool, carried))
    for why in carried.notes:
        print_note(f"Left out: {why}")
    if tool.form in ("yaml", "json"):
        print_note(f"`{tool.command.replace('{config}', 'FILE').replace('{script}', 'train.py')}` reads it.")


@group.command("import")
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
    parsed = parse_file(read_file_text(file), file)
    loaded = import_tool_file(parsed, str(file), file, None if tool is None else dialect_by_name(tool))
    path = preset_path(name or file.stem)
    preset = structs.replace(loaded.preset, name=path.stem)
    if not (preset.settings or preset.job):
        raise SettingsError(" ".join((f"{file} gives no setting and no whole command.", *loaded.notes)))
    _write(preset, path, yes, file)
    job = _without_secrets(preset).job
    if as_json:
        document = {"name": path.stem, "path": str(path), "settings": dict(preset.settings), "left_out": loaded.ignored}
        print_json({**document, "job": job})
        return
    for text in loaded.notes:
        print_note(text)
    if isinstance(job, CommandJob):
        print_note(f"Trains with `{shlex.join(job.command)}`; other keys stay in {file}.")
    typer.echo(f"Saved {path}")

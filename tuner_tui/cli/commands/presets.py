"""`tuner-tui presets list|show|save|check|import|export`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tuner_tui.cli.commands.export import export, import_file
from tuner_tui.cli.console import USAGE, fail, print_json, print_line, print_note
from tuner_tui.cli.options import AsJson, SettingValues
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.interpreter import default_interpreter, probe_versions
from tuner_tui.runs.store.folder import state_dir
from tuner_tui.settings.apply import build_command
from tuner_tui.settings.errors import PresetExistsError, SettingsError
from tuner_tui.settings.model import Resolved, parse_value
from tuner_tui.settings.presets import (
    HardwareRequirements,
    LoadedPreset,
    Preset,
    PresetEntry,
    dump_preset,
    find_preset,
    list_presets,
    parse_preset,
    preset_path,
    save_preset,
    suiting_first,
)
from tuner_tui.settings.resolve import parse_flags, resolve
from tuner_tui.settings.rules import Problem, RuleContext, find_problems
from tuner_tui.settings.yaml_reader import MAX_BYTES

ReadRuleFacts = Callable[[], RuleContext]


def read_rule_facts() -> RuleContext:
    """Return what the rules need of this machine: the visible GPUs, the Python and the cores."""
    inventory = read_inventory(state_dir())
    python = probe_versions(default_interpreter(os.environ))
    return RuleContext(visible_cards(inventory), python, None, inventory.cpu.usable_cores)


def read_hardware_facts() -> RuleContext:
    """Return the visible GPUs and the cores; the Python is not asked, which takes seconds."""
    inventory = read_inventory(state_dir())
    return RuleContext(visible_cards(inventory), None, None, inventory.cpu.usable_cores)


def register(app: typer.Typer) -> None:
    """Add the group `presets`."""
    group = typer.Typer(
        help="List, show, save, check, import and export presets.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("list")(list_all)
    group.command("import")(import_file)
    for command in (show, save, check, export):
        group.command()(command)
    app.add_typer(group, name="presets")


def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """List presets; those for this machine come first, marked with *."""
    read_facts: ReadRuleFacts = context.obj or read_hardware_facts
    machine = read_facts()
    presets = suiting_first(list_presets(), machine.gpus or (), machine.cores)
    if as_json:
        print_json([{**_listed(item), "suits": suits} for item, suits in presets])
        return
    for item, suits in presets:
        print_line(f"{'*' if suits else ' '} {_line(item)}")


def show(name: Annotated[str, typer.Argument(help="Name or file of a preset.")], as_json: AsJson = False) -> None:
    """Print a preset as YAML."""
    loaded = _load(name)
    if as_json:
        print_json(_document(loaded))
    else:
        typer.echo(dump_preset(loaded.preset).rstrip())
    for text in loaded.notes:
        print_note(text)


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
    path = _save(name, source, flags or [], yes)
    if as_json:
        print_json({"name": path.stem, "path": str(path)})
    else:
        typer.echo(f"Saved {path}")


def check(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names or files of presets.")],
    as_json: AsJson = False,
) -> None:
    """Check presets, also against this machine."""
    read_facts: ReadRuleFacts = context.obj or read_rule_facts
    machine = read_facts()
    checks = [_check(name, machine) for name in names]
    if as_json:
        print_json(checks)
    for item in checks:
        if not as_json:
            print_line("\n".join(_check_lines(item)))
        if item["error"]:
            print_note(item["error"])
    if any(item["error"] for item in checks):
        raise typer.Exit(USAGE)


def _load(name: str) -> LoadedPreset:
    try:
        return find_preset(name)
    except SettingsError as error:
        fail(str(error))


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


def _save(name: str, source: str | None, flags: list[str], yes: bool) -> Path:
    try:
        path = preset_path(name)
        loaded = _read_source(source, name)
        given = {field: parse_value(field, text) for field, text in parse_flags(flags).items()}
        save_preset(loaded.preset.variant(path.stem, {**loaded.preset.settings, **given}), path, overwrite=yes)
    except PresetExistsError as error:
        fail(f"{error}; add --yes to replace it")
    except SettingsError as error:
        fail(str(error))
    for text in loaded.notes:
        print_note(text)
    return path


def _check(name: str, machine: RuleContext) -> dict[str, Any]:
    """Return the result of checking one preset, as `--json` prints it."""
    try:
        loaded = find_preset(name)
        preset, resolved = loaded.preset, resolve(preset=loaded.preset)
        unapplied = _not_applied(preset, resolved)
    except SettingsError as error:
        return {"name": name, "ok": False, "error": str(error), "notes": (), "warnings": []}
    settings = resolved.settings
    if preset.for_ is not None and machine.gpus is not None and not preset.for_.suits(machine.gpus, machine.cores):
        other = Problem((), "warning", f"It is for different hardware: {_hardware(preset.for_)}.")
        problems = (other, *find_problems(settings, gpus=None, interpreter=None, job=preset.job))
    else:
        problems = find_problems(
            settings, gpus=machine.gpus, interpreter=machine.interpreter, job=preset.job, cores=machine.cores
        )
    warnings = [
        {"fields": problem.fields, "sentence": problem.sentence, "right": dict(problem.fix)}
        for problem in (*unapplied, *problems)
    ]
    return {"name": name, "ok": True, "error": None, "notes": loaded.notes, "warnings": warnings}


def _check_lines(check: dict[str, Any]) -> list[str]:
    if check["error"]:
        return [f"{check['name']}: not a preset"]
    notes = [f"  note: {note}" for note in check["notes"]]
    return [f"{check['name']}: ok", *notes, *(f"  warning: {item['sentence']}" for item in check["warnings"])]


def _not_applied(preset: Preset, resolved: Resolved) -> tuple[Problem, ...]:
    if preset.job is None:
        return ()
    missing = build_command(preset.job, resolved.settings, None, "", chosen=resolved.chosen).not_applied
    sentence = f"The command has no option {', '.join(missing)}; the preset's value has no effect."
    return (Problem(missing, "warning", sentence),) if missing else ()


def _hardware(hardware: HardwareRequirements) -> str:
    parts = [
        hardware.gpu_text(),
        f"{hardware.min_memory_gib:g} GiB or more" if hardware.min_memory_gib else "",
        f"capability {hardware.capability} or newer" if hardware.capability else "",
        f"{hardware.min_cores} cores or more" if hardware.min_cores else "",
    ]
    return ", ".join(part for part in parts if part)


def _line(item: PresetEntry) -> str:
    if item.loaded is None:
        return f"{item.name:<24} cannot be read: {item.problem}"
    preset = item.loaded.preset
    about = " ".join((preset.about or "").split())
    first = about.split(". ")[0].rstrip(".")
    whose = " (yours, replaces the shipped one)" if item.hides_shipped else " (yours)" if item.yours else ""
    return f"{item.name:<24} {first}{whose}".rstrip()


def _listed(item: PresetEntry) -> dict[str, Any]:
    head = {"name": item.name, "path": str(item.path), "shipped": not item.yours, "problem": item.problem}
    return head if item.loaded is None else {**head, **_document(item.loaded), "name": item.name}


def _document(loaded: LoadedPreset) -> dict[str, Any]:
    data = loaded.preset.model_dump(mode="json", by_alias=True)
    return {**data, "path": None if loaded.path is None else str(loaded.path), "notes": loaded.notes}

"""A training tool's own file, opened as a preset: its settings and its command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.settings.dialects.dialect import HF, Dialect, dialects
from tuner_tui.settings.dialects.file_formats import form_of_file
from tuner_tui.settings.dialects.hf import ImportedSettings
from tuner_tui.settings.dialects.hydra import compose, group_of
from tuner_tui.settings.dialects.key_places import keys_in_file
from tuner_tui.settings.dialects.nested_values import flatten, set_nested, with_references
from tuner_tui.settings.dialects.purpose import is_for_any_program, why_no_training
from tuner_tui.settings.dialects.python_source import TO_GIVE
from tuner_tui.settings.dialects.script_search import pattern_of, read_source
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.tool_job import training_of_file
from tuner_tui.settings.dialects.written_commands import open_command, program_of
from tuner_tui.settings.errors import FieldError, PresetError, SettingsError
from tuner_tui.settings.file_notes import (
    MOST_NAMED,
    UNREAD,
    notes_on_command,
    notes_on_files,
    what_it_is,
    what_job_needs,
)
from tuner_tui.settings.file_sources import reads_no_section, with_sources
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import shorten_text, without_unused
from tuner_tui.settings.preset_file import LoadedPreset, Preset, default_name
from tuner_tui.settings.tool_choice import tool_of_file
from tuner_tui.settings.yaml_reader import ToolFile


def import_tool_file(file: ToolFile, source: str, path: Path | None, tool: Dialect | None = None) -> LoadedPreset:
    """The settings in a tool's file, and the tool's command on the file itself as the job. Raises `PresetError`."""
    form = "yaml" if path is None else form_of_file(path)
    dialect, file = _with_dialect(file, source, path, tool)
    imported, training = _read(dialect, file, source, path)
    of_script = _is_of_any_tool(dialect, file) and form != "python"
    if tool is None and _shows_no_training(file, dialect, imported, training, of_script=of_script):
        if path is not None and dialect.name == HF and open_command(path):  # a text gives it to a training
            return import_tool_file(file, source, path, dialects()["own-script"])
        why = "neither a preset (`settings:` with `name: value` lines) nor a known configuration file"
        raise PresetError(f"{source}: {why}; {what_it_is(file, path)}")
    unread_by = None
    if training is not None and path is not None and of_script:
        program = program_of(training.command, path)
        if program is not None and reads_no_section(program, file.values):
            unread_by, file, imported = program, replace(file, values={}), read_settings(dialect, {})
            training = replace(training, model=None, task=None, data=None, stated={})
    settings, sources = imported.settings, dict[str, str]()
    if training is not None and path is not None:
        settings, training, sources = with_sources(imported, training, dialect, file, path)
    job = None if training is None or training.is_unnamed else training
    if job is not None and path is not None:
        needs = what_job_needs(job, flatten(file.values), file.words, path)
        file = replace(file, incomplete=(*file.incomplete, *needs))
    in_use = without_unused(settings)
    sources = {name: source for name, source in sources.items() if name in in_use.keys() - imported.settings.keys()}
    # Where the tool reads its other keys from the file, nothing is lost.
    reads_others = bool(job is not None or form == "python" or file.words or dialect.of_launcher)
    of_tool = {*dialect.model_keys, *dialect.data_keys} if reads_others else set()
    notes = (
        *_notes_on_keys(imported, sources, reads_others),
        *notes_on_files(file, training, job, path),
        *([f"{unread_by.name} takes the keys at the top of this file{UNREAD}"] if unread_by is not None else []),
        *notes_on_command(file, dialect, training, job, source, path),
    )
    return LoadedPreset(
        Preset(name=default_name(path), settings=in_use, job=job),
        path,
        notes,
        dialect,
        ignored=tuple(key for key in imported.ignored if key not in of_tool),
        left_open=imported.left_open,
        training=None if job else training,
        sources=sources,
    )


def _with_dialect(file: ToolFile, source: str, path: Path | None, tool: Dialect | None) -> tuple[Dialect, ToolFile]:
    """The dialect of a file, or `tool`, and the file with its references and the files it is composed of put in."""
    if path is not None and file.words:
        file = _with_total_batch(file, path)
    dialect = tool or tool_of_file(replace(file, values=with_references(file.values)), path)
    name = str(path.absolute() if path else "")
    is_of_text = _is_of_any_tool(dialect, file) and dialect.form != "python"
    if is_of_text and (why := why_no_training(flatten(file.values), name)):
        raise PresetError(f"{source}: {why}")
    if path is not None and dialect.form == "overrides" and not file.words:
        file = _composed(file, dialect, path)
    if path is None or form_of_file(path) == "yaml":
        file = replace(file, values=with_references(file.values))
    return dialect, file


def _is_of_any_tool(dialect: Dialect, file: ToolFile) -> bool:
    return not (dialect.programs or dialect.of_launcher or file.words)


def _notes_on_keys(imported: ImportedSettings, sources: Mapping[str, str], reads_others: bool) -> Iterator[str]:
    """How the keys were read, how many stay unread, and the files that further settings are from."""
    count = len(imported.unknown)
    left_out = imported.unknown if reads_others or count > MOST_NAMED else ()
    yield from (note for note in imported.notes if note not in left_out)
    if left_out and not reads_others:
        yield f"{count} other keys stay in the file"
    for source in dict.fromkeys(sources.values()):
        yield f"from {source}: {', '.join(name for name in sources if sources[name] == source)}"


def _with_total_batch(file: ToolFile, path: Path) -> ToolFile:
    """The file of a command whose program calls the batch of all GPUs by a name of its own."""
    program = program_of(file.words, path)
    total = None if program is None else pattern_of("total_batch").search(read_source(program))
    renamed = {} if total is None else {total[1]: "global_batch_size"}
    return replace(file, values={renamed.get(key, key): value for key, value in file.values.items()})


def _composed(file: ToolFile, dialect: Dialect, path: Path) -> ToolFile:
    """One of Hydra's files with those that it is composed of; what it says itself counts."""
    values = compose(file.values, path)
    if group_of(path) is None:
        opened, whole = (keys_in_file(dialect, flatten(part)) for part in (file.values, values))
        for key in (key for key, path_in_file in opened.items() if whole.get(key, path_in_file) != path_in_file):
            set_nested(values, whole[key].split("."), None)
    needed = [shorten_text(key) for key, value in flatten(values).items() if value == TO_GIVE]
    defaults = file.values.get("defaults") or ()
    groups = (pair for entry in defaults if isinstance(entry, Mapping) for pair in entry.items())
    needed += [str(group) for group, choice in groups if choice is None and f"${{{group}}}" in str(defaults)]
    return replace(file, values=values, incomplete=(f"it needs {', '.join(needed)}",) if needed else ())


def _read(
    dialect: Dialect, file: ToolFile, source: str, path: Path | None
) -> tuple[ImportedSettings, CommandJob | None]:
    """The settings in a file and what it trains. Raises `PresetError` with the line."""
    try:
        return read_settings(dialect, file.values), None if path is None else training_of_file(dialect, file, path)
    except SettingsError as error:
        field = error.field if isinstance(error, FieldError) else ""
        line = file.lines.get(field, file.lines.get(dialect.names.get(field, "")))
        raise PresetError(f"{source}{'' if line is None or not field else f':{line}'}: {error}") from None


def _shows_no_training(
    file: ToolFile, dialect: Dialect, imported: ImportedSettings, training: CommandJob | None, *, of_script: bool
) -> bool:
    """Whether nothing in a file is known to be of a training. `of_script`: its keys are not those of any tool."""
    has_command = training is not None and not training.is_unnamed
    is_recognised = bool(imported.settings or imported.left_open or dialect.certain_keys)
    if of_script and not is_recognised and (training is None or training.model is None):
        return True
    silent = of_script and is_for_any_program(imported.settings, flatten(file.values))
    return not has_command and (silent or not (file.words or is_recognised))

"""How settings reach a training command: one pure function per apply mode."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import tuner_tui
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import Dialect, dialect_keys, write_settings
from tuner_tui.settings.dialects.hf import ExportedSettings
from tuner_tui.settings.dialects.hf_names import SCRIPT_FIELDS
from tuner_tui.settings.dialects.registry import HF, dialect_by_name, dialect_of_command
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.fields import FIELDS, closest_match
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings

CONFIG = "{config}"
OUTPUT_DIR = "{output_dir}"
CHECKPOINT = "checkpoint"
"""The placeholder that a launch fills in when it resumes; no setting."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class AppliedCommand:
    """A command with settings applied.

    Where `config_yaml` is given, the launcher writes it to a file and puts that file's path in place of
    `{config}` in `argv`. `apply_inject` is handed to the observer. `not_applied` names the settings that this way
    could not carry, `notes` says why.
    """

    argv: tuple[str, ...]
    config_yaml: str | None = None
    inject: Mapping[str, Any] | None = None
    not_applied: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def build_command(
    job: BuiltinJob | CommandJob,
    settings: Settings,
    interpreter: Interpreter | None,
    output_dir: str,
    *,
    chosen: Collection[str] | None = None,
    own_config: Mapping[str, Any] | None = None,
) -> AppliedCommand:
    """The command that trains `job` with `settings`.

    `chosen` names the settings somebody chose (`Resolved.chosen`): only these reach another's command, so
    that a default of this program never overrides what the command says itself. The built-in job takes all.
    `own_config` is what the command's own YAML file says, which the settings are put into.
    Raises `SettingsError` where the command cannot take settings in the way the job says.
    """
    if isinstance(job, BuiltinJob):
        return _builtin_command(job, settings, interpreter, output_dir)
    tool = dialect_by_name(job.dialect)
    argv = tuple(word.replace(OUTPUT_DIR, output_dir) for word in job.command)
    names = frozenset(FIELDS) if chosen is None else frozenset(chosen)
    targets = None if interpreter is None else interpreter.training_arguments
    match job.apply:
        case "placeholders":
            return apply_placeholders(argv, settings, names, targets)
        case "hf-args":
            return apply_hf_args(argv, settings, names, targets, job.aliases, tool)
        case "hydra":
            return apply_hydra(argv, settings, names, targets, job.aliases, tool)
        case "yaml":
            return apply_yaml(argv, settings, names, targets, job.aliases, tool, own_config)
        case "inject":
            return apply_inject(argv, settings, names, targets)
        case "none":
            return AppliedCommand(argv, not_applied=_in_field_order(names))


def trainer_folder() -> Path:
    """The folder of the built-in job, which the training interpreter runs as a script."""
    return Path(tuner_tui.__file__).parent / "trainer"


def apply_placeholders(
    argv: Sequence[str], settings: Settings, names: Collection[str], targets: Collection[str] | None
) -> AppliedCommand:
    """`{field}` in the words replaced by the field's value; raises `FieldError` for an unknown one."""
    known: dict[str, Any] = {**hf.to_hf(settings, targets).values, **settings.model_dump()}
    known["max_steps"] = -1 if settings.max_steps is None else settings.max_steps
    used: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == CHECKPOINT:
            return match.group(0)
        if name not in known:
            near = closest_match(name, known)
            hint = f"; did you mean {{{near}}}?" if near else ""
            raise FieldError(name, f"the command has the placeholder {{{name}}}, which is no setting{hint}")
        if known[name] is None:
            raise FieldError(name, f"the command needs a value for {{{name}}}, which is empty")
        used.add(name)
        return format_argument(known[name])

    words = tuple(_PLACEHOLDER.sub(fill, word) for word in argv)
    carried = {name for name in names if used & {name, *hf.argument_names(name)}}
    return AppliedCommand(words, not_applied=_in_field_order(set(names) - carried))


def apply_hf_args(
    argv: Sequence[str],
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None,
    aliases: Mapping[str, str],
    tool: Dialect,
) -> AppliedCommand:
    """`--key value` for each chosen setting, in place of what the command says of it."""
    carried = _export_with_aliases(settings, names, targets, aliases, tool)
    gone = {spelling for name in names if name not in carried.not_carried for spelling in dialect_keys(tool, name)}
    gone |= {aliases[name] for name in names if name in aliases}
    words = (*remove_options(argv, gone), *hf.to_arguments(carried.values))
    return AppliedCommand(words, not_applied=carried.not_carried, notes=carried.notes)


def apply_hydra(
    argv: Sequence[str],
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None,
    aliases: Mapping[str, str],
    tool: Dialect,
) -> AppliedCommand:
    """`key=value` for each chosen setting that has an alias, in place of an override of the same key.

    What has none goes by the tool's own names, where the command is a tool's (LLaMA-Factory takes such words); a plain
    Hydra application names its keys itself.
    """
    words = list(argv)
    missing = [name for name in _in_field_order(names) if name not in aliases]
    notes: tuple[str, ...] = ("a Hydra command takes only settings that have an alias",) if missing else ()
    overrides = {aliases[name]: getattr(settings, name) for name in _in_field_order(names) if name in aliases}
    if tool.name != "hf":
        carried = write_settings(tool, settings, targets, missing)
        overrides |= {key: value for key, value in carried.values.items() if value is not None}
        missing, notes = list(carried.not_carried), carried.notes
    for key, value in overrides.items():
        _set_override(words, key, format_argument(value, empty="null"))
    return AppliedCommand(tuple(words), not_applied=tuple(missing), notes=notes)


def apply_yaml(
    argv: Sequence[str],
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None,
    aliases: Mapping[str, str],
    tool: Dialect,
    own: Mapping[str, Any] | None = None,
) -> AppliedCommand:
    """A YAML file with what the command's own file says and the chosen settings put into it, in the tool's words.

    It stands where the command says `{config}`, or where it names its own file. An alias may lead into a section:
    `optimizer.lr`.
    """
    place = find_config_argument(argv)
    if place is None:
        raise SettingsError(f"apply: yaml needs {CONFIG} in the command, where the path of the file goes")
    carried = _export_with_aliases(settings, names, targets, aliases, tool)
    values: dict[str, Any] = copy.deepcopy(dict(own or {}))
    for name in set(names) - set(carried.not_carried) - set(aliases):
        for key in dialect_keys(tool, name):
            values.pop(key, None)
    for key, value in carried.values.items():
        _set_nested(values, key.split(".") if key in aliases.values() else [key], value)
    words = tuple(CONFIG if index == place and CONFIG not in word else word for index, word in enumerate(argv))
    return AppliedCommand(words, dump_config(values), None, carried.not_carried, carried.notes)


def find_config_argument(argv: Sequence[str]) -> int | None:
    """Which word of the command is its configuration file: the one with `{config}`, else the only YAML file's name."""
    marked = [index for index, word in enumerate(argv) if CONFIG in word]
    named = [index for index, word in enumerate(argv) if word.endswith((".yaml", ".yml"))]
    if marked:
        return marked[0]
    return named[0] if len(named) == 1 else None


def apply_inject(
    argv: Sequence[str], settings: Settings, names: Collection[str], targets: Collection[str] | None
) -> AppliedCommand:
    """The command as it is; the observer puts the settings into TrainingArguments or a plain DataLoader."""
    carried = hf.to_hf(settings, targets, only=names)
    return AppliedCommand(tuple(argv), None, carried.values, carried.not_carried, carried.notes)


def format_argument(value: Any, empty: str = "") -> str:
    """A value as a word of a command line: `true`, `4e-05`, `bf16`; `empty` for None."""
    if value is None:
        return empty
    return str(value).lower() if isinstance(value, bool) else str(value)


def dump_config(values: Mapping[str, Any]) -> str:
    """`values` as flat YAML that every reader understands: numbers with a mantissa dot (`1.0e-05`)."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def _builtin_command(
    job: BuiltinJob, settings: Settings, interpreter: Interpreter | None, output_dir: str
) -> AppliedCommand:
    python = sys.executable if interpreter is None else interpreter.path
    targets = None if interpreter is None else interpreter.training_arguments
    carried = hf.to_hf(settings, targets, extra=SCRIPT_FIELDS)
    values = {
        **job.model_dump(exclude={"kind", "interpreter", "fallback", "launcher", "processes"}),
        "output_dir": output_dir,
        **carried.values,
        "report_to": "none",
        # With the filter on, a loss of nan is logged as 0: the run would look well.
        "logging_nan_inf_filter": False,
    }
    given = {name: value for name, value in values.items() if value is not None}
    argv = (python, str(trainer_folder()), CONFIG)
    return AppliedCommand(argv, dump_config(given), None, carried.not_carried, carried.notes)


def _export_with_aliases(
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None,
    aliases: Mapping[str, str],
    tool: Dialect,
) -> ExportedSettings:
    plain = write_settings(tool, settings, targets, [name for name in names if name not in aliases])
    aliased = {aliases[name]: getattr(settings, name) for name in _in_field_order(names) if name in aliases}
    return ExportedSettings({**plain.values, **aliased}, plain.not_carried, plain.notes)


def _set_nested(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the value in its section; what is empty is taken away, so that the tool's default counts."""
    for key in path[:-1]:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    if value is None:
        values.pop(path[-1], None)
    else:
        values[path[-1]] = value


def _set_override(words: list[str], key: str, value: str) -> None:
    for index, word in enumerate(words):
        left, equals, _ = word.partition("=")
        if equals and left.lstrip("+") == key:
            words[index] = f"{left}={value}"
            return
    words.append(f"{key}={value}")


def _in_field_order(names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in FIELDS if name in names)


_FIELD_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def default_apply_mode(command: Sequence[str]) -> ApplyMode:
    """By the marks in its words; a tool that reads a YAML file gets one; any other is set from within (inject)."""
    marks = {name for word in command for name in _FIELD_PLACEHOLDER.findall(word)}
    if CONFIG.strip("{}") in marks:
        return "yaml"
    if marks & FIELDS.keys():
        return "placeholders"
    reads_file = dialect_of_command(command) is not HF and find_config_argument(command) is not None
    return "yaml" if reads_file else "inject"

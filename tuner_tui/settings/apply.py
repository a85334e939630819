"""How settings reach a training command: one pure function per apply mode."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

import tuner_tui
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import HF, Dialect, dialect_by_name, dialect_keys, dialect_of_command
from tuner_tui.settings.dialects.file_changes import file_changes
from tuner_tui.settings.dialects.file_formats import dump_config, format_override, to_arguments
from tuner_tui.settings.dialects.hf import SCRIPT_FIELDS
from tuner_tui.settings.dialects.nested_values import set_nested
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.job import ApplyMode, BuiltinJob, Job
from tuner_tui.settings.model import FIELDS, Settings, closest_match

CONFIG = "{config}"
OUTPUT_DIR = "{output_dir}"
TRAINER = Path(tuner_tui.__file__).parent / "trainer"
"""The folder of the built-in job; the training interpreter runs it as a script."""
LAUNCH_KEYS = frozenset({"fallback", "launcher", "processes", "interpreter", "env"})
"""Keys of a job that say how it is started, not what is trained."""
CHECKPOINT = "checkpoint"
"""Placeholder for the checkpoint to resume from, which the launch fills in; not a setting."""
_PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")


class AppliedCommand(Struct, frozen=True):
    """A command with settings applied.

    `config_yaml` is the content of a file whose path replaces `{config}` in `argv` at launch. `inject` holds the
    arguments that the observer sets inside the process. `not_applied` names the settings that the apply mode cannot
    carry, and `notes` says why.
    """

    argv: tuple[str, ...]
    config_yaml: str | None = None
    inject: Mapping[str, Any] | None = None
    not_applied: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


LAUNCHER_OPTION = re.compile(r"--(deepspeed|accelerate|fsdp|config_file$)")
"""An option of a command whose value is the file of a launcher."""


def build_command(
    job: Job,
    settings: Settings,
    interpreter: Interpreter | None,
    output_dir: str,
    *,
    chosen: Collection[str] | None = None,
    own_config: Mapping[str, Any] | None = None,
) -> AppliedCommand:
    """The command that trains `job` with `settings`. Raises `SettingsError` if it cannot take them by its mode.

    Only the settings `chosen`, which are not defaults, are applied to a command job; the built-in job takes all.
    `own_config` is the content of the command's own YAML file, into which the settings are merged.
    """
    if isinstance(job, BuiltinJob):
        return _builtin_command(job, settings, interpreter, output_dir)
    tool = dialect_by_name(job.dialect)
    argv = tuple(word.replace(OUTPUT_DIR, output_dir) for word in job.command)
    names = frozenset(FIELDS) if chosen is None else frozenset(chosen)
    targets = None if interpreter is None else interpreter.training_arguments
    application = _Application(argv, settings, names, targets, job.aliases, tool)
    match job.apply:
        case "placeholders":
            return application.placeholders()
        case "hf-args":
            return application.hf_args()
        case "yaml":
            return application.yaml(own_config)
        case "inject":
            return application.inject()
        case "none":
            return AppliedCommand(argv, not_applied=_in_field_order(names))


def default_apply_mode(command: Sequence[str]) -> ApplyMode:
    """By the placeholder in the command, `yaml` for a known tool with a configuration file, otherwise `inject`."""
    names = {name for word in command for name in _PLACEHOLDER.findall(word)}
    if CONFIG.strip("{}") in names:
        return "yaml"
    if names & FIELDS.keys():
        return "placeholders"
    tool = dialect_of_command(command)
    reads_file = tool.name != HF and find_config_argument(command, tool) is not None
    return "yaml" if reads_file else "inject"


class _Application(Struct, frozen=True):
    """The settings `names` on their way to the command `argv` of `tool`, one method for each apply mode.

    `targets` are the names that the installed `TrainingArguments` takes, None if unknown.
    """

    argv: tuple[str, ...]
    settings: Settings
    names: frozenset[str]
    targets: Collection[str] | None
    aliases: Mapping[str, str]
    tool: Dialect

    @property
    def _aliased_names(self) -> tuple[str, ...]:
        return _in_field_order(self.names & self.aliases.keys())

    def placeholders(self) -> AppliedCommand:
        """Replace `{field}` in the arguments by the field's value. Raises `FieldError` for an unknown or empty field.

        A chosen setting without a placeholder is set by its alias, as Hydra takes it.
        """
        fields: dict[str, Any] = {**hf.to_hf(self.settings, self.targets).values, **structs.asdict(self.settings)}
        fields["max_steps"] = -1 if self.settings.max_steps is None else self.settings.max_steps
        used: set[str] = set()

        def fill(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == CHECKPOINT:
                return match.group(0)
            if name not in fields:
                near = closest_match(name, fields)
                hint = f"; did you mean {{{near}}}?" if near else ""
                raise FieldError(name, f"the placeholder {{{name}}} in the command is not a setting{hint}")
            if fields[name] is None:
                raise FieldError(name, f"the command needs a value for {{{name}}}, which is empty")
            used.add(name)
            return str(fields[name]).lower() if isinstance(fields[name], bool) else str(fields[name])

        words = [_PLACEHOLDER.sub(fill, word) for word in self.argv]
        without_place = {name for name in self.names if not used & {name, *hf.argument_names(name)}}
        for name in _in_field_order(without_place & self.aliases.keys()):
            written = tuple(write_settings(self.tool, self.settings, self.targets, [name]).values.values())
            in_tool_words = self.tool.form == "overrides" and len(written) == 1
            value = written[0] if in_tool_words else getattr(self.settings, name)
            key = self.aliases[name]
            given = (index for index, word in enumerate(words) if word.lstrip("+").startswith(f"{key}="))
            at = next(given, len(words))
            spelled = (*words, key)[at].partition("=")[0]
            words[at : at + 1] = [f"{spelled}={format_override(value)}"]
        return AppliedCommand(tuple(words), not_applied=_in_field_order(without_place - self.aliases.keys()))

    def hf_args(self) -> AppliedCommand:
        """Append `--key value` for each chosen setting; every spelling of it in the command is removed."""
        plain = [name for name in self.names if name not in self.aliases]
        carried = write_settings(self.tool, self.settings, self.targets, plain)
        aliased = {self.aliases[name]: getattr(self.settings, name) for name in self._aliased_names}
        # A setting may be in the command under another spelling (`--max_seq_length` for `max_length`), which argparse
        # takes for an option of its own: with both given, the script would see two values.
        supported = [name for name in self.names if name not in carried.unsupported]
        gone = {spelling for name in supported for spelling in dialect_keys(self.tool, name)} | aliased.keys()
        words = (*remove_options(self.argv, gone), *to_arguments({**carried.values, **aliased}))
        return AppliedCommand(words, not_applied=carried.unsupported, notes=carried.notes)

    def yaml(self, file_values: Mapping[str, Any] | None) -> AppliedCommand:
        """Merge the chosen settings, in the tool's spelling, into the file of the command or its `{config}`.

        An alias may address a section: `optimizer.lr`.
        """
        index = find_config_argument(self.argv, self.tool)
        if index is None:
            raise SettingsError(f"apply: yaml needs {CONFIG} in the command, where the path of the file goes")
        values: dict[str, Any] = copy.deepcopy(dict(file_values or {}))
        plain = [name for name in self.names if name not in self.aliases]
        changes = file_changes(self.tool, values, self.settings, plain, self.targets)
        for path, value in changes.values.items():
            set_nested(values, path, value)
        for name in self._aliased_names:
            set_nested(values, self.aliases[name].split("."), getattr(self.settings, name))
        named = self.argv[index]
        words = list(self.argv)
        if CONFIG not in named:
            words[index] = named.removesuffix(path_of_argument(named)) + CONFIG
        text = dump_config(values, as_json=named.endswith(".json"))
        return AppliedCommand(tuple(words), text, None, changes.unsupported, changes.notes)

    def inject(self) -> AppliedCommand:
        """Leave the command as it is; the observer sets the values in `TrainingArguments` or a plain `DataLoader`."""
        carried = hf.to_hf(self.settings, self.targets, only=self.names)
        return AppliedCommand(self.argv, None, carried.values, carried.unsupported, carried.notes)


def find_config_argument(argv: Sequence[str], tool: Dialect) -> int | None:
    """The index of the file that configures `tool`: the one with `{config}`, else the only YAML, else the only JSON or
    TOML file. A file for DeepSpeed or accelerate counts for these tools only.
    """
    marked = [index for index, word in enumerate(argv) if CONFIG in word]
    if marked:
        return marked[0]
    of_launcher = {index + 1 for index, word in enumerate(argv) if LAUNCHER_OPTION.match(word)}
    for suffixes in ((".yaml", ".yml"), (".json", ".toml")):
        files = [index for index, word in enumerate(argv) if word.endswith(suffixes)]
        named = [index for index in files if (index in of_launcher) == tool.of_launcher]
        if named:
            return named[0] if len(named) == 1 else None
    return None


def path_of_argument(word: str) -> str:
    """The path in an argument: `my.yaml`, `--config=my.yaml`, `config=my.yaml`."""
    return re.sub(r"^(--)?[A-Za-z_][\w.-]*=", "", word)


def _builtin_command(
    job: BuiltinJob, settings: Settings, interpreter: Interpreter | None, output_dir: str
) -> AppliedCommand:
    python = sys.executable if interpreter is None else interpreter.path
    targets = None if interpreter is None else interpreter.training_arguments
    carried = hf.to_hf(settings, targets, extra=SCRIPT_FIELDS)
    values = {
        **{name: value for name, value in structs.asdict(job).items() if name not in LAUNCH_KEYS},
        "output_dir": output_dir,
        **carried.values,
        "report_to": "none",
        # With the filter on, a loss of nan is logged as 0: the run would look well.
        "logging_nan_inf_filter": False,
    }
    given = {name: value for name, value in values.items() if value is not None}
    argv = (python, str(TRAINER), CONFIG)
    return AppliedCommand(argv, dump_config(given), None, carried.unsupported, carried.notes)


def _in_field_order(names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in FIELDS if name in names)

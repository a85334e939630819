"""How settings reach a training command: each way a pure function from command to command."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import tuner_tui
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.hf import Carried
from tuner_tui.settings.dialects.hf_names import SCRIPT_FIELDS
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.fields import FIELDS, nearest, shorten
from tuner_tui.settings.job import BuiltinJob, CommandJob
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
    `{config}` in `argv`. `inject` is handed to the observer. `not_applied` names the settings that this way
    could not carry, `notes` says why.
    """

    argv: tuple[str, ...]
    config_yaml: str | None = None
    inject: Mapping[str, Any] | None = None
    not_applied: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def command_for(
    job: BuiltinJob | CommandJob,
    settings: Settings,
    interpreter: Interpreter | None,
    output_dir: str,
    *,
    chosen: Collection[str] | None = None,
) -> AppliedCommand:
    """The command that trains `job` with `settings`.

    `chosen` names the settings somebody chose (`Resolved.chosen`): only these reach another's command, so
    that a default of this program never overrides what the command says itself. The built-in job takes all.
    Raises `SettingsError` where the command cannot take settings in the way the job says.
    """
    if isinstance(job, BuiltinJob):
        return _builtin(job, settings, interpreter, output_dir)
    if job.dialect != "hf":
        raise SettingsError(f"'{shorten(job.dialect)}' is no dialect this program writes; it writes hf")
    argv = tuple(word.replace(OUTPUT_DIR, output_dir) for word in job.command)
    names = frozenset(FIELDS) if chosen is None else frozenset(chosen)
    targets = None if interpreter is None else interpreter.training_arguments
    match job.apply:
        case "placeholders":
            return placeholders(argv, settings, names, targets)
        case "hf-args":
            return hf_args(argv, settings, names, targets, job.aliases)
        case "hydra":
            return hydra(argv, settings, names, job.aliases)
        case "yaml":
            return yaml_file(argv, settings, names, targets, job.aliases)
        case "inject":
            return inject(argv, settings, names, targets)
        case "none":
            return AppliedCommand(argv, not_applied=_in_order(names))


def trainer_folder() -> Path:
    """The folder of the built-in job, which the training interpreter runs as a script."""
    return Path(tuner_tui.__file__).parent / "trainer"


def placeholders(
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
            near = nearest(name, known)
            hint = f"; did you mean {{{near}}}?" if near else ""
            raise FieldError(name, f"the command has the placeholder {{{name}}}, which is no setting{hint}")
        if known[name] is None:
            raise FieldError(name, f"the command needs a value for {{{name}}}, which is empty")
        used.add(name)
        return plain_word(known[name])

    words = tuple(_PLACEHOLDER.sub(fill, word) for word in argv)
    carried = {name for name in names if used & {name, *hf.owned_names(name)}}
    return AppliedCommand(words, not_applied=_in_order(set(names) - carried))


def hf_args(
    argv: Sequence[str],
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None,
    aliases: Mapping[str, str],
) -> AppliedCommand:
    """`--key value` for each chosen setting, in place of what the command says of it."""
    carried = _carried(settings, names, targets, aliases)
    gone = {spelling for name in names if name not in carried.not_carried for spelling in hf.owned_names(name)}
    gone |= {aliases[name] for name in names if name in aliases}
    words = (*without_options(argv, gone), *hf.as_args(carried.values))
    return AppliedCommand(words, not_applied=carried.not_carried, notes=carried.notes)


def hydra(
    argv: Sequence[str], settings: Settings, names: Collection[str], aliases: Mapping[str, str]
) -> AppliedCommand:
    """`key=value` for each chosen setting that has an alias, in place of an override of the same key."""
    words = list(argv)
    for name in _in_order(names):
        if name in aliases:
            _override(words, aliases[name], plain_word(getattr(settings, name), empty="null"))
    missing = _in_order(set(names) - set(aliases))
    notes = ("a Hydra command takes only settings that have an alias",) if missing else ()
    return AppliedCommand(tuple(words), not_applied=missing, notes=notes)


def yaml_file(
    argv: Sequence[str],
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None,
    aliases: Mapping[str, str],
) -> AppliedCommand:
    """A flat YAML file with the chosen settings; the command must say where its path belongs."""
    if not any(CONFIG in word for word in argv):
        raise SettingsError(f"apply: yaml needs {CONFIG} in the command, where the path of the file goes")
    carried = _carried(settings, names, targets, aliases)
    given = {name: value for name, value in carried.values.items() if value is not None}
    return AppliedCommand(tuple(argv), config_text(given), None, carried.not_carried, carried.notes)


def inject(
    argv: Sequence[str], settings: Settings, names: Collection[str], targets: Collection[str] | None
) -> AppliedCommand:
    """The command as it is; the observer puts the settings into TrainingArguments or a plain DataLoader."""
    carried = hf.to_hf(settings, targets, only=names)
    return AppliedCommand(tuple(argv), None, carried.values, carried.not_carried, carried.notes)


def without_options(argv: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """`argv` without the options `names` and their values, in every spelling argparse takes for them."""
    kept: list[str] = []
    dropped: str | None = None
    for word in argv:
        if _is_option(word):
            option = word.lstrip("-").partition("=")[0].replace("-", "_").removeprefix("no_")
            dropped = option if option in names else None
            if dropped is None:
                kept.append(word)
            elif "=" in word:
                dropped = None
        elif dropped is not None and _is_value_of(dropped, word):
            dropped = None
        else:
            dropped = None
            kept.append(word)
    return tuple(kept)


def plain_word(value: Any, empty: str = "") -> str:
    """A value as a word of a command line: `true`, `4e-05`, `bf16`; `empty` for None."""
    if value is None:
        return empty
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_text(values: Mapping[str, Any]) -> str:
    """`values` as flat YAML that every reader understands: numbers with a mantissa dot (`1.0e-05`)."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def _builtin(job: BuiltinJob, settings: Settings, interpreter: Interpreter | None, output_dir: str) -> AppliedCommand:
    python = sys.executable if interpreter is None else interpreter.path
    targets = None if interpreter is None else interpreter.training_arguments
    carried = hf.to_hf(settings, targets, extra=SCRIPT_FIELDS)
    values = {
        **job.model_dump(exclude={"kind"}),
        "output_dir": output_dir,
        **carried.values,
        "report_to": "none",
        # With the filter on, a loss of nan is logged as 0: the run would look well.
        "logging_nan_inf_filter": False,
    }
    given = {name: value for name, value in values.items() if value is not None}
    argv = (python, str(trainer_folder()), CONFIG)
    return AppliedCommand(argv, config_text(given), None, carried.not_carried, carried.notes)


def _carried(
    settings: Settings, names: Collection[str], targets: Collection[str] | None, aliases: Mapping[str, str]
) -> Carried:
    plain = hf.to_hf(settings, targets, only=[name for name in names if name not in aliases])
    aliased = {aliases[name]: getattr(settings, name) for name in _in_order(names) if name in aliases}
    return Carried({**plain.values, **aliased}, plain.not_carried, plain.notes)


def _override(words: list[str], key: str, value: str) -> None:
    for index, word in enumerate(words):
        left, equals, _ = word.partition("=")
        if equals and left.lstrip("+") == key:
            words[index] = f"{left}={value}"
            return
    words.append(f"{key}={value}")


def _is_option(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and not word[1:2].isdigit() and len(word) > 1)


def _is_value_of(option: str, word: str) -> bool:
    """Whether `word` is the value of `option`; a switch such as `--bf16` may stand without one."""
    switch = option in hf.SWITCHES
    return not switch or word.lower() in {"true", "false", "1", "0", "yes", "no", "t", "f", "y", "n"}


def _in_order(names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in FIELDS if name in names)

"""Sentences on a tool's file: what it states, what it and its command lack, and what to open instead."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner_tui.core.python_syntax import parse_python
from tuner_tui.settings.dialects.command_words import script_of
from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS, bases_of, form_of_file, parse_file, read_file_text
from tuner_tui.settings.dialects.hydra import missing_fields
from tuner_tui.settings.dialects.nested_values import TEMPLATE, placeholders, texts_in
from tuner_tui.settings.dialects.python_source import required_options
from tuner_tui.settings.dialects.script_search import find_program, pattern_of, read_source, source_of, words_of
from tuner_tui.settings.dialects.written_commands import open_command, program_of
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import shorten_text
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile

SHELL_SUFFIXES = tuple(suffix for suffix, form in SCRIPT_FORMS.items() if form == "arguments")
OF_ITSELF = re.compile(r"it needs (?:\$[@*#](?:, )?)+|only the shell knows .*")
"""What a script that is started as a whole has without its caller."""
ABSENT, NOT_COMPLETE, INVALID = ", which the command needs, is not there", " is not complete: ", " is not valid Python"
UNREAD = " and reads none of its sections: it trains with values of its own"
"""What a note says after the name of a file."""
OF_ENVIRONMENT = re.compile(r"\$\{(?:(?:oc\.)?env:|(?=[A-Z\d]+_[A-Z\d_]+\}))(\w+)\}")
ONLY_THIS = "only this command is started, not"
MOST_NAMED = 8
"""Of more keys that are no settings, the number is said."""


def notes_on_files(
    file: ToolFile, training: CommandJob | None, job: CommandJob | None, path: Path | None
) -> Iterator[str]:
    """What the file states besides settings, and the files that it needs and that are missing."""
    if training is not None and training.stated:
        yield f"stated besides: {', '.join(f'{name} {value}' for name, value in training.stated.items())}"
    if path is None:
        return
    for name in [] if job is None else absent_files(file.words or job.command, file.folder, job, path):
        yield f"{name}{ABSENT}: its settings are unknown"
    program = path if form_of_file(path) == "python" else program_of(file.words, path) if job and file.words else None
    source = "" if program is None else source_of(program)
    if "torch" not in source and (other := pattern_of("other_frameworks").search(source)) is not None:
        yield f"{program.name if program else ''} trains with {other[1]}, not with PyTorch: nothing here suits it"
    if program not in (None, path) and program.suffix == ".py":
        try:
            parse_python(read_source(program))
        except SyntaxError as error:
            version = ".".join(map(str, sys.version_info[:2]))
            yield f"{program.name}:{error.lineno}{INVALID} {version} and not read: {error.msg.partition('. ')[0]}"
    if file.command and file.more and (job is None or job.command[0] != "bash"):
        yield f"{ONLY_THIS} {', '.join(file.more[:MOST_NAMED])} of {path.name}"
    for base in bases_of(file.values, path):
        if not base.is_file():
            yield f"{base}, which the file extends, is not there: its settings are unknown"


def notes_on_command(
    file: ToolFile,
    dialect: Dialect,
    training: CommandJob | None,
    job: CommandJob | None,
    source: str,
    path: Path | None,
) -> Iterator[str]:
    """What the command or the file lacks, and how to name the command where the file shows none."""
    is_whole = job is not None and job.command[0] == "bash"
    reasons = [reason for reason in file.incomplete if not (is_whole and OF_ITSELF.fullmatch(reason))]
    is_given = (path is None or form_of_file(path) == "yaml") and dialect.form != "overrides"
    of_file = [text for text in texts_in({} if file.words else file.values) if is_given or not TEMPLATE.fullmatch(text)]
    words = [] if job is None else [word for word in (*(file.words or job.command), file.folder) if "$" not in word]
    if open_words := placeholders(words, "" if path is None else read_source(path)):
        reasons.append(f"it has placeholders to fill in: {open_words}")
    source_text = "" if path is None or file.words or form_of_file(path) == "python" else read_source(path)
    keys = pattern_of("key_to_fill_in").findall(source_text)
    if open_values := ", ".join(filter(None, (placeholders(of_file), *keys))):
        yield f"{Path(source).name} has placeholders to fill in: {open_values}"
    named = () if training is None or job is not None else (("model", training.model), ("data", training.data))
    if names := [f"{part} {name}" for part, name in named if name]:
        yield f"the file names {' and '.join(names)}"
    if reasons and (job is not None or file.incomplete):
        then = "give it whole, as in `tuner-tui run -- python train.py`"
        if job is not None:
            then = "the script is started as a whole" if is_whole else "give it in the command"
        yield f"the command in {Path(source).name}{NOT_COMPLETE}{'; '.join(reasons)}; {then}"
    elif path is not None and job is None:
        yield from (f"{path.name}{NOT_COMPLETE}{reason}" for reason in reasons)
        of_tool = f"this file configures {dialect.tool}, not a training run: open the file or script it is passed"
        yield of_tool if dialect.of_launcher else command_to_name(path)


def what_job_needs(job: CommandJob, flat: Mapping[str, Any], words: Sequence[str], path: Path) -> tuple[str, ...]:
    """Variables or keys without values that a command needs, where the command comes from another file."""
    named = Path(next((word for word in job.command[1:] if word.endswith((".py", *SHELL_SUFFIXES))), ""))
    program = program_of(words, path) or Path() if words else named
    if words and (not program.is_absolute() or job.command[0] == "bash"):
        return ()
    missing, names = list[str](), [] if words else OF_ENVIRONMENT.findall(str(flat))
    given = {*os.environ, *job.env}
    with suppress(SettingsError):
        if program.is_absolute():
            if program.suffix in SHELL_SUFFIXES:
                return parse_file(read_file_text(program), program).incomplete
            missing += missing_fields(program, flat) if job.apply == "placeholders" and not words else []
            missing += [] if missing else required_options(program, words or job.command)
            source = "" if (program.parent / ".env").exists() else read_source(program)
            names += [name for _, name in pattern_of("asserted_variables").findall(source)]
            given |= {*_variables_set_by(program)}
    missing += [f"${name}" for name in dict.fromkeys(names) if name not in given]
    return (f"it needs {', '.join(missing)}",) if missing else ()


def _variables_set_by(program: Path) -> Iterator[str]:
    """The variables of the environment that the source of a program sets."""
    source = source_of(program)
    for pattern, name in words_of("set_variables").items():
        yield from (match.expand(name) for match in re.finditer(pattern, source))


def absent_files(words: Sequence[str], folder: str, job: CommandJob, path: Path) -> list[str]:
    """The script of a command in a `folder` and the configurations of its options, or alone, that are not there."""
    fetches, here = pattern_of("fetches").search(read_source(path)), path.absolute().parent
    if re.match(r"[\w.]", folder) and job.cwd is None and not fetches and not (here / folder).is_dir():
        return [folder]
    names = [script_of(tuple(words)).as_posix()]
    for before, word in pairwise(words):
        option, equals, name = word.rpartition("=")
        is_given = pattern_of("config_options").fullmatch(f'"{option if equals else before}"')
        is_alone = not (equals or before.startswith("-")) and word.endswith((".yaml", ".yml", ".toml"))
        names += [name] if (is_given or is_alone) and "://" not in name else []
    beginning = "/" if folder and not job.cwd else ""  # a relative path is seen from a folder that is not here
    return [
        name
        for name in dict.fromkeys(names)
        if name.startswith(beginning) and name.endswith((".py", *CONFIGURATIONS))
        if not (fetches and not (here / Path(name).parent.name).is_dir()) and not pattern_of("open_words").search(name)
        if not (Path(job.cwd or "", name).is_file() or find_program(path, [Path(name)]))
    ]


def what_it_is(file: ToolFile, path: Path | None) -> str:
    """What a file seems to be that says no setting, and what to open instead."""
    suffix = "" if path is None else path.suffix.lower()
    if SCRIPT_FORMS.get(suffix) == "python":
        kind = "notebook" if suffix == ".ipynb" else "Python module"
        return f"no training was found in this {kind}: open the one that trains, or the configuration"
    named = ", ".join(shorten_text(key, 30) for key in list(file.values)[:3])
    return f"its keys ({named}) are not training settings: open the file with batch size and learning rate"


def command_to_name(file: Path) -> str:
    """The sentence for a file whose command is not known."""
    name = file.name
    if name.endswith(".ipynb"):
        conversion = f"`jupyter nbconvert --to script {name}`, then {name.removesuffix('.ipynb')}.py"
        return f"a notebook is started in Jupyter, or as a script: {conversion}"
    for service, pattern in words_of("of_services").items() if name.endswith(".py") else ():
        if re.search(pattern, read_source(file)):
            return f"the script {name} {service.replace('<name>', name)}, where nothing is watched"
    example = f"tuner-tui run --preset {shlex.quote(name)} -- python train.py"
    if text := open_command(file):
        return f"the command for {name} in {text} has values to fill in: give it whole, as in `{example}`"
    return f"the command that reads {name} is unknown: name it, as in `{example}`"

"""The training command in a shell script, and its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from itertools import zip_longest

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.hf_names import IGNORED_ARGUMENTS
from tuner_tui.settings.dialects.registry import DIALECTS
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.yaml_reader import ToolFile

KNOWN_OPTIONS: Collection[str] = {
    *FIELDS, *IGNORED_ARGUMENTS, *(name for names in hf.ARGUMENT_NAMES.values() for name in names),
    "max_seq_length", "config", "config_file",
}  # fmt: skip
FILE_SCORE = 5
"""What a configuration file counts for, in options."""
DECLARATIONS = ("export", "local", "declare", "readonly")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.+)", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?\s*[\"']?(\w+)")
_END = re.compile(r"&&|\|\|?|;|>>?|2>&1|&|#.*")


def read_shell(text: str, source: str) -> ToolFile:
    """The options of the command with most options of a training. Raises `PresetError` if there is none.

    Variables that the script sets are put in; a command that needs others is not given, only its options.
    """
    variables: dict[str, str] = {}
    exported: dict[str, str] = {}
    best: tuple[str, ...] = ()
    document: str | None = None
    in_document = False
    for line in re.sub(r"\\[ \t]*(\r?\n|\Z)", " ", text).splitlines():
        filled = tuple(_words(_computed(_filled(line, variables))))
        assigned = [_ASSIGNMENT.fullmatch(word) for word in filled if word not in DECLARATIONS]
        if filled and all(assigned):
            found = {match[1]: match[2] for match in assigned if match is not None}
            variables |= found
            exported |= found if filled[0] == "export" else {}
            continue
        if _score(filled) > _score(best):
            best, in_document = filled, document is not None
        started = _HERE_DOCUMENT.search(line)
        document = started[1] if started else None if line.strip() == document else document
    if not best:
        raise PresetError(f"{source}: contains no training command with options")
    environment = dict(exported)
    while best and (match := _ASSIGNMENT.fullmatch(best[0])):
        environment[match[1]] = match[2]
        best = best[1:]
    unknown = any("$" in word or "`" in word for word in (*best, *environment.values()))
    runs = not unknown and not in_document and not best[0].startswith("-")
    values = {**read_options(best), **read_overrides(best)}
    return ToolFile(values, command=best if runs else (), environment=environment if runs else {})


def _score(words: tuple[str, ...]) -> int:
    """How much of a training a command says: its options, or the file of a known tool."""
    options = len(KNOWN_OPTIONS & read_options(words).keys()) + len(read_overrides(words))
    program = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
    reads_file = any(word.endswith((".yaml", ".yml")) for word in words)
    return options + (FILE_SCORE if reads_file and any(program in one.programs for one in DIALECTS.values()) else 0)


def read_overrides(words: tuple[str, ...]) -> dict[str, str]:
    """`section.key=value` words, as Hydra reads them."""
    return {match[1]: match[2] for match in map(_OVERRIDE.fullmatch, words) if match is not None}


def read_arguments(text: str) -> ToolFile:
    """The options in a file of arguments, as `HfArgumentParser` reads a file ending in `.args`."""
    return ToolFile(dict(read_options(tuple(text.split()))))


def read_options(words: tuple[str, ...]) -> Mapping[str, str]:
    """`--name value` and `--name=value` by name; a switch without a value is `true`, `--no_name` is `false`."""
    found: dict[str, str] = {}
    for word, following in zip_longest(words, words[1:], fillvalue="--"):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        alone = not equals and following.startswith("--")
        if alone and name.startswith("no_") and name not in KNOWN_OPTIONS:
            found[name.removeprefix("no_")] = "false"
        else:
            found[name] = value if equals else "true" if alone else following
    return found


def _words(line: str) -> list[str]:
    """The words of the first command in a line, without a comment; none if its quotes do not end here."""
    try:
        words = shlex.split(line)
    except ValueError:  # perhaps of an apostrophe in a comment
        try:
            words = shlex.split(re.sub(r"(^|\s)#.*", "", line))
        except ValueError:
            return []
    end = next((index for index, word in enumerate(words) if _END.fullmatch(word)), len(words))
    return words[:end]


def _computed(line: str) -> str:
    """`line` with arithmetic of two numbers done; other substitutions are one word, which only the shell knows."""

    def value(match: re.Match[str]) -> str:
        terms = re.fullmatch(r"\$\(\(?\s*(?:expr\s+)?(\d+)\s*\\?([*/+-])\s*(\d+)\s*\)?\)", match[0])
        if terms is None or (terms[2] == "/" and int(terms[3]) == 0):
            return "$(…)"
        left, right = int(terms[1]), int(terms[3])
        return str({"*": left * right, "+": left + right, "-": left - right, "/": left // (right or 1)}[terms[2]])

    return re.sub(r"\$\(\(?[^()]*\)?\)", value, line)


def _filled(line: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(
        lambda match: variables.get(match[1] or match[3], match[0] if match[2] is None else match[2]), line
    )

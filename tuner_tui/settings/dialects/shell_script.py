"""The training command in a shell script, and its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from itertools import zip_longest

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.hf_names import IGNORED_ARGUMENTS
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.yaml_reader import ToolFile

KNOWN_OPTIONS: Collection[str] = {
    *FIELDS, *IGNORED_ARGUMENTS, *(name for names in hf.ARGUMENT_NAMES.values() for name in names),
    "max_seq_length", "config", "config_file",
}  # fmt: skip
_ASSIGNMENT = re.compile(r"(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_SEPARATOR = re.compile(r"&&|\|\|?|;|>>?|2>&1|&")


def read_shell(text: str, source: str) -> ToolFile:
    """The options of the command with most options of a training. Raises `PresetError` if there is none.

    Variables that the script sets are put in; a command that needs others is not given, only its options.
    """
    variables: dict[str, str] = {}
    best: tuple[str, ...] = ()
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        assigned = _ASSIGNMENT.fullmatch(line.strip())
        words = _words(line)
        if assigned is not None and len(words) <= 2:
            variables[assigned[1]] = _filled("".join(_words(assigned[2])), variables)
            continue
        filled = tuple(_filled(word, variables) for word in words)
        if len(KNOWN_OPTIONS & read_options(filled).keys()) > len(KNOWN_OPTIONS & read_options(best).keys()):
            best = filled
    if not best:
        raise PresetError(f"{source}: has no command with options of a training")
    while best and _ASSIGNMENT.fullmatch(best[0]):
        best = best[1:]
    runs = not any("$" in word or "`" in word for word in best)
    return ToolFile(dict(read_options(best)), command=best if runs else ())


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
    """The words of the first command in a line; none if its quotes do not end here."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    end = next((index for index, word in enumerate(words) if _SEPARATOR.fullmatch(word)), len(words))
    return words[:end]


def _filled(word: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(
        lambda match: variables.get(match[1] or match[3], match[0] if match[2] is None else match[2]), word
    )

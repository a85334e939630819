"""Options on a command line, as argparse reads them, and placeholders that name a setting."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.command_words import read_options
from tuner_tui.settings.model import DISPLAY, FIELDS, closest_match

SWITCH_WORDS = frozenset({"true", "false", "1", "0", "yes", "no", "t", "f", "y", "n"})
SCRIPT_OPTIONS = frozenset({"-m", "--module", "--no-python", "--no_python"})


def launcher_options(words: Sequence[str]) -> Mapping[str, str]:
    """`--name value` and `--name=value` options before the script; `-` in a name becomes `_`."""
    script = (index for index, word in enumerate(words) if word.endswith(".py") or word in SCRIPT_OPTIONS)
    return read_options(tuple(words[: next(script, len(words))]))


def remove_options(argv: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """`argv` without the options `names` and their values, in every spelling that argparse accepts."""
    kept: list[str] = []
    dropped: str | None = None
    for word in argv:
        if word.startswith("--") or re.match(r"-\D", word):
            option = word.lstrip("-").partition("=")[0].replace("-", "_").removeprefix("no_")
            dropped = option if option in names else None
            if dropped is None:
                kept.append(word)
            elif "=" in word:
                dropped = None
        else:  # the value of an option; a switch such as `--bf16` may have none
            if dropped is None or (dropped in hf.SWITCHES and word.lower() not in SWITCH_WORDS):
                kept.append(word)
            dropped = None
    return tuple(kept)


PLACEHOLDER_WORD = re.compile(r"(?:[\w-]+=)?\{([A-Za-z_]\w*)\}")
"""A word of a command that is a placeholder, alone or as the value of an option."""


def unknown_placeholder(command: Sequence[str], names: Collection[str]) -> str | None:
    """What is wrong with the first placeholder that is not in `names`; None if all are."""
    for word in command:
        match = PLACEHOLDER_WORD.fullmatch(word)
        if match is not None and match[1] not in names:
            by_flag = next((name for name in FIELDS if _matches([match[1]], name)), None)
            meant = by_flag or closest_match(match[1], names)
            return f"{{{match[1]}}} is not a setting{f'; {{{meant}}}?' if meant else '.'}"
    return None


def placeholder_command(
    command: Sequence[str], names: Collection[str], options: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """`command` with a placeholder for those of the settings `names` that it has a flag for, and these; or None.

    A flag in the command has its value replaced; one of the parser's `options` (`-b --batch-size`) is appended.
    """
    words, done = list(command), []
    for name in names:
        spellings = {word for option in options for word in option.split() if _matches(option.split(), name)}
        if _replace_value(words, name, spellings):
            done.append(name)
        elif spellings:
            words += [max(spellings, key=len), f"{{{name}}}"]
            done.append(name)
    return (tuple(words), tuple(done)) if done else None


def _matches(spellings: Sequence[str], name: str) -> bool:
    flags = read_data_file(DISPLAY)[name].get("flags", "").split()
    return any(spelling.lstrip("-").replace("-", "").replace("_", "").lower() in flags for spelling in spellings)


def _replace_value(words: list[str], name: str, spellings: Collection[str]) -> bool:
    for index, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        is_flag = flag in spellings or (flag.startswith("-") and _matches([flag], name))
        if is_flag and (equals or not (*words, "--")[index + 1].startswith("--")):
            words[index if equals else index + 1] = f"{flag}={{{name}}}" if equals else f"{{{name}}}"
            return True
    return False

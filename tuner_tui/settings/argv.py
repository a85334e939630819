"""Options on a command line, as argparse reads them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest

from tuner_tui.settings.dialects import hf

SCRIPT_OPTIONS = frozenset({"-m", "--module", "--no-python", "--no_python"})


def parse_long_options(words: Sequence[str], whole: bool = False) -> dict[str, str]:
    """`--name value` and `--name=value` options before the script, or in all arguments if `whole`.

    `-` in a name becomes `_`.
    """
    found: dict[str, str] = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if not whole and (word.endswith(".py") or word in SCRIPT_OPTIONS):
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else following
    return found


def remove_options(argv: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """`argv` without the options `names` and their values, in every spelling that argparse accepts."""
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


def _is_option(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and not word[1:2].isdigit() and len(word) > 1)


def _is_value_of(option: str, word: str) -> bool:
    """Whether `word` is the value of `option`; a switch such as `--bf16` may have none."""
    switch = option in hf.SWITCHES
    return not switch or word.lower() in {"true", "false", "1", "0", "yes", "no", "t", "f", "y", "n"}

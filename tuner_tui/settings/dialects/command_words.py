"""The words of a command line: its program or script, its options, and how much of a training they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import chain, dropwhile, pairwise, zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import dialects, leaf_pattern
from tuner_tui.settings.dialects.purpose import is_for_other_work, says_training
from tuner_tui.settings.dialects.script_search import (
    MODULE,
    TRAINING,
    find_program,
    names_other_work,
    pattern_of,
    read_source,
    trains,
    words_of,
)
from tuner_tui.settings.model import FIELDS

FILE_SCORE = 5
"""What a configuration file counts for, in options."""
DECLARATIONS = ("export", "local", "declare", "readonly")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.+)", re.DOTALL)
MASK, _UNMASK = str.maketrans("<>#", "\ue000\ue001\ue002"), str.maketrans("\ue000\ue001\ue002\ue003", '<>#"')
"""What redirects or begins a comment is text in quotes and in the value of a variable, as a quote is in another."""
_REST = "\0"
"""Stands for what follows a redirection or begins a comment."""
TRAINING_WORDS = frozenset({"train", "fit", "finetune"})
LAUNCH_MODULES = ("torch.distributed", "accelerate.commands", "pip", "venv", "pytest", "unittest", "http.server")


@cache
def is_known_option(name: str) -> bool:
    """Whether a training command has an option of that name for a setting or a configuration file."""
    named = {*FIELDS, *hf.IGNORED_ARGUMENTS, *hf.RENAMED, "config", "config_file"}
    leaves = (leaf for leaves in dialects()["hf-args"].leaves.values() for leaf in leaves)
    return name in named or hf.setting_of_argument(name) in FIELDS or any(leaf_pattern(x).search(name) for x in leaves)


def option_word(value: Any) -> str:
    """A value as `HfArgumentParser` reads it."""
    return repr(value) if isinstance(value, float) else str(value)


def text_for_other_shell(words: tuple[str, ...]) -> str:
    """What the command gives to another shell: of `eval`, `bash -c`, `sbatch --wrap`, or in quotes; else empty."""
    if words[:1] == ("eval",):
        return " ".join(words[1:])
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--wrap=") else [word])]
    texts = [text for option, text in pairwise(parts) if option in ("-c", "-lc", "--wrap")]
    quoted = (word for word in words[1:] if " " in word and any(map(starts_script, split_commands(word))))
    return next(chain(texts, quoted), "")


def starts_script(words: tuple[str, ...]) -> bool:
    """Whether a command starts a Python script or module, or a known tool."""
    program = next((PurePosixPath(word).name for word in words if not ASSIGNMENT.fullmatch(word)), "")
    is_program = PurePosixPath(_program_of(words)).name == program
    return bool(script_of(words).name) and (is_program or pattern_of("launches").fullmatch(program) is not None)


@cache
def tool_programs() -> frozenset[str]:
    """The programs of known tools."""
    return frozenset(program for tool in dialects().values() for program in tool.programs)


def _program_of(words: tuple[str, ...]) -> str:
    """The known tool that a command starts, or a program that trains by its name, such as `nnUNetv2_train`."""
    by_name = pattern_of("programs_that_train").match(" ".join(words))
    tools = (word for word in words[:4] if PurePosixPath(word).name in tool_programs())
    return next(tools, by_name[1] if by_name else "")


def says_to_train(words: tuple[str, ...], folder: str, file: Path) -> bool | None:
    """Whether a command in a file trains, by its options, its program, or the name or source of its script.

    None where nothing says so and its script is not there.
    """
    script = script_of(words)
    if pattern_of("makes_data").search(script.as_posix()):
        return False
    if says_training(options_of(words)) or TRAINING.search(script.name):
        return True
    if names_other_work(script) or pattern_of("no_trainings").search(" ".join(words)):
        return False
    if not TRAINING_WORDS.isdisjoint(words):
        return True
    if not {*words_of("launchers_of_trainings"), *tool_programs()}.isdisjoint(words[:6]):
        return True
    names = (script.with_suffix(".py"), script / "__main__.py") if script.name else ()
    others = [[PurePosixPath(word)] for word in words if word.endswith(".py")]  # a launcher's argument is a script too
    programs = [program for part in (names, *others) if (program := find_program(file, part, folder)) is not None]
    if any(pattern_of("serves").search(read_source(program)) for program in programs):
        return False  # a page on which a training may be started
    return any(map(trains, programs)) if programs else None


def options_of(words: tuple[str, ...]) -> dict[str, str]:
    """The options and overrides of a command."""
    return {**read_options(words), **read_overrides(words)}


def does_other_work(words: tuple[str, ...]) -> bool:
    """Whether the options are those of an evaluation, of generating or serving, or of a trial of the program itself."""
    given = options_of(words)
    evaluates = any(given.get(name, "false").lower() != "false" for name in words_of("only_evaluates"))
    is_trial = any(map(pattern_of("tries").match, words))
    return (evaluates and "do_train" not in given) or is_trial or is_for_other_work(given)


def script_of(words: tuple[str, ...]) -> PurePosixPath:
    """The script or the module of a command, such as `src/train` of `src.train`, or the program of a known tool."""
    script = next((word for word in words if re.fullmatch(r"[^=\s]*\.(?:py|ipynb)", word)), None)
    if script is not None:
        return PurePosixPath(script)
    modules = (name for word, name in pairwise(words) if word in MODULE and not name.startswith(LAUNCH_MODULES))
    return PurePosixPath((next(modules, "") or _program_of(words)).replace(".", "/"))


def without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*", "", line).rstrip()


def score_of(words: tuple[str, ...]) -> int:
    """How much of a training a command says: its options, or the file of a known tool."""
    options = sum(map(is_known_option, read_options(words))) + len(read_overrides(words))
    reads_file = any(word.endswith((".yaml", ".yml")) for word in words)
    return options + (FILE_SCORE if reads_file and not tool_programs().isdisjoint(words[:4]) else 0)


def read_overrides(words: tuple[str, ...], of_hydra: bool = False) -> dict[str, str]:
    """The `key=value` words after the script, where one is in a section or names a setting, as Hydra reads them.

    `of_hydra`: the script is known to be started by Hydra, so that any word may be one.
    """
    names = [PurePosixPath(word if word.endswith((".py", ".ipynb")) else word.replace(".", "/")) for word in words]
    script = script_of(words)
    after = words[names.index(script) :] if script in names and script.name else ()
    overrides = {match[1]: match[2] for match in map(OVERRIDE.fullmatch, after) if match is not None}
    return overrides if of_hydra or any("." in name or is_known_option(name) for name in overrides) else {}


def read_options(words: tuple[str, ...]) -> Mapping[str, str]:
    """`--name value` and `--name=value` by name; a switch without a value is `true`, `--no_name` is `false`.

    `-b 8` and its like are those of a training where the value is a number; `SOLVER.BASE_LR 0.1` is yacs's.
    """
    options: dict[str, str] = {}
    short = words_of("short_options")
    for word, following in zip_longest(words, words[1:], fillvalue="--"):
        if word in short and re.fullmatch(r"[\d.]+(e-?\d+)?", following):
            options.setdefault(short[word], following)
        if pattern_of("yacs").fullmatch(word) and re.fullmatch(r"[\w.+-]+", following):
            options[word] = following  # wins over the file
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        alone = not equals and following.startswith("--")
        if alone and name.startswith("no_") and not is_known_option(name):
            options[name.removeprefix("no_")] = "false"
        else:
            options[name] = value if equals else "true" if alone else following
    return options


def split_commands(line: str) -> list[tuple[str, ...]]:
    """The words of each command in a line, without comments; none if its quotes do not end here."""
    line = line.lstrip("! \t")  # as in a notebook
    masked = pattern_of("quoted").sub(lambda text: text[0].translate(MASK), line)
    words: list[str] = []
    for text in (masked, without_comment(line)):  # where a comment has an apostrophe, quotes do not end
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split, lexer.commenters = True, ""
        with suppress(ValueError):
            words = list(lexer)
            break
    commands: list[list[str]] = [[]]
    for word in words:
        if pattern_of("between").fullmatch(word):
            commands.append([])
        elif commands[-1][-1:] != [_REST]:
            commands[-1].append(_REST if pattern_of("end").fullmatch(word) else word.translate(_UNMASK))
        if word.startswith("#"):
            break
    starts = words_of("before_commands")
    return [tuple(dropwhile(starts.__contains__, (word for word in row if word != _REST))) for row in commands if row]

"""The training command in a shell script, and its options."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, dropwhile, pairwise, zip_longest
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.python_syntax import parse_expression
from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import dialects, leaf_pattern
from tuner_tui.settings.dialects.purpose import is_for_other_work, says_training
from tuner_tui.settings.dialects.python_values import evaluate_literal
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    MODULE,
    TRAINING,
    find_program,
    named_for_training,
    names_other_work,
    pattern_of,
    read_source,
    trains,
    words_of,
)
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.model import FIELDS
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile

MOST_WITHOUT = 2
"""A variable holds the options of a training from one more of them on."""
LONGEST_VALUE = 10_000
"""A longer value is not put in: `A=$A$A` on each of many lines would fill the memory."""
FILE_SCORE = 5
"""What a configuration file counts for, in options."""
_COMPARED = {"-eq": eq, "-ne": ne, "-gt": gt, "-lt": lt, "-ge": ge, "-le": le}
DECLARATIONS = ("export", "local", "declare", "readonly")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=]((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*))?\}|(\w+))")
OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.+)", re.DOTALL)
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|(?:\$\{[^}\n]*\}|[^\s\"';&|])+)"
_MASK, _UNMASK = str.maketrans("<>#", "\ue000\ue001\ue002"), str.maketrans("\ue000\ue001\ue002\ue003", '<>#"')
"""What redirects or begins a comment is text in quotes and in the value of a variable, as a quote is in another."""
_REST = "\0"
"""Stands for what follows a redirection or begins a comment."""
_CUT = "it ends before the options in the next lines, which are not passed"
TRAINING_WORDS = frozenset({"train", "fit", "finetune"})
ONLY_SETS = "it only sets variables, for the script that sources it"
LAUNCH_MODULES = ("torch.distributed", "accelerate.commands", "pip", "venv", "pytest", "unittest", "http.server")


@cache
def is_known_option(name: str) -> bool:
    """Whether a training command has an option of that name for a setting or a configuration file."""
    named = {*FIELDS, *hf.IGNORED_ARGUMENTS, *hf.RENAMED, "config", "config_file"}
    leaves = (leaf for leaves in dialects()["hf-args"].leaves.values() for leaf in leaves)
    return name in named or hf.setting_of_argument(name) in FIELDS or any(leaf_pattern(x).search(name) for x in leaves)


class _Command(Struct, frozen=True):
    """The command that trains.

    `starts` says whether the script itself starts it; else its words are those of a variable or of another shell.
    `folder` is where the script has changed to, `reasons` what its words lack. `only_set`: no command of it does more
    than set variables. `rivals` are further commands that train, `programs` all that the script starts.
    """

    words: tuple[str, ...] = ()
    starts: bool = False
    exported: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    reasons: tuple[str, ...] = ()
    only_set: bool = False
    rivals: tuple[tuple[str, ...], ...] = ()
    programs: Mapping[str, None] = {}


class _Branch(Struct):
    """A loop or a branch around a line, and whether it and an earlier one are taken; None where only the shell knows.

    `subject` is what `case` compares with its patterns.
    """

    taken: bool | None = None
    earlier: bool | None = False
    subject: str | None = None

    def turn(self, holds: bool | None) -> None:
        """Go on to the next branch, whose condition `holds`."""
        self.taken = False if self.earlier or holds is False else None if self.earlier is None else holds
        self.earlier = self.earlier if holds is False else self.earlier or holds


def _holds(test: str) -> bool | None:
    """Whether a test of texts or numbers holds, in which variables are put in; None where only the shell knows."""
    for between, decides in (("||", True), ("&&", False)):
        if between in test:
            parts = [*map(_holds, test.split(between))]
            return decides if decides in parts else None if None in parts else not decides
    try:
        words = [] if "$" in test or "`" in test else shlex.split(test)
        match words:
            case ["true" | "false" as word]:
                return word == "true"
            case ["[" | "[[", *given, "]" | "]]"] if len(given) < 2:
                return bool(given and given[0])
            case ["[" | "[[", "-z" | "-n" as test, text, "]" | "]]"]:
                return (text == "") == (test == "-z")
            case ["[" | "[[", first, "=" | "==" | "!=" as test, second, "]" | "]]"]:
                return fnmatchcase(first, second) == (test != "!=")
            case ["[" | "[[", first, test, second, "]" | "]]"] if test in _COMPARED:
                return bool(_COMPARED[test](int(first), int(second)))
    except ValueError:
        pass
    return None


def _followed(line: str, branches: list[_Branch]) -> tuple[str, bool]:
    """What of a line is run, with `branches` as they are at its end, and whether that is sure."""
    pattern = pattern_of("case_pattern").match(line) if branches and branches[-1].subject is not None else None
    if pattern is not None:
        subject, names = branches[-1].subject or "", re.sub(r"[\s\"']", "", pattern[1]).split("|")
        fits = any(fnmatchcase(subject, name) for name in names)
        branches[-1].turn("*" in names or (None if "$" in subject else fits))
        line = line[pattern.end() :]
    opens = len(pattern_of("opens_compound").findall(line)) - len(pattern_of("closes_compound").findall(line))
    head = pattern_of("branch").match(line)
    if opens < 0:
        del branches[opens:]
    elif head is not None and head[1] in ("elif", "else") and branches:
        branches[-1].turn(head[1] == "else" or _holds(head[2]))
    elif opens:
        branches += (_Branch() for _ in range(opens))
        if head is not None and head[1] == "if":
            branches[-1].turn(_holds(head[2]))
        elif head is not None:
            branches[-1] = _Branch(False, False, head[2].strip().strip("\"'"))
    taken = {branch.taken for branch in branches}
    tested = pattern_of("tested_command").match(line)
    if tested is not None and not opens:
        holds = _holds(tested[1])
        taken.add(holds if holds is None or tested[2] == "&&" else not holds)
        line = tested[3]
    return "" if False in taken else line, None not in taken


def read_shell(text: str, source: str) -> ToolFile:
    """The options of the command with most options of a training. Raises `PresetError` if there is none.

    Variables that the script sets are put in; a command that needs others is not given, only its options.
    """
    text = pattern_of("code_with_command").sub(_command_of_code, _with_sourced(text, Path(source).absolute()))
    best = _find_command(text, Path(source).absolute().parent)
    if not best.words or not _is_training(best, Path(source).absolute()):
        why = "is a shell script in which no training command was found: open the one that starts the training"
        raise PresetError(f"{source}: {why}")
    environment, words = dict(best.exported), best.words
    while words and ((match := _ASSIGNMENT.fullmatch(words[0])) or words[0] in words_of("of_shell")):
        environment |= {match[1]: match[2]} if match else {}
        words = words[1:]
    optional = ((word, pattern_of("optional_words").fullmatch(word)) for word in words)
    words = tuple(word for word, name in optional if not name or re.search(rf"\b{name[1]}\+?=", text))
    if "$PWD" in f"{words}{environment}" and script_of(words).name and not pattern_of("moves").search(text):
        name = script_of(words).with_suffix(".py").as_posix()
        program = find_program(Path(source), [Path(name)], best.folder)  # it is started where this is there
        root = "$PWD" if program is None else str(program).removesuffix(f"/{name}")
        words = tuple(word.replace("$PWD", root) for word in words)
        environment = {key: value.replace("$PWD", root) for key, value in environment.items()}
    # A word with `$` left in it needs a variable that the script does not set: the caller's environment, an argument,
    # a loop. Such a command can only be started through its script.
    # A variable that extends itself takes what it was when the job starts.
    assigned = (Template(value).safe_substitute({name: ""}) for name, value in environment.items())
    open_words = [word for word in (*words, *assigned, best.folder) if "$" in word or "`" in word]
    needed = dict.fromkeys(
        f"${match[1]}" if match[1] else match[0] for word in open_words for match in pattern_of("needed").finditer(word)
    )
    code = re.sub(r"(?m)^[ \t]*#.*", "", text)
    guards = ((match[match.lastindex or 0], code[: match.start()]) for match in pattern_of("guards").finditer(code))
    guarded = dict.fromkeys(f"${name}" for name, above in guards if not re.search(rf"\b{name}{words_of('set')}", above))
    by_source: dict[str, list[str]] = {"it needs": [*guarded]}
    for word in needed:
        if word not in guarded and f"{word[1:]} has several values" not in best.reasons:
            source_of, shown = _source_of_variable(word, code)
            by_source.setdefault(source_of, []).append(shown)
    if "only the shell knows" in by_source:  # from what an allocation sets
        names = (f"${name}" for name in pattern_of("of_allocation").findall(code))
        by_source["it needs"] = [*dict.fromkeys([*by_source["it needs"], *names])]
    reasons = (*(f"{source_of} {', '.join(names)}" for source_of, names in by_source.items() if names), *best.reasons)
    if (elsewhere := pattern_of("starts_elsewhere").match(" ".join(words))) is not None:
        reasons += (f"{elsewhere[1]} starts it on another machine, where nothing is watched",)
    if best.only_set:
        reasons = (ONLY_SETS,)
    runs = best.starts and not open_words and not reasons and bool(words) and not words[0].startswith("-")
    values = _given(words)
    # What differs between several trainings is what only the shell knows: neither a value nor the script's default.
    differing = {name for rival in best.rivals for name, _ in values.items() ^ _given(rival).items()}
    return ToolFile(
        {name: value for name, value in values.items() if name not in differing},
        command=tuple(str(Path(word).expanduser()) if word.startswith("~/") else word for word in words if runs),
        environment=environment,
        words=(*words, *(word for name in sorted(differing) for word in (f"--{name}", "$"))),
        folder=best.folder,
        incomplete=reasons,
        more=tuple(name for name in best.programs if name not in (script_of(words).name, *words_of("says_or_moves"))),
    )


def _source_of_variable(word: str, code: str) -> tuple[str, str]:
    """Where the value of a variable that a script uses comes from, as the beginning of a sentence, and what it is."""
    name, sources = word.lstrip("${"), words_of("sources_of_variables")
    for source_of, pattern in sources.items():
        if match := re.search(pattern.replace("<name>", re.escape(name)), f"{word}\n{code}"):
            return source_of, f"${match[1]} ({name})" if match.lastindex else word
    return "it needs", word


def read_script(text: str, source: str) -> ToolFile:
    """The training that a shell script starts, or a script that it starts does, with the arguments that it is given."""
    try:
        return read_shell(text, source)
    except PresetError:
        started: dict[tuple[str, ...], ToolFile] = {}
        joined, path = re.sub(r"\\[ \t]*\n", " ", text), Path(source)
        loops = "".join(f"{head}; do :; done\n" for head in pattern_of("loop_heads").findall(joined))
        for match in pattern_of("started_script").finditer(joined):
            _, *given = next(iter(split_commands(joined[match.start(1) :].partition("\n")[0])), ("",))
            inner = find_program(path, [name := PurePosixPath(match[1]), PurePosixPath(name.name)])
            filled = "" if inner is None or inner == path.absolute() else read_source(inner)
            for argument, word in {**{str(n): word for n, word in enumerate(given, 1)}, "@": " ".join(given)}.items():
                pattern = rf"\$(?:\{{{argument}(?::?-[^{{}}]*)?\}}|{argument}(?!\d))"
                filled = re.sub(pattern, word.replace("\\", r"\\"), filled)
            variables = "".join(re.findall(r"(?m)^export \w+=.*\n", joined))
            variables += "".join(f"export {name}={value}\n" for name, value in pattern_of("set_for").findall(match[0]))
            with suppress(PresetError):
                started[str(inner), *given] = read_shell(loops + variables + filled, source)
        if not started:
            raise
        (words, file), *others = started.items()
        names = dict.fromkeys(Path(script).name for script, *_ in started)
        open_words = ", ".join(word for word in words if "$" in word)
        return replace(
            file,
            values={} if others else file.values,
            command=() if others or open_words else ("bash", *words),
            environment=dict(re.findall(r"(?m)^export (\w+)=([\w.,:/-]+)$", text)),
            folder="",
            incomplete=(
                *([f"it starts {', '.join(names)}"] if others else [f"it needs {open_words}"] if open_words else []),
                *file.incomplete,
            ),
        )


def _with_sourced(text: str, file: Path) -> str:
    """`text` with the files that it sources in their place, where they lie by the script or above it."""

    def sourced(match: re.Match[str]) -> str:
        of_environment = pattern_of("of_environment").search(match[1])
        paths = () if of_environment else (above / match[1] for above in file.parents[:FOLDERS_UP])
        return next(filter(None, map(read_source, paths)), match[0])

    return pattern_of("sourced").sub(sourced, text)


def _command_of_code(code: re.Match[str]) -> str:
    """The command that code after `python -c` builds as a list, with the variables of the shell that it reads."""
    names = dict(pattern_of("variables_of_code").findall(code["code"]))
    words = (word or f"{{{name}}}" for word, name in pattern_of("words_of_code").findall(code["words"]))
    return re.sub(r"\{(\w+)\}", lambda part: f"${names.get(part[1], part[1])}", " ".join(("python", *words)))


def patch_shell(text: str, changes: Mapping[tuple[str, ...], Any], source: str) -> str:
    """`text` with options of its training command changed, or the variables that they take their values from.

    Raises `SettingsError` for a value that the shell computes, or that others share.
    """
    for path, value in changes.items():
        name, word = path[-1] if len(path) == 1 else ".".join(path), None if value is None else option_word(value)
        expected = {key: given for key, given in read_shell(text, source).values.items() if key != name}
        expected |= {} if word is None else {name: word}
        # The option is searched as text, not as shell words: words have lost their quotes and places. The first text
        # that is read as wanted, and that changes nothing else, is the one.
        texts = (new for new in _with_option(text, name, word) if read_shell(new, source).values == expected)
        patched = next(texts, None)
        if patched is None:
            raise SettingsError(f"{source}: {name} is computed in the script; change it by hand")
        text = patched
    return text


def _with_option(text: str, name: str, value: str | None) -> Iterator[str]:
    """`text` with one option set where it may stand, the last place first; removed for None."""
    if value is None and name not in text.replace("-", "_"):
        yield text
    spelled = re.escape(name).replace("_", "[_-]")
    option = rf"(?<![\w-])--{spelled}(?![\w-])(?:(?:=|[ \t]+)(?P<value>(?!--|\\\s){_VALUE}))?"
    places = [*re.finditer(rf"{option}|(?<!\S)\+{{0,2}}{re.escape(name)}=(?P<override>{_VALUE})", text)]
    for match in reversed(places):
        start, end = match.span()
        given = match["value"] or match["override"] or ""
        variable = _VARIABLE.fullmatch(given.strip("\"'"))
        if value is None:
            yield text[:start].rstrip(" \t") + text[end:]
        elif variable is not None:
            begin = rf"(?m)^[ \t]*(?:(?:{'|'.join(DECLARATIONS)})[ \t]+)?{variable[1] or variable[3]}="
            for held in re.finditer(rf"{begin}(?:[\"']?\$\{{\w+:?-(?P<default>[^$}}]*)\}}|(?P<value>{_VALUE}))", text):
                yield _replaced(text, held.span(held.lastgroup or 0), value)
        else:
            yield _replaced(text, (end - len(given), end), value if given else f" {value}")
    for last in reversed([*re.finditer(r"(?<!\S)--[A-Za-z]", text)] if value is not None and not places else []):
        indent = text[text.rfind("\n", 0, last.start()) + 1 : last.start()]
        between = " " if indent.strip() else f" \\\n{indent}"
        yield f"{text[: last.start()]}--{name} {value}{between}{text[last.start() :]}"


def _replaced(text: str, span: tuple[int, int], value: str) -> str:
    """`text` with a value in place of another, in its quotes."""
    start, end = span
    quote = text[start] if text[start : start + 1] in ("'", '"') else ""
    return f"{text[:start]}{quote}{value}{quote}{text[end:]}"


def option_word(value: Any) -> str:
    """A value as `HfArgumentParser` reads it."""
    return repr(value) if isinstance(value, float) else str(value)


def _find_command(text: str, here: Path = Path()) -> _Command:
    """The command with most options of a training; where no line has one, the text of a variable with options.

    Where nothing has options, the last command that starts a script. `here` is the folder of the script.
    """
    asked = re.findall(r"(?m)^#SBATCH[ \t]+-{1,2}([\w-]+)[= \t]+(?:gpu:)?(?:\w+:)?(\d+)(?=\s|$)", text)
    variables: dict[str, str] = {name: number for option, number in asked for name in words_of("slurm").get(option, ())}
    variables["HOME"] = str(Path.home())
    exported: dict[str, str] = {}
    best, of_variable = _Command(), _Command()
    started: list[_Command] = []
    programs: dict[str, None] = {}
    document: str | None = None
    folder, left, only_set, of_shell = "", "", True, False
    functions = {*re.findall(words_of("function_head"), text)}
    text = re.sub(words_of("function_head"), "", text)
    branches: list[_Branch] = []
    reasons: list[str] = []
    # Each part of a compound command is put on a line of its own.
    text = pattern_of("compound").sub(lambda part: part[0] if part[1] is None else f"{part[1]}\n", text)
    # One pass from top to bottom, as the shell runs it: assignments are remembered, variables in later lines are put
    # in, and the command with most options of a training wins. Branches are followed where what they test is known. Of
    # a command that this script does not start itself (in a here document or behind `bash -c`) only the options are.
    for start, end in _logical_lines(text):
        line = _in_folder(re.sub(r"\\[ \t]*(\r?\n|\Z)", " ", text[start:end]), here)
        array = pattern_of("array").match(line)
        if array is not None and all(branch.taken is not False for branch in branches):
            if array[2] and line[:1].isspace() and any(branch.taken is None for branch in branches):
                reasons.append(f"{array[1]} is extended under a condition")
                continue
            parts = map(_without_comment, line[array.end() :].splitlines())
            elements = " ".join(parts).rstrip().removesuffix(")")[:LONGEST_VALUE]
            variables[array[1]] = f"{variables.get(array[1], '')} {elements}" if array[2] else elements
            continue
        for match in pattern_of("defaulted").finditer(line):
            variables.setdefault(match[1], match[2])
        starts = document is None
        cut = starts and pattern_of("cut_options").match(text, end) is not None
        filled, sure = _computed(_filled(line, variables), variables), True
        if document is None:
            filled, sure = _followed(filled, branches)
        for words in split_commands(filled):
            assigned = [_ASSIGNMENT.fullmatch(word) for word in words if word not in DECLARATIONS]
            if words and all(assigned):
                pairs = [match.groups() for match in assigned if match and len(match[2]) < LONGEST_VALUE]
                of_caller = {name for name, value in pairs if pattern_of("callers").fullmatch(value)}
                variables |= {name: f"${name}" for name in of_caller if variables.get(name) == ""}
                assignments = {name: value for name, value in pairs if name not in of_caller}
                for name in assignments:
                    before = variables.get(name, assignments[name])
                    if not sure and before != assignments[name]:
                        reasons.append(f"{name} has several values")
                        extends = assignments[name].startswith(before)
                        changed = assignments[name].removeprefix(before) if extends else f"{before} {assignments[name]}"
                        # The options may be given, each with a value that is not known.
                        options = dict.fromkeys(re.findall(r"(?<!\S)--[A-Za-z][\w-]*", changed))
                        maybe = "".join(f"{option} ${name} " for option in options)
                        assignments[name] = f"{before if extends else ''} {maybe}${name}".strip()
                variables |= assignments
                exported |= assignments if words[0] == "export" else {}
                for value in assignments.values():
                    inner = next(iter(split_commands(value)), ())
                    if _score(inner) > _score(of_variable.words):
                        of_variable = _Command(inner)
                continue
            if not words or words[0] in {*words_of("sets_variables"), *functions} or re.match(r"-|\d+$", words[0]):
                continue  # or what is left of a command that a comment has ended
            only_set = False
            programs |= {script_of(words).name or PurePosixPath(words[0]).name: None} if starts else {}
            unfilled = [f"it needs {name}" for name in filter(None, pattern_of("to_fill_in_shell").findall(line))]
            if words[:1] in (("cd",), ("pushd",), ("popd",)):
                entered = str(PurePosixPath(folder, words[1])) if len(words) == 2 else folder
                folder, left = left if words[-1] in ("-", "popd") else entered, folder
                reasons += unfilled
            sourced = words[1] if words[:1] in (("source",), (".",)) and len(words) > 1 else ""
            if sourced and not pattern_of("of_environment").search(sourced):
                reasons.append(f"{sourced} is sourced before it")
            if pattern_of("prepares").match(" ".join(words)):
                continue
            runs = starts
            commands = split_commands(_of_other_shell(words))
            inner = max(commands, key=lambda words: (_score(words), _starts_script(words)), default=())
            is_inside = words[:1] == ("eval",) or not script_of(words).name
            if _score(inner) > _score(words) or (is_inside and _starts_script(inner)):
                words, runs = inner, runs and words[0] == "eval"
            gaps = dict.fromkeys([*reasons, *[_CUT] * cut, *unfilled])
            command = _Command(words, runs, dict(exported), folder, (*gaps,))
            if _starts_script(words) and (starts or of_shell) and not _does_other_work(words):
                started.append(command)
            others = names_other_work(script_of(words)) or _does_other_work(words)
            if _score(words) > _score(best.words) and not others:
                best = command
        opened = pattern_of("here_document").search(line)
        of_shell = bool(pattern_of("shell_document").search(line)) if opened else of_shell
        document = opened[1] if opened else None if line.strip() == document else document
    if _score(of_variable.words) > max(_score(best.words), MOST_WITHOUT):
        return replace(of_variable, only_set=only_set)
    started = [command for command in started if not names_other_work(script_of(command.words))]
    named = named_for_training(script_of(command.words) for command in started)
    started = [command for command in started if script_of(command.words) in named] or started
    if not best.words:
        best = (started or [best])[-1]
    # A command of the same script, or with nearly as much of a training, is lost where only the best one is started.
    script = script_of(best.words)
    score = 0 if TRAINING.search(script.name) else _score(best.words)  # then all of them train by their names
    trainings = (command.words for command in started)
    rivals = tuple(words for words in trainings if script_of(words) == script or 2 * _score(words) >= score)
    if len({*rivals, best.words}) > 1:
        reason = f"it has {len(rivals)} training commands, and what they do not share is left out"
        best = replace(best, reasons=(*best.reasons, reason), rivals=rivals)
    return replace(best, programs=programs)


def _of_other_shell(words: tuple[str, ...]) -> str:
    """What the command gives to another shell: of `eval`, `bash -c`, `sbatch --wrap`, or in quotes; else empty."""
    if words[:1] == ("eval",):
        return " ".join(words[1:])
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--wrap=") else [word])]
    texts = [text for option, text in pairwise(parts) if option in ("-c", "-lc", "--wrap")]
    quoted = (word for word in words[1:] if " " in word and any(map(_starts_script, split_commands(word))))
    return next(chain(texts, quoted), "")


def _starts_script(words: tuple[str, ...]) -> bool:
    """Whether a command starts a Python script or module, or a known tool."""
    program = next((PurePosixPath(word).name for word in words if not _ASSIGNMENT.fullmatch(word)), "")
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


def _is_training(command: _Command, file: Path) -> bool:
    """Whether a command trains: by its options, its launcher or program, the names of script and file, its source."""
    is_training, script = says_to_train(command.words, command.folder, file), script_of(command.words)
    of_other = file.suffix not in CONFIGURATIONS and names_other_work(file)
    of_other = of_other or pattern_of("folders_of_other_work").fullmatch(file.parent.name) is not None
    if of_other and not (TRAINING.search(script.name) or says_training(_given(command.words))):
        return False
    if is_training is not None:
        return is_training or (file.suffix != ".ipynb" and TRAINING.search(file.stem) is not None)
    if not script.name:
        return command.words[0].startswith("-")  # options that a variable holds
    names = (script.as_posix(), "" if file.suffix == ".ipynb" or names_other_work(file) else file.stem)
    named = {hf.setting_of_argument(name) for name in read_options(command.words) if is_known_option(name)}
    says_how = bool(named - {"batch_size", "per_device_train_batch_size"}) or bool(read_overrides(command.words))
    return says_how or pattern_of("entry").fullmatch(script.stem) is not None or any(map(TRAINING.search, names))


def says_to_train(words: tuple[str, ...], folder: str, file: Path) -> bool | None:
    """Whether a command in a file trains, by its options, its program, or the name or source of its script.

    None where nothing says so and its script is not there.
    """
    script = script_of(words)
    if pattern_of("makes_data").search(script.as_posix()):
        return False
    if says_training(_given(words)) or TRAINING.search(script.name):
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


def _given(words: tuple[str, ...]) -> dict[str, str]:
    """The options and overrides of a command."""
    return {**read_options(words), **read_overrides(words)}


def _does_other_work(words: tuple[str, ...]) -> bool:
    """Whether the options are those of an evaluation, of generating or serving, or of a trial of the program itself."""
    given = _given(words)
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


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*", "", line).rstrip()


def _logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each line with those that continue it; a comment ends a line, whatever it ends with.

    An array goes on until a line ends with its bracket, a text in quotes until they close.
    """
    start = end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        comment = line.lstrip().startswith("#")
        is_short = end - start < LONGEST_VALUE
        if is_short and pattern_of("array").match(text, start) and not _without_comment(line).endswith(")"):
            continue
        if pattern_of("open_text").fullmatch(text, start, end) and is_short:
            continue
        if comment or not line.rstrip().endswith("\\"):
            yield start, end
            start = end
    if start < end:
        yield start, end


def _score(words: tuple[str, ...]) -> int:
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
    masked = pattern_of("quoted").sub(lambda text: text[0].translate(_MASK), line)
    words: list[str] = []
    for text in (masked, _without_comment(line)):  # where a comment has an apostrophe, quotes do not end
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


def _computed(line: str, variables: Mapping[str, str]) -> str:
    """`line` with arithmetic of known numbers done; other substitutions are one word, which only the shell knows."""

    def value(match: re.Match[str]) -> str:
        terms = (match[1] or match[2] or "").replace("\\*", "*")
        number = _arithmetic(re.sub(r"[A-Za-z_]\w*", lambda name: variables.get(name[0], name[0]), terms))
        needed = "".join(dict.fromkeys(re.findall(r"\$\{?SLURM_\w+\}?", match[0])))
        return f"$(…){needed}" if number is None else str(number)

    line = re.sub(r"\$\(\s*(?:realpath|echo)\s+\"?([\w./:~-]+)\"?\s*(?:\|\s*(?:head|tail)[^|()]*)?\)", r"\1", line)
    return re.sub(r"\$\(\(((?:[^()]|\([^()]*\))*)\)\)|\$\(\s*expr\s+([^()]*)\)|\$\([^()]*\)?\)|`[^`\n]*`", value, line)


def _in_folder(line: str, folder: Path) -> str:
    """`line` with the folder of the script for what scripts write to find it."""
    line = re.sub(r"\$\(\s*pwd\s*\)|`pwd`|\$\{PWD\}", "$PWD", pattern_of("real_path").sub(lambda match: match[1], line))
    line = pattern_of("own_folder").sub(lambda _: str(folder), line)
    return pattern_of("entered").sub(lambda match: os.path.normpath(folder / match[1]), line)


def _arithmetic(terms: str) -> int | None:
    """The value of whole numbers with + - * / % and brackets, as the shell computes it; None for anything else."""
    if not re.fullmatch(r"[\d\s+*/%()-]{1,200}", terms) or "**" in terms:
        return None
    try:
        tree = parse_expression(terms.replace("//", "?").replace("/", "//"))
        return int(evaluate_literal(tree, {}))
    except (SyntaxError, ValueError, TypeError, ArithmeticError):
        return None


def _filled(line: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        before = line[: match.start()]
        if variables.get(name) == "" and re.search(r"(?<!\S)--[\w-]+(?:=|[ \t]+)$", before):
            return match[0]  # the option lacks its value
        extends = default == "" and re.search(rf"\b{name}=\S*$", before)
        otherwise = match[0] if default is None else f"${name}" if extends else _filled(default, variables)
        text = variables.get(name, otherwise).translate(_MASK)
        return text.replace('"', "\ue003") if before.count('"') % 2 else text

    # Without quotes around it, the words of an array are split again.
    line = pattern_of("all_words").sub(lambda m: variables.get(m[2], m[0]).replace("" if m[1] else '"', ""), line)
    return _VARIABLE.sub(value, line)

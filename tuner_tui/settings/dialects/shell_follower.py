"""Follows a shell script from top to bottom, as the shell runs it, to the command that trains."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path, PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.python_syntax import parse_expression
from tuner_tui.settings.dialects.command_words import (
    ASSIGNMENT,
    DECLARATIONS,
    MASK,
    does_other_work,
    score_of,
    script_of,
    split_commands,
    starts_script,
    text_for_other_shell,
    without_comment,
)
from tuner_tui.settings.dialects.python_values import evaluate_literal
from tuner_tui.settings.dialects.script_search import (
    TRAINING,
    named_for_training,
    names_other_work,
    pattern_of,
    words_of,
)

MOST_WITHOUT = 2
"""A variable holds the options of a training from one more of them on."""
LONGEST_VALUE = 10_000
"""A longer value is not put in: `A=$A$A` on each of many lines would fill the memory."""
_COMPARED = {"-eq": eq, "-ne": ne, "-gt": gt, "-lt": lt, "-ge": ge, "-le": le}
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=]((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*))?\}|(\w+))")
_CUT = "it ends before the options in the next lines, which are not passed"


class TrainingCommand(Struct, frozen=True):
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


def find_command(text: str, here: Path = Path()) -> TrainingCommand:
    """The command with most options of a training; where no line has one, the text of a variable with options.

    Where nothing has options, the last command that starts a script. `here` is the folder of the script.
    """
    return _ShellFollower(text, here).find()


class _ShellFollower:
    """Follows a script in one pass from top to bottom, as the shell runs it.

    Assignments are remembered, variables in later lines are put in, and the command with most options of a training
    wins. Branches are followed where what they test is known. Of a command that this script does not start itself (in
    a here document or behind `bash -c`) only the options are.
    """

    def __init__(self, text: str, here: Path) -> None:
        asked = re.findall(r"(?m)^#SBATCH[ \t]+-{1,2}([\w-]+)[= \t]+(?:gpu:)?(?:\w+:)?(\d+)(?=\s|$)", text)
        slurm = words_of("slurm")
        self._variables: dict[str, str] = {name: number for option, number in asked for name in slurm.get(option, ())}
        self._variables["HOME"] = str(Path.home())
        self._functions = {*re.findall(words_of("function_head"), text)}
        text = re.sub(words_of("function_head"), "", text)
        # Each part of a compound command is put on a line of its own.
        self._text = pattern_of("compound").sub(lambda part: part[0] if part[1] is None else f"{part[1]}\n", text)
        self._here = here
        self._exported: dict[str, str] = {}
        self._best = self._of_variable = TrainingCommand()
        self._started: list[TrainingCommand] = []
        self._programs: dict[str, None] = {}
        self._folder = self._folder_before = ""
        self._only_set = True
        self._branches: list[_Branch] = []
        self._reasons: list[str] = []

    def find(self) -> TrainingCommand:
        document: str | None = None
        of_shell = False
        for start, end in _logical_lines(self._text):
            line = _in_folder(re.sub(r"\\[ \t]*(\r?\n|\Z)", " ", self._text[start:end]), self._here)
            if self._set_array(line):
                continue
            for match in pattern_of("defaulted").finditer(line):
                self._variables.setdefault(match[1], match[2])
            is_started = document is None
            is_cut = is_started and pattern_of("cut_options").match(self._text, end) is not None
            filled, is_sure = _computed(_filled(line, self._variables), self._variables), True
            if is_started:
                filled, is_sure = _followed(filled, self._branches)
            for words in split_commands(filled):
                if words and all(ASSIGNMENT.fullmatch(word) for word in words if word not in DECLARATIONS):
                    self._assign(words, is_sure)
                # What begins like an option is left of a command that a comment has ended.
                elif words and not (self._only_sets(words) or pattern_of("no_command").match(words[0])):
                    unfilled = [f"it needs {name}" for name in pattern_of("to_fill_in_shell").findall(line) if name]
                    self._follow(words, [*[_CUT] * is_cut, *unfilled], is_started, of_shell)
            opened = pattern_of("here_document").search(line)
            of_shell = bool(pattern_of("shell_document").search(line)) if opened else of_shell
            document = opened[1] if opened else None if line.strip() == document else document
        return self._chosen()

    def _only_sets(self, words: tuple[str, ...]) -> bool:
        return words[0] in words_of("sets_variables") or words[0] in self._functions

    def _set_array(self, line: str) -> bool:
        """Remember the elements of an array that the line sets or extends. Returns whether it does."""
        array = pattern_of("array").match(line)
        if array is None or any(branch.taken is False for branch in self._branches):
            return False
        if array[2] and line[:1].isspace() and any(branch.taken is None for branch in self._branches):
            self._reasons.append(f"{array[1]} is extended under a condition")
            return True
        parts = map(without_comment, line[array.end() :].splitlines())
        elements = " ".join(parts).rstrip().removesuffix(")")[:LONGEST_VALUE]
        self._variables[array[1]] = f"{self._variables.get(array[1], '')} {elements}" if array[2] else elements
        return True

    def _assign(self, words: tuple[str, ...], is_sure: bool) -> None:
        matches = (ASSIGNMENT.fullmatch(word) for word in words if word not in DECLARATIONS)
        pairs = [match.groups() for match in matches if match and len(match[2]) < LONGEST_VALUE]
        of_caller = {name for name, value in pairs if pattern_of("callers").fullmatch(value)}
        self._variables |= {name: f"${name}" for name in of_caller if self._variables.get(name) == ""}
        assignments = {name: value for name, value in pairs if name not in of_caller}
        if not is_sure:
            assignments = {name: self._uncertain(name, value) for name, value in assignments.items()}
        self._variables |= assignments
        self._exported |= assignments if words[0] == "export" else {}
        for value in assignments.values():
            options = next(iter(split_commands(value)), ())
            if score_of(options) > score_of(self._of_variable.words):
                self._of_variable = TrainingCommand(options)

    def _uncertain(self, name: str, value: str) -> str:
        """The value of a variable that only the shell knows to be set here; options in it have unknown values."""
        before = self._variables.get(name, value)
        if before == value:
            return value
        self._reasons.append(f"{name} has several values")
        extends = value.startswith(before)
        changed = value.removeprefix(before) if extends else f"{before} {value}"
        options = dict.fromkeys(re.findall(r"(?<!\S)--[A-Za-z][\w-]*", changed))
        maybe = "".join(f"{option} ${name} " for option in options)
        return f"{before if extends else ''} {maybe}${name}".strip()

    def _follow(self, words: tuple[str, ...], gaps: list[str], is_started: bool, of_shell: bool) -> None:
        """Follow a command that does more than set variables; `gaps` are what its words lack."""
        self._only_set = False
        if is_started:
            self._programs |= {script_of(words).name or PurePosixPath(words[0]).name: None}
        if words[0] in ("cd", "pushd", "popd"):
            entered = str(PurePosixPath(self._folder, words[1])) if len(words) == 2 else self._folder
            is_back = words[-1] in ("-", "popd")
            self._folder, self._folder_before = self._folder_before if is_back else entered, self._folder
            self._reasons += (gap for gap in gaps if gap != _CUT)
        sourced = words[1] if words[0] in ("source", ".") and len(words) > 1 else ""
        if sourced and not pattern_of("of_environment").search(sourced):
            self._reasons.append(f"{sourced} is sourced before it")
        if pattern_of("prepares").match(" ".join(words)):
            return
        runs = is_started
        commands = split_commands(text_for_other_shell(words))
        inner = max(commands, key=lambda words: (score_of(words), starts_script(words)), default=())
        is_inside = words[0] == "eval" or not script_of(words).name
        if score_of(inner) > score_of(words) or (is_inside and starts_script(inner)):
            words, runs = inner, runs and words[0] == "eval"
        reasons = dict.fromkeys([*self._reasons, *gaps])
        command = TrainingCommand(words, runs, dict(self._exported), self._folder, (*reasons,))
        is_other = does_other_work(words)
        if starts_script(words) and (is_started or of_shell) and not is_other:
            self._started.append(command)
        if score_of(words) > score_of(self._best.words) and not (is_other or names_other_work(script_of(words))):
            self._best = command

    def _chosen(self) -> TrainingCommand:
        best = self._best
        if score_of(self._of_variable.words) > max(score_of(best.words), MOST_WITHOUT):
            return replace(self._of_variable, only_set=self._only_set)
        started = [command for command in self._started if not names_other_work(script_of(command.words))]
        named = named_for_training(script_of(command.words) for command in started)
        started = [command for command in started if script_of(command.words) in named] or started
        if not best.words:
            best = (started or [best])[-1]
        # A command of the same script, or with nearly as much of a training, is lost: only the best one is started.
        script = script_of(best.words)
        score = 0 if TRAINING.search(script.name) else score_of(best.words)  # then all of them train by their names
        trainings = (command.words for command in started)
        rivals = tuple(words for words in trainings if script_of(words) == script or 2 * score_of(words) >= score)
        if len({*rivals, best.words}) > 1:
            reason = f"it has {len(rivals)} training commands, and what they do not share is left out"
            best = replace(best, reasons=(*best.reasons, reason), rivals=rivals)
        return replace(best, programs=self._programs)


def _logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each line with those that continue it; a comment ends a line, whatever it ends with.

    An array goes on until a line ends with its bracket, a text in quotes until they close.
    """
    start = end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        comment = line.lstrip().startswith("#")
        is_short = end - start < LONGEST_VALUE
        if is_short and pattern_of("array").match(text, start) and not without_comment(line).endswith(")"):
            continue
        if pattern_of("open_text").fullmatch(text, start, end) and is_short:
            continue
        if comment or not line.rstrip().endswith("\\"):
            yield start, end
            start = end
    if start < end:
        yield start, end


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
        text = variables.get(name, otherwise).translate(MASK)
        return text.replace('"', "\ue003") if before.count('"') % 2 else text

    # Without quotes around it, the words of an array are split again.
    line = pattern_of("all_words").sub(lambda m: variables.get(m[2], m[0]).replace("" if m[1] else '"', ""), line)
    return VARIABLE.sub(value, line)

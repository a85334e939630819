"""The training command in a shell script, and its options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any

from msgspec.structs import replace

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.command_words import (
    ASSIGNMENT,
    DECLARATIONS,
    is_known_option,
    option_word,
    options_of,
    read_options,
    read_overrides,
    says_to_train,
    script_of,
    split_commands,
)
from tuner_tui.settings.dialects.purpose import says_training
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    TRAINING,
    find_program,
    names_other_work,
    pattern_of,
    read_source,
    words_of,
)
from tuner_tui.settings.dialects.shell_follower import VARIABLE, TrainingCommand, find_command
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile

_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|(?:\$\{[^}\n]*\}|[^\s\"';&|])+)"
ONLY_SETS = "it only sets variables, for the script that sources it"


def read_shell(text: str, source: str) -> ToolFile:
    """The options of the command with most options of a training. Raises `PresetError` if there is none.

    Variables that the script sets are put in; a command that needs others is not given, only its options.
    """
    text = pattern_of("code_with_command").sub(_command_of_code, _with_sourced(text, Path(source).absolute()))
    best = find_command(text, Path(source).absolute().parent)
    if not best.words or not _is_training(best, Path(source).absolute()):
        why = "is a shell script in which no training command was found: open the one that starts the training"
        raise PresetError(f"{source}: {why}")
    environment, words = _words_and_variables(best, text, source)
    reasons = (*_reasons(best, environment, words, text), *best.reasons)
    if (elsewhere := pattern_of("starts_elsewhere").match(" ".join(words))) is not None:
        reasons += (f"{elsewhere[1]} starts it on another machine, where nothing is watched",)
    if best.only_set:
        reasons = (ONLY_SETS,)
    is_option = bool(words) and words[0].startswith("-")
    runs = best.starts and not _open_words(best, environment, words) and not reasons and bool(words) and not is_option
    values = options_of(words)
    # What differs between several trainings is what only the shell knows: neither a value nor the script's default.
    differing = {name for rival in best.rivals for name, _ in values.items() ^ options_of(rival).items()}
    return ToolFile(
        {name: value for name, value in values.items() if name not in differing},
        command=tuple(str(Path(word).expanduser()) if word.startswith("~/") else word for word in words if runs),
        environment=environment,
        words=(*words, *(word for name in sorted(differing) for word in (f"--{name}", "$"))),
        folder=best.folder,
        incomplete=reasons,
        more=tuple(name for name in best.programs if name not in (script_of(words).name, *words_of("says_or_moves"))),
    )


def _words_and_variables(command: TrainingCommand, text: str, source: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a command, with those set in front of it, and its words after these."""
    environment, words = dict(command.exported), command.words
    while words and ((match := ASSIGNMENT.fullmatch(words[0])) or words[0] in words_of("of_shell")):
        environment |= {match[1]: match[2]} if match else {}
        words = words[1:]
    optional = ((word, pattern_of("optional_words").fullmatch(word)) for word in words)
    words = tuple(word for word, name in optional if not name or re.search(rf"\b{name[1]}\+?=", text))
    if "$PWD" in f"{words}{environment}" and script_of(words).name and not pattern_of("moves").search(text):
        name = script_of(words).with_suffix(".py").as_posix()
        program = find_program(Path(source), [Path(name)], command.folder)  # it is started where this is there
        root = "$PWD" if program is None else str(program).removesuffix(f"/{name}")
        words = tuple(word.replace("$PWD", root) for word in words)
        environment = {key: value.replace("$PWD", root) for key, value in environment.items()}
    return environment, words


def _open_words(command: TrainingCommand, environment: Mapping[str, str], words: tuple[str, ...]) -> list[str]:
    """The words that need a variable which the script does not set: the caller's, an argument, one of a loop.

    A command with such a word can only be started through its script.
    """
    # A variable that extends itself takes what it was when the job starts.
    assigned = (Template(value).safe_substitute({name: ""}) for name, value in environment.items())
    return [word for word in (*words, *assigned, command.folder) if "$" in word or "`" in word]


def _reasons(
    command: TrainingCommand, environment: Mapping[str, str], words: tuple[str, ...], text: str
) -> Iterator[str]:
    """What the command needs that the script does not set, by where it would come from."""
    needed = dict.fromkeys(
        f"${match[1]}" if match[1] else match[0]
        for word in _open_words(command, environment, words)
        for match in pattern_of("needed").finditer(word)
    )
    code = re.sub(r"(?m)^[ \t]*#.*", "", text)
    guards = ((match[match.lastindex or 0], code[: match.start()]) for match in pattern_of("guards").finditer(code))
    guarded = dict.fromkeys(f"${name}" for name, above in guards if not re.search(rf"\b{name}{words_of('set')}", above))
    by_source: dict[str, list[str]] = {"it needs": [*guarded]}
    for word in needed:
        if word not in guarded and f"{word[1:]} has several values" not in command.reasons:
            source_of, shown = _source_of_variable(word, code)
            by_source.setdefault(source_of, []).append(shown)
    if "only the shell knows" in by_source:  # from what an allocation sets
        names = (f"${name}" for name in pattern_of("of_allocation").findall(code))
        by_source["it needs"] = [*dict.fromkeys([*by_source["it needs"], *names])]
    return (f"{source_of} {', '.join(names)}" for source_of, names in by_source.items() if names)


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
        variable = VARIABLE.fullmatch(given.strip("\"'"))
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


def _is_training(command: TrainingCommand, file: Path) -> bool:
    """Whether a command trains: by its options, its launcher or program, the names of script and file, its source."""
    is_training, script = says_to_train(command.words, command.folder, file), script_of(command.words)
    of_other = file.suffix not in CONFIGURATIONS and names_other_work(file)
    of_other = of_other or pattern_of("folders_of_other_work").fullmatch(file.parent.name) is not None
    if of_other and not (TRAINING.search(script.name) or says_training(options_of(command.words))):
        return False
    if is_training is not None:
        return is_training or (file.suffix != ".ipynb" and TRAINING.search(file.stem) is not None)
    if not script.name:
        return command.words[0].startswith("-")  # options that a variable holds
    names = (script.as_posix(), "" if file.suffix == ".ipynb" or names_other_work(file) else file.stem)
    named = {hf.setting_of_argument(name) for name in read_options(command.words) if is_known_option(name)}
    says_how = bool(named - {"batch_size", "per_device_train_batch_size"}) or bool(read_overrides(command.words))
    return says_how or pattern_of("entry").fullmatch(script.stem) is not None or any(map(TRAINING.search, names))

"""The command lines in texts near a configuration file that train with it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tuner_tui.settings.dialects.command_words import LAUNCH_MODULES, script_of, split_commands, tool_programs
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS, parse_file, values_of_file
from tuner_tui.settings.dialects.hooks import KNOWN
from tuner_tui.settings.dialects.nested_values import flatten, to_fill_in
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    MODULE,
    TRAINING,
    files_in,
    find_program,
    named_for_training,
    names_file,
    names_other_work,
    needs_launcher,
    package_import,
    pattern_of,
    project_programs,
    read_source,
    reads_keys,
    texts_above,
    trains,
    words_of,
)
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import COMMAND_TO_NAME
from tuner_tui.settings.yaml_reader import CONFIGURATIONS

LAUNCHERS = r"uv|poetry|python3?|torchrun|accelerate|deepspeed|composer|bash|sh"
PROGRAM = rf"(?:^|[\s`$>!])((?:[\w.~/-]+/)?(?:{LAUNCHERS}|{{}}|(?<=\./)[\w/-]+\.py|[\w-]+\.py(?=\s+[<$-]))\s[^`]*)"
"""The beginning of a command that may start a training."""
MOSTLY_SAID = 2
"""Of several commands, one that texts have so many times as often as the next is meant."""
MOST_MORE = 2
"""Of more words that follow, a command for another file is one for that file only."""


class WrittenCommand(NamedTuple):
    """The words of a command, its variables, and the folder that it is meant for if that is not any."""

    words: tuple[str, ...]
    environment: dict[str, str]
    folder: Path | None


COMMAND_UNKNOWN = WrittenCommand((COMMAND_TO_NAME,), {}, None)


def find_written_command(path: Path, values: Mapping[str, Any], for_others: bool = False) -> WrittenCommand | None:
    """The command line near the file that trains with it, of several the shortest; None where they differ more.

    With `for_others`, one for a file of its folder with nearly the same keys, or a name to fill in, has this file.
    """
    commands = _CommandSearch(path, values, for_others).run()
    files = [[word for word in command.words if word.endswith(CONFIGURATIONS)] for command in commands]
    parts = [tuple(w for w in command.words if w.endswith((".py", *CONFIGURATIONS))) for command in commands]
    (usual, most), *others = Counter(parts).most_common() or [((), 0)]
    if others and most >= MOSTLY_SAID * others[0][1]:  # a script next to it has the same line in its help
        commands = [command for command, names in zip(commands, parts, strict=True) if names == usual]
        others = []
    if others:  # together with others, of which nothing says which ones
        return COMMAND_UNKNOWN if for_others or all(len(named) > 1 for named in files) else None
    launchers = words_of("launchers").keys()
    launched = Counter(launchers.isdisjoint(command.words) for command in commands)

    def rank(command: WrittenCommand) -> tuple[bool, int, int]:
        words = command.words
        program = " ".join((*words[:4], script_of(words).name))
        # `tool fit` counts before `tool show`, and a launcher that most of them have is needed.
        return TRAINING.search(program) is None, -launched[launchers.isdisjoint(words)], len(words)

    return min(commands, key=rank, default=None)


class _CommandSearch:
    """Searches the comments of a file, and a README, a shell script or a Makefile near it, for commands that train.

    Script and file exist where the line says, seen from that folder; a line with something to fill in does not count.
    Where all add an option with which a script for training does something else, they count without what they add.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], for_others: bool) -> None:
        self._path = path
        self._config = path.absolute()
        self._values = values
        self._keys = flatten(values).keys()
        self._for_others = for_others
        self._of_project = project_programs(path)
        self._programs = dict.fromkeys(tool_programs(), "") | self._of_project

    def run(self) -> list[WrittenCommand]:
        folders = "|".join(re.escape(above.name) for above in self._config.parents[:2])
        likely = re.compile(
            rf"\b(?:{folders})/|-cn |--[\w-]*(?:config|cfg|conf|yaml|params|args[_-])|[/{{<_](?:config|cfg)(?![a-z])"
        )
        choice = re.compile(rf"[\w/]+=(?:[\w-]+/)*{re.escape(self._config.stem)}(?![\w./-])")
        whole, shortened = list[WrittenCommand](), list[WrittenCommand]()
        for text_file in (self._config, *texts_above(self._path, whole=not self._for_others)):
            text = read_source(text_file)
            is_likely = self._for_others and likely.search(text)
            if self._config.name not in text and not is_likely and not choice.search(text):
                continue
            start_folders = self._start_folders(text_file, text)
            for words, environment in _commands_in(text_file, text, self._config, self._programs, self._for_others):
                words = [str(self._on_this_machine(word) or word) for word in words]
                for folder in start_folders:
                    position = self._position_of_file(words, folder)
                    is_shortened = position is not None and self._is_shortened(words)
                    rest = [] if position is None or is_shortened else words[position + 1 :]
                    if position is not None and self._trains([*words[: position + 1], *rest], folder):
                        command = self._for_this_file(words[:position], words[position], rest, environment, folder)
                        if command is not None:
                            (shortened if is_shortened else whole).append(command)
            if text_file == self._config and whole:  # what the file says of itself counts before all others
                break
        return whole or shortened

    def _start_folders(self, text_file: Path, text: str) -> list[Path]:
        """The folders in which the reader of a text may start its commands."""
        folders = [*text_file.absolute().parents[: FOLDERS_UP + 1]]
        top = folders[folders[0].name == "docs"]  # its readers may go to a folder below it: `cd tools`
        changed = {folders[0] / name: None for name in pattern_of("changes_folder").findall(text)}
        folders += (inner for inner in changed if inner.is_dir() and inner not in folders)
        folders += (above for above in self._config.parents[:FOLDERS_UP] if top in above.parents)
        return folders

    def _on_this_machine(self, word: str) -> Path | None:
        """The script of the checkout that a path of another machine names."""
        is_away = word[:1] == "/" and word.endswith(".py") and not Path(word).exists()
        return find_program(self._config, [Path(word)]) if is_away else None

    def _position_of_file(self, words: Sequence[str], folder: Path) -> int | None:
        """Where the words name this file, or one in whose place it may be put; None if nowhere or more than once."""
        config = self._config
        likely = [index for index, word in enumerate(words) if config.stem in word]
        named = [index for index in likely if _named_file(words, index, folder, config) == config]
        if self._for_others and not named:
            named = [index for index in range(len(words)) if self._stands_for_file(words, index, folder)]
        return named[0] if len(named) == 1 else None

    def _stands_for_file(self, words: Sequence[str], index: int, folder: Path) -> bool:
        """Whether a word of a command is in the place of this file: a file like it, or a name to fill in."""
        config, word, before = self._config, words[index], words[:index]
        name, other = word.rpartition("=")[2], _named_file(words, index, folder, config)
        is_path = re.search(r"/.*\.\w+$", name) is not None
        if not (other.suffix == config.suffix or is_path or _is_open(name)):
            return False
        is_other_format = (
            Path(name).suffix in CONFIGURATIONS and other.suffix[:2] != config.suffix[:2]
        )  # `.yml`, `.yaml`
        if is_other_format or names_other_work(config) or not methods_in(" ".join(before)) <= methods_in(config.stem):
            return False
        # `options/train/EDVR/a.yml` for `options/train/ECBSR/b.yml`
        is_near = other.parent in config.parents[:2] or other.parent.parent == config.parent.parent != folder
        after = [*_without_examples(words[index + 1 :], (), "of_other_files")]
        script = _script_before(before)
        if other.suffix == config.suffix and is_near and other.is_file() and len(after) <= MOST_MORE:
            given = (*before[before.index(script) + 1 if script in before else 0 :], *after)  # `--language go`
            return self._is_alike(other, given, before)
        is_there = before[:1] != [] and before[0] in self._of_project if script is None else (folder / script).is_file()
        return is_there and self._may_be_filled_in(word, other, before, script, folder, is_path)

    def _is_alike(self, other: Path, given: Sequence[str], before: Sequence[str]) -> bool:
        """Whether a file has most keys of this one, and the command nothing that is of it alone."""
        keys, others = self._keys, flatten(values_of_file(other)).keys()
        its_own = any(part.lower() in other.stem.lower() for part in given if len(part) > 1)
        # `tool-finetune conf/finetune.yaml` is none for `pretrain.yaml`.
        words = {*re.split(r"[\W_]+", self._config.stem)} | {*words_of("of_any_config")}
        others_words = {*re.split(r"[\W_]+", other.stem)} - words
        its_own = its_own or not others_words.isdisjoint(re.split(r"[\W_]+", " ".join(before)))
        return not its_own and 5 * len(keys & others) >= 3 * len(keys) > 0

    def _may_be_filled_in(
        self, word: str, other: Path, before: Sequence[str], script: str | None, folder: Path, is_path: bool
    ) -> bool:
        """Whether a configuration of the script is to be filled in: `-Y {path_to_config}`, `config/yours.yml`."""
        config, name = self._config, word.rpartition("=")[2]
        option = next((part for part in (word.partition("=")[0], *before[-1:]) if part.startswith("-")), "")
        is_option = pattern_of("config_options").fullmatch(f'"{option}"') is not None
        is_example = is_path and other.parent in config.parents and not other.exists()
        says_config = (_is_open(name) or is_example) and re.search(r"conf|cfg|ya?ml", name, re.IGNORECASE)
        is_beside = is_example and other.parent == config.parent
        if says_config and (is_option or re.fullmatch(r"-[A-Za-z]", option) or is_beside or before[-1] == script):
            # The file lies in a folder of configurations or examples of the checkout.
            parts = config.parent.relative_to(folder).parts if folder in config.parents else config.parts[-2:-1]
            return any(re.search(r"conf|cfg|recipe|experiment|example", part, re.IGNORECASE) for part in parts)
        is_name = _is_open(name) or ("/" not in name and config.parent / name not in files_in(config.parent, "*"))
        is_of_form = name.endswith(config.suffix) or name.startswith("$")
        if not (is_name and is_of_form and is_option) or script is None:
            return False
        return reads_keys(config, self._values, KNOWN)(folder / script, read_source(folder / script))

    def _is_shortened(self, words: Sequence[str]) -> bool:
        return _has_option_for_other_work(words) and TRAINING.search(script_of(tuple(words)).name) is not None

    def _trains(self, words: Sequence[str], folder: Path) -> bool:
        return not _has_option_for_other_work(words) and _starts_training(words, folder, self._programs)

    def _for_this_file(
        self, before: Sequence[str], word: str, rest: Sequence[str], environment: dict[str, str], folder: Path
    ) -> WrittenCommand | None:
        """The command with this file in place of `word`; None where something remains to be filled in."""
        config = self._config
        file = _named_file((*before, word, *rest), len(before), folder, config)
        begin, equals, name = word.rpartition("=")
        of_folder = pattern_of("hydra_name").search(" ".join((*before, word)))
        chosen = f"{config.stem}{Path(name).suffix}" if of_folder else config
        program = before[0] if (folder / before[0]).is_file() else Path(before[0]).name
        started = (*(("python", program) if program.endswith(".py") else (program,)), *before[1:])
        if self._for_others and config != file and file.is_file():
            started, environment = _without_numbers(started, folder), {}
            rest = [*_without_examples(rest, (), "of_other_files")]
        words = (
            *started,
            word if _is_choice(word, config) else f"{begin}{equals}{chosen}",
            *_without_examples(rest, self._keys),
        )
        scripts = [folder / word for word in started if word.endswith(".py")]
        if any(package_import(script) or self._lacks_classes(script, folder) for script in scripts):
            environment = {"PYTHONPATH": ".:$PYTHONPATH", **environment}
        files = [word for word in rest if self._for_others and word.endswith(CONFIGURATIONS)]
        given = (word for word in rest if "=" in word and word[0] != "-")
        is_whole = not any(map(_is_open, (*words, *given))) and all((folder / name).is_file() for name in files)
        return WrittenCommand(words, environment, folder) if is_whole else None

    def _lacks_classes(self, script: Path, folder: Path) -> bool:
        """Whether the file names classes of a package that lies in `folder`, where the script does not look for it."""
        items = flatten(self._values).items()
        named = (text for key, text in items if key.endswith("class_path") and isinstance(text, str))
        packages = {text.partition(".")[0] for text in named}
        return any((folder / name).is_dir() and not (script.parent / name).exists() for name in packages)


def _has_option_for_other_work(words: Sequence[str]) -> bool:
    """Whether an option makes a script for training do something else."""
    return any(map(pattern_of("no_training_options").match, map(" ".join, pairwise((*words, "")))))


def open_command(path: Path) -> str:
    """The text near the file in which a command for training names it with values to fill in; empty without one."""
    programs = dict.fromkeys(tool_programs(), "") | project_programs(path)
    for text_file in texts_above(path):
        text = read_source(text_file)
        for words, _ in _commands_in(text_file, text, path, programs, True) if path.name in text else ():
            names_it = any(word.endswith((f"/{path.name}", f"={path.name}")) or word == path.name for word in words)
            folders = text_file.absolute().parents[:2]
            if names_it and any(map(_is_open, words)) and any(_starts_training(words, f, programs) for f in folders):
                return text_file.name
    return ""


def _commands_in(
    text_file: Path, text: str, config: Path, programs: Collection[str], is_any: bool
) -> list[tuple[Sequence[str], dict[str, str]]]:
    """The commands of a text, each with its variables; with `is_any` also one of a shell script that lacks a value."""
    text = pattern_of("left_out_of_commands").sub("", text)
    text = pattern_of("of_windows").sub(lambda line: f"python{line[1].replace(chr(92), '/')}", text)
    commands = [*_command_lines(text, text_file == config, text_file.suffix == ".md", programs)]
    holds_commands = text_file.name == "Makefile" or text_file.suffix in SCRIPT_FORMS.keys() - {".py"}
    if text_file != config and holds_commands:
        with suppress(SettingsError):
            shell = parse_file(text, text_file)
            given = shell.words if is_any else shell.command
            given = () if given[:1] == ("docker",) else given  # the text has the command inside it as well
            return [(given, shell.environment if shell.command else {}), *(commands if not given else ())]
    return commands


def with_launcher(words: tuple[str, ...], path: Path) -> WrittenCommand:
    """The command of a script which has the file by default, with the launcher that all texts start it by."""
    script, launchers = Path(words[1] if len(words) > 1 else "").absolute(), words_of("launchers").keys()
    launched = set[tuple[tuple[str, ...], Path]]()
    texts = texts_above(path, whole=False) if names_file(read_source(script), path) else ()
    for text_file, text in ((file, read_source(file)) for file in texts):
        for given, _ in _commands_in(text_file, text, path, (), is_any=True) if script.name in text else ():
            start = next((n for n, word in enumerate(given) if word.endswith(script.name)), 0)
            is_same = (text_file.parent / given[start]).resolve() == script.resolve() if start else False
            runs = pattern_of("no_trainings").search(" ".join(given[:start])) is None
            if is_same and runs and not launchers.isdisjoint(given[:start]) and not any(map(_is_open, given[:start])):
                launched.add((tuple(given[:start]), text_file.absolute().parent))
    ((before, folder),) = launched if len(launched) == 1 else ((words[:1], None),)
    if before == ("python",) and (begin := package_import(script)):
        name = begin.rpartition(" ")[2].strip(".")
        tops = (up for up in script.parents if up.name == name or not (name or (up.parent / "__init__.py").exists()))
        root = next(tops).parent
        started = ("python", "-m", ".".join(script.relative_to(root).with_suffix("").parts), *words[2:])
        if root.name == "src":
            return WrittenCommand(started, {"PYTHONPATH": "src:$PYTHONPATH"}, root.parent)
        return WrittenCommand(started, {}, root)
    return WrittenCommand((*before, *words[1:]), {}, folder)


def _without_numbers(words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The words up to a file without the launcher's processes and GPUs, which are of the training by another file."""
    starts = (n for n, word in enumerate(words) if word.endswith(".py") or word in MODULE)
    start = next((n for n in starts if not words[n + 1 : n + 2] or not words[n + 1].startswith(LAUNCH_MODULES)), 0)
    script = program_of(words[start:], folder / "x")
    if words_of("launchers").keys().isdisjoint(words[:start]) or script is None or needs_launcher(script):
        return words
    return (*(("accelerate", "launch") if "accelerate" in words[:start] else ("python",)), *words[start:])


def _without_examples(words: Sequence[str], keys: Collection[str], kind: str = "names_of_runs") -> Iterator[str]:
    """The words of a command without a name for its run and other values for keys of the file, which are examples."""
    words = pattern_of(kind).sub("", "\0".join(("", *words))).split("\0")[1:]
    is_example = [word.lstrip("+-").partition("=")[0] in keys and "=" in word for word in words]
    for word, example, following in zip(words, is_example, [*is_example[1:], False], strict=False):
        if not example and not (following and word in ("--set", "-o", "--override", "--overrides", "--opts")):
            yield word


def _is_choice(word: str, config: Path) -> bool:
    """Whether a word chooses the file of its group for Hydra: `experiment=cifar/small`, `+experiment=small`."""
    choice = re.fullmatch(r"\+{0,2}([A-Za-z_][\w/]*)=([\w/.-]+)", word)
    return choice is not None and config.as_posix().endswith(f"/{choice[1]}/{choice[2]}{config.suffix}")


def _named_file(words: Sequence[str], index: int, folder: Path, config: Path) -> Path:
    """The file that a word of a command names, in `folder`; Hydra's `--config-name` is in that of the configuration."""
    name = words[index].rpartition("=")[2]
    if _is_choice(words[index], config) and sum("=" in word.lstrip("-") for word in words) == 1:
        return config  # with other choices it is an example
    if pattern_of("hydra_name").search(" ".join(("", *words[max(0, index - 1) : index + 1]))):
        return config.parent / (name if name.endswith(config.suffix) else f"{name}{config.suffix}")
    ends = Path(name).parts[-2:]
    of_container = name.startswith("/") and config.parts[-2:] == ends and folder in config.parents
    return config if of_container else Path(os.path.normpath(folder / name))


def _script_before(words: Sequence[str]) -> str | None:
    """The script or module that a command starts, as a file."""
    modules = (f"{name.replace('.', '/')}.py" for option, name in pairwise(words) if option in MODULE)
    return next((word for word in words if word.endswith(".py")), next(modules, None))


def _is_open(word: str) -> bool:
    return pattern_of("open_words").search(word) is not None or to_fill_in(word)


def methods_in(name: str) -> set[str]:
    return {method.lower() for method in pattern_of("methods_in_names").findall(name)}


def _command_lines(
    text: str, of_comments: bool, of_prose: bool, programs: Collection[str]
) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
    """The words of each command in a text, from its program on, and the variables before it."""
    joined = re.sub(r"\\{1,2}[ \t]*\n[ \t]*[#>]?", " ", text)
    joined = pattern_of("python_of_variable").sub("python", joined)
    program = re.compile(PROGRAM.format("|".join(map(re.escape, sorted(programs)))))
    for line in joined.splitlines():
        for start in program.finditer(line) if "#" in line or not of_comments else ():
            before = line[: start.start(1)]
            if of_prose and not pattern_of("before_command").fullmatch(before):
                continue
            words = next(iter(split_commands(re.sub(r"<(?!br|code|pre)(\w[\w./ -]*)>", r"'<\1>'", start[1]))), ())
            given = re.findall(r"(\w+)=[\"']?([^\s\"'$<]+)[\"']?(?=\s)", pattern_of("set_before").findall(before)[0])
            if words:
                yield words, dict(given)


def _starts_training(words: Sequence[str], folder: Path, programs: Mapping[str, str]) -> bool:
    """Whether the first script or module of the command is there, and none of an evaluation by its name.

    `programs` has the function of each program that its project installs.
    """
    if pattern_of("no_trainings").search(" ".join(words)):
        return False
    for word, following in pairwise((*words, "")):
        if word.endswith(".py"):
            if not (folder / word).is_file() or package_import(folder / word) == "from .":
                return False
            if names_other_work(Path(word)):
                return bool({"fit", "train"} & {*words})
            of_name = following.isidentifier() and TRAINING.search(following)  # `tool.py train`
            if of_name or named_for_training([Path(word)]) or trains(folder / word):
                return True  # else it may start the next one
        if word in MODULE and not following.startswith(LAUNCH_MODULES):
            *packages, module = map(Path, following.split("."))
            if names_other_work(module) or (any(map(names_other_work, packages)) and not TRAINING.search(module.name)):
                return False
            bases = (folder / root / following.replace(".", "/") for root in ("", "src"))
            is_there = any(base.with_suffix(".py").is_file() or base.is_dir() for base in bases)
            return is_there or following.partition(".")[0] in programs
    started = [word for word in words if not re.fullmatch(rf"{LAUNCHERS}|run|-.*", word)][:2]
    if not started or started[0] not in programs:
        return False
    subcommand = [Path(word) for word in started if re.fullmatch(r"[\w-]+", word)][-1:]  # or the program's own name
    of_program = Path(programs[started[0]].partition(":")[0]).suffix.removeprefix(".")
    return not any(map(names_other_work, (*subcommand, Path(of_program))))


def script_file(words: Sequence[str]) -> str:
    script = script_of(tuple(words))
    return str(script.with_suffix(".py")) if script.name else ""


def program_of(words: Sequence[str], path: Path) -> Path | None:
    """The script that a command near the file starts, where it is there."""
    name = script_file(words)
    return find_program(path, [Path(name), Path(name).with_suffix("") / "__main__.py"]) if name else None

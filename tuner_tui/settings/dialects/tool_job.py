"""The job of a tool's configuration file: the tool's command on that file, and the model and data the file names."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.dialect import (
    HF,
    TEMPLATE,
    Dialect,
    Form,
    dialect_keys,
    dialect_of_command,
    dialects,
    flatten,
    keys_in_file,
    leaf_pattern,
    read_settings,
    to_fill_in,
    without_alternatives,
    without_other_meanings,
)
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS, parse_file, values_of_file
from tuner_tui.settings.dialects.hf import RENAMED, ImportedSettings, is_other_library, setting_of_argument
from tuner_tui.settings.dialects.hooks import KNOWN
from tuner_tui.settings.dialects.hydra import hydra_command
from tuner_tui.settings.dialects.python_source import is_started
from tuner_tui.settings.dialects.python_values import ARGUMENTS, CLASS
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    MODULE,
    TRAINING,
    files_in,
    find_program,
    find_scripts,
    folder_of_imports,
    named_for_training,
    names_file,
    names_other_work,
    needs_launcher,
    own_modules,
    package_import,
    pattern_of,
    project_programs,
    read_source,
    reads_keys,
    source_of,
    texts_above,
    trains,
    words_of,
)
from tuner_tui.settings.dialects.shell_script import (
    LAUNCH_MODULES,
    ONLY_SETS,
    read_options,
    script_of,
    split_commands,
    tool_programs,
)
from tuner_tui.settings.dialects.stated import stated_in
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import (
    COMMAND_TO_NAME,
    MODEL_NAMES,
    ApplyMode,
    CommandJob,
    Task,
    names_other_task,
    task_of_source,
)
from tuner_tui.settings.model import FIELDS, Value, shorten_text
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, INI, ToolFile

APPLY_MODES: Mapping[Form, ApplyMode] = {"python": "inject", "overrides": "placeholders"}
"""How settings reach a file of a form that is not rewritten for each run."""
NO_PROGRAMS = (".ipynb", ".args")
LAUNCHERS = r"uv|poetry|python3?|torchrun|accelerate|deepspeed|composer|bash|sh"
PROGRAM = rf"(?:^|[\s`$>!])((?:[\w.~/-]+/)?(?:{LAUNCHERS}|{{}}|(?<=\./)[\w/-]+\.py|[\w-]+\.py(?=\s+[<$-]))\s[^`]*)"
"""The beginning of a command that may start a training."""
MOSTLY_SAID = 2
"""Of several commands, one that texts have so many times as often as the next is meant."""
MOST_MORE = 2
"""Of more words that follow, a command for another file is one for that file only."""
LONGEST_NAME = 200


def training_of_file(dialect: Dialect, file: ToolFile, path: Path) -> CommandJob:
    """The command that trains with the file, its settings filled in, and what the file says is trained.

    `COMMAND_TO_NAME` stands for a command that nothing near the file shows to read it. Paths are absolute, so that the
    job may be saved and started anywhere. Raises `SettingsError` for a file of the tool that trains nothing.
    """
    flat = flatten(without_alternatives(file.values)) if dialect.nested else file.values
    if file.words or (dialect.form == "arguments" and path.suffix not in NO_PROGRAMS):
        return _job_of_shell(dialect, file, path, flat)
    words, environment, folder = _command_of_file(dialect, file, path)
    is_named = words[0] != COMMAND_TO_NAME
    # The script may look at the suffix, read what is not written here, or open the file by a path of its own.
    has_format = path.suffix.lower() not in (".toml", *INI, *([".json"] if dialect.name == HF else []))
    takes_file = has_format and str(path.absolute()) in " ".join(words)
    apply: ApplyMode = APPLY_MODES.get(dialect.form, "yaml" if takes_file else "inject")
    apply = "inject" if words[0] == "bash" else apply  # a script takes no words of another command
    model = _model_of({**flatten(file.values), **flat}, dialect.model_keys)
    model = model or _model_of(read_options(words), MODEL_NAMES)
    return CommandJob(
        command=words,
        apply=apply if is_named else "none",
        dialect=HF if apply == "inject" and is_named else dialect.name,
        aliases=_aliases(dialect, flat) if dialect.form == "overrides" else {},
        model=model,
        task=_task(dialect, flat, model, words),
        data=_data_of(flat, (*dialect.data_keys, *(dialects()[HF].data_keys if dialect.extends_hf else ()))),
        cwd=None if folder is None else str(folder),
        on_cpu=any(flat.get(key) is True or flat.get(key) == "cpu" for key in words_of("on_cpu")),
        env=environment | {name: value for key, (name, value) in dialect.environment.items() if flat.get(key)},
        stated=stated_in({**read_options(words), **flat}, model),
    )


Started = tuple[tuple[str, ...], dict[str, str], Path | None]
"""The words of a command, its variables, and the folder that it is meant for if that is not any."""
UNKNOWN: Started = ((COMMAND_TO_NAME,), {}, None)


def _command_of_file(dialect: Dialect, file: ToolFile, path: Path) -> Started:
    training = re.compile(rf"{words_of('trains')}|(?:{ARGUMENTS.pattern})\(")
    is_program = dialect.form == "python" and dialect.choose_command is None
    modules = own_modules(path) if is_program and is_started(path) else ()
    trains_nothing = is_program and not any(training.search(source) for _, source in modules)
    names_no_model = dialect.programs and not any(key.partition(".")[0] in file.values for key in dialect.model_keys)
    of_service = is_program and any(re.search(part, read_source(path)) for part in words_of("of_services").values())
    if names_no_model and (written := _written_command(path, file.values)) is not None:
        names_no_model = not {word.lstrip("-").partition("=")[0] for word in written[0]} & {*dialect.model_keys}
    if path.suffix in NO_PROGRAMS or trains_nothing or names_no_model or of_service:
        return UNKNOWN
    if dialect.form == "overrides" and not dialect.programs:
        command = None if file.incomplete else hydra_command(path)
    else:
        chosen = dialect.choose_command and dialect.choose_command(file.values, path)
        command = chosen or _usual_command(dialect, file.values, path)
    of_script = not dialect.programs and dialect.form != "python"
    flat = flatten(file.values)
    names = {setting_of_argument(key.rpartition(".")[2]) for key in flat}
    is_tools = command or dialect.programs or dialect.of_launcher
    if not (is_tools or FIELDS.keys() & names or keys_in_file(dialects()["own-script"], flat)):
        return UNKNOWN  # the texts of a checkout are many
    if dialect.form != "python" and (written := _written_command(path, file.values)) is not None:
        return written
    script = next((word for word in shlex.split(command or "") if word.endswith(".py")), None)
    if of_script and not dialect.of_launcher and not (command and dialect.form == "overrides"):
        named = script is not None and names_file(read_source(Path(script)), path)
        named = named or bool(_methods(script or "") & _methods(path.stem))
        # What a text says of a file like it counts before the keys that a script has; for the same script it has more.
        written = _written_command(path, file.values, for_others=True)
        is_same = written is not None and str((written[2] or path) / _script_file(written[0])) == script
        if written is not None and (is_same or not named):
            return written
    if not command:
        return UNKNOWN
    places = {"{folder}": str(path.absolute().parent), "{stem}": path.stem}
    words = (places.get(word, word.replace("{config}", str(path.absolute()))) for word in shlex.split(command) if word)
    return _with_launcher(tuple(words), path)


def _usual_command(dialect: Dialect, values: Mapping[str, Any], path: Path) -> str:
    """The tool's command for a file with these keys and this name. Raises `SettingsError` for a file of another use."""

    def given(key: re.Match[str]) -> str:
        return key[0] if key[1] == "config" else shlex.quote(str(values.get(key[1]) or ""))

    for row in dialect.commands:
        if not values.keys().isdisjoint(row.get("with", values)) and re.match(row.get("name", ""), path.stem):
            if "refused" in row:
                raise SettingsError(row["refused"])
            return re.sub(r"\{(\w+)\}", given, row["command"])
    return dialect.command


def _written_command(path: Path, values: Mapping[str, Any], for_others: bool = False) -> Started | None:
    """The command line near the file that trains with it, of several the shortest; None where they differ more.

    With `for_others`, one for a file of its folder with nearly the same keys, or a name to fill in, has this file.
    """
    commands = _written_commands(path, values, for_others)
    files = [[word for word in words if word.endswith(CONFIGURATIONS)] for words, _, _ in commands]
    parts = [tuple(word for word in words if word.endswith((".py", *CONFIGURATIONS))) for words, _, _ in commands]
    (usual, most), *others = Counter(parts).most_common() or [((), 0)]
    if others and most >= MOSTLY_SAID * others[0][1]:  # a script next to it has the same line in its help
        commands = [command for command, names in zip(commands, parts, strict=True) if names == usual]
        others = []
    if others:  # together with others, of which nothing says which ones
        return UNKNOWN if for_others or all(len(named) > 1 for named in files) else None
    launchers = words_of("launchers").keys()
    launched = Counter(launchers.isdisjoint(words) for words, _, _ in commands)  # a launcher that most have is needed

    def rank(row: Started) -> tuple[bool, int, int]:  # `tool fit` counts before `tool show`
        program = " ".join((*row[0][:4], script_of(row[0]).name))
        return TRAINING.search(program) is None, -launched[launchers.isdisjoint(row[0])], len(row[0])

    return min(commands, key=rank, default=None)


def _written_commands(path: Path, values: Mapping[str, Any], for_others: bool) -> list[Started]:
    """The command lines that train with the file: in its comments, a README, a shell script or a Makefile near it.

    Script and file exist where the line says, seen from that folder; a line with something to fill in does not count.
    Where all add an option with which a script for training does something else, they count without what they add.
    """
    config = path.absolute()
    programs = dict.fromkeys(tool_programs(), "") | project_programs(path)
    likely = re.compile(
        rf"\b(?:{'|'.join(re.escape(above.name) for above in config.parents[:2])})/"
        r"|-cn |--[\w-]*(?:config|cfg|conf|yaml|params|args[_-])|[/{<_](?:config|cfg)(?![a-z])"
    )
    choice = re.compile(rf"[\w/]+=(?:[\w-]+/)*{re.escape(config.stem)}(?![\w./-])")
    lines, cut, keys = list[Started](), list[Started](), flatten(values).keys()
    for text_file in (config, *texts_above(path, whole=not for_others)):
        text = read_source(text_file)
        if config.name not in text and not (for_others and likely.search(text)) and not choice.search(text):
            continue
        commands = _commands_in(text_file, text, config, programs, for_others)
        folders = [*text_file.absolute().parents[: FOLDERS_UP + 1]]
        top = folders[folders[0].name == "docs"]  # its readers may go to a folder below it: `cd tools`
        changed = {folders[0] / name: None for name in pattern_of("changes_folder").findall(text)}
        folders += (inner for inner in changed if inner.is_dir() and inner not in folders)
        folders += (above for above in config.parents[:FOLDERS_UP] if top in above.parents)
        for written, environment in commands:
            is_away = [word[:1] == "/" and word.endswith(".py") and not Path(word).exists() for word in written]
            programs_here = (away and find_program(config, [Path(w)]) for w, away in zip(written, is_away, strict=True))
            words = [str(program or word) for program, word in zip(programs_here, written, strict=True)]
            for folder in folders:
                at = [index for index in range(len(words)) if _named_file(words, index, folder, config) == config]
                if for_others and not at:
                    at = [i for i in range(len(words)) if _stands_for(words, i, folder, config, values)]
                others = [*map(pattern_of("no_training_options").match, map(" ".join, pairwise((*words, ""))))]
                is_cut = len(at) == 1 and any(others) and TRAINING.search(script_of(tuple(words)).name) is not None
                line = words[: at[0] + 1] if is_cut else words
                if len(at) == 1 and not any(others[: len(line)]) and _starts_training(line, folder, programs):
                    begin, equals, name = words[at[0]].rpartition("=")
                    of_folder = pattern_of("hydra_name").search(" ".join(words[: at[0] + 1]))
                    chosen = f"{config.stem}{Path(name).suffix}" if of_folder else config
                    program = words[0] if (folder / words[0]).is_file() else Path(words[0]).name
                    started = (*(("python", program) if program.endswith(".py") else (program,)), *words[1 : at[0]])
                    rest = words[at[0] + 1 :]
                    if for_others and config != (file := _named_file(words, at[0], folder, config)) and file.is_file():
                        started, environment = _without_numbers(started, folder), {}
                        rest = [*_without_examples(rest, (), "of_other_files")]
                    filled = (
                        *started,
                        words[at[0]] if _is_choice(words[at[0]], config) else f"{begin}{equals}{chosen}",
                        *(() if is_cut else _without_examples(rest, keys)),
                    )
                    scripts = [folder / word for word in started if word.endswith(".py")]
                    if any(package_import(script) or _lacks_classes(script, folder, values) for script in scripts):
                        environment = {"PYTHONPATH": ".:$PYTHONPATH", **environment}
                    names = [word for word in rest if for_others and word.endswith(CONFIGURATIONS)]
                    given = (word for word in rest if "=" in word and word[0] != "-")
                    if not any(map(_is_open, (*filled, *given))) and all((folder / name).is_file() for name in names):
                        (cut if is_cut else lines).append((filled, environment, folder))
        if text_file == config and lines:  # what the file says of itself counts before all others
            break
    return lines or cut


def _lacks_classes(script: Path, folder: Path, values: Mapping[str, Any]) -> bool:
    """Whether the file names classes of a package that lies in `folder`, where the script does not look for it."""
    named = (text for key, text in flatten(values).items() if key.endswith("class_path") and isinstance(text, str))
    packages = {text.partition(".")[0] for text in named}
    return any((folder / name).is_dir() and not (script.parent / name).exists() for name in packages)


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
    commands = [*_command_lines(text, text_file == config, text_file.suffix == ".md", programs)]
    holds_commands = text_file.name == "Makefile" or text_file.suffix in SCRIPT_FORMS.keys() - {".py"}
    if text_file != config and holds_commands:
        with suppress(SettingsError):
            shell = parse_file(text, text_file)
            given = shell.words if is_any else shell.command
            given = () if given[:1] == ("docker",) else given  # the text has the command inside it as well
            return [(given, shell.environment if shell.command else {}), *(commands if not given else ())]
    return commands


def _with_launcher(words: tuple[str, ...], path: Path) -> Started:
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
        return (started, {"PYTHONPATH": "src:$PYTHONPATH"}, root.parent) if root.name == "src" else (started, {}, root)
    return (*before, *words[1:]), {}, folder


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


def _stands_for(words: Sequence[str], index: int, folder: Path, config: Path, values: Mapping[str, Any]) -> bool:
    """Whether a word of a command is in the place of this file: a file like it, or a name to fill in."""
    word, before, after = words[index], words[:index], [*_without_examples(words[index + 1 :], (), "of_other_files")]
    name, other = word.rpartition("=")[2], _named_file(words, index, folder, config)
    modules = (f"{name.replace('.', '/')}.py" for option, name in pairwise(before) if option in MODULE)
    script = next((word for word in before if word.endswith(".py")), next(modules, None))
    config_words = {*re.split(r"[\W_]+", config.stem)} | {*words_of("of_any_config")}
    is_other_format = Path(name).suffix in CONFIGURATIONS and other.suffix[:2] != config.suffix[:2]  # `.yml`, `.yaml`
    if is_other_format or names_other_work(config) or not _methods(" ".join(before)) <= _methods(config.stem):
        return False
    # `options/train/EDVR/a.yml` for `options/train/ECBSR/b.yml`
    is_near = other.parent in config.parents[:2] or other.parent.parent == config.parent.parent != folder
    if other.suffix == config.suffix and is_near and other.is_file() and len(after) <= MOST_MORE:
        keys, others = flatten(values).keys(), flatten(values_of_file(other)).keys()
        given = (*before[before.index(script) + 1 if script in before else 0 :], *after)  # `--language go`
        its_own = any(part.lower() in other.stem.lower() for part in given if len(part) > 1)
        # `tool-finetune conf/finetune.yaml` is none for `pretrain.yaml`.
        others_words = {*re.split(r"[\W_]+", other.stem)} - config_words
        its_own = its_own or not others_words.isdisjoint(re.split(r"[\W_]+", " ".join(before)))
        return not its_own and 5 * len(keys & others) >= 3 * len(keys) > 0
    if script is None:
        if before[:1] == [] or before[0] not in project_programs(config):
            return False
    elif not (folder / script).is_file():
        return False
    option = next((part for part in (word.partition("=")[0], *before[-1:]) if part.startswith("-")), "")
    # `-Y {path_to_config}`, `train.py config/yours.yml`: what is to be filled in says that it is the configuration.
    is_example = re.search(r"/.*\.\w+$", name) and other.parent in config.parents and not other.exists()
    says_config = (_is_open(name) or is_example) and re.search(r"conf|cfg|ya?ml", name, re.IGNORECASE)
    is_option = re.fullmatch(r"-[A-Za-z]", option) or pattern_of("config_options").fullmatch(f'"{option}"')
    is_beside = bool(is_example) and other.parent == config.parent
    if says_config and (is_option or is_beside or before[-1] == script):
        # The file lies in a folder of configurations or examples of the checkout.
        parts = config.parent.relative_to(folder).parts if folder in config.parents else config.parts[-2:-1]
        return any(re.search(r"conf|cfg|recipe|experiment|example", part, re.IGNORECASE) for part in parts)
    is_name = _is_open(name) or ("/" not in name and config.parent / name not in files_in(config.parent, "*"))
    is_of_form = name.endswith(config.suffix) or name.startswith("$")
    if not (is_name and is_of_form and pattern_of("config_options").fullmatch(f'"{option}"')):
        return False
    return script is not None and reads_keys(config, values, KNOWN)(folder / script, read_source(folder / script))


def _is_open(word: str) -> bool:
    return pattern_of("open_words").search(word) is not None or to_fill_in(word)


def _methods(name: str) -> set[str]:
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


def _job_of_shell(dialect: Dialect, file: ToolFile, path: Path, flat: Mapping[str, Any]) -> CommandJob:
    """The training command of a shell script; where it needs variables of the shell, the script itself."""
    model = _model_of(flat, (*dialect.model_keys, *dialects()[HF].model_keys))
    data = _data_of(flat, (*dialect.data_keys, *dialects()[HF].data_keys))
    folder = _folder_of_script(file, path) or (None if file.folder else _folder_of_program(file.words, path))
    scripts = [base / word for word in file.words if word.endswith(".py") for base in (Path(folder or ""), path.parent)]
    task_of_script = next(filter(None, (task_of_source(read_source(script)) for script in scripts)), None)
    if task_of_script == "seq2seq" and model is not None and not names_other_task(model):
        task_of_script = None  # one of several that the script has
    task: str | None = _task(dialect, flat, model, (str(path), *file.command))
    task = task if task == "other" else task_of_script or task
    stated = stated_in({**file.environment, **flat}, model, read_source(path))
    common: dict[str, Any] = {"model": model, "task": task, "data": data, "stated": stated}
    if not file.command or (file.folder and folder is None):
        if file.kind or ONLY_SETS in file.incomplete:
            return CommandJob(command=(COMMAND_TO_NAME,), apply="none", dialect=dialect.name, **common)
        above = (str(top) for top in path.absolute().parents[:FOLDERS_UP] if (top / (file.folder or "/")).is_dir())
        cwd = next(above, None) if re.match(r"\w", file.folder) else _folder_of_program(file.words, path)
        return CommandJob(command=("bash", str(path.absolute())), apply="inject", cwd=cwd, **common)
    script = program_of(file.command, path) if file.kind and not file.folder else None  # a container has it elsewhere
    root = None if script is None or {*MODULE} & {*file.command} else folder_of_imports(script, path)
    of_hydra = dialect.form == "overrides"
    tool = dialect if of_hydra else dialect_of_command(file.command)
    is_script = file.command[0] == "bash"  # which takes no options of its commands
    mode: ApplyMode = "placeholders" if of_hydra and not is_script else default_apply_mode(file.command)
    if mode == "inject" and any("." in key and key.isupper() for key in file.values):
        mode = "none"  # keys and values of yacs, where an option of another name is an error
    keys = without_other_meanings(flat).keys()
    spelled = {name: key for key, name in RENAMED.items() if key in keys} | keys_in_file(dialect, flat)
    given = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in file.words if word.startswith("--")}
    is_python = bool(tool.programs or script_of(file.command).suffix) or not {*MODULE}.isdisjoint(file.command)
    named = ((name, key) for name, key in spelled.items() if name in FIELDS and key in given)
    aliases = {name: key for name, key in named if not is_other_library(name, flat.get(key))}
    return CommandJob(
        command=file.command,
        apply="hf-args" if mode == "inject" and is_python and not is_script and (given or not file.values) else mode,
        dialect=tool.name,
        aliases={} if is_script else _aliases(dialect, flat) if of_hydra else aliases if tool.name == HF else {},
        env={"PYTHONPATH": f"{root}:$PYTHONPATH", **file.environment} if root else file.environment,
        cwd=folder,
        **common,
    )


def _script_file(words: Sequence[str]) -> str:
    script = script_of(tuple(words))
    return str(script.with_suffix(".py")) if script.name else ""


def program_of(words: Sequence[str], path: Path) -> Path | None:
    """The script that a command near the file starts, where it is there."""
    name = _script_file(words)
    return find_program(path, [Path(name), Path(name).with_suffix("") / "__main__.py"]) if name else None


def gpus_of_program(words: Sequence[str], path: Path, is_known: bool) -> Mapping[str, str | int]:
    """What a command states by its source: FSDP; without a launcher, one process for all GPUs, or one for each."""
    program = program_of(words, path)
    source = "" if program is None else source_of(program)
    if not words_of("launchers").keys().isdisjoint(words):
        return {"sharding": "FSDP"} if pattern_of("shards_always").search(source) else {}
    shares = is_known and ".backward(" in source and pattern_of("batch_of_each_gpu").search(source) is None
    spreads = not is_known and pattern_of("starts_on_each_gpu").search(source)
    return {"processes": 1} if shares else {"devices": "all"} if spreads else {}


def _folder_of_program(words: Sequence[str], path: Path) -> str | None:
    """The folder in which the script lies that the command names by a relative path."""
    program, name = program_of(words, path), _script_file(words)
    names = (word.rpartition("=")[2] for word in words if re.search(r"[./]", word))
    paths = [path for path in names if not path.startswith("/")]
    is_absolute = name.startswith(("/", "$"))
    if any(os.path.exists(Path.cwd() / word) for word in paths):  # noqa: PTH110
        return None
    here = path.absolute().parent
    above = (here / word for word in paths if word.startswith("../"))
    if not {*MODULE}.isdisjoint(words) and any(map(os.path.exists, above)):  # of an installed package
        return str(here)
    if program is not None:
        inner = f"/{name}" if str(program).endswith(f"/{name}") else f"/{name.removesuffix('.py')}/{program.name}"
        folder = program.parent if is_absolute else Path(str(program).removesuffix(inner))
        # The sources of an installed package are below it.
        near = (above for above in (folder, folder.parent) if any(os.path.exists(above / word) for word in paths))  # noqa: PTH110
        return next(map(str, near), None if is_absolute else str(folder))
    return str(here) if any(word and os.path.exists(here / word) for word in paths) else None  # noqa: PTH110


def arguments_of_script(script: Path | None) -> ImportedSettings:
    """What a script gives to `TrainingArguments` or a class of theirs."""
    shown = script is not None and re.search(rf"(?:{ARGUMENTS.pattern})\(", read_source(script))
    items = values_of_file(script).items() if script is not None and shown else ()
    given = {key: value for key, value in items if not (re.search(r"\.|\(\)$", key) or TEMPLATE.fullmatch(str(value)))}
    return read_settings(dialects()["hf-python"], given)


def settings_of_sources(
    settings: Mapping[str, Value], job: CommandJob, flat: Mapping[str, Any], path: Path
) -> Mapping[str, Value]:
    """The settings with what the script gives to `TrainingArguments`; mixed precision with the type of the sources."""
    script = program_of(job.command, path)
    settings = {**arguments_of_script(script).settings, **settings}
    assigned = pattern_of("overruled").findall("" if script is None else read_source(script))
    overruled = {name: text or value for key, text, value in assigned if (name := setting_of_argument(key)) in settings}
    settings = {key: value for key, value in settings.items() if str(value) == overruled.get(key, str(value))}
    switches = {key for key, value in flat.items() if value is True}
    is_typed = any(re.search(r"(?:precision|dtype|fp16)$", key) for key in flat.keys() - switches)
    is_switched = any(map(leaf_pattern(words_of("amp_switch")).search, switches))
    if settings.get("precision") == "fp16" and is_switched and not is_typed:
        half, brain = (find_scripts(path, words_of(name)) for name in ("casts_to_half", "casts_to_bfloat16"))
        return {**settings, "precision": "bf16" if brain and not half else "fp16"}
    return settings


def with_model_and_data(job: CommandJob, dialect: Dialect, values: Mapping[str, Any]) -> CommandJob:
    """The job with the model and the data that a configuration of its command names, where it names none itself."""
    flat = flatten(values)
    data = job.data
    if data is None or data.endswith(CONFIGURATIONS):
        data = _first_text(flat, dialect.data_keys) or data
    model = job.model or _model_of(flat, dialect.model_keys)
    stated = stated_in(flat, model)
    if dialect.form == "python" and not words_of("launchers").keys().isdisjoint(job.command):
        stated.pop("gpus", None)  # the launcher decides, whatever the script would take without one
    job = structs.replace(job, model=model, data=data, stated={**stated, **job.stated})
    if dialect.form != "overrides" or job.apply != "hf-args":
        return job
    return structs.replace(job, apply="placeholders", aliases=_aliases(dialect, flat))


def _folder_of_script(file: ToolFile, path: Path) -> str | None:
    """The folder that the script changes to before the command, seen from the file's or from one above it.

    A folder of the same name above the file is where the checkout lies on this machine.
    """
    above = path.absolute().parents[:FOLDERS_UP]
    is_away = file.folder.startswith(("/", "~")) and not Path(file.folder).is_dir()
    checkout = next((folder for folder in above if is_away and folder.name == Path(file.folder).name), None)
    if checkout is not None or not file.folder or re.search(r"[$~`]", file.folder):
        return None if checkout is None else str(checkout)
    folders = (folder / file.folder for folder in above)
    return next((str(folder.resolve()) for folder in folders if folder.is_dir()), file.folder if file.kind else None)


def _aliases(dialect: Dialect, flat: Mapping[str, Any]) -> dict[str, str]:
    places = {key: key for key in flat} | keys_in_file(dialect, flat)
    keys = {name: dialect_keys(dialect, name) & places.keys() for name in FIELDS}
    single = {name: places[min(indices)] for name, indices in keys.items() if len(indices) == 1}
    return {name: key for name, key in single.items() if not is_other_library(name, flat.get(key))}


def _task(
    dialect: Dialect, flat: Mapping[str, Any], model: str | None, command: Sequence[str]
) -> Task | Literal["other"] | None:
    """The task of a script's model class, else that of the tool; None for models of others than language."""
    if any(pattern_of("of_other_task").search(key) for key in flat):
        return "other"
    task = task_of_source(f"{flat.get(f'from_pretrained.{CLASS}', '')}.from_pretrained")
    if task is not None or model is None or names_other_task(model, command):
        return task
    if any(pattern_of("of_classifier").search(key) for key in flat):
        return "classification"
    of_language_models = dialect.of_language_models or dialect_of_command(command).of_language_models
    return "causal-lm" if of_language_models else None


def _model_of(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The model that is given, by the key with the most certain name, or `owner/name` at any; a file is none."""
    outputs = [value for key, value in values.items() if key.rpartition(".")[2] == "output_dir"]

    def names_none(key: str, value: Any) -> bool:
        written = pattern_of("written_files").fullmatch(f"{key.rpartition('.')[2]}={value}".lower())
        is_folder = key.startswith("args.") and str(value).endswith("/")  # a variable of the source
        return bool(
            pattern_of("sections_of_data").search(key) or (value in outputs and key not in keys) or written or is_folder
        )

    values = {key: value for key, value in values.items() if not names_none(key, value)}
    model = _first_text(values, keys)
    if model is not None and "/" not in model:
        named = ((key, name) for key in keys if (name := _first_text(values, [key])))
        is_path = re.compile(r"[\w-]+/[\w.-]+")
        model = next((name for key, name in named if is_path.fullmatch(name) or ("/" in name and "path" in key)), model)
    is_no_model = model is not None and re.fullmatch(
        r"[A-Z][A-Za-z]+|[\d.]+[bBmM]|.*\.(?:py|ya?ml|toml)|[^/]*[\s(][^/]*|(?i:imagenet\w*|coco)", model
    )
    return None if is_no_model else model


def _data_of(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The data that is given, by the key with the most certain name; a file of data before a name for it."""
    data = _first_text(values, keys)
    files = (name for key in keys if (name := _first_text(values, [key])) and pattern_of("data_file").fullmatch(name))
    return data if data is None or re.search(r"[/.]", data) else next(files, data)


def _first_text(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first that is given; of several keys that end so, the one at the top where they differ.

    None where that is filled in later: a less certain key would name something else.
    """
    sections = dict.fromkeys(match[1] for match in map(pattern_of("section_of_data").match, values) if match)
    for key in keys:
        if sections and leaf_pattern(key).search("datasets"):
            return shorten_text(", ".join(sections), LONGEST_NAME)
        ending = [path for path in values if leaf_pattern(key).search(path)]
        ending = [path for path in ending if not pattern_of("other_models").search(path)]
        if (named := words_of("only_of_value").get(key)) is not None:
            ending = [path for path in ending if re.search(named, str(values[path]), re.VERBOSE)]
        for group in (ending, [path for path in ending if "." not in path]):
            texts = {text for path in group if (text := _text_of(values[path]))}
            if len(texts) == 1:
                return texts.pop()
        given = [values[path] for path in ending if isinstance(values[path], str)]
        if any(TEMPLATE.fullmatch(text) or to_fill_in(text) for text in given):
            return None
    return None


def _text_of(value: object) -> str | None:
    """A name; the names in a list of entries; the keys of a mapping of name to share."""
    if isinstance(value, str) and re.fullmatch(r"\(.*\)|\[.*\]", value):  # a tuple as detectron2 writes it
        value = re.findall(r"[\"']([^\"']+)[\"']", value)
    if isinstance(value, str):
        value = re.sub(r"^hf://|(?<=\w)@\w+$", "", value.strip("'\""))  # NeMo's, and verl's data@split
        is_none = to_fill_in(value) or value.lower() in words_of("builders")
        of_class = TEMPLATE.search(value) or pattern_of("class_path").fullmatch(value)
        return None if is_none or of_class else shorten_text(value, LONGEST_NAME)
    if isinstance(value, Mapping):
        inner = value.get("datasets")
        shares = all(isinstance(share, int | float) for share in value.values())
        names = [_text_of(inner)] if isinstance(inner, list) else [str(key) for key in value if shares]
    elif isinstance(value, list):
        names = [_entry_name(entry) for entry in value]
    else:
        return None
    return shorten_text(", ".join(dict.fromkeys(name for name in names if name)), LONGEST_NAME) or None


def _entry_name(entry: object) -> str | None:
    if isinstance(entry, Mapping) and entry.get("path") in words_of("builders"):
        entry = entry.get("data_files")
        entry = entry[0] if isinstance(entry, list) and entry else entry
    if isinstance(entry, Mapping):
        entry = next((entry[key] for key in words_of("entry_keys") if isinstance(entry.get(key), str)), None)
    return entry if isinstance(entry, str) and not TEMPLATE.search(entry) and not to_fill_in(entry) else None

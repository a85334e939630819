"""The job of a tool's configuration file: the tool's command on that file, and the model and data the file names."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.command_words import read_options, script_of
from tuner_tui.settings.dialects.dialect import (
    HF,
    Dialect,
    Form,
    dialect_keys,
    dialect_of_command,
    dialects,
    leaf_pattern,
)
from tuner_tui.settings.dialects.file_formats import values_of_file
from tuner_tui.settings.dialects.hf import RENAMED, ImportedSettings, is_other_library, setting_of_argument
from tuner_tui.settings.dialects.hydra import hydra_command
from tuner_tui.settings.dialects.key_places import keys_in_file, without_other_meanings
from tuner_tui.settings.dialects.model_names import data_of, first_text, model_of, task_of
from tuner_tui.settings.dialects.nested_values import TEMPLATE, flatten, without_alternatives
from tuner_tui.settings.dialects.python_source import is_started
from tuner_tui.settings.dialects.python_values import ARGUMENTS
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    MODULE,
    find_scripts,
    folder_of_imports,
    names_file,
    own_modules,
    pattern_of,
    read_source,
    source_of,
    words_of,
)
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.shell_script import ONLY_SETS
from tuner_tui.settings.dialects.stated import stated_in
from tuner_tui.settings.dialects.written_commands import (
    COMMAND_UNKNOWN,
    WrittenCommand,
    find_written_command,
    methods_in,
    program_of,
    script_file,
    with_launcher,
)
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import COMMAND_TO_NAME, MODEL_NAMES, ApplyMode, CommandJob, names_other_task, task_of_source
from tuner_tui.settings.model import FIELDS, Value
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, INI, ToolFile

APPLY_MODES: Mapping[Form, ApplyMode] = {"python": "inject", "overrides": "placeholders"}
"""How settings reach a file of a form that is not rewritten for each run."""
NO_PROGRAMS = (".ipynb", ".args")


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
    model = model_of({**flatten(file.values), **flat}, dialect.model_keys)
    model = model or model_of(read_options(words), MODEL_NAMES)
    environment = {**_path_of_imports(words, path), **environment} if is_named else environment
    return CommandJob(
        command=words,
        apply=apply if is_named else "none",
        dialect=HF if apply == "inject" and is_named else dialect.name,
        aliases=_aliases(dialect, flat) if dialect.form == "overrides" else {},
        model=model,
        task=task_of(dialect, flat, model, words),
        data=data_of(flat, (*dialect.data_keys, *(dialects()[HF].data_keys if dialect.extends_hf else ()))),
        cwd=None if folder is None else str(folder),
        on_cpu=any(flat.get(key) is True or flat.get(key) == "cpu" for key in words_of("on_cpu")),
        env=environment | {name: value for key, (name, value) in dialect.environment.items() if flat.get(key)},
        stated=stated_in({**read_options(words), **flat}, model),
    )


def _path_of_imports(words: Sequence[str], path: Path) -> dict[str, str]:
    """The variable by which Python finds what the script of a command imports from another folder of its checkout."""
    script = None if {*MODULE} & {*words} else program_of(words, path)
    root = None if script is None or script.suffix != ".py" else folder_of_imports(script, path)
    return {"PYTHONPATH": f"{root}:$PYTHONPATH"} if root else {}


def _command_of_file(dialect: Dialect, file: ToolFile, path: Path) -> WrittenCommand:
    if path.suffix in NO_PROGRAMS or _trains_nothing(dialect, file, path):
        return COMMAND_UNKNOWN
    is_composed = dialect.form == "overrides" and not dialect.programs
    if is_composed:
        command = None if file.incomplete else hydra_command(path)
    else:
        chosen = dialect.choose_command and dialect.choose_command(file.values, path)
        command = chosen or _usual_command(dialect, file.values, path)
    flat = flatten(file.values)
    names = {setting_of_argument(key.rpartition(".")[2]) for key in flat}
    is_tools = command or dialect.programs or dialect.of_launcher
    if not (is_tools or FIELDS.keys() & names or keys_in_file(dialects()["own-script"], flat)):
        return COMMAND_UNKNOWN  # the texts of a checkout are many
    if dialect.form != "python":
        written = find_written_command(path, file.values)
        if written is None and not (dialect.programs or dialect.of_launcher or (command and is_composed)):
            written = _command_for_others(command, file, path)
        if written is not None:
            return written
    if not command:
        return COMMAND_UNKNOWN
    places = {"{folder}": str(path.absolute().parent), "{stem}": path.stem}
    words = (places.get(word, word.replace("{config}", str(path.absolute()))) for word in shlex.split(command) if word)
    return with_launcher(tuple(words), path)


def _trains_nothing(dialect: Dialect, file: ToolFile, path: Path) -> bool:
    """Whether a program does not train or is for a service, or neither a tool's file nor its command names a model."""
    if dialect.form == "python" and dialect.choose_command is None:
        training = re.compile(rf"{words_of('trains')}|(?:{ARGUMENTS.pattern})\(")
        modules = own_modules(path) if is_started(path) else ()
        services = words_of("of_services").values()
        if not any(training.search(source) for _, source in modules):
            return True
        if any(re.search(service, read_source(path)) for service in services):
            return True
    if not dialect.programs or any(key.partition(".")[0] in file.values for key in dialect.model_keys):
        return False
    written = find_written_command(path, file.values)
    options = set() if written is None else {word.lstrip("-").partition("=")[0] for word in written.words}
    return options.isdisjoint(dialect.model_keys)


def _command_for_others(command: str | None, file: ToolFile, path: Path) -> WrittenCommand | None:
    """What a text says of a file like this one; for the script of `command` it counts because it has more options.

    It counts for another script only where nothing but its keys says that the script of `command` reads the file.
    """
    script = next((word for word in shlex.split(command or "") if word.endswith(".py")), None)
    written = find_written_command(path, file.values, for_others=True)
    if written is None or script is None:
        return written
    names_it = names_file(read_source(Path(script)), path) or methods_in(script) & methods_in(path.stem)
    is_same = str((written.folder or path) / script_file(written.words)) == script
    return written if is_same or not names_it else None


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


def _job_of_shell(dialect: Dialect, file: ToolFile, path: Path, flat: Mapping[str, Any]) -> CommandJob:
    """The training command of a shell script; where it needs variables of the shell, the script itself."""
    model = model_of(flat, (*dialect.model_keys, *dialects()[HF].model_keys))
    data = data_of(flat, (*dialect.data_keys, *dialects()[HF].data_keys))
    folder = _folder_of_script(file, path) or (None if file.folder else _folder_of_program(file.words, path))
    scripts = [base / word for word in file.words if word.endswith(".py") for base in (Path(folder or ""), path.parent)]
    task_of_script = next(filter(None, (task_of_source(read_source(script)) for script in scripts)), None)
    if task_of_script == "seq2seq" and model is not None and not names_other_task(model):
        task_of_script = None  # one of several that the script has
    task: str | None = task_of(dialect, flat, model, (str(path), *file.command))
    task = task if task == "other" else task_of_script or task
    stated = stated_in({**file.environment, **flat}, model, read_source(path))
    common: dict[str, Any] = {"model": model, "task": task, "data": data, "stated": stated}
    if not file.command or (file.folder and folder is None):
        if file.kind or ONLY_SETS in file.incomplete:
            return CommandJob(command=(COMMAND_TO_NAME,), apply="none", dialect=dialect.name, **common)
        above = (str(top) for top in path.absolute().parents[:FOLDERS_UP] if (top / (file.folder or "/")).is_dir())
        cwd = next(above, None) if re.match(r"\w", file.folder) else _folder_of_program(file.words, path)
        return CommandJob(command=("bash", str(path.absolute())), apply="inject", cwd=cwd, **common)
    # A container has a script in a folder of its own elsewhere.
    imports = _path_of_imports(file.command, path) if file.kind and not file.folder else {}
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
        env={**imports, **file.environment},
        cwd=folder,
        **common,
    )


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
    program, name = program_of(words, path), script_file(words)
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
        data = first_text(flat, dialect.data_keys) or data
    model = job.model or model_of(flat, dialect.model_keys)
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

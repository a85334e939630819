"""What a command trains, read from its words, the files it names and the source of its script. Nothing is run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tuner_tui.core.python_syntax import parse_python
from tuner_tui.settings.dialects.command_words import OVERRIDE, read_options
from tuner_tui.settings.dialects.dialect import dialect_of_command
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS, values_of_file
from tuner_tui.settings.dialects.nested_values import flatten
from tuner_tui.settings.dialects.python_source import flag_values
from tuner_tui.settings.dialects.python_values import declared_options, is_switch, known_names, unparsed
from tuner_tui.settings.dialects.script_search import MODULE, own_modules, pattern_of, read_source, words_of
from tuner_tui.settings.distributed import training_words
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.file_sources import settings_of_options
from tuner_tui.settings.job import CommandJob, Job, Task, model_among, task_of_source
from tuner_tui.settings.model import Value
from tuner_tui.settings.preset_file import LoadedPreset
from tuner_tui.settings.presets import load_preset
from tuner_tui.settings.yaml_reader import CONFIGURATIONS


@dataclass(frozen=True, slots=True)
class CommandTraining:
    """Model and task, None if not named, the settings that the command names, and its tool's `eval_strategy`.

    `sources` has the file of each setting that is in one. `upcasts`: its script prepares a quantized model by peft.
    """

    model: str | None = None
    task: Task | Literal["other"] | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)
    eval_strategy: Value = "no"
    upcasts: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def in_effect(self) -> Mapping[str, Value]:
        """The settings that the command names; it evaluates only where it or its tool says so."""
        return {"eval_strategy": self.eval_strategy, **self.settings}


def own_options(job: Job) -> Mapping[str, object]:
    """The options of the command of `job` by the last word of their key: of its files, then of its arguments."""
    if not isinstance(job, CommandJob):
        return {}
    options: dict[str, object] = {}
    for path in chain(*_files(job.command, Path(job.cwd or ""))):
        options |= {key.rpartition(".")[2]: value for key, value in flatten(values_of_file(path)).items()}
    return {**options, **_overrides(job.command), **read_options(job.command)}


def own_settings(job: Job) -> Mapping[str, Value]:
    """The settings of the command of `job` itself; none for the built-in job. Reads files."""
    return read_command(job.command, Path(job.cwd or ""), job.env).in_effect if isinstance(job, CommandJob) else {}


def read_command(words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> CommandTraining:
    """What a command started in `folder` with `env` says about its training. Unreadable files are skipped."""
    scripts, configurations = _files(words, folder)
    sources = [read_source(path) for path in scripts]
    options = {**_overrides(words), **read_options(tuple(words)), **flag_values(words, next(iter(scripts), None))}
    variables = {f"${name}": f"<{value}>" if "$" in value else value for name, value in (env or {}).items()}
    files: dict[Path, LoadedPreset] = {}
    for path in (*scripts, *configurations):
        with suppress(SettingsError):
            files[path] = load_preset(path, options | variables, scripts[:1] if path in configurations else ())
    tools = [dialect_of_command(words), *(file.dialect for file in files.values() if file.dialect is not None)]
    evaluates = ["no", *(tool.defaults["eval_strategy"] for tool in tools if "eval_strategy" in tool.defaults)]
    given = settings_of_options(options)
    printing = {path: "logging_steps" for path, file in files.items() if file.dialect and file.dialect.of_launcher}
    rows = [(path, row) for path, file in files.items() for row in file.preset.settings.items()]
    rows = [(path, row) for path, row in rows if row[0] != printing.get(path)]  # how often DeepSpeed itself prints
    of_files, origins = dict(row for _, row in rows), {row[0]: path.name for path, row in rows if row[0] not in given}
    jobs = [file.preset.job or file.training for path in (*configurations, *scripts) if (file := files.get(path))]
    named = (model_among({"model": job.model}) for job in jobs if job is not None)
    names = (model_among(options), *named, *map(_default_model, sources))
    model = next((name for name in names if name is not None), None)
    upcasts = any("prepare_model_for_kbit_training(" in source for source in sources)
    task = next((task for source in sources if (task := task_of_source(source)) is not None), None)
    return CommandTraining(model, task, {**of_files, **given}, evaluates[-1], upcasts, origins)


def _overrides(words: Sequence[str]) -> dict[str, str]:
    """`key=value` words, as Hydra reads them; `model.name=gpt2` also by the end of its key."""
    overrides = {match[1]: match[2] for match in map(OVERRIDE.fullmatch, words) if match is not None}
    return {key.rpartition(".")[2]: value for key, value in overrides.items()} | overrides


def _files(words: Sequence[str], folder: Path) -> tuple[list[Path], list[Path]]:
    """The Python files and the configuration files that the command names."""
    parts = (part for word in words for part in (word, word.partition("=")[2]))
    named = [part for part in parts if part.endswith((".py", *CONFIGURATIONS))]
    for option, module in pairwise(words):
        if option in MODULE:
            named += [f"{module.replace('.', '/')}{end}" for end in (".py", "/__main__.py")]
    # Path.is_file raises for a word that is too long for the name of a file.
    files = [path for path in (folder / name for name in dict.fromkeys(named)) if os.path.isfile(path)]  # noqa: PTH113
    scripts = [path for path in files if path.suffix in SCRIPT_FORMS]
    return scripts, [path for path in files if path not in scripts]


def _default_model(source: str) -> str | None:
    """The default of the script's own option for its model, a field of a dataclass, or a variable of such a name."""
    try:
        names = known_names(source)
    except PresetError:
        return None
    written = {*pattern_of("names_of_output").findall(source)} - {*pattern_of("loads_by_name").findall(source)}
    names = {name: value for name, value in names.items() if name not in written}
    model = model_among({name.removeprefix("args.").lower(): value for name, value in names.items()})
    is_other = model is not None and re.match(r"[./~]|.*/$|[A-Z][A-Za-z]+$", model)  # a class, or what it writes
    return None if is_other and "from_pretrained" not in source else model


class TrainingScript(Struct, frozen=True):
    """What the source of a script says; nothing was run.

    `options` and `switches` are those of its parsers, each with its aliases: `-b --batch-size`. `configured`: names at
    the top that `--name=value` replaces (nanoGPT's configurator). `loads_itself`: it loads a checkpoint that exists.
    """

    path: Path
    options: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    configured: tuple[str, ...] = ()
    has_trainer: bool = False
    loads_itself: bool = False


def read_training_script(command: Sequence[str], cwd: Path) -> TrainingScript | None:
    """The script that `command` runs in `cwd`; None where it names none that can be read."""
    path = next(iter(_files(command, cwd)[0]), None)
    if path is None:
        return None
    options: dict[tuple[str, bool], None] = {}
    configured: tuple[str, ...] = ()
    has_trainer = loads_itself = False
    for file, text in own_modules(path):
        try:
            tree = parse_python(text)
        except SyntaxError:
            continue
        options |= dict.fromkeys(_options(tree))
        if file == path and "configurator" in text:
            nodes = (node for node in tree.body if isinstance(node, ast.Assign))
            targets = (target for node in nodes if isinstance(node.value, ast.Constant) for target in node.targets)
            configured = tuple(target.id for target in targets if isinstance(target, ast.Name))
        has_trainer = has_trainer or all(pattern_of(name).search(text) for name in ("trainer", "trainer_packages"))
        loads_itself = loads_itself or any(map(_loads_existing, ast.walk(tree)))
    valued, switches = (tuple(words for words, is_switch in options if is_switch == kind) for kind in (False, True))
    return TrainingScript(path, valued, switches, configured, has_trainer, loads_itself)


def may_use_trainer(command: Sequence[str], cwd: Path) -> bool:
    """Whether the command trains by a Trainer of Transformers, as far as its words and its script say."""
    if any(Path(word).name in words_of("trainer_programs") for word in command[:4]):
        return True
    script = read_training_script(command, cwd)
    return script is not None and script.has_trainer


@lru_cache(maxsize=64)
def takes_arguments(command: tuple[str, ...], cwd: Path) -> bool | None:
    """Whether the command takes what `TrainingArguments` do; None where its script cannot be read."""
    command = training_words(command, cwd)
    if may_use_trainer(command, cwd) or "per_device_train_batch_size" in read_options(command):
        return True
    return False if _files(command, cwd)[0] else None


@lru_cache(maxsize=64)
def uses_pytorch(command: tuple[str, ...], cwd: Path) -> bool:
    """Whether the command may train with PyTorch: its script imports no other framework alone."""
    module = next((module for option, module in pairwise(command) if option in MODULE), command[0])
    source = "".join(read_source(path) for path in _files(command, cwd)[0]) or f"import {module}"
    return "torch" in source or pattern_of("other_frameworks").search(source) is None


def _options(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The aliases of each option, and whether it is a switch: `add_argument` of argparse, `option` of click."""
    for call, names in declared_options(ast.walk(tree)):
        words = [word for spelling in names for word in spelling.split("/") if word.startswith("-") and " " not in word]
        if words:
            yield " ".join(words), is_switch(call, names)


def _loads_existing(node: ast.AST) -> bool:
    """Whether `node` is `if os.path.exists(…)` around the loading of a checkpoint."""
    if not isinstance(node, ast.If) or not re.search(r"\b(?:exists|is_?file|is_?dir)\(", unparsed(node.test)):
        return False
    return pattern_of("loads_checkpoint").search("\n".join(map(unparsed, node.body))) is not None

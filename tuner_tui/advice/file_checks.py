"""Checks of a training tool's file before it trains: what it names, needs and writes, each with advice."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePath
from subprocess import TimeoutExpired
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.preflight import REQUIREMENTS, CheckState, PreflightCheck, logout_checks, preflight_check
from tuner_tui.advice.recommend.target import training_code_of
from tuner_tui.core.files import read_data_file
from tuner_tui.core.python_syntax import parse_python
from tuner_tui.core.units import format_size
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter import VERSIONS_TIMEOUT_S, Interpreter, major, run_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.probe_script import PACKAGES
from tuner_tui.hardware.system_info import read_space
from tuner_tui.memory.fixed_memory import fixed_sizes, trained_bytes
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.memory.model_shape import ModelShape, loaded_shape
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode
from tuner_tui.settings.command_training import own_settings, takes_arguments
from tuner_tui.settings.dialects.command_words import read_options
from tuner_tui.settings.dialects.dialect import HF, PLAIN, Dialect, leaf_pattern
from tuner_tui.settings.dialects.file_formats import form_of_file, parse_file, read_file_text
from tuner_tui.settings.dialects.nested_values import TEMPLATE, placeholders, texts_in
from tuner_tui.settings.dialects.python_source import TO_GIVE, UNSLOTH
from tuner_tui.settings.dialects.python_values import last_name
from tuner_tui.settings.dialects.script_search import (
    MODULE,
    imported_packages,
    project_programs,
    read_source,
    source_of,
    words_of,
    written_files,
)
from tuner_tui.settings.dialects.tool_job import arguments_of_script
from tuner_tui.settings.dialects.written_commands import program_of
from tuner_tui.settings.distributed import process_count, trains_on_cpu
from tuner_tui.settings.file_notes import ABSENT, INVALID, NOT_COMPLETE, UNREAD
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Resolved, Settings, shorten_text
from tuner_tui.settings.preset_file import LoadedPreset


class FileSystem(Struct, frozen=True):
    """What the checks ask the machine. Paths are relative to the folder that the training starts in."""

    exists: Callable[[str], bool]
    read: Callable[[str], str]
    free_bytes: Callable[[str], int | None]
    find_program: Callable[[str], str | None]
    missing_modules: Callable[[Sequence[str]], Collection[str]]


class TrainingFile(Struct, frozen=True):
    """A tool's file: its path and values, the settings and the job that it brings, its dialect and what it lacks."""

    path: Path
    values: Mapping[str, Any]
    resolved: Resolved
    job: BuiltinJob | CommandJob
    dialect: Dialect | None = None
    notes: Sequence[str] = ()

    @property
    def program(self) -> Path | None:
        """The script that the job's command starts, where it is there."""
        return None if isinstance(self.job, BuiltinJob) else program_of(self.job.command, self.path)


MISSING = "import sys; from importlib.util import find_spec; print(*(n for n in sys.argv[1:] if not find_spec(n)))"


def local_files(cwd: Path, python: str) -> FileSystem:
    """Return this machine's files as a training sees them that `python` runs and that starts in `cwd`."""

    def path(name: str) -> Path:
        return cwd / Path(name).expanduser()

    def missing(names: Sequence[str]) -> list[str]:
        with suppress(OSError, TimeoutExpired):
            return run_interpreter([python, "-", *names], MISSING, VERSIONS_TIMEOUT_S)[0].split()
        return []

    return FileSystem(
        exists=lambda name: os.path.exists(path(name)),  # noqa: PTH110  Path.exists raises where it may not look
        read=lambda name: read_source(path(name)),
        free_bytes=lambda name: None if (space := read_space(path(name))) is None else space.free_bytes,
        find_program=shutil.which,
        missing_modules=missing,
    )


def loaded_file_checks(
    loaded: LoadedPreset, chosen: Resolved, job: Job, inventory: Inventory, interpreter: Interpreter
) -> tuple[PreflightCheck, ...]:
    """The checks on this machine of the tool's file or script that was loaded; none of a preset."""
    if loaded.dialect is None or loaded.path is None:
        return ()
    is_unread = any(UNREAD in note for note in loaded.notes)
    values = {} if is_unread else parse_file(read_file_text(loaded.path), loaded.path).values
    file = TrainingFile(loaded.path, values, chosen, job, loaded.dialect, loaded.notes)
    cwd = Path.cwd() if isinstance(job, BuiltinJob) else Path(job.cwd or Path.cwd())
    return file_checks(file, inventory, interpreter, local_files(cwd, interpreter.path))


def file_findings(checks: Iterable[PreflightCheck]) -> tuple[Finding, ...]:
    """A finding for each check that is wrong: without it the training does not start, or is another."""
    wrong = [check for check in checks if check.state == "wrong"]
    return tuple(
        Finding(f"file-{number}", "warning", check.sentence, (), "certain", remedies=(Remedy(check.advice, ""),))
        for number, check in enumerate(wrong)
    )


def file_checks(
    file: TrainingFile, inventory: Inventory, interpreter: Interpreter, files: FileSystem
) -> tuple[PreflightCheck, ...]:
    """The checks of one file, in the order in which a training would fail."""
    modelled = modelled_job(file.job)
    shape = None if modelled is None else known_shape(modelled.model, modelled.task)
    wrong_values = (note.partition(" ignored: ")[2] for note in file.notes)
    return (
        *(PreflightCheck("Settings", "warning", f"{wrong}.") for wrong in wrong_values if " must be " in wrong),
        *program_checks(file.job, files, file.notes),
        *device_checks(file, inventory),
        *package_checks(file, interpreter),
        *import_checks(file, interpreter, files),
        *argument_checks(file, interpreter),
        *path_checks(file, files),
        *length_checks(file.resolved, shape),
        *checkpoint_checks(file, shape, files),
        *logout_checks(inventory),
    )


def program_checks(
    job: BuiltinJob | CommandJob, files: FileSystem, notes: Sequence[str] = ()
) -> Iterator[PreflightCheck]:
    """Whether the job's program is there, and what the notes on its file say that it lacks."""
    if isinstance(job, BuiltinJob):
        return
    if job.is_unnamed:
        sentence = ("the file does not show which command reads it", *notes)[-1]
        yield PreflightCheck("Program", "warning", f"{sentence[0].upper()}{sentence[1:]}.")
        return
    for note in notes:
        name, is_absent, _ = note.partition(ABSENT)
        if is_absent:
            yield PreflightCheck("Program", "wrong" if name in job.command else "warning", f"{note}.")
        elif INVALID in note or UNREAD in note:
            yield PreflightCheck("Program", "wrong", f"{note}.")
        elif NOT_COMPLETE in note:
            yield PreflightCheck("Program", "warning", f"{note[0].upper()}{note[1:]}.")
    if "/" in job.command[0] or files.find_program(job.command[0]) is not None:
        return
    program = job.command[0]
    of_project = "-e ." if program in project_programs(Path(job.cwd or "", program)) else None
    package = of_project or read_data_file(REQUIREMENTS)["programs"].get(program)
    yield preflight_check("installable program" if package else "no program", program=program, package=package)


def package_checks(file: TrainingFile, interpreter: Interpreter) -> Iterator[PreflightCheck]:
    """Whether the interpreter has the packages that the file asks for."""
    if "torch" not in interpreter.packages:
        return  # nothing is known of it, which is a check of its own
    packages = required_packages(file.values).items()
    is_whole = file.resolved.given.get("quantization") == "none"  # whatever a section says that a switch turns off
    needed = {n: entry for n, entry in packages if n in PACKAGES and not (is_whole and "load_in_" in entry)}
    tool = file.dialect  # several have a LoRA of their own
    of_peft = tool is None or tool.extends_hf or "peft_method" in tool.values
    if of_peft and file.resolved.settings.peft_method != "none":
        needed.setdefault("peft", f"peft_method {file.resolved.settings.peft_method}")
    missing = {name: entry for name, entry in needed.items() if name not in interpreter.packages}
    given_to_pip = read_data_file(REQUIREMENTS)["given_to_pip"]
    for name, entry in missing.items():
        words = given_to_pip.get(name, name)
        yield preflight_check("no package", entry=entry, package=name, python=interpreter.path, words=words)
    if needed and not missing:
        yield preflight_check("packages", names=", ".join(needed))


def device_checks(file: TrainingFile, inventory: Inventory) -> Iterator[PreflightCheck]:
    """Whether this machine has the GPUs that the command asks for, unless it is for another one or several."""
    job, gpus = file.job, len(visible_gpus(inventory))
    shown = getattr(job, "env", {}).get("CUDA_VISIBLE_DEVICES")
    if gpus and shown is not None and not re.fullmatch(r"[\d, ]*\d|.*(?:\$|GPU-|MIG-).*", shown):
        yield preflight_check("hidden by command", visible=shown or "''")
    if isinstance(job, BuiltinJob) or job.launcher != "plain" or not gpus or trains_on_cpu(job):
        return
    count = process_count(job, gpus)
    if count > gpus and not _says(file, "elsewhere"):
        yield preflight_check("too few gpus", count=count, visible=f"{gpus} are" if gpus > 1 else "1 is", gpus=gpus)


def _says(file: TrainingFile, *patterns: str) -> bool:
    """Whether the text of the file, or its command, has one of the patterns of `requirements.yaml`."""
    text = f"{read_source(file.path)}\n{' '.join(getattr(file.job, 'command', ()))}"
    return any(re.search(read_data_file(REQUIREMENTS)[pattern], text, re.VERBOSE) for pattern in patterns)


def import_checks(file: TrainingFile, interpreter: Interpreter, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether the interpreter has what the program of the command imports whatever happens."""
    job, by_pip = file.job, read_data_file(REQUIREMENTS)["by_pip"]
    if isinstance(job, BuiltinJob) or job.is_unnamed or "torch" not in interpreter.packages:
        return
    if _says(file, "installs"):
        return
    script = file.program
    modules = [name.partition(".")[0] for option, name in pairwise(job.command) if option in MODULE and script is None]
    names = imported_packages(script) if script is not None and script.suffix == ".py" else modules
    source = "" if script is None else read_source(script)
    for call, module in read_data_file(REQUIREMENTS)["needed_by_calls"].items():
        if f"{call}(" in source and files.missing_modules([module]):
            words = by_pip.get(module, module)
            yield preflight_check("no package", entry=call, package=module, python=interpreter.path, words=words)
    checked = required_packages(file.values)  # by the check of the packages
    names = [name for name in names if by_pip.get(name, name) and name.replace("_", "-") not in checked]
    if missing := files.missing_modules(names) if names else ():
        words = " ".join(by_pip.get(name, name) for name in missing)
        program = "The command starts" if script is None else f"{script.name} imports"
        values = {"program": program, "names": ", ".join(missing), "python": interpreter.path, "words": words}
        yield preflight_check("imports", "warning" if _says(file, "elsewhere") else None, **values)


def argument_checks(file: TrainingFile, interpreter: Interpreter) -> Iterator[PreflightCheck]:
    """Whether the installed `TrainingArguments` have the names that the file uses."""
    names, release = interpreter.training_arguments, interpreter.packages.get("transformers")
    of_trainer = file.dialect is not None and file.dialect.name in (HF, "trl", *PLAIN.values())
    notes = {*file.notes} if of_trainer else set[str]()
    if not isinstance(file.job, BuiltinJob) and not _says(file, "elsewhere", "installs"):
        notes |= {*arguments_of_script(file.program).notes}
    for note in sorted(notes) if names and not _says(file, "pins") else ():
        old, is_old, meant = note.partition(" is read as ")
        if is_old and "removed by transformers" in meant and old not in (names or {}):
            why, new = meant.partition(": ")[2], meant.split()[0]
            yield preflight_check("no argument", release=release, old=old, why=why, new=new)
    script = file.program
    if script is not None and not _says(file, "elsewhere", "installs", "pins"):
        yield from call_checks(read_source(script), interpreter)


def call_checks(source: str, interpreter: Interpreter) -> Iterator[PreflightCheck]:
    """Whether the installed trainers take the arguments that calls in the source give them."""
    table, imported = read_data_file(REQUIREMENTS)["refused_arguments"], dict[str, str]()
    with suppress(SyntaxError):
        for node in () if UNSLOTH in source else ast.walk(parse_python(source)):  # breadth first: imports before calls
            called = (last_name(node.func) if isinstance(node, ast.Call) else None) or ""
            if isinstance(node, ast.ImportFrom):
                imported |= {name.name: (node.module or "").partition(".")[0] for name in node.names}
            elif isinstance(node, ast.Call) and called in table and imported.get(called) == table[called]["package"]:
                package, since, arguments = (table[called][key] for key in ("package", "since", "arguments"))
                release = interpreter.packages.get(package, "0")
                is_refused = major(release) >= since
                for old in (word.arg for word in node.keywords if is_refused and word.arg in arguments):
                    values = {"call": called, "package": package, "release": release, "old": old, "new": arguments[old]}
                    yield preflight_check("refused argument", **values)


def path_checks(file: TrainingFile, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether the files and folders that the file names are there, and all values are those of its user."""
    computes = form_of_file(file.path) == "python"  # `<source>` stands for what only the run knows
    texts = (text for text in texts_in(file.values) if text != TO_GIVE and not (computes and TEMPLATE.fullmatch(text)))
    if to_give := placeholders(texts, read_source(file.path)):
        yield preflight_check("values to give", texts=to_give, file=file.path)
    named = [entry for entry in named_paths(file.values, file.dialect) if not placeholders([entry.path])]
    named += (entry for listing in named if listing.kind == LISTING for entry in listed_files(listing, file, files))
    written = written_files("" if file.program is None else source_of(file.program))
    absent = (entry for entry in reversed(named) if PurePath(entry.path).name not in written)
    missing = {entry.path: entry for entry in absent if not files.exists(entry.path)}
    for entry in reversed(missing.values()):
        sentence = f"{entry.key}: the {entry.kind} {entry.path} does not exist."
        yield PreflightCheck("Files", "wrong", sentence, _remedy(entry, file, files))
    if named and not missing and not to_give:
        yield preflight_check("files")


def _remedy(missing: NamedPath, file: TrainingFile, files: FileSystem) -> str:
    """The folder near the file from which the path would be found, else what to change."""
    for folder in [*file.path.absolute().parents][:4]:
        if not missing.path.startswith(("/", "~")) and files.exists(str(folder / missing.path)):
            return f"Start from the folder the path is relative to: cd {folder}"
    return f"Create it, or change {missing.key} in {file.path}."


LISTING = "list of datasets"
LLAMA_FACTORY_KEYS = frozenset({"finetuning_type", "stage"})
"""With one of them `dataset` holds names from the `dataset_info.json` in `dataset_dir`."""


class NamedPath(Struct, frozen=True):
    """A file or folder that a key of the file names; `kind` is data, model or another word for the sentence."""

    key: str
    path: str
    kind: str


def required_packages(values: Mapping[str, Any]) -> dict[str, str]:
    """The packages that the values of a tool's file ask for, by distribution name, and the key and value that do."""
    table = read_data_file(REQUIREMENTS)
    packages: dict[str, str] = {}
    leaves = [*_leaves(values)]
    off = tuple(f"{re.sub('use_', '', key)}_" for key, value in leaves if value is False)
    for key, value in leaves:
        word = str(value).strip().lower()
        if key.startswith(off) or any(key.endswith(f".{other}") for other, _ in leaves):
            continue  # of a switch that is off, or of a variant that nothing here chooses
        for row in table["packages"]:
            asks = re.search(row["value"], word) if "value" in row else word not in table["off_words"]
            if asks and re.fullmatch(row["key"], key.rpartition(".")[2]):
                packages.setdefault(row["package"], f"{shorten_text(key)}: {shorten_text(str(value))}")
    return packages


def named_paths(values: Mapping[str, Any], dialect: Dialect | None = None) -> tuple[NamedPath, ...]:
    """The files and folders on this machine that the values of a tool's file name.

    Keys are those of all tools, and those by which the `dialect` of the file names model and data.
    """
    table = read_data_file(REQUIREMENTS)
    begins, ends = tuple(table["path_begins"]), tuple(table["path_ends"])
    kinds = {key: kind for kind, keys in table["paths"].items() for key in keys}
    of_tool: dict[str, str] = {}
    if dialect is not None:
        # An alias that only some values make a model's name may be that of a folder to write to.
        certain = (key for key in dialect.model_keys if key not in words_of("only_of_value"))
        of_tool = dict.fromkeys(certain, "model") | dict.fromkeys(dialect.data_keys, "data")
    paths, leaves = [], [*_leaves(values)]
    of_root = ((key.rpartition("."), value) for key, value in leaves if isinstance(value, str))
    roots = {section: value for (section, _, name), value in of_root if re.fullmatch(table["roots"], name)}
    for key, value in leaves:
        kind = next((of_tool[name] for name in of_tool if leaf_pattern(name).match(key)), None)
        kind = kind or kinds.get(key.rpartition(".")[2])
        if kind is None or not isinstance(value, str):
            continue
        for word in value.split(",") if kind == "data" else (value,):
            path = word.strip().partition("#")[0]  # ms-swift's number of samples
            if kind == "data" and "/" not in path and path.endswith(ends):
                section = key.rpartition(".")[0]
                path = str(PurePath(roots.get(section, roots.get(section.rpartition(".")[0], "")), path))
            if path.startswith(begins) or (path.endswith(ends) and "://" not in path):
                paths.append(NamedPath(key, path, kind))
    listed = values.get("dataset_dir", "data")
    by_name = bool(values.get("dataset")) and bool(LLAMA_FACTORY_KEYS & values.keys())
    if by_name and isinstance(listed, str) and not listed.startswith(("ONLINE", "REMOTE:")):
        paths.append(NamedPath("dataset_dir", f"{listed}/dataset_info.json", LISTING))
    return tuple(dict.fromkeys(paths))


def listed_files(listing: NamedPath, file: TrainingFile, files: FileSystem) -> Iterator[NamedPath]:
    """The files that LLaMA-Factory's list has for the names of the data."""
    with suppress(ValueError, RecursionError):
        listed = json.loads(files.read(listing.path) or "{}")
        if not isinstance(listed, dict):
            return
        names = ((key, name) for key in ("dataset", "eval_dataset") for name in str(file.values.get(key)).split(","))
        for key, name in names:
            entry = listed.get(name.strip())
            if isinstance(entry, dict) and isinstance(entry.get("file_name"), str):
                yield NamedPath(key, str(PurePath(listing.path).parent / entry["file_name"]), "data")


def _leaves(values: object, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of what is switched on and not filled in at start, under its dotted key or that of its list."""
    if isinstance(values, Mapping) and not any(values.get(name) is False for name in words_of("section_switches")):
        for name, value in values.items():
            of_hydra = name == "defaults" and isinstance(value, list)  # the names of groups
            yield from () if of_hydra else _leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list):
        for value in values:
            yield from _leaves(value, key)
    elif not isinstance(values, Mapping) and not (isinstance(values, str) and TEMPLATE.search(values)):
        yield key, values


def length_checks(resolved: Resolved, shape: ModelShape | None) -> Iterator[PreflightCheck]:
    """Whether samples may be longer than the model's positions."""
    length = resolved.settings.max_length
    if shape is None or shape.positions is None or "max_length" not in resolved.chosen:
        return
    row = "too long" if length > shape.positions else "length"
    yield preflight_check(row, length=length, positions=shape.positions, model=shape.name)


def checkpoint_checks(file: TrainingFile, shape: ModelShape | None, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether the checkpoints that a Trainer writes fit their disk; what another program saves is not known."""
    job, chosen = file.job, {*file.resolved.chosen}
    if shape is None or (isinstance(job, CommandJob) and not takes_arguments(job.command, Path(job.cwd or ""))):
        return
    of_script = {name: value for name, value in own_settings(job).items() if name not in chosen}
    settings, chosen = replace(file.resolved.settings, **of_script), chosen | of_script.keys()
    if settings.save_strategy == "no":
        return
    leaves = {**read_options(getattr(job, "command", ())), **dict(_leaves(file.values))}
    output = re.compile(read_data_file(REQUIREMENTS)["output_keys"])
    folder = next((value for key, value in leaves.items() if isinstance(value, str) and output.fullmatch(key)), ".")
    is_unsaid = folder == "." and file.dialect is not None and not file.dialect.programs  # which names a folder
    if is_unsaid or (free := files.free_bytes(folder)) is None:
        return
    size = checkpoint_bytes(shape, settings, training_code_of(job, None))
    limit = settings.save_total_limit if "save_total_limit" in chosen else None
    saves = _saves(settings, chosen)
    kept = saves if limit is None else limit + 1  # the next is written before the oldest goes
    count = min(saves, kept) if saves is not None and kept is not None else kept or 1
    number = "One checkpoint takes" if kept is None else f"{count} checkpoint{'s' if count > 1 else ''} of"
    number = f"Up to {number}" if kept is not None and saves is None else number
    where = "the working folder" if folder == "." else folder
    # How many there will be may depend on the data.
    otherwise: CheckState = "warning" if saves is None and size * min(count, 2) <= free else "wrong"
    fewer = int(free / size) - 1  # the next is written before the oldest goes
    helps = fewer >= 1 and (limit is None or fewer < limit)
    another = f"--set save_total_limit={fewer}, or another" if helps else "Choose another"
    sizes = {"size": format_size(size), "free": format_size(free), "where": where, "another": another}
    yield preflight_check("checkpoints", "good" if size * count <= free else otherwise, number=number, **sizes)


def checkpoint_bytes(shape: ModelShape, settings: Settings, code: TrainingCode = BUILT_IN) -> float:
    """The size of a checkpoint: what is trained, and the state of its optimizer."""
    sizes = fixed_sizes(shape, settings, code=code)
    return sizes.numbers.trainable * trained_bytes(loaded_shape(shape, settings), settings) + sizes.states


def _saves(settings: Settings, chosen: Collection[str]) -> int | None:
    """How many checkpoints the training writes; None where that depends on the number of samples, or is not said."""
    if not {"save_strategy", "save_steps"} & {*chosen}:
        return None
    if settings.save_strategy == "steps" or "save_strategy" not in chosen:
        return None if settings.max_steps is None else max(1, -(-settings.max_steps // settings.save_steps))
    return None if settings.max_steps is not None else max(1, round(settings.num_train_epochs))

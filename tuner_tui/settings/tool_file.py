"""A training tool's own file, opened as a preset: its settings and its command. New values are written into it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from tuner_tui.core.python_syntax import parse_python
from tuner_tui.settings.dialects.command_words import is_known_option, read_options, read_overrides, script_of
from tuner_tui.settings.dialects.dialect import HF, Dialect, dialect_of_command, dialects, leaf_pattern
from tuner_tui.settings.dialects.dialect_choice import dialect_of_file
from tuner_tui.settings.dialects.file_changes import NOT_IN_FILE, file_changes
from tuner_tui.settings.dialects.file_formats import (
    SCRIPT_FORMS,
    bases_of,
    form_of_file,
    parse_file,
    patch_file,
    read_file_text,
)
from tuner_tui.settings.dialects.hf import ImportedSettings
from tuner_tui.settings.dialects.hydra import (
    compose,
    compose_with,
    configuration_of,
    group_of,
    is_named,
    missing_fields,
)
from tuner_tui.settings.dialects.job_files import kind_of_name
from tuner_tui.settings.dialects.key_places import keys_in_file, without_other_meanings
from tuner_tui.settings.dialects.nested_values import (
    TEMPLATE,
    flatten,
    placeholders,
    set_nested,
    texts_in,
    with_references,
)
from tuner_tui.settings.dialects.purpose import is_for_any_program, names_of_transformers, why_no_training
from tuner_tui.settings.dialects.python_source import TO_GIVE, flag_values, required_options
from tuner_tui.settings.dialects.python_values import known_names
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    WORD,
    find_program,
    own_modules,
    pattern_of,
    read_source,
    source_of,
    words_of,
)
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.tool_job import (
    gpus_of_program,
    settings_of_sources,
    training_of_file,
    with_model_and_data,
)
from tuner_tui.settings.dialects.written_commands import open_command, program_of
from tuner_tui.settings.distributed import process_count, read_accelerate_config, trains_on_cpu
from tuner_tui.settings.errors import FieldError, PresetError, SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import FIELDS, Settings, Value, shorten_text, without_unused
from tuner_tui.settings.preset_file import LoadedPreset, Preset, default_name, is_preset
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile

SHELL_SUFFIXES = tuple(suffix for suffix, form in SCRIPT_FORMS.items() if form == "arguments")
OF_ITSELF = re.compile(r"it needs (?:\$[@*#](?:, )?)+|only the shell knows .*")
"""What a script that is started as a whole has without its caller."""
ABSENT, NOT_COMPLETE, INVALID = ", which the command needs, is not there", " is not complete: ", " is not valid Python"
UNREAD = " and reads none of its sections: it trains with values of its own"
"""What a note says after the name of a file."""
OF_ENVIRONMENT = re.compile(r"\$\{(?:(?:oc\.)?env:|(?=[A-Z\d]+_[A-Z\d_]+\}))(\w+)\}")
ONLY_THIS = "only this command is started, not"
MOST_NAMED = 8
"""Of more keys that are no settings, the number is said."""


def import_tool_file(file: ToolFile, source: str, path: Path | None, tool: Dialect | None = None) -> LoadedPreset:
    """The settings in a tool's file, and the tool's command on the file itself as the job. Raises `PresetError`."""
    form = "yaml" if path is None else form_of_file(path)
    if path is not None and file.words:
        file = _with_total_batch(file, path)
    dialect = tool or tool_of_file(replace(file, values=with_references(file.values)), path)
    of_any = not (dialect.programs or dialect.of_launcher or file.words)
    name = str(path.absolute() if path else "")
    if of_any and dialect.form != "python" and (why := why_no_training(flatten(file.values), name)):
        raise PresetError(f"{source}: {why}")
    if path is not None and dialect.form == "overrides" and not file.words:
        file = _composed(file, dialect, path)
    if form == "yaml":
        file = replace(file, values=with_references(file.values))
    imported, training = _read(dialect, file, source, path)
    has_command = training is not None and not training.is_unnamed
    of_script = of_any and form != "python"
    if tool is None and _shows_no_training(file, dialect, imported, training, of_script=of_script):
        if path is not None and dialect.name == HF and open_command(path):  # a text gives it to a training
            return import_tool_file(file, source, path, dialects()["own-script"])
        why = "neither a preset (`settings:` with `name: value` lines) nor a known configuration file"
        raise PresetError(f"{source}: {why}; {_what_it_is(file, path)}")
    program = program_of(training.command, path) if of_script and path is not None and training is not None else None
    is_unread = training is not None and program is not None and _reads_no_section(program, file.values)
    if training is not None and is_unread:
        file, imported = replace(file, values={}), read_settings(dialect, {})
        training = replace(training, model=None, task=None, data=None, stated={})
    settings, sources = imported.settings, dict[str, str]()
    if training is not None and path is not None:
        settings, training, sources = _with_sources(imported, training, dialect, file, path)
    job = training if has_command else None
    if job is not None and path is not None:
        needs = _what_job_needs(job, flatten(file.values), file.words, path)
        file = replace(file, incomplete=(*file.incomplete, *needs))
    in_use = without_unused(settings)
    preset = Preset(name=default_name(path), settings=in_use, job=job)
    sources = {name: source for name, source in sources.items() if name in in_use.keys() - imported.settings.keys()}
    of_sources = {source: [name for name in sources if sources[name] == source] for source in sources.values()}
    # Where the tool reads its other keys from the file, nothing is lost.
    reads_others = bool(job is not None or form == "python" or file.words or dialect.of_launcher)
    of_tool = {*dialect.model_keys, *dialect.data_keys} if reads_others else set()
    ignored, count = tuple(key for key in imported.ignored if key not in of_tool), len(imported.unknown)
    left_out = imported.unknown if reads_others or count > MOST_NAMED else ()
    notes = (
        *(note for note in imported.notes if note not in left_out),
        *([f"{count} other keys stay in the file"] if left_out and not reads_others else []),
        *(f"from {source}: {', '.join(names)}" for source, names in of_sources.items()),
        *_notes_on_files(file, training, job, path),
        *([f"{program.name} takes the keys at the top of this file{UNREAD}"] if program and is_unread else []),
        *_notes_on_command(file, dialect, training, job, source, path),
    )
    return LoadedPreset(preset, path, notes, dialect, ignored, imported.left_open, None if job else training, sources)


def _with_total_batch(file: ToolFile, path: Path) -> ToolFile:
    """The file of a command whose program calls the batch of all GPUs by a name of its own."""
    program = program_of(file.words, path)
    total = None if program is None else pattern_of("total_batch").search(read_source(program))
    renamed = {} if total is None else {total[1]: "global_batch_size"}
    return replace(file, values={renamed.get(key, key): value for key, value in file.values.items()})


def _composed(file: ToolFile, dialect: Dialect, path: Path) -> ToolFile:
    """One of Hydra's files with those that it is composed of; what it says itself counts."""
    values = compose(file.values, path)
    if group_of(path) is None:
        opened, whole = (keys_in_file(dialect, flatten(part)) for part in (file.values, values))
        for key in (key for key, path_in_file in opened.items() if whole.get(key, path_in_file) != path_in_file):
            set_nested(values, whole[key].split("."), None)
    needed = [shorten_text(key) for key, value in flatten(values).items() if value == TO_GIVE]
    defaults = file.values.get("defaults") or ()
    groups = (pair for entry in defaults if isinstance(entry, Mapping) for pair in entry.items())
    needed += [str(group) for group, choice in groups if choice is None and f"${{{group}}}" in str(defaults)]
    return replace(file, values=values, incomplete=(f"it needs {', '.join(needed)}",) if needed else ())


def _read(
    dialect: Dialect, file: ToolFile, source: str, path: Path | None
) -> tuple[ImportedSettings, CommandJob | None]:
    """The settings in a file and what it trains. Raises `PresetError` with the line."""
    try:
        return read_settings(dialect, file.values), None if path is None else training_of_file(dialect, file, path)
    except SettingsError as error:
        field = error.field if isinstance(error, FieldError) else ""
        line = file.lines.get(field, file.lines.get(dialect.names.get(field, "")))
        raise PresetError(f"{source}{'' if line is None or not field else f':{line}'}: {error}") from None


def _shows_no_training(
    file: ToolFile, dialect: Dialect, imported: ImportedSettings, training: CommandJob | None, *, of_script: bool
) -> bool:
    """Whether nothing in a file is known to be of a training. `of_script`: its keys are not those of any tool."""
    has_command = training is not None and not training.is_unnamed
    is_recognised = bool(imported.settings or imported.left_open or dialect.certain_keys)
    if of_script and not is_recognised and (training is None or training.model is None):
        return True
    silent = of_script and is_for_any_program(imported.settings, flatten(file.values))
    return not has_command and (silent or not (file.words or is_recognised))


def _with_sources(
    imported: ImportedSettings, training: CommandJob, dialect: Dialect, file: ToolFile, path: Path
) -> tuple[Mapping[str, Value], CommandJob, dict[str, str]]:
    """The settings and the training with what its command, its program and its launcher say; and in which file."""
    settings, sources, has_command = imported.settings, dict[str, str](), not training.is_unnamed
    if has_command or file.words:
        settings, training, sources = _with_command(settings, training, file, path)
        settings = imported.settings if dialect.of_launcher else settings  # it is given to other commands as well
    if has_command and (dialect.name == HF or dialect.of_launcher) and not file.words:
        # What scripts call a setting, with one such key.
        of_script = read_settings(dialects()["own-script"], file.values).settings
        settings, sources = {**of_script, **settings}, dict.fromkeys(of_script, path.name) | sources
    flat, program = flatten(file.values), program_of(file.words or training.command, path)
    if path.suffix == ".py" and training.task in ("causal-lm", "seq2seq"):
        settings = {**length_of_names(path), **settings}
    if form_of_file(path) != "python" and not file.words:
        settings = settings_of_sources(settings, training, flat, path)
        origin = path.name if program is None else program.name
        sources |= {name: origin for name in settings if name not in imported.settings and name not in sources}
    if "bf16" not in file.values and settings.get("precision", "fp32") == "fp32":
        settings = {**settings, **_of_launcher(training)}
    by_source = gpus_of_program(file.words or training.command, path, "gpus" in training.stated)
    training = replace(training, stated={**training.stated, **by_source})
    training = _with_stated(training, settings, imported.foreign)
    sharding = Path(str(training.stated.get("sharding", "")))
    if sharding.is_absolute() and (here := find_program(path, [sharding])) is not None:  # another place in a container
        training = replace(training, stated={**training.stated, "sharding": str(here)})
    halves = [part for half in ("input", "output") if isinstance(part := training.stated.get(f"{half}_length"), int)]
    if len(halves) > 1 and settings.get("max_length", halves[0]) in halves and training.task != "seq2seq":
        settings = {**settings, "max_length": sum(halves)}  # a sample has both
    if program is None:
        return {**settings, **_of_global_batch(settings, training, flat, program)}, training, sources
    source, set_names = source_of(program), {*settings, *training.stated, *imported.left_open}
    of_calls = read_settings(dialects()["own-script"], dict(_values_of_calls(source)))
    read = {name: value for name, value in of_calls.settings.items() if name not in set_names}
    settings, sources = {**read, **settings}, sources | dict.fromkeys(read, program.name)
    stated = {name: value for name, value in of_calls.foreign.items() if name not in set_names}
    training = replace(training, stated={**stated, **training.stated})
    if training.model and "/" not in training.model:  # a short name of the program's own
        entry = rf"[\"']{re.escape(training.model)}[\"']\s*:\s*[\"']([\w.-]+/[\w.-]+)[\"']"
        named = re.search(entry, source)
        training = training if named is None else replace(training, model=named[1])
    return {**settings, **_of_global_batch(settings, training, flat, program)}, training, sources


def _values_of_calls(source: str) -> Iterator[tuple[str, Any]]:
    """What a program's only optimizer, all its loaders and all its calls of `autocast` say."""
    on_gpu = "|".join(pattern_of("true_on_gpu").findall(source)) or "True"
    source = re.sub(rf"\benabled\s*=\s*(?:{on_gpu})(?=\s*[,)])", "enabled=True", source)
    optimizers = {*map("".join, pattern_of("optimizer_of_source").findall(source))}
    workers, casts = ({*pattern_of(name).findall(source)} for name in ("workers_of_source", "autocasts"))
    if len(optimizers) == 1:
        yield "optimizer.type", optimizers.pop()
    if len(workers) == 1 and min(workers).isdecimal() and not pattern_of("trainer").search(source):
        yield "num_workers", int(workers.pop())
    types = {word for cast in casts for word in re.findall(r"\b(?:bfloat16|float16|half)\b", cast) or ["default"]}
    is_known = len(types) == 1 and not any(map(pattern_of("autocast_of_unknown_type").search, casts))
    if is_known and (types != {"default"} or "GradScaler(" in source):  # which half the default of a GPU needs
        yield "precision", "bf16" if types == {"bfloat16"} else "fp16"


def _notes_on_files(
    file: ToolFile, training: CommandJob | None, job: CommandJob | None, path: Path | None
) -> Iterator[str]:
    """What the file states besides settings, and the files that it needs and that are missing."""
    if training is not None and training.stated:
        yield f"stated besides: {', '.join(f'{name} {value}' for name, value in training.stated.items())}"
    if path is None:
        return
    for name in [] if job is None else absent_files(file.words or job.command, file.folder, job, path):
        yield f"{name}{ABSENT}: its settings are unknown"
    program = path if form_of_file(path) == "python" else program_of(file.words, path) if job and file.words else None
    source = "" if program is None else source_of(program)
    if "torch" not in source and (other := pattern_of("other_frameworks").search(source)) is not None:
        yield f"{program.name if program else ''} trains with {other[1]}, not with PyTorch: nothing here suits it"
    if program not in (None, path) and program.suffix == ".py":
        try:
            parse_python(read_source(program))
        except SyntaxError as error:
            version = ".".join(map(str, sys.version_info[:2]))
            yield f"{program.name}:{error.lineno}{INVALID} {version} and not read: {error.msg.partition('. ')[0]}"
    if file.command and file.more and (job is None or job.command[0] != "bash"):
        yield f"{ONLY_THIS} {', '.join(file.more[:MOST_NAMED])} of {path.name}"
    for base in bases_of(file.values, path):
        if not base.is_file():
            yield f"{base}, which the file extends, is not there: its settings are unknown"


def _notes_on_command(
    file: ToolFile,
    dialect: Dialect,
    training: CommandJob | None,
    job: CommandJob | None,
    source: str,
    path: Path | None,
) -> Iterator[str]:
    """What the command or the file lacks, and how to name the command where the file shows none."""
    is_whole = job is not None and job.command[0] == "bash"
    reasons = [reason for reason in file.incomplete if not (is_whole and OF_ITSELF.fullmatch(reason))]
    is_given = (path is None or form_of_file(path) == "yaml") and dialect.form != "overrides"
    of_file = [text for text in texts_in({} if file.words else file.values) if is_given or not TEMPLATE.fullmatch(text)]
    words = [] if job is None else [word for word in (*(file.words or job.command), file.folder) if "$" not in word]
    if open_words := placeholders(words, "" if path is None else read_source(path)):
        reasons.append(f"it has placeholders to fill in: {open_words}")
    source_text = "" if path is None or file.words or form_of_file(path) == "python" else read_source(path)
    keys = pattern_of("key_to_fill_in").findall(source_text)
    if open_values := ", ".join(filter(None, (placeholders(of_file), *keys))):
        yield f"{Path(source).name} has placeholders to fill in: {open_values}"
    named = () if training is None or job is not None else (("model", training.model), ("data", training.data))
    if names := [f"{part} {name}" for part, name in named if name]:
        yield f"the file names {' and '.join(names)}"
    if reasons and (job is not None or file.incomplete):
        then = "give it whole, as in `tuner-tui run -- python train.py`"
        if job is not None:
            then = "the script is started as a whole" if is_whole else "give it in the command"
        yield f"the command in {Path(source).name}{NOT_COMPLETE}{'; '.join(reasons)}; {then}"
    elif path is not None and job is None:
        yield from (f"{path.name}{NOT_COMPLETE}{reason}" for reason in reasons)
        of_tool = f"this file configures {dialect.tool}, not a training run: open the file or script it is passed"
        yield of_tool if dialect.of_launcher else command_to_name(path)


def _with_stated(job: CommandJob, settings: Mapping[str, Value], foreign: Mapping[str, str]) -> CommandJob:
    """The job with what its file states, but for a warm-up that is a setting and the modules of no adapter."""
    count = process_count(job)
    job = replace(job, stated={"gpus": count, **job.stated}) if count > 1 else job
    twice = {name for name, setting in words_of("no_setting").items() if setting in settings}
    twice |= {"gpus", "devices"} if trains_on_cpu(job) else set()
    twice |= {"lora_target_modules", "modules_to_save"} if settings.get("peft_method") == "none" else set()
    stated = {name: value for name, value in {**job.stated, **foreign}.items() if name not in twice}
    return replace(job, stated=stated)


def _of_launcher(job: CommandJob) -> Mapping[str, Value]:
    """The precision that accelerate's own option or the configuration it is given says: the Trainer takes it."""
    options = read_options(job.command)
    config = read_accelerate_config(job, {}, Path()) if "config_file" in options else None
    word = options.get("mixed_precision", "" if config is None else config.mixed_precision)
    return {"precision": word} if word in ("bf16", "fp16") and "accelerate" in job.command[:3] else {}


def _of_global_batch(
    settings: Mapping[str, Value], job: CommandJob, flat: Mapping[str, Any], program: Path | None
) -> Mapping[str, Value]:
    """The micro batch or the accumulation by a batch of all devices together, where their number is known.

    It has a name for that, or the program divides it.
    """
    if any(leaf_pattern("device_train_microbatch_size").search(key) for key, value in flat.items() if value == "auto"):
        return {}
    pattern = leaf_pattern(words_of("global_batch"))
    values = without_other_meanings(flat).items()
    texts = (str(value) for key, value in values if pattern.search(key) and "val" not in key)
    wholes = {int(text) for text in texts if text.isdecimal()}
    whole, devices = next(iter(wholes), 0), job.copies(process_count(job))
    micro, steps = (settings.get(name) for name in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    numbers, kinds = {"devices": devices, "steps": steps if isinstance(steps, int) else 1}, words_of("divisors").items()
    divided: dict[str, Value] = {}
    for match in pattern_of("divided_batch").finditer(source_of(program) if program and "gpus" in job.stated else ""):
        parts = WORD.findall(match["batch"])
        value = next((flat[key] for start in range(len(parts)) if (key := ".".join(parts[start:])) in flat), None)
        names = re.findall(r"\w+(?=\(\)|\W*$|\)|\s*[*/])", match["by"])
        by = [numbers[kind] for name in names for kind, pattern in kinds if re.fullmatch(pattern, name)]
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size") if len(by) == len(names) else ():
            batch = settings.get(name)
            if isinstance(batch, int) and str(value) == str(batch) and batch >= prod(by):
                divided.setdefault(name, batch // prod(by))
    if divided or len(wholes) != 1 or "gpus" not in job.stated or whole % devices:
        return divided
    factor = micro if steps is None else 1 if micro is not None else steps
    each, rest = divmod(whole // devices, factor if isinstance(factor, int) else 1)
    if rest or (micro is not None and steps is not None):
        return {}
    return {"per_device_train_batch_size" if micro is None else "gradient_accumulation_steps": each}


def _what_job_needs(job: CommandJob, flat: Mapping[str, Any], words: Sequence[str], path: Path) -> tuple[str, ...]:
    """Variables or keys without values that a command needs, where the command comes from another file."""
    named = Path(next((word for word in job.command[1:] if word.endswith((".py", *SHELL_SUFFIXES))), ""))
    program = program_of(words, path) or Path() if words else named
    if words and (not program.is_absolute() or job.command[0] == "bash"):
        return ()
    missing, names = list[str](), [] if words else OF_ENVIRONMENT.findall(str(flat))
    given = {*os.environ, *job.env}
    with suppress(SettingsError):
        if program.is_absolute():
            if program.suffix in SHELL_SUFFIXES:
                return parse_file(read_file_text(program), program).incomplete
            missing += missing_fields(program, flat) if job.apply == "placeholders" and not words else []
            missing += [] if missing else required_options(program, words or job.command)
            source = "" if (program.parent / ".env").exists() else read_source(program)
            names += [name for _, name in pattern_of("asserted_variables").findall(source)]
            given |= {*_variables_set_by(program)}
    missing += [f"${name}" for name in dict.fromkeys(names) if name not in given]
    return (f"it needs {', '.join(missing)}",) if missing else ()


def _variables_set_by(program: Path) -> Iterator[str]:
    """The variables of the environment that the source of a program sets."""
    source = source_of(program)
    for pattern, name in words_of("set_variables").items():
        yield from (match.expand(name) for match in re.finditer(pattern, source))


def _with_command(
    settings: Mapping[str, Value], job: CommandJob, file: ToolFile, path: Path
) -> tuple[Mapping[str, Value], CommandJob, dict[str, str]]:
    """Settings and job with the files that the command names, or its options; and the file of each such setting."""
    if not (words := file.words):
        name = script_of(job.command).as_posix()
        after = next((index for index, word in enumerate(job.command) if word.endswith(name)), 0)
        given = {**read_options(job.command[after:]), **read_overrides(job.command)}
        started = with_model_and_data(replace(job, model=None), dialects()["hf-args"], given)
        return {**settings, **settings_of_options(given)}, replace(started, model=started.model or job.model), {}
    folders = (*([Path(job.cwd)] if job.cwd else []), *path.absolute().parents[: FOLDERS_UP + 1])
    program = program_of(words, path)
    composed = None if program is None else configuration_of(program, words)
    script, overrides = script_of(words).as_posix(), read_overrides(words, of_hydra=True)
    names = (word.rpartition("=")[2] for word in words if word != script)
    paths = [folder / name for name in names if name.endswith((*CONFIGURATIONS, ".py")) for folder in folders]
    given = {**read_options(words), **flag_values(words, program), **overrides}
    configured = [inner.resolve() for inner in (*([composed] if composed else []), *paths) if inner.is_file()]
    # What the program itself says counts last, the file that it opens by a name of its own before that.
    unlabelled = (word for before, word in pairwise(words) if not (before[0] == "-" or word in ("$@", script)))
    opens_unknown = any("$" in word for word in unlabelled)
    programs = [] if program is None or opens_unknown or dialect_of_command(words).programs else [program]
    if programs and not configured:
        texts = pattern_of("opened_files").findall(read_source(programs[0]))
        opened = {inner for name in texts if (inner := find_program(path, [Path(name)])) is not None}
        configured = [*opened] if len(opened) == 1 else []
    variables = {f"${name}": value for name, value in file.environment.items()}
    options = {key: f"<{value}>" if "$" in value else value for key, value in (given | variables).items()}
    sources: dict[str, str] = {}
    for inner in dict.fromkeys((*configured, *programs)):
        if inner.suffix == ".py" and inner not in programs and pattern_of("of_programs").search(read_source(inner)):
            continue
        with suppress(SettingsError):
            named = parse_file(read_file_text(inner), inner, options)
            named = replace(named, values=without_unread(named.values, programs))
            tool = tool_of_file(named, inner)
            if inner == composed:  # an override that only the shell knows is unknown, not the default below it
                values = with_references(compose_with(inner, overrides))
                of_keys = {value for key, value in overrides.items() if "." in key}  # else it is the name of a group
                model = job.model if job.model in of_keys else None
                tool, job = dialects()["hydra"], replace(job, model=model, data=None)
            else:
                values = dict(named.values)
                for key in flatten(values).keys() & given.keys():  # what only the shell knows is unknown
                    set_nested(values, key.split("."), None if "$" in given[key] else given[key])
                values = with_references(values)
                values.pop("steps_per_print", None)  # of DeepSpeed itself, not of the Trainer that it is given to
            imported = read_settings(tool, values)
            read = {**(length_of_names(inner) if inner in programs else {}), **imported.settings}
            job = replace(job, stated={**imported.foreign, **job.stated})
            if "optim" in imported.left_open and "optim" not in given:  # a switch is one of its reasons
                settings = {name: value for name, value in settings.items() if name != "optim"}
            of_groups = " and its groups" if inner == composed else ""
            sources |= {name: f"{inner.name}{of_groups}" for name in read if name not in settings}
            settings = {**settings, **read} if inner == composed else {**read, **settings}
            job = with_model_and_data(job, tool, values)
    return settings, job, sources


def length_of_names(program: Path) -> Mapping[str, Value]:
    """The `max_length` that a program's own names say, whatever it gives it to."""
    constants = known_names(read_source(program)).items()
    of_names = settings_of_options({name.rpartition(".")[2]: str(value) for name, value in constants})
    return {name: of_names[name] for name in of_names.keys() & {"max_length"}}


def _reads_no_section(program: Path, values: Mapping[str, Any]) -> bool:
    """Whether a program takes the keys at the top of a configuration that has sections only, none of which it names."""
    takes_top = pattern_of("takes_top_keys").search
    sources = [source for _, source in own_modules(program) if takes_top(source)]
    quoted = {name for source in sources for name in re.findall(r"[\"'](\w+)[\"']", source)}
    return bool(sources) and all(isinstance(value, dict) and key not in quoted for key, value in values.items())


def without_unread(values: Mapping[str, Any], programs: Sequence[Path]) -> Mapping[str, Any]:
    """The values of a configuration without what its program never mentions: alternatives to sections that it reads,
    and the name of a model next to keys most of which it reads. A key for the chosen method, or one that the program
    reads rather than another, takes the place of the other.
    """
    sources = "".join(map(source_of, programs))
    words = {word for names in pattern_of("keys_of_source").findall(sources) for word in names}
    sections = {key: value for key, value in values.items() if isinstance(value, dict)}
    read = {key for name in sections.keys() & words for key in sections[name]}
    unread = {name for name in sections.keys() - words if len(read & sections[name].keys()) > 1}
    of_model = leaf_pattern("|".join(dialects()["own-script"].model_keys))
    changed = dict[str, Any](dict.fromkeys(unread))
    for prefix, section in (("", values), *((f"{name}.", sections[name]) for name in sections)):
        missing = {key for key in section if str(key) not in words}
        models = (f"{prefix}{key}" for key in missing - sections.keys() if 2 * len(missing) <= len(section))
        changed |= {key: None for key in models if of_model.search(key) and not names_of_transformers([key])}
        method = next((f"{section[key]}_" for key in words_of("chooses_method") if key in section), "$")
        pairs = [(key, key.removeprefix(method)) for key in map(str, section) if key.startswith(method)]
        pairs += pattern_of("rather").findall(sources)
        changed |= {prefix + other: section[key] for key, other in pairs if section.get(key) and other in section}
    kept = with_references(values) if changed else dict(values)
    for key, value in changed.items():
        set_nested(kept, key.split("."), value)
    return kept


def absent_files(words: Sequence[str], folder: str, job: CommandJob, path: Path) -> list[str]:
    """The script of a command in a `folder` and the configurations of its options, or alone, that are not there."""
    fetches, here = pattern_of("fetches").search(read_source(path)), path.absolute().parent
    if re.match(r"[\w.]", folder) and job.cwd is None and not fetches and not (here / folder).is_dir():
        return [folder]
    names = [script_of(tuple(words)).as_posix()]
    for before, word in pairwise(words):
        option, equals, name = word.rpartition("=")
        is_given = pattern_of("config_options").fullmatch(f'"{option if equals else before}"')
        is_alone = not (equals or before.startswith("-")) and word.endswith((".yaml", ".yml", ".toml"))
        names += [name] if (is_given or is_alone) and "://" not in name else []
    beginning = "/" if folder and not job.cwd else ""  # a relative path is seen from a folder that is not here
    return [
        name
        for name in dict.fromkeys(names)
        if name.startswith(beginning) and name.endswith((".py", *CONFIGURATIONS))
        if not (fetches and not (here / Path(name).parent.name).is_dir()) and not pattern_of("open_words").search(name)
        if not (Path(job.cwd or "", name).is_file() or find_program(path, [Path(name)]))
    ]


def settings_of_options(options: Mapping[str, str]) -> Mapping[str, Value]:
    """The settings among the options of a command, none where one of them has no value of its setting."""
    given = without_other_meanings(options).items()
    arguments = {name: value for name, value in given if is_known_option(name.rpartition(".")[2])}
    try:
        return read_settings(dialects()["hf-args"], arguments).settings
    except SettingsError:
        return {}


def _what_it_is(file: ToolFile, path: Path | None) -> str:
    """What a file seems to be that says no setting, and what to open instead."""
    suffix = "" if path is None else path.suffix.lower()
    if SCRIPT_FORMS.get(suffix) == "python":
        kind = "notebook" if suffix == ".ipynb" else "Python module"
        return f"no training was found in this {kind}: open the one that trains, or the configuration"
    named = ", ".join(shorten_text(key, 30) for key in list(file.values)[:3])
    return f"its keys ({named}) are not training settings: open the file with batch size and learning rate"


def command_to_name(file: Path) -> str:
    """The sentence for a file whose command is not known."""
    name = file.name
    if name.endswith(".ipynb"):
        conversion = f"`jupyter nbconvert --to script {name}`, then {name.removesuffix('.ipynb')}.py"
        return f"a notebook is started in Jupyter, or as a script: {conversion}"
    for service, pattern in words_of("of_services").items() if name.endswith(".py") else ():
        if re.search(pattern, read_source(file)):
            return f"the script {name} {service.replace('<name>', name)}, where nothing is watched"
    example = f"tuner-tui run --preset {shlex.quote(name)} -- python train.py"
    if text := open_command(file):
        return f"the command for {name} in {text} has values to fill in: give it whole, as in `{example}`"
    return f"the command that reads {name} is unknown: name it, as in `{example}`"


def tool_of_file(file: ToolFile, path: Path | None) -> Dialect:
    """The dialect of the tool's file at `path`: by the program that a shell script starts, else by the keys.

    A file of one of Hydra's groups is Hydra's.
    """
    form = "yaml" if path is None else "arguments" if file.words else form_of_file(path)
    dialect = dialect_of_file(file.values, form)
    if file.words:
        started = dialect_of_command(file.words)
        if started.name != HF:
            return started
        return dialects()["hydra"] if read_overrides(file.words) else dialect
    if path is None or form != "yaml" or (dialect.of_launcher and "_target_" not in file.values):
        return dialect
    of_script = dialect.name in (HF, "hf-sections", "own-script")
    return dialects()["hydra"] if group_of(path) is not None or (of_script and is_named(path)) else dialect


class FileUpdate(Struct, frozen=True):
    """The text of a tool's file before and after new values; `left_out` says why it cannot take those `missing`."""

    path: Path
    before: str
    after: str
    left_out: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    mark: bytes = b""

    @property
    def content(self) -> bytes:
        """The file with the new values: a byte order mark stays."""
        return self.mark + self.after.encode()

    @property
    def diff(self) -> str:
        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        changes = unified_diff(before, after, str(self.path), str(self.path), n=1)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changes)


def update_tool_file(
    path: Path,
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None = None,
    despite_auto: Collection[str] = (),
) -> FileUpdate:
    """The tool's file at `path` with the settings `names`, the others as they are. Raises `SettingsError`.

    `auto` stays but for `despite_auto`, and always in a launcher's file: DeepSpeed refuses what the Trainer has not.
    """
    text = read_file_text(path)
    line_end = "\r\n" if text.count("\r\n") == text.count("\n") > 0 else "\n"
    before = text.replace("\r\n", "\n") if line_end == "\r\n" else text
    file = parse_file(before, path)
    file_values = file.values
    if file.kind:
        raise SettingsError(f"{path} is a {file.kind}: change the command in it by hand")
    if form_of_file(path) in ("yaml", "json") and is_preset(file_values):
        raise SettingsError(f"{path} is a preset; --write changes the file of a training tool")
    tool = tool_of_file(file, path)
    given = read_settings(tool, file_values)
    resolved = read_settings(tool, with_references(file_values)).settings
    open_ = {name for name in given.left_open if resolved.get(name) != getattr(settings, name)}
    of_trainer = sorted(open_ & {*names} & {*despite_auto}) if tool.of_launcher else []
    names = {*names} - ({*given.left_open} - (open_ & {*despite_auto})) - {*of_trainer}
    kept = {name: value for name, value in given.settings.items() if name not in names}
    wanted = structs.replace(settings, **kept)
    composed = read_settings(tool, compose(file_values, path)).settings if tool.form == "overrides" else {}
    why = f"is auto in {path.name}, so that the Trainer puts its own in: give it to the training script"
    after, left_out, missing = before, [f"{name} {why}" for name in of_trainer], {*of_trainer}
    # One at a time, so that one that the file cannot take is reported alone; `kept` too, which may share a key with it.
    for name in (setting for setting in FIELDS if setting in names or setting in kept):
        changes = file_changes(tool, parse_file(after, path).values, wanted, [name], targets)
        where = f"{NOT_IN_FILE}: {'another' if name in composed else 'no'} file of its configuration has this setting"
        left_out += (re.sub(rf"{NOT_IN_FILE}$", where, note) for note in changes.notes)
        missing |= {*changes.unsupported}
        try:
            after = patch_file(after, changes.values, path)
        except SettingsError as error:
            left_out.append(str(error))
            missing.add(name)
    with path.open("rb") as opened:
        mark = BOM_UTF8 if opened.read(len(BOM_UTF8)) == BOM_UTF8 else b""
    return FileUpdate(path, text, after.replace("\n", line_end), tuple(left_out), frozenset(missing), mark)


def names_tool_file(word: str) -> bool:
    """Whether a word is the name of a file that may hold a training, rather than that of a preset."""
    return word.endswith((*CONFIGURATIONS, *SCRIPT_FORMS, "MLproject")) or bool(kind_of_name(Path(word).name))

"""What the command of a tool's file, its program and its launcher add to the file's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tuner_tui.settings.dialects.command_words import is_known_option, read_options, read_overrides, script_of
from tuner_tui.settings.dialects.dialect import HF, Dialect, dialect_of_command, dialects, leaf_pattern
from tuner_tui.settings.dialects.file_formats import form_of_file, parse_file, read_file_text
from tuner_tui.settings.dialects.hf import ImportedSettings
from tuner_tui.settings.dialects.hydra import compose_with, configuration_of
from tuner_tui.settings.dialects.key_places import without_other_meanings
from tuner_tui.settings.dialects.nested_values import flatten, set_nested, with_references
from tuner_tui.settings.dialects.purpose import names_of_transformers
from tuner_tui.settings.dialects.python_source import flag_values
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
from tuner_tui.settings.dialects.tool_job import gpus_of_program, settings_of_sources, with_model_and_data
from tuner_tui.settings.dialects.written_commands import program_of
from tuner_tui.settings.distributed import process_count, read_accelerate_config, trains_on_cpu
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Value
from tuner_tui.settings.tool_choice import tool_of_file
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile


def with_sources(
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
    program = program_of(words, path)
    composed = None if program is None else configuration_of(program, words)
    overrides = read_overrides(words, of_hydra=True)
    given = {**read_options(words), **flag_values(words, program), **overrides}
    configured, programs = _files_of_command(words, job, path, program, composed)
    variables = {f"${name}": value for name, value in file.environment.items()}
    options = {key: f"<{value}>" if "$" in value else value for key, value in (given | variables).items()}
    sources: dict[str, str] = {}
    for inner in dict.fromkeys((*configured, *programs)):
        if inner.suffix == ".py" and inner not in programs and pattern_of("of_programs").search(read_source(inner)):
            continue
        with suppress(SettingsError):
            named = parse_file(read_file_text(inner), inner, options)
            named = replace(named, values=without_unread(named.values, programs))
            if inner == composed:  # an override that only the shell knows is unknown, not the default below it
                tool, values = dialects()["hydra"], with_references(compose_with(inner, overrides))
                of_keys = {value for key, value in overrides.items() if "." in key}  # else it is the name of a group
                job = replace(job, model=job.model if job.model in of_keys else None, data=None)
            else:
                tool, values = tool_of_file(named, inner), _overridden(named.values, given)
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


def _files_of_command(
    words: tuple[str, ...], job: CommandJob, path: Path, program: Path | None, composed: Path | None
) -> tuple[list[Path], list[Path]]:
    """The configurations that a command is given or that its program opens by name, and the program itself.

    The program counts only where all of the command's words are known; what it says itself counts last.
    """
    script = script_of(words).as_posix()
    names = (word.rpartition("=")[2] for word in words if word != script)
    folders = (*([Path(job.cwd)] if job.cwd else []), *path.absolute().parents[: FOLDERS_UP + 1])
    paths = [folder / name for name in names if name.endswith((*CONFIGURATIONS, ".py")) for folder in folders]
    configured = [inner.resolve() for inner in (*([composed] if composed else []), *paths) if inner.is_file()]
    unlabelled = (word for before, word in pairwise(words) if not (before[0] == "-" or word in ("$@", script)))
    opens_unknown = any("$" in word for word in unlabelled)
    if program is None or opens_unknown or dialect_of_command(words).programs:
        return configured, []
    if not configured:
        texts = pattern_of("opened_files").findall(read_source(program))
        opened = {inner for name in texts if (inner := find_program(path, [Path(name)])) is not None}
        configured = [*opened] if len(opened) == 1 else []
    return configured, [program]


def _overridden(values: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of a configuration with the command's; what only the shell knows is unknown."""
    changed = dict(values)
    for key in flatten(changed).keys() & given.keys():
        set_nested(changed, key.split("."), None if "$" in given[key] else given[key])
    changed = with_references(changed)
    changed.pop("steps_per_print", None)  # of DeepSpeed itself, not of the Trainer that it is given to
    return changed


def length_of_names(program: Path) -> Mapping[str, Value]:
    """The `max_length` that a program's own names say, whatever it gives it to."""
    constants = known_names(read_source(program)).items()
    of_names = settings_of_options({name.rpartition(".")[2]: str(value) for name, value in constants})
    return {name: of_names[name] for name in of_names.keys() & {"max_length"}}


def reads_no_section(program: Path, values: Mapping[str, Any]) -> bool:
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


def settings_of_options(options: Mapping[str, str]) -> Mapping[str, Value]:
    """The settings among the options of a command, none where one of them has no value of its setting."""
    given = without_other_meanings(options).items()
    arguments = {name: value for name, value in given if is_known_option(name.rpartition(".")[2])}
    try:
        return read_settings(dialects()["hf-args"], arguments).settings
    except SettingsError:
        return {}

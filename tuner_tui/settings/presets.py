"""Presets: files of settings and a job, found, read and saved. A training tool's own file is opened as one."""

from __future__ import annotations

import os
import re
import shlex
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import yaml
from msgspec import Meta, Struct, field, structs, to_builtins
from msgspec.structs import replace
from platformdirs import user_config_path

import tuner_tui
from tuner_tui.core.files import make_private, read_regular, write_durable
from tuner_tui.core.ownership import require_unshared
from tuner_tui.hardware.capabilities import parse_capability
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.dialects.dialect import (
    HF,
    TEMPLATE,
    Dialect,
    dialect_of_command,
    dialect_of_file,
    dialects,
    flatten,
    is_for_any_program,
    keys_in_file,
    leaf_pattern,
    read_settings,
    set_nested,
    texts_in,
    to_fill_in,
    why_no_training,
    with_references,
    without_other_meanings,
)
from tuner_tui.settings.dialects.file_formats import (
    SCRIPT_FORMS,
    bases_of,
    file_changes,
    form_of_file,
    parse_file,
    patch_file,
    read_file_text,
    with_bases,
)
from tuner_tui.settings.dialects.hf import PRESET_SPELLINGS
from tuner_tui.settings.dialects.hydra import (
    compose,
    compose_with,
    configuration_of,
    group_of,
    is_named,
    missing_fields,
)
from tuner_tui.settings.dialects.job_files import kind_of_name, parse_config
from tuner_tui.settings.dialects.python_source import TO_GIVE, flag_values, required_options
from tuner_tui.settings.dialects.script_search import FOLDERS_UP, find_program, pattern_of, read_source, words_of
from tuner_tui.settings.dialects.shell_script import is_known_option, read_options, read_overrides, script_of
from tuner_tui.settings.dialects.tool_job import (
    gpus_of_program,
    open_command,
    program_of,
    settings_of_sources,
    training_of_file,
    with_model_and_data,
)
from tuner_tui.settings.distributed import process_count, read_accelerate_config, trains_on_cpu
from tuner_tui.settings.errors import FieldError, PresetError, PresetExistsError, SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, without_hydra
from tuner_tui.settings.model import (
    FIELDS,
    Settings,
    Value,
    check_value,
    closest_match,
    parse_section,
    parse_value,
    shorten_text,
)
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile, texts_of

PRESET_VERSION = 1
NO_GPU = "no GPU"


class HardwareRequirements(Struct, frozen=True, forbid_unknown_fields=True):
    """Hardware that a preset was made for. None means any."""

    gpu: Annotated[str, Meta(min_length=1, description="a name pattern such as *RTX 3090*, or none")] | None = None
    min_memory_gib: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    min_gpus: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    capability: Annotated[str, Meta(pattern=r"^\d{1,2}\.\d\Z", description="a version such as 8.0")] | None = None
    min_cores: Annotated[int, Meta(ge=1, le=100_000)] | None = None

    @property
    def for_no_gpu(self) -> bool:
        """Whether the preset is for machines without a GPU."""
        return self.gpu is not None and self.gpu.lower() == "none"

    def gpu_text(self) -> str:
        """The GPUs as text, such as `8 GPUs with 80 GiB or more`; empty if any suit."""
        if self.for_no_gpu:
            return NO_GPU
        name = _pattern_text(self.gpu) if self.gpu else "GPU" if self.min_gpus else "a GPU"
        memory = f" with {self.min_memory_gib:g} GiB or more" if self.min_memory_gib else ""
        many = f"{self.min_gpus} {name}s" if self.min_gpus and self.min_gpus > 1 else name
        return f"{many}{memory}" if memory or self.gpu or self.min_gpus else ""

    def suits(self, gpus: tuple[Gpu, ...], cores: int | None = None) -> bool:
        """Whether a machine with these GPUs and usable cores suits; unknown values count as suitable."""
        if self.min_cores is not None and cores is not None and cores < self.min_cores:
            return False
        if self.for_no_gpu:
            return not gpus
        if self.gpu is None and self.min_memory_gib is None and self.min_gpus is None and self.capability is None:
            return True
        return sum(self._suits_gpu(gpu) for gpu in gpus) >= (self.min_gpus or 1)

    def lacking(self, gpus: tuple[Gpu, ...], cores: int | None, any_memory: bool) -> str:
        """What a machine lacks, such as `8 cores`; empty if it suits. With `any_memory` that of the GPUs is enough."""
        needed = replace(self, min_memory_gib=None) if any_memory else self
        if needed.suits(gpus, cores):
            return ""
        return needed.gpu_text() if not needed.suits(gpus) else f"{self.min_cores} cores"

    def _suits_gpu(self, gpu: Gpu) -> bool:
        if self.gpu is not None and not fnmatchcase(gpu.name.lower(), self.gpu.lower()):
            return False
        least = None if self.capability is None else parse_capability(self.capability)
        if least is not None and gpu.capability is not None and gpu.capability < least:
            return False
        total = gpu.memory_total_bytes
        # Drivers report a 24 GiB GPU as 23.7 to 24.0 GiB: allow 5 % less.
        return self.min_memory_gib is None or total is None or total >= self.min_memory_gib * 0.95 * 2**30


def _pattern_text(pattern: str) -> str:
    """`RTX 3090 or 4090` for the pattern `*RTX [34]090*`."""
    spelt = re.sub(
        r"(\w*)\[(\w+)\](\w*)",
        lambda match: " or ".join(f"{match[1]}{character}{match[3]}" for character in match[2]),
        pattern,
    )
    return spelt.strip("*").replace("*", "…")


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One preset file. `settings` holds only the values in the file.

    `source` is that of the numbers; `before` and `after` were measured without and with these settings.
    """

    version: Annotated[int, Meta(ge=1)] = PRESET_VERSION
    name: Annotated[str, Meta(min_length=1, max_length=100, description="text of 1 to 100 characters")]
    about: str | None = None
    for_: HardwareRequirements | None = field(name="for", default=None)
    source: str | None = None
    before: str | None = None
    after: str | None = None
    settings: dict[str, Value] = {}
    job: Job | None = None

    def variant(self, name: str, settings: Mapping[str, Value]) -> Preset:
        """A copy with another name and these settings, without measured figures if the settings differ."""
        copy = structs.replace(self, name=name, settings=dict(settings))
        return copy if copy.settings == self.settings else structs.replace(copy, before=None, after=None)


def _read_setting(name: str, value: Any) -> Value:
    if name in PRESET_SPELLINGS:
        raise FieldError(name, f"unknown setting '{name}'; in a preset it is written {PRESET_SPELLINGS[name]}")
    if isinstance(value, list | dict):
        raise FieldError(name, f"{name} must be a single value, not a list or mapping")
    return parse_value(name, value or "") if isinstance(value, str | None) else check_value(name, value)


SHELL_SUFFIXES = tuple(suffix for suffix, form in SCRIPT_FORMS.items() if form == "arguments")
OF_ITSELF = re.compile(r"it needs (?:\$[@*#](?:, )?)+|only the shell knows .*")
"""What a script that is started as a whole has without its caller."""
ABSENT, NOT_COMPLETE = ", which the command needs, is not there", " is not complete: "
"""What a note says after the name of a file."""
OF_ENVIRONMENT = re.compile(r"\$\{(?:oc\.)?env:(\w+)\}")
MOST_NAMED = 8
"""Of more keys that are no settings, the number is said."""
SUFFIXES = (".yaml", ".yml")
PRESET_KEYS = frozenset({field.encode_name for field in structs.fields(Preset)} | {"hosts"})


def is_preset(values: Mapping[str, Any]) -> bool:
    """Whether half of the keys or more are those of a preset: files of tools have `version` and `settings`, too."""
    keys = PRESET_KEYS & values.keys()
    if 2 * len(keys) < len(values):
        return False
    if keys & {"settings", "job", "hosts"} and not isinstance(values.get("job"), str):
        return True
    return isinstance(values.get("version"), int | str) and dialect_of_file(values).name == HF


class LoadedPreset(Struct, frozen=True):
    """A preset, its file, and warnings for the user (keys ignored, names translated).

    Of a tool's file, `dialect` is the tool's, `ignored` names the keys that are no setting, `left_open` what the tool
    chooses when it starts (`bf16: auto`), and `training` what it trains where it shows no command: a job for advice.
    `sources` names the other files of its command that say settings which it does not.
    """

    preset: Preset
    path: Path | None = None
    notes: tuple[str, ...] = ()
    dialect: Dialect | None = None
    ignored: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    training: CommandJob | None = None
    sources: Mapping[str, str] = MappingProxyType({})


def load_preset(path: Path, options: Mapping[str, object] = MappingProxyType({})) -> LoadedPreset:
    """Read a preset, or the file of a training tool: configuration, script with `options`, notebook, shell script.

    Raises `PresetError` with file and line.
    """
    text = read_file_text(path)
    if path.suffix.lower() in (*SUFFIXES, ""):
        return parse_preset(text, str(path), path)
    return import_tool_file(parse_file(text, path, options), str(path), path)


def parse_preset(text: str, source: str, path: Path | None = None) -> LoadedPreset:
    """Read a preset, or a tool's configuration, from YAML `text`; `source` names it in errors."""
    file = parse_config(text, source)
    if not file.kind and is_preset(file.values):
        return LoadedPreset(_parse_preset(file, source, _default_name(path)), path)
    return import_tool_file(replace(file, values=with_bases(file.values, path or Path())), source, path)


def import_tool_file(file: ToolFile, source: str, path: Path | None, tool: Dialect | None = None) -> LoadedPreset:
    """The settings in a tool's file, and the tool's command on the file itself as the job. Raises `PresetError`."""
    form = "yaml" if path is None else form_of_file(path)
    program = program_of(file.words, path) if file.words and path is not None else None
    if program is not None and (total := pattern_of("total_batch").search(read_source(program))):
        renamed = {total[1]: "global_batch_size"}
        file = replace(file, values={renamed.get(key, key): value for key, value in file.values.items()})
    dialect = tool or tool_of_file(replace(file, values=with_references(file.values)), path)
    of_any = not (dialect.programs or dialect.of_launcher or file.words)
    of_script = of_any and form != "python"
    name = str(path.absolute() if path else "")
    if of_any and dialect.form != "python" and (why := why_no_training(flatten(file.values), name)):
        raise PresetError(f"{source}: {why}")
    if path is not None and dialect.form == "overrides" and not file.words:
        values = compose(file.values, path)
        parts = (file.values, values) if group_of(path) is None else ()
        opened, whole = (keys_in_file(dialect, flatten(part)) for part in parts) if parts else ({}, {})
        for key in (key for key, path_in_file in opened.items() if whole.get(key, path_in_file) != path_in_file):
            set_nested(values, whole[key].split("."), None)  # what the opened file says counts
        needed = ", ".join(shorten_text(key) for key, value in flatten(values).items() if value == TO_GIVE)
        file = replace(file, values=values, incomplete=(f"it needs {needed}",) if needed else ())
    if form == "yaml":
        file = replace(file, values=with_references(file.values))
    try:
        imported = read_settings(dialect, file.values)
        training = None if path is None else training_of_file(dialect, file, path)
    except FieldError as error:
        line = file.lines.get(error.field, file.lines.get(dialect.names.get(error.field, "")))
        raise PresetError(f"{source}{'' if line is None else f':{line}'}: {error}") from None
    except SettingsError as error:
        raise PresetError(f"{source}: {error}") from None
    is_named, sources = training is not None and not training.is_unnamed, dict[str, str]()
    is_recognised = imported.settings or imported.left_open or dialect.certain_keys
    silent = of_script and is_for_any_program(imported.settings, flatten(file.values))
    says_nothing = of_script and not is_recognised and (training is None or training.model is None)
    is_refused = says_nothing or (not is_named and (silent or not (file.words or is_recognised)))
    if is_refused and tool is None and path is not None and dialect.name == HF and open_command(path):
        return import_tool_file(file, source, path, dialects()["own-script"])  # a text gives it to a training
    if is_refused and tool is None:
        why = "neither a preset (`settings:` with `name: value` lines) nor a known configuration file"
        raise PresetError(f"{source}: {why}; {_what_it_is(file, path)}")
    settings = imported.settings
    if training is not None and path is not None:
        if is_named or file.words:
            settings, training, sources = _with_command(settings, training, file.words, path)
        if is_named and dialect.name == HF and not file.words:  # what scripts call a setting, with one such key
            settings = {**read_settings(dialects()["own-script"], file.values).settings, **settings}
        if form != "python" and not file.words:
            settings = settings_of_sources(settings, training, flatten(file.values), path)
        if "bf16" not in file.values and settings.get("precision", "fp32") == "fp32":
            settings = {**settings, **_of_launcher(training)}
        by_source = gpus_of_program(file.words or training.command, path, "gpus" in training.stated)
        training = replace(training, stated={**training.stated, **by_source})
        training = _with_stated(training, settings, imported.foreign)
        halves = [training.stated.get(f"{half}_length") for half in ("input", "output")]
        if None not in halves and settings.get("max_length") in halves and training.task != "seq2seq":
            settings = {name: value for name, value in settings.items() if name != "max_length"}  # a sample has both
        settings = {**settings, **_of_global_batch(settings, training, flatten(file.values))}
    job = training if is_named else None
    if job is not None and path is not None:
        needs = _what_job_needs(job, flatten(file.values), file.words, path)
        file = replace(file, incomplete=(*file.incomplete, *needs))
    switches = (("lora_", "peft_method"), ("bnb_", "quantization"))
    off = tuple(part for part, switch in switches if settings.get(switch) == "none")
    in_use = {name: value for name, value in settings.items() if not name.startswith(off)}
    preset = Preset(name=_default_name(path), settings=in_use, job=job)
    notes, ignored = imported.notes, imported.ignored
    sources = {name: source for name, source in sources.items() if name in in_use.keys() - imported.settings.keys()}
    of_sources = {source: [name for name in sources if sources[name] == source] for source in sources.values()}
    notes += tuple(f"from {source}: {', '.join(names)}" for source, names in of_sources.items())
    if job is not None or form == "python" or file.words or dialect.of_launcher:
        # The tool reads its other keys from the file: nothing is lost.
        ignored = tuple(key for key in ignored if key not in {*dialect.model_keys, *dialect.data_keys})
        notes = tuple(note for note in notes if note not in imported.unknown)
    elif len(imported.unknown) > MOST_NAMED:
        notes = tuple(note for note in notes if note not in imported.unknown)
        notes += (f"{len(imported.unknown)} other keys stay in the file",)
    is_whole = job is not None and job.command[0] == "bash"
    if training is not None and training.stated:
        notes += (f"stated besides: {', '.join(f'{name} {value}' for name, value in training.stated.items())}",)
    absent = [] if job is None or path is None else absent_files(file.words or job.command, file.folder, job, path)
    notes += tuple(f"{name}{ABSENT}: its settings are not known" for name in absent)
    if file.command and file.more and not is_whole:
        notes += (f"only this command is started; {Path(source).name} also runs {', '.join(file.more[:MOST_NAMED])}",)
    bases = [base for base in bases_of(file.values, path) if not base.is_file()] if path is not None else ()
    notes += tuple(f"{base}, which the file extends, is not there: its settings are not known" for base in bases)
    reasons = [reason for reason in file.incomplete if not (is_whole and OF_ITSELF.fullmatch(reason))]
    is_given = form == "yaml" and dialect.form != "overrides"
    of_file = [text for text in texts_in({} if file.words else file.values) if is_given or not TEMPLATE.fullmatch(text)]
    words = [] if job is None else [word for word in (*(file.words or job.command), file.folder) if "$" not in word]
    if open_words := _placeholders(words):
        reasons.append(f"it has placeholders to fill in: {open_words}")
    if open_values := _placeholders(of_file):
        notes += (f"{Path(source).name} has placeholders to fill in: {open_values}",)
    named = () if training is None or job is not None else (("model", training.model), ("data", training.data))
    names = [f"{part} {name}" for part, name in named if name]
    notes += (f"the file names {' and '.join(names)}",) if names else ()
    if reasons and (job is not None or file.incomplete):
        then = "give it whole, as in `tuner-tui run -- python train.py`"
        if job is not None:
            then = "the script is started as a whole" if is_whole else "give it in the command"
        notes += (f"the command in {Path(source).name}{NOT_COMPLETE}{'; '.join(reasons)}; {then}",)
    elif path is not None and job is None:
        of_tool = f"this file configures {dialect.tool}, not a training: open the file or the script that is given it"
        sentence = of_tool if dialect.of_launcher else command_to_name(path)
        notes += (*(f"{path.name}{NOT_COMPLETE}{reason}" for reason in reasons), sentence)
    return LoadedPreset(preset, path, notes, dialect, ignored, imported.left_open, None if job else training, sources)


def _placeholders(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(shorten_text(text.rpartition("=")[2]) for text in filter(to_fill_in, texts)))


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


def _of_global_batch(settings: Mapping[str, Value], job: CommandJob, flat: Mapping[str, Any]) -> Mapping[str, Value]:
    """The micro batch or the accumulation by a batch of all devices together, where their number is known."""
    if any(leaf_pattern("device_train_microbatch_size").search(key) for key, value in flat.items() if value == "auto"):
        return {}
    pattern = leaf_pattern(words_of("global_batch"))
    values = without_other_meanings(flat).items()
    texts = (str(value) for key, value in values if pattern.search(key) and "val" not in key)
    wholes = {int(text) for text in texts if text.isdecimal()}
    whole, devices = next(iter(wholes), 0), job.copies(process_count(job))
    if len(wholes) != 1 or "gpus" not in job.stated or whole % devices:
        return {}
    micro, steps = (settings.get(name) for name in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    factor = micro if steps is None else 1 if micro is not None else steps
    each, rest = divmod(whole // devices, factor if isinstance(factor, int) else 1)
    if rest or (micro is not None and steps is not None):
        return {}
    return {"per_device_train_batch_size" if micro is None else "gradient_accumulation_steps": each}


def _what_job_needs(job: CommandJob, flat: Mapping[str, Any], words: Sequence[str], path: Path) -> tuple[str, ...]:
    """Variables or keys without values that a command needs which another text than the opened file shows."""
    named = Path(next((word for word in job.command[1:] if word.endswith((".py", *SHELL_SUFFIXES))), ""))
    program = program_of(words, path) if words else named
    if program is None or not program.is_absolute() or (words and job.command[0] == "bash"):
        return ()
    with suppress(SettingsError):
        if program.suffix in SHELL_SUFFIXES:
            return parse_file(read_file_text(program), program).incomplete
        missing = [*missing_fields(program, flat)] if job.apply == "placeholders" and not words else []
        missing = missing or [*required_options(program, words or job.command)]
        given, texts = {*os.environ, *job.env}, "" if words else str(flat)
        missing += [f"${name}" for name in dict.fromkeys(OF_ENVIRONMENT.findall(texts)) if name not in given]
        return (f"it needs {', '.join(missing)}",) if missing else ()
    return ()


def _with_command(
    settings: Mapping[str, Value], job: CommandJob, words: tuple[str, ...], path: Path
) -> tuple[Mapping[str, Value], CommandJob, dict[str, str]]:
    """Settings and job with the files that a command in the opened file names, and with the file of each such setting;
    or with the options of a command that stands elsewhere.
    """
    if not words:
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
    named = [folder / name for name in names if name.endswith((*CONFIGURATIONS, ".py")) for folder in folders]
    given = {**read_options(words), **flag_values(words, program), **overrides}
    configured = [inner.resolve() for inner in (*([composed] if composed else []), *named) if inner.is_file()]
    # What the program itself says counts last, the file that it opens by a name of its own before that.
    opens_unknown = any("$" in word and not before.startswith("-") for before, word in pairwise(words))
    programs = [] if program is None or opens_unknown or dialect_of_command(words).programs else [program]
    if programs and not configured:
        texts = pattern_of("opened_files").findall(read_source(programs[0]))
        opened = {inner for name in texts if (inner := find_program(path, [Path(name)])) is not None}
        configured = [*opened] if len(opened) == 1 else []
    options = {key: f"<{value}>" if "$" in value else value for key, value in given.items()}
    sources: dict[str, str] = {}
    for inner in dict.fromkeys((*configured, *programs)):
        if inner.suffix == ".py" and inner not in programs and pattern_of("of_programs").search(read_source(inner)):
            continue
        with suppress(SettingsError):
            file = parse_file(read_file_text(inner), inner, options)
            tool = tool_of_file(file, inner)
            if inner == composed:  # an override that only the shell knows is unknown, not the default below it
                values = with_references(compose_with(inner, overrides))
                of_keys = {value for key, value in overrides.items() if "." in key}  # else it is the name of a group
                model = job.model if job.model in of_keys else None
                tool, job = dialects()["hydra"], replace(job, model=model, data=None)
            else:
                values = dict(file.values)
                for key in flatten(values).keys() & given.keys():  # what only the shell knows is unknown
                    set_nested(values, key.split("."), None if "$" in given[key] else given[key])
                values = with_references(values)
                values.pop("steps_per_print", None)  # of DeepSpeed itself, not of the Trainer that it is given to
            read = read_settings(tool, values).settings
            sources |= {name: inner.name for name in read if name not in settings}
            settings = {**settings, **read} if inner == composed else {**read, **settings}
            job = with_model_and_data(job, tool, values)
    return settings, job, sources


def absent_files(words: Sequence[str], folder: str, job: CommandJob, path: Path) -> list[str]:
    """The script of a command in a `folder` and the configurations that it is given, by an option or alone, that are
    not there.
    """
    fetches, here = pattern_of("fetches").search(read_source(path)), path.absolute().parent
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
    return f"its keys ({named}) are not the settings of one training: open the file with batch size and learning rate"


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
    return f"which command reads {name} is not known: name it, as in `{example}`"


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
    """The text of a tool's file before and after new values; `left_out` says which settings it cannot take, and why."""

    path: Path
    before: str
    after: str
    left_out: tuple[str, ...] = ()
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
    why = f"is auto in {path.name}, so that the Trainer puts its own in: give it to the training script"
    after, left_out = before, [f"{name} {why}" for name in of_trainer]
    # One at a time, so that one that the file cannot take is reported alone; `kept` too, which may share a key with it.
    for name in (setting for setting in FIELDS if setting in names or setting in kept):
        changes = file_changes(tool, parse_file(after, path).values, wanted, [name], targets)
        left_out += changes.notes
        try:
            after = patch_file(after, changes.values, path)
        except SettingsError as error:
            left_out.append(str(error))
    with path.open("rb") as opened:
        mark = BOM_UTF8 if opened.read(len(BOM_UTF8)) == BOM_UTF8 else b""
    return FileUpdate(path, text, after.replace("\n", line_end), tuple(left_out), mark)


def _default_name(path: Path | None) -> str:
    return (path.stem if path else "")[:100] or "preset"


def _parse_preset(file: ToolFile, source: str, fallback_name: str) -> Preset:
    """The preset in a YAML file; `source` names it in errors. Raises `PresetError` with the line."""
    values, lines = texts_of(file, source)

    def refused(path: Sequence[str], sentence: str) -> PresetError:
        """An error with the line of the innermost key of `path` that the file has."""
        line = next(lines[key] for end in range(len(path), -1, -1) if (key := tuple(path[:end])) in lines)
        return PresetError(f"{source}:{line}: {sentence}")

    version = values.get("version")
    if version is not None and not (isinstance(version, str) and re.fullmatch(r"[0-9]{1,9}", version.strip())):
        raise refused(("version",), "version must be a whole number")
    if version is not None and int(version) > PRESET_VERSION:
        newer = f"preset version {int(version)} is newer than the supported {PRESET_VERSION}"
        raise refused(("version",), f"{newer}: upgrade tuner-tui")
    # `hosts` is for `tuner-tui watch HOST…`
    given = {"name": fallback_name} | {key: text for key, text in values.items() if text is not None and key != "hosts"}
    texts, problems = given.get("settings", {}), []
    if not isinstance(texts, dict):
        raise refused(("settings",), "settings must contain `name: value` lines")
    given["settings"] = settings = dict[str, Value]()
    for name, value in texts.items():
        try:
            settings[name] = _read_setting(name, value)
        except FieldError as error:
            problems.append(str(refused(("settings", error.field), str(error))))
    if problems:
        raise PresetError("\n".join(problems))
    for key, read in (("for", lambda texts: parse_section(HardwareRequirements, texts, "for")), ("job", _read_job)):
        if key in given:
            if not isinstance(given[key], dict):
                raise refused((key,), f"'{key}' must contain `key: value` lines")
            try:
                given[key] = read(given[key])
            except FieldError as error:
                raise refused((key, error.field), str(error)) from None
    try:
        return parse_section(Preset, given)
    except FieldError as error:
        raise refused((error.field,), str(error)) from None


def _read_job(texts: dict[str, Any]) -> Job:
    kind = texts.pop("kind", "builtin")
    if kind not in ("builtin", "command"):
        raise FieldError("kind", f"unknown kind of job '{shorten_text(str(kind))}'; use builtin or command")
    texts = without_hydra(texts)
    return parse_section(CommandJob, texts, "job") if kind == "command" else parse_section(BuiltinJob, texts, "job")


TOOL_FILE_SUFFIXES = (*CONFIGURATIONS, *SCRIPT_FORMS, "MLproject")


def names_tool_file(word: str) -> bool:
    """Whether a word is the name of a file that may hold a training, rather than that of a preset."""
    return word.endswith(TOOL_FILE_SUFFIXES) or bool(kind_of_name(Path(word).name))


FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class PresetEntry(Struct, frozen=True):
    """A preset file: its name, and either the loaded preset or why it cannot be read.

    `suits`: it was made for this machine.
    """

    name: str
    path: Path
    loaded: LoadedPreset | None = None
    problem: str | None = None
    suits: bool = False

    @property
    def about(self) -> str:
        """What the preset says of itself, on one line."""
        return "" if self.loaded is None else " ".join((self.loaded.preset.about or "").split())

    @property
    def yours(self) -> bool:
        """Whether it is the user's own, not one that comes with the program."""
        return self.path.parent != shipped_folder()

    @property
    def hides_shipped(self) -> bool:
        """Whether it is used in place of a preset of that name that comes with the program."""
        return self.yours and is_shipped(self.name)


def shipped_folder() -> Path:
    """The folder of the presets that come with the program: inside the package in a wheel, next to it in a checkout."""
    package = Path(tuner_tui.__file__).parent
    inside = package / "presets"
    return inside if inside.is_dir() else package.parent / "presets"


def is_shipped(name: str) -> bool:
    return any((shipped_folder() / f"{name}{suffix}").is_file() for suffix in SUFFIXES)


def user_folder() -> Path:
    return user_config_path("tuner-tui") / "presets"


def dump_preset(preset: Preset) -> str:
    """The preset as YAML. Numbers are written so that every YAML tool reads them as numbers (`1.0e-05`)."""
    data = {key: part for key, part in to_builtins(preset).items() if part not in (None, {})}
    for key in {"for", "job"} & data.keys():
        data[key] = {name: value for name, value in data[key].items() if value not in (None, {})}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def save_preset(preset: Preset, path: Path, *, overwrite: bool = False, source: Path | None = None) -> None:
    """Write `preset` to `path` atomically, in the style of the file there, or else of `source`.

    Raises `PresetExistsError` if it exists and `overwrite` is False, `PresetError` if it cannot be written.
    """
    try:
        styled = path if path.exists() else source
        old = b"" if styled is None else read_regular(styled, follow_links=True)
        content = dump_preset(preset).encode().replace(b"\n", b"\r\n" if b"\r\n" in old else b"\n")
        content = BOM_UTF8 + content if old.startswith(BOM_UTF8) else content
        make_private(path.parent)
        write_durable(path, content, overwrite)
    except FileExistsError:
        if not path.parent.is_dir():
            raise PresetError(f"{path}: {path.parent} is not a folder") from None
        raise PresetExistsError(f"{path} already exists") from None
    except OSError as error:
        raise PresetError(f"{path} cannot be written: {error.strerror or error}") from None


def preset_path(name: str) -> Path:
    """The file of the user's preset `name`. Raises `PresetError` for a name with characters other than a word's."""
    if not FILE_NAME.fullmatch(name):
        raise PresetError(f"'{shorten_text(name)}' is not a preset name: use letters, digits, dot, dash and underscore")
    return user_folder() / f"{name.removesuffix('.yaml')}.yaml"


def list_presets(folders: Sequence[Path] | None = None) -> tuple[PresetEntry, ...]:
    """All presets of the folders, sorted by name; a file that cannot be read is listed with its problem."""
    return tuple(_load_entry(path) for _, path in sorted(_preset_files(folders).items()))


def preset_names() -> tuple[str, ...]:
    return tuple(sorted(_preset_files(None)))


def is_measured(preset: Preset) -> bool:
    """Whether the tuning notes that came with the program measured it."""
    return (preset.source or "").startswith("tuning notes")


def suiting_first(
    entries: Sequence[PresetEntry], gpus: tuple[Gpu, ...], cores: int | None = None
) -> tuple[PresetEntry, ...]:
    """The entries, marked where one was made for this machine: these first, those of the notes last.

    What uses more of the GPUs that there are stands before what would also do with less.
    """
    ranked = []
    for entry in entries:
        preset = None if entry.loaded is None else entry.loaded.preset
        hardware = HardwareRequirements() if preset is None or preset.for_ is None else preset.for_
        # A preset for any hardware was not made for this machine's.
        suits = hardware.gpu is not None and hardware.suits(gpus, cores)
        needed = (hardware.min_memory_gib or 0.0) * (hardware.min_gpus or 1) * hardware.suits(gpus, cores)
        rank = (not suits, -needed, preset is not None and is_measured(preset))
        ranked.append((rank, replace(entry, suits=suits)))
    return tuple(entry for _, entry in sorted(ranked, key=lambda pair: pair[0]))


def find_preset(name_or_path: str, folders: Sequence[Path] | None = None) -> LoadedPreset:
    """The preset of that name, or in that file. Raises `PresetError`, which suggests the closest name."""
    if "/" in name_or_path or names_tool_file(name_or_path):
        return load_preset(Path(name_or_path).expanduser())
    files = _preset_files(folders)
    if name_or_path in files:
        return _load_safely(files[name_or_path])
    near = closest_match(name_or_path, files)
    alike = [near] if near else [name for name in files if name_or_path and name_or_path.lower() in name]
    hint = f"; did you mean {', '.join(map(repr, alike))}?" if alike else "; `tuner-tui presets list` shows all"
    raise PresetError(f"no preset '{shorten_text(name_or_path)}'{hint}")


class _Dumper(yaml.SafeDumper):
    """Writes text with unprintable characters in double quotes: PyYAML's other styles lose U+0085 and the like."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def _load_entry(path: Path) -> PresetEntry:
    try:
        return PresetEntry(path.stem, path, _load_safely(path))
    except PresetError as error:
        return PresetEntry(path.stem, path, problem=str(error))


def _load_safely(path: Path) -> LoadedPreset:
    """The preset. Raises `PresetError` if another user may change it: its `job.command` runs as this user."""
    if path.parent != shipped_folder():
        try:
            for part in (path.parent, path):
                require_unshared(part)
        except OSError as error:
            raise PresetError(f"{error.filename}: {error.strerror}") from None
    return load_preset(path)


def _preset_files(folders: Sequence[Path] | None) -> dict[str, Path]:
    """The preset files by name; a name in an earlier folder hides the same name in a later one."""
    files: dict[str, Path] = {}
    for folder in (user_folder(), shipped_folder()) if folders is None else folders:
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for path in entries:
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                files.setdefault(path.stem, path)
    return files

"""Resolves settings and job with their origins: flags win over environment, a tool's file, `./tuner.yaml`, a preset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from msgspec import Struct, convert, structs

from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.command_training import read_command
from tuner_tui.settings.dialects.dialect import Dialect, dialect_of_command
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.file_notes import command_to_name
from tuner_tui.settings.job import ApplyMode, CommandJob, Job, Launcher, Task, fallback_limit
from tuner_tui.settings.model import (
    FIELDS,
    Origin,
    OriginKind,
    Resolved,
    Settings,
    Value,
    closest_match,
    did_you_mean,
    field_name,
    parse_value,
    shorten_text,
    spec_of,
)
from tuner_tui.settings.preset_file import LoadedPreset, Preset
from tuner_tui.settings.presets import find_preset, load_preset, shipped_folder

ENVIRONMENT_PREFIX = "TUNER_"
PROJECT_FILE = "tuner.yaml"
OPTION_CHOICES: Mapping[str, Sequence[str]] = {
    "apply": get_args(ApplyMode), "launcher": get_args(Launcher), "task": get_args(Task),
}  # fmt: skip


class LaunchOptions(Struct, frozen=True):
    """A training as the user asks for it; None and empty where an option is absent.

    `preset` is a name or a path, `flags` maps setting to text as typed, `environment` holds all variables. `project` is
    the project file; a missing file is skipped. `default_job` is the job where no file says what it trains. From
    `command` on, the options choose or change the job. `resume` names the run to continue.
    """

    preset: str | None = None
    flags: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    project: Path | None = Path(PROJECT_FILE)
    default_job: Job | None = None
    command: tuple[str, ...] = ()
    apply: str | None = None
    launcher: str | None = None
    processes: int | None = None
    model: str | None = None
    task: str | None = None
    data: str | None = None
    fallback: int | None = None
    resume: str | None = None
    memory_limit_bytes: int | None = None
    interpreter: Path | None = None


class Training(Struct, frozen=True):
    """Settings with origins, the job and the preset they come from; `job_file` is the user's file that gives the job.

    `notes` are warnings of the files read: keys left out, names translated.
    """

    resolved: Resolved
    job: Job | None = None
    loaded: LoadedPreset | None = None
    notes: tuple[str, ...] = ()
    job_file: Path | None = None

    @property
    def left_open(self) -> tuple[str, ...]:
        """The settings that the tool of the preset's file chooses when it starts."""
        return () if self.loaded is None else self.loaded.left_open


def resolve_training(options: LaunchOptions) -> Training:
    """Settings and job from all options. Raises `SettingsError` that names the source at fault.

    The job is that of the project file, else of the preset; of a training tool's file before the project's. A command
    among the options replaces its command. `COMMAND_TO_NAME` is that of a file that shows none.
    """
    loaded = None if options.preset is None else find_preset(options.preset)
    project = load_project(options.project)
    preset = None if loaded is None else loaded.preset
    tool = None if loaded is None else loaded.dialect
    path = None if loaded is None else loaded.path
    opened = tool is not None
    file = path.name if opened and path is not None else None
    resolved = resolve(flags=options.flags, environment=options.environment, project=project, preset=preset, file=file)
    if tool is not None:
        resolved = _with_tool_defaults(resolved, tool)
    files = (loaded, project) if opened else (project, loaded)
    given, job_file = next(
        ((file.preset.job, file.path) for file in files if file is not None and file.preset.job is not None),
        (options.default_job if loaded is None or loaded.training is None else loaded.training, None),
    )
    job = apply_job_options(given, options)
    fallback = fallback_limit(options.fallback, options.environment)
    if job is not None and fallback is not None:
        job = structs.replace(job, fallback=fallback)
    notes = () if loaded is None else loaded.notes
    if loaded is not None and path is not None:
        # What the script, or another file of its command, sets itself is not passed to it.
        is_script = path.suffix == ".py" and str(path.absolute()) in getattr(job, "command", ())
        sources = dict.fromkeys(loaded.preset.settings, path.name) if is_script else loaded.sources
        of_file = {name for name, origin in resolved.origins.items() if origin.kind == OriginKind.FILE}
        observed = {name: Origin(OriginKind.OBSERVED, source) for name, source in sources.items() if name in of_file}
        resolved = Resolved(resolved.settings, {**resolved.origins, **observed})
    if project is not None:
        of_project = (note for note in project.notes if note != command_to_name(Path(PROJECT_FILE)))
        notes += tuple(f"{options.project}: {note}" for note in of_project)
    replaced = options.command and not isinstance(given, CommandJob)
    if replaced or (job_file is not None and job_file.parent == shipped_folder()):
        job_file = None
    return Training(resolved, job, loaded, notes, job_file)


def resolve_planned(options: LaunchOptions) -> Training:
    """Settings and job of a training that is only planned: a command has what its arguments and files name."""
    training = resolve_training(options)
    job = training.job
    if not isinstance(job, CommandJob):
        return training
    written = read_command(job.command, Path(job.cwd or ""), job.env)
    job = structs.replace(job, model=job.model or written.model, task=job.task or written.task)
    loaded = {} if training.loaded is None else training.loaded.sources
    says_evaluation = "eval_strategy" in {**written.settings, **training.resolved.origins}
    default = {"eval_strategy": "default of the tool"}
    assumed, of_command = ({}, written.settings) if says_evaluation else (default, written.in_effect)
    resolved = training.resolved.with_own(of_command, {**assumed, **written.sources, **loaded})
    return structs.replace(training, job=job, resolved=resolved)


def resolve(
    *,
    flags: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
    project: LoadedPreset | None = None,
    preset: Preset | None = None,
    file: str | None = None,
) -> Resolved:
    """The settings alone, from files already loaded. Raises `SettingsError` that names the source at fault.

    The values of a preset that is the `file` of a tool win over those of the project file.
    """
    kind = OriginKind.PRESET if file is None else OriginKind.FILE
    of_preset = [] if preset is None else [(preset.settings, Origin(kind, file or preset.name))]
    of_project = [] if project is None else [(project.preset.settings, Origin(OriginKind.PROJECT, str(project.path)))]
    # From the weakest to the strongest source: of the same setting, the last value counts, with its origin.
    values: dict[str, Value] = {}
    origins: dict[str, Origin] = {}
    for settings, origin in of_project + of_preset if file is not None else of_preset + of_project:
        values |= settings
        origins |= dict.fromkeys(settings, origin)
    given = [*_of_environment(environment)]
    given += ((name, text, Origin(OriginKind.FLAG, f"--set {name}")) for name, text in flags.items())
    problems: dict[str, str] = {}
    for name, text, origin in given:
        origins[name] = origin
        try:
            values[name] = parse_value(name, text)
        except FieldError as error:
            problems[name] = f"{origin.detail.partition(' ')[0]}: {error}"
    if problems:
        raise FieldError(next(iter(problems)), "\n".join(problems.values()))
    return Resolved(convert(values, Settings), origins)


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, Origin]]:
    """The settings that variables give: name, text and origin. Raises `SettingsError` for what is meant as one."""
    for variable, text in environment.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if name in FIELDS:
            yield name, text, Origin(OriginKind.ENVIRONMENT, variable)
        elif (near := closest_match(name, FIELDS, cutoff=0.85)) is not None:
            right = f"{ENVIRONMENT_PREFIX}{near.upper()}"
            unknown = f"the environment variable {shorten_text(variable)} is not a setting"
            raise SettingsError(f"{unknown}; did you mean {right}?")


def _with_tool_defaults(resolved: Resolved, tool: Dialect) -> Resolved:
    """What the tool takes where no source says anything: known, and not written into its file."""
    origin = Origin(OriginKind.OBSERVED, f"default of {tool.tool}")
    defaults = {name: value for name, value in tool.defaults.items() if name not in resolved.origins}
    named = {name: str(value) for name, value in defaults.items() if value in FIELDS}
    settings = resolved.settings.changed(**{name: defaults[name] for name in defaults.keys() - named})
    settings = settings.changed(**{name: getattr(settings, other) for name, other in named.items()})
    return Resolved(settings, {**dict.fromkeys(defaults, origin), **resolved.origins})


def parse_flags(words: Iterable[str]) -> dict[str, str]:
    """`name=text` words of `--set` as a mapping; raises `SettingsError` without `=` or for an unknown field."""
    flags: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise SettingsError(f"--set {shorten_text(word)}: use name=value, such as learning_rate=1e-5")
        name = field_name(name)
        try:
            spec_of(name)
        except FieldError as error:
            raise FieldError(name, f"--set: {error}") from None
        flags[name] = text
    return flags


def apply_job_options(base: Job | None, options: LaunchOptions) -> Job | None:
    """`base` with the options put in; a new command job where they give a command and `base` is not a command job.

    A new command receives settings as `default_apply_mode` chooses. Raises `SettingsError`.
    """
    changes = _job_changes(options)
    if options.command and (not isinstance(base, CommandJob) or base.is_unnamed):
        dialect = dialect_of_command(options.command).name
        defaults: dict[str, Any] = {"apply": default_apply_mode(options.command), "dialect": dialect}
        if isinstance(base, CommandJob):
            defaults |= {"model": base.model, "task": base.task, "data": base.data}
        return _check_launcher(convert(defaults | changes | _command_changes(options.command), CommandJob))
    if isinstance(base, CommandJob):
        command = _command_changes(options.command) if options.command else {}
        return _check_launcher(structs.replace(base, **(changes | command)))
    if base is None:
        return None
    if "apply" in changes:
        raise SettingsError("--apply only works with a command; the built-in job takes all settings.")
    return _check_launcher(structs.replace(base, **changes))


def _command_changes(command: tuple[str, ...]) -> dict[str, Any]:
    """The command, and the model that it names where it does."""
    training = read_command(command, Path())
    named = {} if training.model is None else {"model": training.model, "task": training.task}
    return {"command": command, **({"task": "other"} if training.task == "other" else {}), **named}


def _job_changes(options: LaunchOptions) -> dict[str, Any]:
    names = ("apply", "launcher", "processes", "task", "model", "data")
    changes = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.processes is not None and options.processes < 1:
        raise SettingsError(f"--processes {options.processes}: must be at least 1.")
    for name, choices in OPTION_CHOICES.items():
        if (text := changes.get(name)) is not None and text not in choices:
            hint = did_you_mean(text, choices) or "."
            raise SettingsError(f"--{name}: {text!r} is not one of {', '.join(choices)}{hint}")
    return changes


def _check_launcher(job: Job) -> Job:
    if job.processes > 1 and job.launcher == "plain":
        raise SettingsError("Several processes need --launcher torchrun, accelerate or deepspeed.")
    return job


def load_project(path: Path | None) -> LoadedPreset | None:
    """The project file at `path`; None where there is none. Raises `PresetError`."""
    return load_preset(path) if path is not None and path.is_file() else None

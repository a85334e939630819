"""What trains: the built-in job, or a command and how settings reach it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.errors import FieldError, SettingsError
from tuner_tui.settings.model import spec_of

ApplyMode = Literal["placeholders", "hf-args", "yaml", "inject", "none"]
Task = Literal["classification", "causal-lm", "seq2seq", "image-classification", "speech-to-text"]
"""What a model can be trained for whose memory can be traced: of texts unless the name says otherwise."""
TEXT_TASKS: tuple[Task, ...] = ("classification", "causal-lm")
"""The tasks of the built-in job, which the closed forms and the field notes cover."""
Launcher = Literal["plain", "torchrun", "accelerate", "deepspeed"]
SHAPES = ("tiny", "bert-base", "bert-large", "gpt2", "llama-1b")
"""The built-in models, which start from random weights."""
DATA_TO_NAME = "YOUR_DATA.csv"
"""Stands for the data in a preset that leaves it to the user."""
COMMAND_TO_NAME = "YOUR_COMMAND"
"""Stands for the command where a tool's file is opened and nothing shows what reads it: for advice, never started."""
MODEL_NAMES = (
    "model_name_or_path", "model", "base_model", "model_id", "pretrained_model_name_or_path", "model_path",
    "model_name", "pretrained_model", "base_model_name",
)  # fmt: skip
"""How scripts call the option that names their model, the most certain first; ms-swift calls the bot `model_name`."""
_NO_NAME = re.compile(r"[<$]|\{\{|.*\.(py|ya?ml|toml|bin|pth?)$|(none|null|true|false)?$", re.IGNORECASE)
"""Text that is filled in later, names a file of settings, or nothing."""
OTHER_TASKS = Path(__file__).with_name("other_tasks.yaml")

MAX_FALLBACKS = 20
FALLBACK_VARIABLE = "TUNER_FALLBACK"


class _BaseJob(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """Fields of every job. `launcher` starts it in `processes` processes, one per GPU.

    `fallback` is how often a run may restart with a smaller micro batch after it ran out of memory; it does not change
    what is trained. `interpreter` is the Python of the training environment; None for the shell's. `env` are variables
    that it sets.
    """

    fallback: Annotated[int, Meta(ge=0, le=MAX_FALLBACKS)] = 0
    launcher: Launcher = "plain"
    processes: Annotated[int, Meta(ge=1)] = 1
    interpreter: str | None = None
    env: dict[str, str] = {}

    def copies(self, processes: int) -> int:
        """The copies of the model that `processes` train, each on samples of its own; a tool may split one."""
        return max(1, processes // int(getattr(self, "stated", {}).get("model_parallel", 1)))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that the job sets; one that names itself extends that of `environ`: `PATH=/opt/bin:$PATH`."""
        return {name: Template(text).safe_substitute({name: environ.get(name, "")}) for name, text in self.env.items()}


class BuiltinJob(_BaseJob, frozen=True, kw_only=True, tag="builtin"):
    """The built-in training: text classification or causal language modelling by the Hugging Face Trainer.

    `model` is a Hub id, a local path or one of `SHAPES`; `data` a CSV, JSONL or Parquet file, a Hub dataset, or stdlib.
    """

    kind: ClassVar[Literal["builtin"]] = "builtin"
    task: Task = "classification"
    model: str = "tiny"
    data: str = "stdlib"
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    max_samples: Annotated[int, Meta(ge=1)] | None = None
    trust_remote_code: bool = False

    def __hash__(self) -> int:
        return hash((self.task, self.model, self.data, self.max_samples))  # estimates are cached; `env` has no hash


class CommandJob(_BaseJob, frozen=True, kw_only=True, tag="command"):
    """A user's training command and how settings reach it.

    `model`, `task` and `data` say what the command trains where that is known, for estimates; they do not reach it, nor
    does `stated`: what its file says besides settings, such as the number of GPUs.
    `dialect` names the tool whose configuration `hf-args` and `yaml` write, `aliases` maps settings to keys of the
    command, and `on_cpu` says that the command trains on the CPU by its own configuration.
    """

    kind: ClassVar[Literal["command"]] = "command"
    command: Annotated[tuple[str, ...], Meta(min_length=1, description="a list of at least one word")]
    apply: ApplyMode = "none"
    dialect: str = "hf"
    aliases: dict[str, str] = {}
    model: str | None = None
    task: Task | Literal["other"] | None = None
    data: str | None = None
    cwd: str | None = None
    on_cpu: bool = False
    stated: dict[str, str | int] = {}

    def __post_init__(self) -> None:
        for name in self.aliases:
            try:
                spec_of(name)
            except FieldError as error:
                raise FieldError("aliases", str(error)) from None

    @property
    def is_unnamed(self) -> bool:
        """Whether the command is still to be named: a file of settings does not show which one reads it."""
        return self.command == (COMMAND_TO_NAME,)


Job = BuiltinJob | CommandJob


def job_from_json(values: Any) -> Job:
    """The job that a file contains. Raises `msgspec.ValidationError`."""
    job: Job = convert(without_hydra(values), Job)
    return job


def without_hydra(values: Any) -> Any:
    """Files of earlier versions have `apply: hydra`: `key=value` by aliases, or in the names of a known tool."""
    if not isinstance(values, dict) or values.get("apply") != "hydra":
        return values
    return {**values, "apply": "placeholders" if values.get("dialect", "hf") in ("hf", "hydra") else "yaml"}


def named_model(job: Job) -> str | None:
    """The model of the job, or the one that an option of its command names, such as `--model_name_or_path gpt2`."""
    if job.model or not isinstance(job, CommandJob):
        return job.model
    from tuner_tui.settings.dialects.command_words import read_options  # what lists runs needs none of its modules

    return model_among(read_options(job.command))


def model_among(values: Mapping[str, object]) -> str | None:
    """The model among named values; a file of settings is none."""
    named = (values.get(name) for name in MODEL_NAMES)
    return next((value for value in named if isinstance(value, str) and _NO_NAME.match(value) is None), None)


def names_other_task(model: str, command: Sequence[str] = ()) -> bool:
    """Whether the names of the model and scripts of the command mean images, sound or sequence to sequence."""
    scripts = [word.rpartition("/")[2] for word in command if word.endswith((".py", ".sh"))]
    model = re.sub(r"/snapshots/[0-9a-f]+/?$", "", model)  # of the Hub's cache
    names = [name.lower() for name in (*scripts, model.rstrip("/").rpartition("/")[2])]
    return any(map(other_task_pattern("names").search, names))


@cache
def other_task_pattern(part: Literal["names", "classes"]) -> re.Pattern[str]:
    """All rows of a part of `other_tasks.yaml`."""
    return re.compile("|".join(row["match"] for row in read_data_file(OTHER_TASKS)[part]), re.VERBOSE)


_MODEL_CLASS = re.compile(r"\b(?!DataCollator)[A-Z]\w*For[A-Z]\w*(?=\.from_|\()")
"""A class of Transformers for a task: `ViTForImageClassification`, `AutoModelForSeq2SeqLM`."""


def task_of_source(source: str) -> Task | Literal["other"] | None:
    """What a script with this source trains, by the classes that it uses; None where they do not say."""
    tasks: Mapping[Task, str] = read_data_file(OTHER_TASKS)["tasks"]
    used = [task for task, pattern in tasks.items() if re.search(pattern, source)]
    if used:
        return used[0] if len(used) == 1 else None  # the model says which of several is trained
    if re.search(read_data_file(OTHER_TASKS)["heads"], source):
        return None
    return "other" if _MODEL_CLASS.search(source) or other_task_pattern("classes").search(source) else None


COMMAND_IDENTITY = ("command", "cwd", "launcher", "processes", "on_cpu")
"""Fields in which two jobs must agree to be the same command, however settings reach it."""
OF_RUNTIME = frozenset(
    {"HYDRA_FULL_ERROR", "NCCL_DEBUG", "NCCL_P2P_DISABLE", "OMP_NUM_THREADS", "PYTHONFAULTHANDLER",
     "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ENABLE_MPS_FALLBACK"}
)  # fmt: skip
"""Variables of the environment that change how a training runs and what it reports, not what it trains."""


def same_training(first: Job, second: Job) -> bool:
    """Whether both jobs are the same command, or built-in jobs that are equal apart from `fallback`, and differ in no
    variable but those `OF_RUNTIME`."""
    if not {name for name, _ in first.env.items() ^ second.env.items()} <= OF_RUNTIME:
        return False
    if isinstance(first, CommandJob) and isinstance(second, CommandJob):
        return all(getattr(first, name) == getattr(second, name) for name in COMMAND_IDENTITY)
    return replace(first, fallback=0, env={}) == replace(second, fallback=0, env={})


_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|true|false|none|null", re.IGNORECASE)


def same_program(first: Job, second: Job) -> bool:
    """Whether both jobs are the same training but for numbers and switches, such as `--lr 1e-4` or `--bf16`."""

    def is_name(word: str, following: str) -> bool:
        has_number = word[:1] == "-" and "=" not in word and (following[:1] == "-" or _NUMBER.fullmatch(following))
        return not has_number and not _NUMBER.fullmatch(word.partition("=")[2] or word)

    def named(job: Job) -> Job:
        if not isinstance(job, CommandJob):
            return job
        words = zip(job.command, (*job.command[1:], "-"), strict=True)
        return replace(job, command=tuple(word for word, following in words if is_name(word, following)))

    return same_training(named(first), named(second))


def fallback_limit(flag: int | None, environment: Mapping[str, str]) -> int | None:
    """The number that the flag gives, else `TUNER_FALLBACK`; None where neither does and the job decides.

    Raises `SettingsError` where the variable is not a number from 0 to `MAX_FALLBACKS`.
    """
    text = environment.get(FALLBACK_VARIABLE, "").strip()
    if flag is not None or not text:
        return flag
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_FALLBACKS:
        raise SettingsError(f"{FALLBACK_VARIABLE}={text[:40]} is not a whole number from 0 to {MAX_FALLBACKS}")
    return int(text)

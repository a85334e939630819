"""Rules: whether settings fit each other, the job, the GPUs and the interpreter.

They are in `rules.yaml`; here are the words of their conditions and sentences. Where what a rule needs is unknown, it
reports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field, structs

from tuner_tui.core.files import read_data_file
from tuner_tui.hardware import capabilities
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.command_training import takes_arguments
from tuner_tui.settings.dialects.command_words import read_options
from tuner_tui.settings.dialects.dialect import HF, dialect_by_name
from tuner_tui.settings.dialects.hf import BITSANDBYTES_OPTIMIZERS, LIBRARY_NAMES, SCRIPT_FIELDS, to_hf
from tuner_tui.settings.dialects.purpose import names_of_transformers
from tuner_tui.settings.distributed import process_count, trains_on_cpu
from tuner_tui.settings.job import SHAPES, BuiltinJob, CommandJob, Job, named_model
from tuner_tui.settings.model import FIELDS, Settings, Value, closest_match, shorten_text

RULES = Path(__file__).with_name("rules.yaml")
Severity = Literal["error", "warning"]
PROBED_PACKAGES = frozenset({"accelerate", "bitsandbytes", "datasets", "flash-attn", "peft", "transformers"})
"""Packages that the interpreter probe looks for: one of these that it does not report is not installed."""


class Problem(Struct, frozen=True):
    """Settings, the one to change first, that do not fit each other or this machine; `fix` maps them to values that do.

    An error stops the training or makes it silently ignore a setting; a warning is about an effect that may surprise.
    """

    fields: tuple[str, ...]
    severity: Severity
    sentence: str
    fix: Mapping[str, Value] = field(default_factory=dict)


class RuleContext(Struct, frozen=True):
    """Machine and job that the rules check against. None is unknown: a rule that needs it reports nothing."""

    gpus: tuple[Gpu, ...] | None = None
    interpreter: Interpreter | None = None
    job: Job | None = None
    cores: int | None = None

    @property
    def no_gpu(self) -> bool:
        """Whether training is certain to run on the CPU: no GPU, or a torch built without CUDA."""
        if self.gpus is None:
            return False
        version = self.version_text("torch") or ""
        return self.cpu_build or (not self.gpus and "rocm" not in version and "xpu" not in version)

    @property
    def cpu_build(self) -> bool:
        """Whether torch of the interpreter was built without GPU support."""
        version = self.version_text("torch")
        if self.interpreter is None or version is None or "rocm" in version or "xpu" in version:
            return False
        return self.interpreter.torch_cuda is None

    @property
    def weakest_gpu(self) -> Gpu | None:
        """The GPU of the lowest known capability, which decides what a training on all GPUs can use."""
        return None if not self.gpus or self.no_gpu else capabilities.weakest(self.gpus)

    def gpu_below(self, feature: str) -> Gpu | None:
        """The weakest GPU if it is known not to support `feature`, else None."""
        return None if self.gpus is None or self.no_gpu else capabilities.gpu_below(self.gpus, feature)

    def lacks(self, package: str) -> bool:
        """Whether `package` is known not to be installed."""
        # Without torch the probe reports nothing; packages that it does not look for are unknown.
        is_probed = package in PROBED_PACKAGES and self.version_text("torch") is not None
        return is_probed and self.version_text(package) is None

    def version_text(self, package: str) -> str | None:
        """The installed version of a package, None if it is unknown or not installed."""
        return None if self.interpreter is None else self.interpreter.packages.get(package)

    def is_older(self, package: str, than: Sequence[int]) -> bool:
        """Whether an installed package, or `python` itself, is known to be older than `than`."""
        version = self.version_text(package)
        if package == "python" and self.interpreter is not None:
            version = self.interpreter.python_version
        numbers = re.match(r"(\d+)\.(\d+)", version or "")
        return numbers is not None and [int(numbers[1]), int(numbers[2])] < [*than]


def describe_gpu(gpu: Gpu) -> str:
    return gpu.name if gpu.capability is None else f"{gpu.name} (capability {gpu.capability[0]}.{gpu.capability[1]})"


MAX_WORKERS, SPARE_CORES = 8, 2
"""Loader workers of one training: at most 8, and two cores are left to the training itself (field notes 004)."""
WORKERS_PER_CORE = 2
"""More workers for each core compete even if they wait for storage half of the time."""
OWN_QUANTIZATION = frozenset({"torchtune"})
"""Dialects of tools that quantize without bitsandbytes: torchtune has the NF4 of torchao."""
OVERFLOWS_FP16 = re.compile(r"gemma|(?<![a-z])(?:(?:long-?|code|by|flan-?|um|m)?t5|flan-ul2|ul2)(?![a-z])")
"""Families trained in bf16 whose activations exceed 65,504, the largest number of fp16: there the loss becomes nan."""


def overflows_fp16(model: str | None) -> bool:
    """Whether a model of this name (Hub id or path) is known to overflow in fp16."""
    return model is not None and OVERFLOWS_FP16.search(model.lower()) is not None


def _model(context: RuleContext) -> str | None:
    return None if context.job is None else named_model(context.job)


def _runs(feature: str, context: RuleContext) -> bool:
    """Whether the weakest GPU is known to support `feature`."""
    return context.weakest_gpu is not None and bool(capabilities.supports([context.weakest_gpu], feature))


def _lacks_gpus(context: RuleContext) -> bool:
    processes = 1 if context.job is None or context.job.launcher == "plain" else context.job.processes
    return not context.no_gpu and processes > len(context.gpus or ()) > 0


def _samples(job: Job | None) -> int | None:
    return job.max_samples if isinstance(job, BuiltinJob) else None


def _of_trainer(job: Job | None) -> bool:
    """Whether the job is known to have the strategies and defaults of Transformers; other programs have their own."""
    if not isinstance(job, CommandJob):
        return True
    tool = dialect_by_name(job.dialect)
    if takes_arguments(job.command, Path(job.cwd or "")) is False:
        return False
    names = names_of_transformers({*read_options(job.command), *job.aliases.values()})
    return tool.extends_hf and (bool(tool.programs) or names or (job.apply == "yaml" and tool.name == HF))


def _effective_batch(settings: Settings, job: Job | None) -> int:
    return settings.effective_batch(1 if job is None else job.copies(process_count(job)))


WORDS: Mapping[str, Callable[[Settings, RuleContext], Any]] = {
    "least": lambda *_: capabilities.least_capabilities(),
    "no_gpu": lambda _, context: context.no_gpu,
    "gpu": lambda _, context: "" if context.weakest_gpu is None else describe_gpu(context.weakest_gpu),
    "runs_bf16": lambda _, context: _runs("bf16", context),
    "below_bf16": lambda _, context: "fp16" if _runs("fp16", context) else "fp32",
    "torch": lambda _, context: context.version_text("torch"),
    "before_python_3_12": lambda _, context: context.is_older("python", (3, 12)),
    "flash_package": lambda settings, _: (
        "flash-attn" if settings.attn_implementation == "flash_attention_2" else "flash-attn-3"
    ),
    "uses_cpu": lambda _, context: isinstance(context.job, BuiltinJob) or trains_on_cpu(context.job),
    "job_kind": lambda _, context: None if context.job is None else context.job.kind,
    "model": lambda _, context: _model(context),
    "random_weights": lambda _, context: isinstance(context.job, BuiltinJob) and context.job.model in SHAPES,
    "overflows_fp16": lambda _, context: overflows_fp16(_model(context)),
    "by_bitsandbytes": lambda _, context: getattr(context.job, "dialect", "") not in OWN_QUANTIZATION,
    "bitsandbytes_optimizer": lambda settings, _: settings.optim in BITSANDBYTES_OPTIMIZERS,
    "warms_up": lambda settings, _: settings.warmup_steps > 0,
    "warmup_never_ends": lambda settings, _: settings.warmup_steps >= (settings.max_steps or inf),
    "fraction_of_steps": lambda settings, _: settings.warmup_steps >= 1 and not settings.warmup_steps.is_integer(),
    "whole_warmup": lambda settings, _: float(int(settings.warmup_steps)),
    "prefetches": lambda settings, _: settings.dataloader_prefetch_factor is not None,
    "too_many_workers": lambda settings, context: (
        settings.dataloader_num_workers > WORKERS_PER_CORE * (context.cores or inf)
    ),
    "fewer_workers": lambda _, context: max(1, min(MAX_WORKERS, (context.cores or 0) - SPARE_CORES)),
    "cores": lambda _, context: "1 usable core" if context.cores == 1 else f"{context.cores} usable cores",
    "processes": lambda _, context: 1 if context.job is None else process_count(context.job),
    "gpus": lambda _, context: "only GPU" if len(context.gpus or ()) == 1 else f"{len(context.gpus or ())} GPUs",
    "more_processes_than_gpus": lambda _, context: _lacks_gpus(context),
    "samples": lambda _, context: _samples(context.job),
    "effective_batch": lambda settings, context: _effective_batch(settings, context.job),
    "batch_exceeds_data": lambda settings, context: (
        _effective_batch(settings, context.job) > (_samples(context.job) or inf)
    ),
    "names_eval_steps": lambda settings, context: settings.eval_steps is not None and _of_trainer(context.job),
    "of_trainer": lambda _, context: _of_trainer(context.job),
    "never_evaluates": lambda settings, _: (settings.eval_steps or 0) > (settings.max_steps or inf),
    "saves_unevaluated": lambda settings, _: settings.save_steps % (settings.eval_steps or 1) != 0,
    "evaluated_save_steps": lambda settings, _: max(
        settings.eval_steps or 1, settings.save_steps - settings.save_steps % (settings.eval_steps or 1)
    ),
}
"""Words of the rules in addition to the names of settings."""


class _Words(dict[str, Any]):
    """The words of the rules with their values, each worked out where it is first needed."""

    def __init__(self, settings: Settings, context: RuleContext) -> None:
        super().__init__(structs.asdict(settings))
        self.settings = settings
        self.context = context

    def __missing__(self, word: str) -> Any:
        self[word] = value = WORDS[word](self.settings, self.context)
        return value

    def meet(self, conditions: Mapping[str, Any]) -> bool:
        """Whether all conditions of a row hold."""
        return all(self._holds(word, wanted) for word, wanted in conditions.items())

    def _holds(self, word: str, wanted: Any) -> bool:
        match word:
            case "gpu_below":
                return self.context.gpu_below(wanted) is not None
            case "lacks":
                return self.context.lacks(wanted)
            case "older":
                return self.context.is_older("torch", wanted)
        return self[word] in wanted if isinstance(wanted, list) else self[word] == wanted


def _problem(row: Mapping[str, Any], words: _Words) -> Problem:
    fix = {
        name: words[value.strip("{}")] if isinstance(value, str) and value.startswith("{") else value
        for name, value in row.get("set", {}).items()
    }
    return Problem(tuple(row["fields"]), row.get("severity", "error"), row["say"].format_map(words), fix)


def _unknown_names(settings: Settings) -> Iterator[Problem]:
    """Optimizers and schedules that Transformers does not have."""
    for name, names in LIBRARY_NAMES.items():
        word, likely = getattr(settings, name), FIELDS[name].suggestions
        if word not in names:
            longer = next((suggestion for suggestion in likely if suggestion.startswith(word)), None)
            near = longer or closest_match(word, likely) or closest_match(word, names)
            hint = f"; did you mean {near}?" if near else "."
            sentence = f"transformers 5.23 has no '{shorten_text(word)}'{hint}"
            yield Problem((name,), "warning", sentence, {name: near} if near else {})


def _unsupported_arguments(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Settings other than their default that the installed `TrainingArguments` lacks."""
    names = None if context.interpreter is None else context.interpreter.training_arguments
    if names is None:
        return
    result = to_hf(settings, names, extra=SCRIPT_FIELDS)
    for name, note in zip(result.unsupported, result.notes, strict=True):
        if getattr(settings, name) != FIELDS[name].default:
            yield Problem((name,), "warning", f"{note}: it has no effect.")


def find_problems(
    settings: Settings,
    *,
    gpus: Sequence[Gpu] | None,
    interpreter: Interpreter | None,
    job: Job | None = None,
    cores: int | None = None,
) -> tuple[Problem, ...]:
    """What is wrong with `settings` on this machine, errors first. None, of any argument, means unknown."""
    context = RuleContext(None if gpus is None else tuple(gpus), interpreter, job, cores)
    words = _Words(settings, context)
    groups: Mapping[str, Sequence[Mapping[str, Any]]] = read_data_file(RULES)
    rows = (next((row for row in group if words.meet(row["if"])), None) for group in groups.values())
    problems = [_problem(row, words) for row in rows if row is not None]
    problems += [*_unknown_names(settings), *_unsupported_arguments(settings, context)]
    return tuple(sorted(problems, key=lambda problem: problem.severity != "error"))

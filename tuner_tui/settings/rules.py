"""Rules: whether settings fit each other, the job, the GPUs and the interpreter.

A rule is a generator that yields the problems of one subject. Where what it needs is unknown, it reports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuner_tui.hardware import capabilities
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.argv import parse_long_options
from tuner_tui.settings.dialects.hf import (
    BITSANDBYTES_OPTIMIZERS,
    OPTIMIZERS,
    SCHEDULES,
    SCRIPT_FIELDS,
    TORCHAO_OPTIMIZERS,
    to_hf,
)
from tuner_tui.settings.distributed import process_count
from tuner_tui.settings.job import SHAPES, BuiltinJob, CommandJob, modelled_job
from tuner_tui.settings.model import FIELDS, Settings, Value, closest_match, shorten_text

Severity = Literal["error", "warning"]
PROBED_PACKAGES = frozenset({"accelerate", "bitsandbytes", "datasets", "flash-attn", "peft", "transformers"})
"""Packages that the interpreter probe looks for: one of these that it does not report is not installed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Settings that do not fit each other or this machine.

    `fields` are the settings concerned, the one to change first. An error stops the training or makes it silently
    ignore a setting; a warning is about an effect that may surprise. `fix` maps settings to values that solve it.
    """

    fields: tuple[str, ...]
    severity: Severity
    sentence: str
    fix: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleContext:
    """Machine and job that the rules check against. None is unknown: a rule that needs it reports nothing."""

    gpus: tuple[Gpu, ...] | None = None
    interpreter: Interpreter | None = None
    job: BuiltinJob | CommandJob | None = None
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
        if not self.gpus or self.no_gpu:
            return None
        return capabilities.weakest(self.gpus)

    def gpu_below(self, feature: str) -> Gpu | None:
        """The weakest GPU if it is known not to support `feature`, else None."""
        return None if self.gpus is None or self.no_gpu else capabilities.gpu_below(self.gpus, feature)

    def lacks(self, package: str) -> bool:
        """Whether `package` is known not to be installed."""
        # Without torch the probe reports nothing; packages that it does not look for are unknown.
        asked = package in PROBED_PACKAGES and self.version_text("torch") is not None
        return asked and self.version_text(package) is None

    def version_text(self, package: str) -> str | None:
        """The installed version of a package, None if it is unknown or not installed."""
        return None if self.interpreter is None else self.interpreter.packages.get(package)

    def is_older(self, package: str, than: tuple[int, int]) -> bool:
        """Whether an installed package is known to be older than `than`."""
        return _is_before(self.version_text(package), than)

    def is_python_older(self, than: tuple[int, int]) -> bool:
        """Whether Python of the interpreter is known to be older than `than`."""
        return _is_before(None if self.interpreter is None else self.interpreter.python_version, than)


def _is_before(version: str | None, than: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < than


Rule = Callable[[Settings, RuleContext], Iterator[Problem]]


def describe_gpu(gpu: Gpu) -> str:
    """Name and capability of a GPU, for a sentence."""
    return gpu.name if gpu.capability is None else f"{gpu.name} (capability {gpu.capability[0]}.{gpu.capability[1]})"


def precision(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """bf16 and fp16 on hardware without them."""
    if settings.precision == "fp32":
        return
    if context.no_gpu:
        yield from _half_precision_without_gpu(settings.precision, context)
    elif settings.precision == "bf16" and (gpu := context.gpu_below("bf16")) is not None:
        instead = "fp16" if capabilities.supports([gpu], "fp16") else "fp32"
        why = "it needs capability 8.0 (Ampere) and is only emulated below"
        yield Problem(
            ("precision",), "error", f"{describe_gpu(gpu)} has no bf16: {why}. Use {instead}.", {"precision": instead}
        )
    elif settings.precision == "fp16" and (gpu := context.gpu_below("fp16")) is not None:
        sentence = f"{describe_gpu(gpu)} does not compute in fp16, which needs 5.3. Use fp32."
        yield Problem(("precision",), "error", sentence, {"precision": "fp32"})


def _half_precision_without_gpu(precision: str, context: RuleContext) -> Iterator[Problem]:
    fix: dict[str, Value] = {"precision": "fp32"}
    if precision == "fp16":
        sentence = "On the CPU fp16 is silently off: accelerate has no fp16 autocast there. Use fp32."
        yield Problem(("precision",), "error", sentence, fix)
    elif not _uses_cpu(context):
        sentence = "On the CPU TrainingArguments rejects bf16 unless the script sets use_cpu. Use fp32."
        yield Problem(("precision",), "warning", sentence, fix)


def _uses_cpu(context: RuleContext) -> bool:
    """Whether the training says that it runs on the CPU, where bf16 is allowed: as the built-in job does."""
    if isinstance(context.job, BuiltinJob) or (context.job is not None and context.job.on_cpu):
        return True
    options = {} if context.job is None else parse_long_options(context.job.command, whole=True)
    return any(options.get(name, "no").lower() not in ("false", "no", "0") for name in ("use_cpu", "no_cuda", "cpu"))


def tf32(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """TF32 where `TrainingArguments` raises."""
    if not settings.tf32:
        return
    if context.no_gpu:
        sentence = "On the CPU there is no TF32, and TrainingArguments rejects it. Leave it empty."
        yield Problem(("tf32",), "error", sentence, {"tf32": None})
    elif (gpu := context.gpu_below("tf32")) is not None:
        why = "it needs Ampere (8.0), and TrainingArguments rejects it"
        sentence = f"{describe_gpu(gpu)} has no TF32: {why}. Leave it empty."
        yield Problem(("tf32",), "error", sentence, {"tf32": None})


def attention(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Flash attention without its package, GPU or precision; flex attention with an old torch."""
    name = settings.attn_implementation
    if name in ("flash_attention_2", "flash_attention_3"):
        yield from _flash_attention(settings, context)
    elif name == "flex_attention" and context.is_older("torch", (2, 5)):
        sentence = f"flex attention needs torch 2.5; {context.version_text('torch')} is installed. Use sdpa."
        yield Problem(("attn_implementation",), "error", sentence, {"attn_implementation": "sdpa"})


def _flash_attention(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    package = "flash-attn" if settings.attn_implementation == "flash_attention_2" else "flash-attn-3"
    sdpa: dict[str, Value] = {"attn_implementation": "sdpa"}
    where = ("attn_implementation",)
    if context.no_gpu:
        yield Problem(where, "error", "Flash attention needs a GPU. Use sdpa.", sdpa)
    elif (gpu := context.gpu_below("flash")) is not None:
        yield Problem(where, "error", f"{describe_gpu(gpu)} cannot run {package}, which needs 8.0. Use sdpa.", sdpa)
    elif context.lacks(package):
        sentence = f"{package} is not installed. Use sdpa, which has PyTorch's own flash kernels, or install it."
        yield Problem(where, "error", sentence, sdpa)
    if settings.precision == "fp32":
        half = "fp16" if context.gpu_below("bf16") is not None else "bf16"
        fix: dict[str, Value] = sdpa if context.no_gpu else {"precision": half}
        sentence = f"Flash attention needs fp16 or bf16. Set precision {half}, or use sdpa."
        yield Problem(("attn_implementation", "precision"), "error", sentence, fix)


def compilation(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """`torch.compile` with a torch, Python or GPU that does not support it."""
    if not settings.torch_compile:
        return
    off: dict[str, Value] = {"torch_compile": False}
    if context.is_older("torch", (2, 0)):
        yield Problem(("torch_compile",), "error", "torch.compile needs torch 2.0. Turn compile off.", off)
    elif context.is_older("torch", (2, 4)) and not context.is_python_older((3, 12)):
        sentence = "torch.compile on Python 3.12 needs torch 2.4. Turn compile off, or upgrade torch."
        yield Problem(("torch_compile",), "error", sentence, off)
    if (gpu := context.gpu_below("triton")) is not None:
        sentence = f"{describe_gpu(gpu)} is too old for torch.compile: its Triton kernels need 7.0. Turn compile off."
        yield Problem(("torch_compile",), "error", sentence, off)


REQUIRED_SCHEDULE_ARGUMENTS = {
    "cosine_with_min_lr": "min_lr",
    "cosine_warmup_with_min_lr": "min_lr",
    "warmup_stable_decay": "num_decay_steps",
}


def optimizer(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Optimizers that are unknown, or whose package or torch is missing."""
    name = settings.optim
    if name not in OPTIMIZERS:
        yield _unknown_name("optim", name, OPTIMIZERS)
    for names, package in ((BITSANDBYTES_OPTIMIZERS, "bitsandbytes"), (TORCHAO_OPTIMIZERS, "torchao")):
        if name in names and context.lacks(package):
            sentence = f"{name} needs {package}, which is not installed. Install it, or use adamw_torch."
            yield Problem(("optim",), "error", sentence, {"optim": "adamw_torch"})
    if name == "adamw_torch_fused":
        yield from _fused_adamw(context)


def _fused_adamw(context: RuleContext) -> Iterator[Problem]:
    version = context.version_text("torch")
    if context.is_older("torch", (2, 0)):
        sentence = f"Fused AdamW needs torch 2.0; {version} is installed. Use adamw_torch."
    elif context.no_gpu and context.is_older("torch", (2, 4)):
        sentence = f"Fused AdamW on the CPU needs torch 2.4; {version} is installed. Use adamw_torch."
    else:
        return
    yield Problem(("optim",), "error", sentence, {"optim": "adamw_torch"})


def schedule(settings: Settings, _context: RuleContext) -> Iterator[Problem]:
    """Schedules that are unknown, need arguments that are not settings, or ignore the warmup."""
    name = settings.lr_scheduler_type
    if name not in SCHEDULES:
        yield _unknown_name("lr_scheduler_type", name, SCHEDULES)
    elif name in REQUIRED_SCHEDULE_ARGUMENTS:
        sentence = (
            f"{name} needs {REQUIRED_SCHEDULE_ARGUMENTS[name]} in lr_scheduler_kwargs, which only the script can set."
        )
        yield Problem(("lr_scheduler_type",), "warning", sentence, {"lr_scheduler_type": "cosine"})
    elif name in ("reduce_lr_on_plateau", "greedy") and settings.eval_strategy == "no":
        sentence = f"{name} needs the evaluation loss, but evaluation is off."
        yield Problem(("lr_scheduler_type", "eval_strategy"), "error", sentence, {"eval_strategy": "epoch"})
    elif name == "constant" and settings.warmup_steps > 0:
        sentence = "The constant schedule ignores the warmup; use constant_with_warmup."
        fix = {"lr_scheduler_type": "constant_with_warmup"}
        yield Problem(("lr_scheduler_type", "warmup_steps"), "warning", sentence, fix)


def warmup(settings: Settings, _context: RuleContext) -> Iterator[Problem]:
    """A warmup longer than the training, or of a fractional number of steps."""
    steps, total = settings.warmup_steps, settings.max_steps
    if steps < 1:
        return
    if total is not None and steps >= total:
        sentence = f"A warmup of {steps:,.0f} steps never ends in a training of {total:,}; 0.06 would be 6 % of it."
        yield Problem(("warmup_steps", "max_steps"), "warning", sentence, {"warmup_steps": 0.06})
    if not steps.is_integer():
        sentence = f"From 1 on, the warmup is in whole steps: {steps:g} becomes {int(steps)}."
        yield Problem(("warmup_steps",), "warning", sentence, {"warmup_steps": float(int(steps))})


def adapter(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """An adapter without peft installed."""
    if settings.peft_method != "none" and isinstance(context.job, BuiltinJob) and context.lacks("peft"):
        sentence = f"{settings.peft_method} needs peft, which is not installed. Install it, or train all weights."
        yield Problem(("peft_method",), "error", sentence, {"peft_method": "none"})


def _unknown_name(field: str, name: str, known: tuple[str, ...]) -> Problem:
    likely = FIELDS[field].suggestions
    near = (
        next((word for word in likely if word.startswith(name)), None)
        or closest_match(name, likely)
        or closest_match(name, known)
    )
    hint = f"; did you mean {near}?" if near else "."
    fix = {field: near} if near else {}
    return Problem((field,), "warning", f"transformers 5.23 has no '{shorten_text(name)}'{hint}", fix)


OVERFLOWS_FP16 = re.compile(r"gemma|(?<![a-z])(?:(?:long-?|code|by|flan-?|um|m)?t5|flan-ul2|ul2)(?![a-z])")
"""Families trained in bf16 whose activations exceed 65,504, the largest number of fp16: there the loss becomes nan."""


def overflows_fp16(model: str | None) -> bool:
    """Whether a model of this name (Hub id or path) is known to overflow in fp16."""
    return model is not None and OVERFLOWS_FP16.search(model.lower()) is not None


OWN_QUANTIZATION = frozenset({"torchtune"})
"""Dialects of tools that quantize without bitsandbytes: torchtune has the NF4 of torchao."""


def quantization(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Quantized weights without an adapter, without trained weights, or without what computes in them."""
    name = settings.quantization
    if name == "none":
        return
    builtin = isinstance(context.job, BuiltinJob)
    fields = ("quantization",)
    off: dict[str, Value] = {"quantization": "none"}
    if settings.peft_method == "none" and (builtin or context.job is None):
        sentence = f"{name} weights cannot be trained, only an adapter on them. Set peft_method lora."
        yield Problem(("peft_method", "quantization"), "error", sentence, {"peft_method": "lora"})
    if isinstance(context.job, BuiltinJob) and context.job.model in SHAPES:
        sentence = f"{context.job.model} starts from random weights: there is nothing to quantize to {name}."
        yield Problem(fields, "error", sentence, off)
    if isinstance(context.job, CommandJob) and context.job.dialect in OWN_QUANTIZATION:
        return
    if context.lacks("bitsandbytes"):
        sentence = f"{name} needs bitsandbytes, which is not installed. Run pip install bitsandbytes, or use none."
        yield Problem(fields, "error", sentence, off)
    feature = "int8" if name == "int8" else "4-bit"
    if (gpu := context.gpu_below(feature)) is not None:
        least = ".".join(map(str, capabilities.least_capability(feature)))
        sentence = f"{describe_gpu(gpu)} cannot compute with {name} weights: bitsandbytes needs {least}."
        runs_4bit = name == "int8" and capabilities.supports([gpu], "4-bit")
        yield Problem(fields, "error", sentence, {"quantization": "nf4"} if runs_4bit else off)
    if settings.bnb_4bit_compute_dtype == "bf16" and (gpu := context.gpu_below("bf16")) is not None:
        sentence = f"{describe_gpu(gpu)} only emulates bf16, slowly. Leave bnb_4bit_compute_dtype to precision."
        yield Problem(("bnb_4bit_compute_dtype",), "warning", sentence, {"bnb_4bit_compute_dtype": "auto"})


def weights(settings: Settings, _context: RuleContext) -> Iterator[Problem]:
    """Pure bf16 weights with fp16's loss scaler."""
    if settings.weights_dtype == "bf16" and settings.precision == "fp16" and settings.peft_method == "none":
        sentence = (
            "The loss scaler of fp16 cannot unscale gradients of bf16 weights: torch raises an error. Set "
            "weights_dtype "
        )
        yield Problem(("weights_dtype", "precision"), "error", f"{sentence}auto.", {"weights_dtype": "auto"})


def overflow(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """fp16 for a model that overflows in it."""
    modelled = modelled_job(context.job)
    model = None if modelled is None else modelled.model
    if settings.precision != "fp16" or context.no_gpu or not overflows_fp16(model):
        return
    gpu = context.weakest_gpu
    instead = "bf16" if gpu is not None and capabilities.supports([gpu], "bf16") else "fp32"
    sentence = (
        f"{model} was trained in bf16, and its activations overflow in fp16: the loss becomes nan. Use {instead}."
    )
    yield Problem(("precision",), "warning", sentence, {"precision": instead})


MAX_WORKERS, SPARE_CORES = 8, 2
"""Loader workers of one training: at most 8, and two cores are left to the training itself (field notes 004)."""


def workers(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Options that need workers with none set, and more workers than cores."""
    if settings.dataloader_num_workers == 0:
        if settings.dataloader_prefetch_factor is not None:
            sentence = "Prefetch needs at least one worker: DataLoader raises with 0. Leave it empty, or add workers."
            fix = {"dataloader_prefetch_factor": None}
            yield Problem(("dataloader_prefetch_factor", "dataloader_num_workers"), "error", sentence, fix)
        if settings.dataloader_persistent_workers:
            sentence = (
                "Persistent workers need at least one worker: DataLoader raises with 0. Turn them off, or add workers."
            )
            off = {"dataloader_persistent_workers": False}
            yield Problem(("dataloader_persistent_workers", "dataloader_num_workers"), "error", sentence, off)
    elif context.cores is not None and settings.dataloader_num_workers > context.cores:
        many = f"{settings.dataloader_num_workers} workers on {_cores(context.cores)}"
        sentence = f"{many} compete with each other and with the training."
        fewer: dict[str, Value] = {"dataloader_num_workers": max(1, min(MAX_WORKERS, context.cores - SPARE_CORES))}
        yield Problem(("dataloader_num_workers",), "warning", sentence, fewer)


def _cores(count: int) -> str:
    return "1 usable core" if count == 1 else f"{count} usable cores"


def batch(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """A batch larger than the data."""
    if not isinstance(context.job, BuiltinJob) or context.job.max_samples is None:
        return
    samples, effective = context.job.max_samples, settings.effective_batch(process_count(context.job))
    if effective > samples:
        sentence = f"The effective batch of {effective:,} is larger than the job's {samples:,} samples."
        yield Problem(("gradient_accumulation_steps", "per_device_train_batch_size"), "warning", sentence)


def evaluation(settings: Settings, _context: RuleContext) -> Iterator[Problem]:
    """Evaluation steps that have no effect, are missing or are never reached."""
    steps, total = settings.eval_steps, settings.max_steps
    if settings.eval_strategy != "steps":
        if steps is not None:
            sentence = f"Eval every {steps:,} steps needs evaluate = steps; it is {settings.eval_strategy}."
            yield Problem(("eval_steps", "eval_strategy"), "warning", sentence, {"eval_strategy": "steps"})
    elif steps is None:
        logging = settings.logging_steps
        sentence = f"Evaluate is steps, but eval every is empty: Transformers uses log every ({logging:,} steps)."
        yield Problem(("eval_steps", "eval_strategy"), "warning", sentence, {"eval_steps": settings.save_steps})
    elif total is not None and steps > total:
        sentence = f"Evaluating every {steps:,} steps never happens in a training of {total:,}."
        yield Problem(("eval_steps", "max_steps"), "warning", sentence, {"eval_steps": total})


def saving(settings: Settings, _context: RuleContext) -> Iterator[Problem]:
    """Checkpoints at steps that are never evaluated."""
    every, evaluated = settings.save_steps, settings.eval_steps
    if settings.save_strategy != "steps" or settings.eval_strategy != "steps" or not evaluated:
        return
    if every % evaluated:
        sentence = (
            f"Saving every {every:,} and evaluating every {evaluated:,} steps leaves checkpoints without an "
            "evaluation, which load_best_model_at_end rejects."
        )
        fix = max(evaluated, every - every % evaluated)
        yield Problem(("save_steps", "eval_steps"), "warning", sentence, {"save_steps": fix})


def unsupported_arguments(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Settings other than their default that the installed `TrainingArguments` lacks."""
    names = None if context.interpreter is None else context.interpreter.training_arguments
    if names is None:
        return
    result = to_hf(settings, names, extra=SCRIPT_FIELDS)
    for name, note in zip(result.unsupported, result.notes, strict=True):
        if getattr(settings, name) != FIELDS[name].default:
            yield Problem((name,), "warning", f"{note}: it has no effect.")


RULES: tuple[Rule, ...] = (
    precision, tf32, attention, compilation, optimizer, schedule, warmup, adapter, weights, quantization, overflow,
    workers, batch, evaluation, saving, unsupported_arguments,
)  # fmt: skip
"""Problems are reported in this order, errors before warnings."""


def find_problems(
    settings: Settings,
    *,
    gpus: Sequence[Gpu] | None,
    interpreter: Interpreter | None,
    job: BuiltinJob | CommandJob | None = None,
    cores: int | None = None,
) -> tuple[Problem, ...]:
    """What is wrong with `settings` on this machine, errors first.

    Empty `gpus` means that there are none. None, of any argument, means unknown: rules that need it report nothing.
    `cores` is the number of usable CPU cores.
    """
    context = RuleContext(None if gpus is None else tuple(gpus), interpreter, job, cores)
    found = [problem for rule in RULES for problem in rule(settings, context)]
    return tuple(sorted(found, key=lambda problem: problem.severity != "error"))

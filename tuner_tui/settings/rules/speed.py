"""Rules on precision, attention and compilation: what the GPU and the installed packages support.

What a card can do is `hardware.capability`'s knowledge. What happens where it cannot was read in transformers 5.23,
accelerate 1.15 and torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.hardware.inventory import MINIMUM_CAPABILITY
from tuner_tui.settings.argv import parse_long_options
from tuner_tui.settings.fields import Value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.problem import Problem, RuleContext, describe_gpu

TRITON_MIN_CAPABILITY = (7, 0)
"""Below it torch/_inductor/scheduler.py raises GPUTooOldForTriton."""


def precision(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """bf16 and fp16 on hardware without them."""
    if settings.precision == "fp32":
        return
    if context.no_gpu:
        yield from _half_precision_without_gpu(settings.precision, context)
    elif settings.precision == "bf16" and (gpu := context.gpu_below(MINIMUM_CAPABILITY["bf16"])) is not None:
        instead = "fp16" if gpu.capability is not None and gpu.capability >= MINIMUM_CAPABILITY["fp16"] else "fp32"
        why = "it needs capability 8.0 (Ampere) and is only emulated below"
        yield Problem(
            ("precision",), "error", f"{describe_gpu(gpu)} has no bf16: {why}. Use {instead}.", {"precision": instead}
        )
    elif settings.precision == "fp16" and (gpu := context.gpu_below(MINIMUM_CAPABILITY["fp16"])) is not None:
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
    elif (gpu := context.gpu_below(MINIMUM_CAPABILITY["tf32"])) is not None:
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
    elif (gpu := context.gpu_below(MINIMUM_CAPABILITY["flash"])) is not None:
        yield Problem(where, "error", f"{describe_gpu(gpu)} cannot run {package}, which needs 8.0. Use sdpa.", sdpa)
    elif context.lacks(package):
        sentence = f"{package} is not installed. Use sdpa, which has PyTorch's own flash kernels, or install it."
        yield Problem(where, "error", sentence, sdpa)
    if settings.precision == "fp32":
        half = "fp16" if context.gpu_below(MINIMUM_CAPABILITY["bf16"]) is not None else "bf16"
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
    if (gpu := context.gpu_below(TRITON_MIN_CAPABILITY)) is not None:
        sentence = f"{describe_gpu(gpu)} is too old for torch.compile: its Triton kernels need 7.0. Turn compile off."
        yield Problem(("torch_compile",), "error", sentence, off)


RULES = (precision, tf32, attention, compilation)

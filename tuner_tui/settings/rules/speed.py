"""Rules on precision, attention and compilation: what the card and the installed packages can do.

What a card can do is `hardware.capability`'s knowledge. What happens where it cannot was read in transformers 5.23,
accelerate 1.15 and torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.hardware.gpu.capabilities import MINIMUM_CAPABILITY
from tuner_tui.settings.fields import Value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.problem import Problem, RuleContext, describe_gpu

TRITON_MIN_CAPABILITY = (7, 0)
"""Below it torch/_inductor/scheduler.py raises GPUTooOldForTriton."""


def precision(settings: Settings, box: RuleContext) -> Iterator[Problem]:
    """bf16 and fp16 where nothing computes in them."""
    if settings.precision == "fp32":
        return
    if box.no_gpu:
        yield from _half_precision_without_gpu(settings.precision, box)
    elif settings.precision == "bf16" and (gpu := box.below(MINIMUM_CAPABILITY["bf16"])) is not None:
        instead = "fp16" if gpu.capability is not None and gpu.capability >= MINIMUM_CAPABILITY["fp16"] else "fp32"
        why = "it came with 8.0 (Ampere) and is only emulated below"
        yield Problem(
            ("precision",), "error", f"{describe_gpu(gpu)} has no bf16: {why}. Take {instead}.", {"precision": instead}
        )
    elif settings.precision == "fp16" and (gpu := box.below(MINIMUM_CAPABILITY["fp16"])) is not None:
        sentence = f"{describe_gpu(gpu)} does not compute in fp16, which needs 5.3. Take fp32."
        yield Problem(("precision",), "error", sentence, {"precision": "fp32"})


def _half_precision_without_gpu(precision: str, box: RuleContext) -> Iterator[Problem]:
    right: dict[str, Value] = {"precision": "fp32"}
    if precision == "fp16":
        sentence = "Without a GPU fp16 is silently off: accelerate starts no autocast on a CPU. Take fp32."
        yield Problem(("precision",), "error", sentence, right)
    elif not isinstance(box.job, BuiltinJob):
        # The built-in job sets use_cpu itself.
        sentence = "Without a GPU TrainingArguments refuses bf16, unless the script sets use_cpu. Take fp32."
        yield Problem(("precision",), "warning", sentence, right)


def tf32(settings: Settings, box: RuleContext) -> Iterator[Problem]:
    """TF32 asked for where TrainingArguments raises."""
    if not settings.tf32:
        return
    if box.no_gpu:
        sentence = "Without a GPU there is no TF32, and TrainingArguments refuses it. Leave it empty."
        yield Problem(("tf32",), "error", sentence, {"tf32": None})
    elif (gpu := box.below(MINIMUM_CAPABILITY["tf32"])) is not None:
        why = "it came with Ampere (8.0), and TrainingArguments refuses it"
        sentence = f"{describe_gpu(gpu)} has no TF32: {why}. Leave it empty."
        yield Problem(("tf32",), "error", sentence, {"tf32": None})


def attention(settings: Settings, box: RuleContext) -> Iterator[Problem]:
    """Flash attention without its package, card or precision; flex attention on an old torch."""
    name = settings.attn_implementation
    if name in ("flash_attention_2", "flash_attention_3"):
        yield from _flash_attention(settings, box)
    elif name == "flex_attention" and box.older("torch", (2, 5)):
        sentence = f"flex attention came with torch 2.5; the interpreter has {box.version_text('torch')}. Take sdpa."
        yield Problem(("attn_implementation",), "error", sentence, {"attn_implementation": "sdpa"})


def _flash_attention(settings: Settings, box: RuleContext) -> Iterator[Problem]:
    package = "flash-attn" if settings.attn_implementation == "flash_attention_2" else "flash-attn-3"
    sdpa: dict[str, Value] = {"attn_implementation": "sdpa"}
    where = ("attn_implementation",)
    if box.no_gpu:
        yield Problem(where, "error", "Flash attention runs on a GPU only. Take sdpa.", sdpa)
    elif (gpu := box.below(MINIMUM_CAPABILITY["flash"])) is not None:
        yield Problem(where, "error", f"{describe_gpu(gpu)} cannot run {package}, which needs 8.0. Take sdpa.", sdpa)
    elif box.lacks(package):
        sentence = (
            f"The interpreter has no {package}. Take sdpa, which uses PyTorch's own flash kernels, or install it."
        )
        yield Problem(where, "error", sentence, sdpa)
    if settings.precision == "fp32":
        half = "fp16" if box.below(MINIMUM_CAPABILITY["bf16"]) is not None else "bf16"
        right: dict[str, Value] = sdpa if box.no_gpu else {"precision": half}
        sentence = f"Flash attention computes in fp16 or bf16 only. Set precision {half}, or take sdpa."
        yield Problem(("attn_implementation", "precision"), "error", sentence, right)


def compilation(settings: Settings, box: RuleContext) -> Iterator[Problem]:
    """`torch.compile` where torch, Python or the card is too old for it."""
    if not settings.torch_compile:
        return
    off: dict[str, Value] = {"torch_compile": False}
    if box.older("torch", (2, 0)):
        yield Problem(("torch_compile",), "error", "torch.compile came with torch 2.0. Turn compile off.", off)
    elif box.older("torch", (2, 4)) and not box.python_older((3, 12)):
        sentence = "torch.compile on Python 3.12 needs torch 2.4. Turn compile off, or upgrade torch."
        yield Problem(("torch_compile",), "error", sentence, off)
    if (gpu := box.below(TRITON_MIN_CAPABILITY)) is not None:
        sentence = f"{describe_gpu(gpu)} is too old for torch.compile: its Triton kernels need 7.0. Turn compile off."
        yield Problem(("torch_compile",), "error", sentence, off)


RULES = (precision, tf32, attention, compilation)

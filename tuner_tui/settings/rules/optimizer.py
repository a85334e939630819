"""Rules on the optimizer, its schedule and adapters."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.settings.dialects.hf_names import BITSANDBYTES_OPTIMIZERS, OPTIMIZERS, SCHEDULES, TORCHAO_OPTIMIZERS
from tuner_tui.settings.fields import FIELDS, closest_match, shorten_text
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.problem import Problem, RuleContext

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


RULES = (optimizer, schedule, warmup, adapter)

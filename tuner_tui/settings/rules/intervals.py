"""Rules on evaluation and save intervals, and on arguments that the installed transformers lacks."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.settings.dialects.hf import to_hf
from tuner_tui.settings.dialects.hf_names import SCRIPT_FIELDS
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.problem import Problem, RuleContext


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


RULES = (evaluation, saving, unsupported_arguments)

"""Checks settings against all rules: whether they fit each other, the job, the GPUs and the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules import data_loading, intervals, optimizer, speed, weights
from tuner_tui.settings.rules.problem import Problem, Rule, RuleContext

RULES: tuple[Rule, ...] = (*speed.RULES, *optimizer.RULES, *weights.RULES, *data_loading.RULES, *intervals.RULES)


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

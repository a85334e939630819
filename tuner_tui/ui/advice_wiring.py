"""What the screen asks the rules for: problems of the settings, recommendations, findings of a run.

Every import of weight stands inside the call that needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Settings
    from tuner_tui.settings.origin import Resolved
    from tuner_tui.settings.rules.problem import Problem


def problems_of(
    settings: Settings, inventory: Inventory | None, interpreter: Interpreter | None, job: Job
) -> tuple[Problem, ...]:
    """What is wrong with the settings on the cards that a training here would see."""
    from tuner_tui.advice.recommend.target import visible_cards
    from tuner_tui.settings.rules.check import find_problems

    gpus = None if inventory is None else visible_cards(inventory)
    cores = None if inventory is None else inventory.cpu.usable_cores
    return find_problems(settings, gpus=gpus, interpreter=interpreter, job=job, cores=cores)


@dataclass(frozen=True, slots=True)
class Recommending:
    """Fills in what nobody chose, for cards of which a training may take so much."""

    memory_limit_bytes: int | None

    def __call__(self, resolved: Resolved, inventory: Inventory, interpreter: Interpreter, job: Job) -> Resolved:
        from tuner_tui.advice.recommend.recommendation import with_recommended
        from tuner_tui.advice.recommend.target import limit_gpu_memory

        return with_recommended(resolved, limit_gpu_memory(inventory, self.memory_limit_bytes), interpreter, job)


def findings_of_box(
    inventory: Inventory | None, interpreter: Interpreter | None, job: Job | None
) -> tuple[Finding, ...]:
    """What is wrong with box and interpreter before any run."""
    if inventory is None or interpreter is None:
        return ()
    from tuner_tui.advice.preflight import environment_findings

    return environment_findings(inventory, interpreter, job)


class Diagnosing:
    """Diagnoses one run again and again, without flicker."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        from tuner_tui.advice.hysteresis import FindingHysteresis

        self._clock = clock
        self._steadiness = FindingHysteresis()

    def __call__(
        self,
        view: RunView,
        inventory: Inventory | None,
        interpreter: Interpreter | None,
        log: LogWindow | None,
    ) -> tuple[Finding, ...]:
        from tuner_tui.advice.diagnose import diagnose
        from tuner_tui.advice.situation import situation_of_state

        now_s = self._clock()
        situation = replace(
            situation_of_state(view.state, view.record),
            now_s=now_s,
            inventory=inventory,
            interpreter=interpreter,
            samples=view.samples,
            log=() if log is None else log.lines,
        )
        self._steadiness = self._steadiness.after(diagnose(situation), now_s)
        return self._steadiness.shown

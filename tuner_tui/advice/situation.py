"""What a diagnosis looks at, gathered once by whoever has it, so that the rules stay pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.state import RunState
from tuner_tui.settings.job import Job
from tuner_tui.settings.model import Settings

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter.probe import Interpreter


@dataclass(frozen=True, slots=True)
class Situation:
    """One moment of a run. `samples` oldest first; `log` the head and tail of the output, one string a line.

    Everything but the run's state may be unknown: `settings` of somebody's log file, the inventory of another box.
    `chosen` names the settings that were handed to somebody else's command, None where all were; `not_applied` those
    that its way of taking settings could not carry. `memory_limit_bytes` is the limit that it was launched under.
    `resumed_from` is the checkpoint from which the launch meant to go on. `now_s` is seconds since the epoch.
    """

    state: RunState
    now_s: float
    settings: Settings | None = None
    inventory: Inventory | None = None
    interpreter: Interpreter | None = None
    job: Job | None = None
    samples: tuple[Sample, ...] = ()
    log: tuple[str, ...] = ()
    chosen: frozenset[str] | None = None
    resumed_from: str | None = None
    not_applied: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None

    def knows(self, name: str) -> bool:
        """Whether the setting's value is the training's own: of another's command, where it was handed over or seen."""
        return self.chosen is None or name in self.chosen or self.state.in_effect.get(name) is not None

    @property
    def lives(self) -> bool:
        """Whether it was launched and has not ended, as far as its events tell."""
        return self.state.launched_t is not None and self.state.finished is None and self.state.exited is None

    @property
    def processes(self) -> int:
        """Training processes, at least 1."""
        return max(1, len(self.state.ranks))

    @property
    def replicas(self) -> int:
        """What the effective batch is multiplied by, at least 1: processes, times the cards that share one's steps."""
        return self.state.replicas or self.processes

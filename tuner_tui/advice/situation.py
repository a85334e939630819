"""The situation of a run: everything a diagnosis looks at, and how it is gathered from a run folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.advice.effective_settings import chosen_settings, effective_settings
from tuner_tui.core.procfs import this_machine
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.gpu.capabilities import MINIMUM_CAPABILITY
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Finished
from tuner_tui.runs.log_parsing.lines import read_head_and_tail, read_tail
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.settings.job import Job
from tuner_tui.settings.model import Precision, Settings


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

    def is_known(self, name: str) -> bool:
        """Whether `settings` holds the training's own value: always, but for a command that was not given it."""
        return self.chosen is None or name in self.chosen or self.state.in_effect.get(name) is not None

    @property
    def is_alive(self) -> bool:
        """Whether the run was launched and has not ended, by its events."""
        return self.state.launched_t is not None and self.state.finished is None and self.state.exited is None

    @property
    def has_gpu(self) -> bool | None:
        """Whether the training sees a GPU; None if the inventory is unknown."""
        return None if self.inventory is None else bool(visible_cards(self.inventory))

    def has_package(self, name: str) -> bool | None:
        """Whether the training interpreter has the package; None if the interpreter is unknown."""
        return None if self.interpreter is None else name in self.interpreter.packages

    def supports(self, feature: str) -> bool | None:
        """Whether every visible GPU supports `feature` (bf16, tf32, flash, fp16, fused), by compute capability.

        torch is not asked, because it counts emulation as support. None if the inventory or a capability is unknown.
        """
        if self.inventory is None:
            return None
        capabilities = [card.capability for card in visible_cards(self.inventory)]
        minimum = MINIMUM_CAPABILITY[feature]
        if not capabilities or any(capability is not None and capability < minimum for capability in capabilities):
            return False
        return None if None in capabilities else True

    @property
    def best_precision(self) -> Precision:
        """The fastest precision known to run: bf16, else fp16, else fp32."""
        if self.supports("bf16"):
            return "bf16"
        return "fp16" if self.supports("fp16") else "fp32"

    @property
    def usable_cores(self) -> int | None:
        """Whole cores the training may use, by affinity and cgroup quota; None if the inventory is unknown."""
        return None if self.inventory is None else self.inventory.cpu.usable_cores

    @property
    def processes(self) -> int:
        """Training processes, at least 1."""
        return max(1, len(self.state.ranks))

    @property
    def replicas(self) -> int:
        """What the effective batch is multiplied by, at least 1: processes, times the cards that share one's steps."""
        return self.state.replicas or self.processes


def situation_of_run(folder: RunFolder, view: RunView | None = None) -> Situation:
    """The situation of the run in `folder`, read from disk where `view` is None. Raises `OSError`.

    Queries the GPU driver, which may take seconds.
    """
    view = RunReader(folder).poll() if view is None else view
    inventory = read_inventory(folder.path) if _is_local(view.record) else None
    log = LogWindowReader(folder.output_log).read(view)
    return build_situation(view, now_s=time.time(), inventory=inventory, log=log)


def build_situation(view: RunView, *, now_s: float, inventory: Inventory | None, log: tuple[str, ...]) -> Situation:
    """The situation of a run from what was read of it: the one rule for screen, command line, tuner and fallback.

    A run that has ended is seen as of its end. `inventory` is this machine's; it is left out for a run of another one.
    """
    state = _with_outcome(view)
    ended = state.finished is not None
    return replace(
        situation_of_state(state, view.record),
        now_s=(state.last_event_t or now_s) if ended else now_s,
        inventory=inventory if _is_local(view.record) else None,
        samples=view.samples,
        log=log,
    )


class LogWindowReader:
    """Reads the part of a run's log that a diagnosis looks at; reads again only when the log has grown.

    While the run is alive that is the tail, because the rules for a live run look at the last lines alone. Of a run
    that has ended it is head and tail.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: tuple[int, bool] | None = None
        self._lines: tuple[str, ...] = ()

    def read(self, view: RunView) -> tuple[str, ...]:
        """The lines of the window; empty where there is no log. Raises `OSError`."""
        try:
            key = (self._path.stat().st_size, _with_outcome(view).finished is None)
        except FileNotFoundError:
            return ()
        if key != self._key:
            self._lines = (read_tail if key[1] else read_head_and_tail)(self._path)
            self._key = key
        return self._lines


def _with_outcome(view: RunView) -> RunState:
    """The state, with an outcome for a run that ended without its supervisor recording one."""
    if view.state.finished is not None or view.status.live or view.status.kind == "foreign":
        return view.state
    outcome = view.status.outcome or "lost"
    return replace(view.state, finished=Finished(t=view.state.last_event_t or 0.0, outcome=outcome))


def _is_local(record: RunRecord | None) -> bool:
    return record is not None and record.host == this_machine().host


def situation_of_state(state: RunState, record: RunRecord | None) -> Situation:
    """The part of the situation that follows from state and record alone, enough to verify settings."""
    if record is None:
        return Situation(state, state.last_event_t or 0.0)
    chosen = chosen_settings(record.resolved, record.job)
    return Situation(
        state=state,
        now_s=state.last_event_t or 0.0,
        settings=effective_settings(record.resolved.settings, chosen, state.in_effect),
        interpreter=Interpreter(record.interpreter, packages=record.versions),
        job=record.job,
        chosen=chosen,
        resumed_from=record.resumed_from,
        not_applied=record.not_applied,
        memory_limit_bytes=record.memory_limit_bytes,
    )

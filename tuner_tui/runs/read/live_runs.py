"""The live runs of this program: their processes and progress.

Used by `watch`, which reads everything once a second: only live runs are opened, and only what is shown is read
(`record.read_record` would import the settings and pydantic).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.files import LineTail, read_regular
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import eta, phase_at
from tuner_tui.runs.events.rank_clocks import RankClocks
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.event_sampling import sampled_new_lines
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.codec import decode_event
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.orphans import ProcessSnapshot

SCAN_INTERVAL_S = 3.0


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A live run. `training` and `supervisor` are pids."""

    run: str
    path: str
    training: int | None = None
    supervisor: int | None = None
    preset: str | None = None
    phase: str | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_s: float | None = None
    loss: float | None = None


class LiveRuns:
    """The live runs in `root`; `clock` gives seconds since the epoch."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self._root = root
        self._clock = clock
        self._ended: set[str] = set()
        self._followed: dict[str, _Followed] = {}
        self._looked_s = float("-inf")

    def read(self) -> tuple[LiveRun, ...]:
        """The runs that are live now, newest first, with their current progress."""
        now_s = self._clock()
        if not 0 <= now_s - self._looked_s < SCAN_INTERVAL_S:  # a clock that was set back waits for nothing
            self._looked_s = now_s
            self._look()
        return tuple(followed.read(now_s) for followed in self._followed.values())

    def _look(self) -> None:
        followed, snapshot = {}, ProcessSnapshot()
        for folder in list_runs(self._root):
            if folder.id in self._ended:
                continue
            found = read_status(folder, snapshot=snapshot)
            if found.live:
                followed[folder.id] = self._followed.get(folder.id) or _Followed(folder)
            elif found.kind in ("ended", "broken"):
                self._ended.add(folder.id)
        self._followed = followed


class _Followed:
    """One run, read incrementally."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._tail = LineTail(folder.events)
        self._clocks = RankClocks()
        self._state = RunState()
        self._preset = recorded_preset(folder)

    def read(self, now_s: float) -> LiveRun:
        self._follow(now_s)
        state = self._state
        known = read_supervisor_state(self._folder.state)
        left = eta(state, now_s)
        return LiveRun(
            run=self._folder.id,
            path=str(self._folder.path),
            training=None if known is None or known.training is None else known.training.pid,
            supervisor=None if known is None else known.supervisor.pid,
            preset=self._preset,
            phase=phase_at(state, now_s),
            step=state.step,
            total_steps=state.total_steps,
            eta_s=None if left is None else left.seconds,
            loss=state.loss if state.loss is not None and math.isfinite(state.loss) else None,
        )

    def _follow(self, now_s: float) -> None:
        decoded = (decode_event(line) if line else None for line in sampled_new_lines(self._tail))
        found = [event for event in decoded if event is not None]
        self._state = fold_all(self._state, self._clocks.corrected(found, now_s))


def recorded_preset(folder: RunFolder) -> str | None:
    """The preset that a run was launched with; None without one, or if the record cannot be read."""
    try:
        preset = json.loads(read_regular(folder.record)).get("preset")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return preset if isinstance(preset, str) else None

"""The followed run: its readers, what it has to tell at each tick, and its comparison with another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tuner_tui.advice.diagnose import FindingHysteresis, diagnose
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.situation import LogWindowReader, Situation, build_situation
from tuner_tui.advice.thresholds import APPEAR_S
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.read.log_reader import LogReader, LogWindow
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.read.run_context import RunContext, read_run_context
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.ui.panels.output import LogSearchWanted, LogWindowWanted
from tuner_tui.view.gpu_rows import gpus_in_use

if TYPE_CHECKING:
    from tuner_tui.view.comparison_rows import ComparisonScene

FIRST_LOG_LINES = 200
LEAST_BETWEEN_S = 1.5
"""Seconds between two diagnoses of a live run: dozens of rules, whose findings are shown after some seconds only."""


class RunDiagnoser:
    """Diagnoses one followed run at every call. Reads its log; not for the event loop."""

    def __init__(self, run: RunFolder, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._run = run
        self._log = LogWindowReader(run.output_log)
        self._hysteresis = FindingHysteresis(appear_s=0.0)  # what the run wrote before it was opened has lasted
        self._situation: Situation | None = None
        self._findings: tuple[Finding, ...] = ()
        self._diagnosed_s = 0.0

    def __call__(self, view: RunView, inventory: Inventory | None) -> tuple[Finding, ...]:
        now_s = self._clock()
        if view.state.finished is None and 0 <= now_s - self._diagnosed_s < LEAST_BETWEEN_S:
            return self._hysteresis.shown
        self._diagnosed_s = now_s
        try:
            log = self._log.read(view)
        except OSError:
            log = ()
        situation = build_situation(view, now_s=now_s, inventory=inventory, log=log, folder=self._run)
        if situation != self._situation:  # the situation of a run that has ended stays the same
            self._situation, self._findings = situation, diagnose(situation)
        if view.state.finished is not None:  # nothing flickers any more
            return self._findings
        # Near a threshold a finding would appear and vanish every second: hysteresis shows it once it lasts, and a
        # while longer.
        self._hysteresis = replace(self._hysteresis.after(self._findings, now_s), appear_s=APPEAR_S)
        return self._hysteresis.shown


class RunNews(NamedTuple):
    """A run as it is now, the part of its log that is shown, its findings, and what surrounds it."""

    view: RunView
    log: LogWindow
    findings: tuple[Finding, ...]
    context: RunContext | None


@dataclass
class FollowedRun:
    """Reads the folder and the log of a run. `diagnose` keeps state between calls, so that findings do not flicker.

    `read_context` reads what surrounds the run, which may take longer.
    """

    reader: RunReader
    log: LogReader
    diagnose: Callable[[RunView, Inventory | None], tuple[Finding, ...]]
    inventory: Inventory | None = None
    read_context: Callable[[RunView], RunContext | None] = lambda view: None

    def __post_init__(self) -> None:
        self._context: tuple[object, RunContext | None] | None = None
        self._part = LogWindowWanted(None, FIRST_LOG_LINES)
        self._lock = Lock()  # the readers are for one thread at a time

    def news(self) -> Iterator[RunNews]:
        """Yield the run for each read. Raises `OSError`."""
        while True:
            with self._lock:
                view = self.reader.poll()
                context = None if self._context is None else self._context[1]
                news = RunNews(view, self._log_window(), self.diagnose(view, self.inventory), context)
            yield news
            # After the run itself was shown: other runs are read when it is opened and when it has ended, and to judge
            # a remedy whenever its steps have doubled.
            if view.record is not None:
                judged = (view.state.step or 0).bit_length() if view.record.resolved.last_remedies else 0
                stage = view.state.finished is not None, judged
                if self._context is None or self._context[0] != stage:
                    self._context = stage, self.read_context(view)

    def find(self, request: LogWindowWanted | LogSearchWanted) -> LogWindow | str:
        """Return another part of the log, which `news` has from then on; or a sentence if there is no match.

        Raises `OSError`.
        """
        with self._lock:
            if isinstance(request, LogWindowWanted):
                self._part = request
                return self._log_window()
            match = self.log.search(request.text, request.start, backwards=request.backwards)
            if match.anchor is not None:
                self._part = LogWindowWanted(match.anchor, self._part.count)
                return self._log_window()
        where = "above" if request.backwards else "below"
        far = "" if match.complete else " in the part that was searched"
        return f"“{request.text}” is not in the output {where}{far}."

    def _log_window(self) -> LogWindow:
        part = self._part
        if part.anchor is None:
            return self.log.tail(part.count)
        return (self.log.before if part.before else self.log.window)(part.anchor, part.count)


def read_context(run: RunFolder, view: RunView) -> RunContext | None:
    """Read what surrounds a run: earlier ones, and what its remedy did; None without its record."""
    if view.record is None:
        return None
    gpus = partial(gpus_in_use, device=view.state.in_effect.get("device"))
    context = read_run_context(run, view.record, view.state, gpus)
    if not view.record.resolved.last_remedies:
        return context
    from tuner_tui.tuning.followed_remedies import follow_remedies  # and all that explains a crash

    return replace(context, remedy=follow_remedies(run))


def follow_run(run: RunFolder) -> FollowedRun:
    """Open the readers of a run."""
    context = partial(read_context, run)
    return FollowedRun(RunReader(run), LogReader(run.output_log), RunDiagnoser(run), read_context=context)


def compare_runs(first: RunFolder, second: RunFolder) -> Iterator[ComparisonScene]:
    """Yield the comparison of two runs, one per read, until neither of them is live. Raises `OSError`."""
    from tuner_tui.tuning.followed_remedies import RunMeasurement, find_doubt, measure_run
    from tuner_tui.view.comparison_rows import compare_views

    ended: dict[str, RunMeasurement] = {}

    def measure(run: RunFolder, view: RunView) -> RunMeasurement:
        measured = ended.get(run.id) or measure_run(run, view)
        if view.state.finished is not None:
            ended[run.id] = measured
        return measured

    readers = [RunReader(run) for run in (first, second)]
    live = True
    while live:
        views = sorted(((reader.folder, reader.poll()) for reader in readers), key=lambda pair: _start_s(pair[1]))
        (before, earlier), (after, later) = views
        compared = compare_views((before.id, earlier), (after.id, later), find_doubt(views[0], views[1], measure))
        live = compared.live
        yield compared


def _start_s(view: RunView) -> float:
    return view.record.created_t if view.record is not None else view.state.launched_t or 0.0

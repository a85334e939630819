"""The live panel: run, GPUs and host, with the histories of their samples; and the plots of the whole run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import Line
from tuner_tui.view.live_rows import LiveScene, live_rows, plots_rows
from tuner_tui.view.sample_history import WINDOWS, SampleHistory, Window, samples_after

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import MemoryOutlook
    from tuner_tui.advice.finding import Finding
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.runs.read.run_context import RunContext


# The supervisor samples once a second; four seconds allow for a busy disk. After that its process hangs or is dead.
RUN_SAMPLES_STALE_S = 4.0


class LivePanel(Canvas, can_focus=True):
    """Shows `view`, the followed run, or only the machine by `sample`. `now_s` is in seconds since the epoch.

    `outlook` is the memory of the next run, `context` what is known of earlier runs of the same training.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["remedy"]]  # the card of a run that has ended names it

    view: reactive[RunView | None] = reactive(None, repaint=False)
    sample: reactive[Sample | None] = reactive(None, repaint=False)
    now_s: reactive[float] = reactive(0.0, repaint=False)
    outlook: reactive[MemoryOutlook | None] = reactive(None, repaint=False)
    window: reactive[Window] = reactive(WINDOWS[0], repaint=False)
    next_training: reactive[tuple[tuple[str, str], ...]] = reactive((), repaint=False)
    context: reactive[RunContext | None] = reactive(None, repaint=False)
    can_take_back: reactive[bool] = reactive(False, repaint=False)
    findings: reactive[tuple[Finding, ...]] = reactive((), repaint=False)
    run_name: reactive[str] = reactive("", repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen = SampleHistory()
        self._of_run = SampleHistory()

    def watch_view(self, view: RunView | None) -> None:
        # A view holds the recent samples of its run, most of which are known already: only newer ones are appended,
        # because the history keeps ten minutes and sums over them. Older ones mean that another run is followed.
        samples, history = () if view is None else view.samples, self._of_run
        if not samples or (history and samples[-1].time_s < history[-1].time_s):
            history.clear()
        for sample in samples_after(samples, history[-1].time_s) if history else samples:
            history.append(sample)
        self.redraw()

    def watch_sample(self, sample: Sample | None) -> None:
        if sample is not None:
            self._seen.append(sample)
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        return live_rows(self._scene(), width, height)

    def _scene(self) -> LiveScene:
        view = self.view
        of_run = view is not None and view.sample is not None and not self._is_behind(view.sample)
        scene = LiveScene(
            self.now_s,
            None if view is None else view.state,
            None if view is None else view.history,
            view.sample if view is not None and of_run else self.sample,
            self._of_run if of_run else self._seen,
            next_training=self.next_training,
            outlook=self.outlook,
            causes={finding.cause: finding.lost_share for finding in self.findings},
            context=self.context,
            window=self.window,
        )
        if view is None or view.state.finished is None:
            return scene
        from tuner_tui.view.end_card import end_scene  # not needed for the first frame

        end = end_scene(self.run_name, view, self.context, self.findings)
        end = end._replace(can_take_back=self.can_take_back, start=next(iter(self.next_training), end.start))
        return scene._replace(sample=self.sample, recent=self._seen, end=end)

    def _is_behind(self, sample: Sample) -> bool:
        """True if the samples of the run's supervisor have stopped; until then they are shown instead of our own."""
        return self.sample is not None and sample.time_s < self.sample.time_s - RUN_SAMPLES_STALE_S


class PlotsPanel(Canvas, can_focus=True):
    """Shows the downsampled series of the followed run; `loss` is False while the live panel shows that one.

    Their values are those `at` a step, or the newest.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["plots"]]

    at: reactive[float | None] = reactive(None, repaint=False)
    view: reactive[RunView | None] = reactive(None, repaint=False)
    loss: reactive[bool] = reactive(True, repaint=False)

    def watch_view(self, old: RunView | None, new: RunView | None) -> None:
        if (old and old.history) != (new and new.history):
            self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        from tuner_tui.runs.events.progress import History  # not needed for the first frame

        view = self.view
        history, state = (History(), None) if view is None else (view.history, view.state)
        return plots_rows(history, state, width, height, self.loss, self.at)

    def action_read(self, by: int) -> None:
        """Show the values at the place before or after; behind the last one are the newest again."""
        xs = () if self.view is None else self.view.history.loss.xs
        position = (len(xs) if self.at is None else bisect_left(xs, self.at)) + by * max(1, len(xs) // 100)
        self.at = xs[max(0, position)] if xs and position < len(xs) else None

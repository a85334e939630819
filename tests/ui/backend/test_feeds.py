"""The feeds: what they show, that they show changes only, and what they say of what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from tests.fakes.ui_backend import DATA_WAIT, FakeBox, FakeLog, FakeSampler, ended, running
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.read.log_reader import LogWindow
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.ui.backend.feeds import FollowerFeed, PollingFeed, SamplerFeed, seconds_to_tick
from tuner_tui.ui.backend.records import BackendError, FollowedRun
from tuner_tui.ui.messages import LogSearchWanted, LogWindowWanted

FOLDER = Path("/runs/r007")
SOON_S = 0.001


class Shown:
    """What was shown and noted, in order."""

    def __init__(self) -> None:
        self.values: SimpleQueue[Any] = SimpleQueue()
        self.notes: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def note(self, sentence: str, severity: str) -> None:
        self.notes.put((sentence, severity))

    def next(self, kind: type) -> Any:
        """The next value of a kind; others before it are passed over."""
        while not isinstance(value := self.values.get(timeout=300), kind):
            pass
        return value

    def noted(self) -> tuple[str, str]:
        """The next note."""
        return self.notes.get(timeout=300)


@dataclass
class Script(RunReader):
    """A run that shows its views one after the other, then the last one for ever; says when it was asked again."""

    views: list[RunView]

    def __post_init__(self) -> None:
        self.asked_again = Event()

    def poll(self) -> RunView:
        if not self.views:
            raise OSError(5, "Input/output error")
        if len(self.views) > 1:
            return self.views.pop(0)
        self.asked_again.set()
        return self.views[0]


@dataclass
class Logged(FakeSampler):
    """Samples at the times 1, 2, … and remembers its calls, and the processes it was to watch."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[object] = SimpleQueue()
        self._times_s = count(1.0)

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        self.calls.put(tuple(watched))
        return Sample(next(self._times_s))

    def pause(self) -> None:
        self.calls.put("pause")

    def resume(self) -> None:
        self.calls.put("resume")

    def close(self) -> None:
        self.calls.put("close")


def test_the_sampler_samples_the_run_and_closes_at_the_end() -> None:
    shown, sampler = Shown(), Logged()
    feed = SamplerFeed(lambda: sampler, shown.values.put, shown.note, SOON_S)
    feed.watched = (100,)
    feed.start()
    assert [shown.next(Sample) for _ in range(2)] == [Sample(1.0), Sample(2.0)]
    feed.stop()
    calls = list(iter(lambda: sampler.calls.get(timeout=300), "close"))
    assert set(calls) == {(100,)}


def test_the_sampler_pauses_while_the_supervisor_samples() -> None:
    shown, sampler = Shown(), Logged()
    feed = SamplerFeed(lambda: sampler, shown.values.put, shown.note, SOON_S)
    feed.covered_until_s = float("inf")
    feed.start()
    assert [sampler.calls.get(timeout=300) for _ in range(3)] == ["pause"] * 3
    feed.covered_until_s = 0.0
    assert shown.next(Sample) == Sample(2.0)  # the one before it only restarts the rates
    feed.stop()
    assert set(iter(lambda: sampler.calls.get(timeout=300), "resume")) <= {"pause"}


def follower(shown: Shown, *runs: RunReader, log: Sequence[str] = ("line",)) -> FollowerFeed:
    """A feed that follows one of the runs after the other."""
    opened = iter([FollowedRun(run, FakeLog(tuple(log)), lambda *_: (DATA_WAIT,)) for run in runs])
    put = shown.values.put
    feed = FollowerFeed(FakeBox().backend(follow_run=lambda _: next(opened)), put, put, put, shown.note, SOON_S)
    feed.start()
    feed.follow(FOLDER)
    return feed


def test_the_follower_shows_changes_only() -> None:
    shown, run = Shown(), Script([running(), ended("failed", "It raised.")])
    feed = follower(shown, run)
    assert run.asked_again.wait(300)
    run.asked_again.clear()
    assert run.asked_again.wait(300)
    feed.stop()
    kinds = [type(shown.values.get(timeout=300)).__name__ for _ in range(4)]
    assert kinds == ["RunView", "LogWindow", "tuple", "RunView"]
    assert shown.values.empty()


def test_windows_and_hits_of_the_log_are_shown_when_asked_for() -> None:
    shown = Shown()
    feed = follower(shown, Script([running()]), log=[f"line {n}" for n in range(500)])
    assert shown.next(LogWindow).lines[-1] == "line 499"

    def lines(request: LogWindowWanted | LogSearchWanted) -> tuple[str, ...]:
        feed.ask(request)
        window: LogWindow = shown.next(LogWindow)
        return window.lines

    assert lines(LogWindowWanted(100, 3)) == ("line 10", "line 11", "line 12")
    assert lines(LogWindowWanted(100, 2, before=True)) == ("line 8", "line 9")
    assert lines(LogSearchWanted("line 33", False, 100))[0] == "line 33"
    assert lines(LogSearchWanted("line 7", True, 340))[0] == "line 7"
    feed.ask(LogSearchWanted("nowhere", False, 0))
    assert shown.noted() == ("“nowhere” is not in the output below.", "warning")
    feed.stop()


def test_a_run_that_cannot_be_read_is_said_and_another_one_can_be_followed() -> None:
    shown = Shown()
    feed = follower(shown, Script([]), Script([running()]))
    assert shown.noted() == ("The run can no longer be read: Input/output error.", "error")
    feed.follow(FOLDER)
    assert shown.next(RunView) == running()
    feed.stop()


@pytest.mark.parametrize(("now_s", "left_s"), [(100.0, 1.0), (100.25, 0.75), (100.95, 1.05)])
def test_feeds_go_by_one_clock(now_s: float, left_s: float) -> None:
    """What two feeds bring in the same moment is one drawing; a tick all but there is left out."""
    assert seconds_to_tick(1.0, now_s) == pytest.approx(left_s)


def test_a_feed_shows_changes_until_it_is_stopped() -> None:
    shown, ended = Shown(), Event()

    def items() -> Iterator[int]:
        try:
            yield from (1, 1, 2, 2, 3)
            yield from iter(lambda: 3, 0)
        finally:
            ended.set()

    feed = PollingFeed(items(), shown.values.put, shown.note, period_s=SOON_S)
    feed.start()
    assert [shown.next(int) for _ in range(3)] == [1, 2, 3]
    feed.stop()
    assert ended.wait(300)
    assert shown.values.empty()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(2, "No such file or directory"), "It can no longer be read: No such file or directory."),
        (BackendError("There is no tuning t009."), "There is no tuning t009."),
    ],
)
def test_what_cannot_be_read_is_said(error: Exception, sentence: str) -> None:
    def fail(_: int) -> int:
        raise error

    shown = Shown()
    PollingFeed(map(fail, [0]), shown.values.put, shown.note).start()
    assert shown.noted() == (sentence, "error")

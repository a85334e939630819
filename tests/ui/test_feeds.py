"""The feeds: what they read, that they show changes only, and what they say of what cannot be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import count

import pytest
from msgspec.structs import replace

from tests.fakes import live_run
from tests.fakes.ui_backend import DATA_WAIT, FakeLog, FakeSampler, ended, running
from tests.runs.builders import record
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Resolved, Settings
from tuner_tui.ui.feeds import BackendError, HardwareFeed, poll, seconds_to_tick
from tuner_tui.ui.followed_run import FollowedRun
from tuner_tui.ui.panels.output import LogSearchWanted, LogWindowWanted

SOON_S = 0.001


class Script(RunReader):
    """A run that shows its views one after the other, then the last one for ever."""

    def __init__(self, *views: RunView) -> None:
        self.views = list(views)

    def poll(self, with_samples: bool = True) -> RunView:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


class Logged(FakeSampler):
    """Samples at the times 1, 2, … and remembers its calls, and the processes it was to watch."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self._times_s = count(1.0)

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        self.calls.append(tuple(watched))
        return Sample(next(self._times_s))

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


def test_the_sampler_samples_the_run() -> None:
    feed, sampler = HardwareFeed(), Logged()
    feed.watched = (100,)
    samples = feed.samples(lambda: sampler)
    assert [next(samples), next(samples)] == [Sample(1.0), Sample(2.0)]
    assert sampler.calls == [(100,), (100,)]


def test_the_sampler_pauses_while_the_supervisor_samples() -> None:
    feed, sampler = HardwareFeed(), Logged()
    feed.covered_until_s = float("inf")
    samples = feed.samples(lambda: sampler)
    assert [next(samples), next(samples)] == [None, None]
    feed.covered_until_s = 0.0
    assert [next(samples), next(samples)] == [None, Sample(2.0)]  # the first one only restarts the rates
    assert sampler.calls == ["pause", "pause", "resume", (), ()]


def followed(*views: RunView, log: Sequence[str] = ("line",)) -> FollowedRun:
    return FollowedRun(Script(*views), FakeLog(tuple(log)), lambda view, inventory: (DATA_WAIT,))


def test_a_run_is_read_with_its_log_and_its_findings() -> None:
    news = followed(running(), ended("failed", "It raised.")).news()
    first, second = next(news), next(news)
    assert (first.view, first.log.lines, first.findings) == (running(), ("line",), (DATA_WAIT,))
    assert second.view.status.outcome == "failed"


def note_step(steps: list[int | None], view: RunView) -> None:
    steps.append(view.state.step)


def test_what_a_remedy_did_is_judged_again_when_the_steps_have_doubled() -> None:
    remedy = AppliedRemedy("more-workers", "workers 2 → 8", "data-wait", "r006", {"dataloader_num_workers": 2})
    origin = Origin(OriginKind.REMEDY, "data-wait", remedy)
    resolved = Resolved(Settings(dataloader_num_workers=8), {"dataloader_num_workers": origin})
    for chosen, expected in ((resolved, [8, 16, 40]), (Resolved(Settings()), [8])):
        run, read = replace(record(), resolved=chosen), list[int | None]()
        views = [replace(running(replace(live_run.running(), step=step)), record=run) for step in (8, 9, 16, 17, 40)]
        feed = followed(*views)
        feed.read_context = partial(note_step, read)
        for _ in zip(range(6), feed.news(), strict=False):
            pass
        assert read == expected


def test_windows_and_hits_of_the_log_are_shown_from_then_on() -> None:
    feed = followed(running(), log=[f"line {n}" for n in range(500)])
    news = feed.news()
    assert next(news).log.lines[-1] == "line 499"

    def lines(request: LogWindowWanted | LogSearchWanted) -> tuple[str, ...]:
        window = feed.find(request)
        assert window == next(news).log
        return next(news).log.lines

    assert lines(LogWindowWanted(100, 3)) == ("line 10", "line 11", "line 12")
    assert lines(LogWindowWanted(100, 2, before=True)) == ("line 8", "line 9")
    assert lines(LogSearchWanted("line 33", False, 100))[0] == "line 33"
    assert lines(LogSearchWanted("line 7", True, 340))[0] == "line 7"
    assert feed.find(LogSearchWanted("nowhere", False, 0)) == "“nowhere” is not in the output below."


@pytest.mark.parametrize(("now_s", "left_s"), [(100.0, 1.0), (100.25, 0.75), (100.95, 1.05)])
def test_feeds_go_by_one_clock(now_s: float, left_s: float) -> None:
    """What two feeds bring in the same moment is one drawing; a tick all but there is left out."""
    assert seconds_to_tick(1.0, now_s) == pytest.approx(left_s)


async def test_only_changes_are_shown_until_nothing_can_change() -> None:
    shown: list[int] = []
    await poll(iter([1, 1, 2, 2, 3]), shown.append, period_s=SOON_S)
    assert shown == [1, 2, 3]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(2, "No such file or directory"), "It can no longer be read: No such file or directory."),
        (BackendError("There is no tuning t009."), "There is no tuning t009."),
    ],
)
async def test_what_cannot_be_read_is_said(error: Exception, sentence: str) -> None:
    def fail(_: int) -> int:
        raise error

    with pytest.raises(BackendError, match=re.escape(sentence)):
        await poll(map(fail, [0]), print)

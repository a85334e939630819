"""The feeds: what they post, that they post changes only, and that one can hang without effect on others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from threading import enumerate as threads

import pytest
from textual.message import Message

from tests.fakes.ui_backend import DATA_WAIT, FakeBox, FakeSampler, ended, running
from tuner_tui.core.daemon_thread import to_daemon_thread
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.read.reader import RunView
from tuner_tui.ui.backend.feeds import FollowerFeed, PollingFeed, SamplerFeed, seconds_to_tick
from tuner_tui.ui.backend.records import BackendError, RunFollower
from tuner_tui.ui.messages import (
    FindingsArrived,
    LogSearchWanted,
    LogWindowArrived,
    LogWindowWanted,
    NoticeArrived,
    RunViewArrived,
    SampleArrived,
)

FOLDER = Path("/runs/r007")
SOON_S = 0.001


class Posted:
    """The messages that were posted, in order."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Message] = SimpleQueue()

    def __call__(self, message: Message) -> None:
        self.queue.put(message)

    def next(self, kind: type[Message]) -> Message:
        """The next message of a kind; others before it are passed over."""
        while True:
            message = self.queue.get(timeout=300)
            if isinstance(message, kind):
                return message


class Script:
    """A run that shows its views one after the other, then the last one for ever; says when it was asked again."""

    def __init__(self, *views: RunView) -> None:
        self.views = list(views)
        self.asked_again = Event()

    def poll(self) -> RunView:
        if len(self.views) > 1:
            return self.views.pop(0)
        self.asked_again.set()
        return self.views[0]


def test_the_sampler_posts_a_sample_at_once_and_closes_at_the_end() -> None:
    closed, times_s = Event(), count(1.0)

    class Closing(FakeSampler):
        def sample(self, watched: Sequence[int] = ()) -> Sample:
            return Sample(next(times_s))

        def close(self) -> None:
            closed.set()

    posted = Posted()
    feed = SamplerFeed(lambda: Closing(Sample(1.0)), posted, SOON_S)
    feed.start()
    first, second = posted.next(SampleArrived), posted.next(SampleArrived)
    assert isinstance(first, SampleArrived)
    assert first.sample == Sample(1.0)
    assert first.can_replace(second)
    feed.stop()
    assert closed.wait(10)


def test_the_sampler_watches_the_processes_of_the_run() -> None:
    seen: SimpleQueue[Sequence[int]] = SimpleQueue()

    class Watching(FakeSampler):
        def sample(self, watched: Sequence[int] = ()) -> Sample:
            seen.put(watched)
            return Sample(1.0)

    feed = SamplerFeed(lambda: Watching(Sample(1.0)), Posted(), SOON_S)
    feed.watched = (100,)
    feed.start()
    assert seen.get(timeout=300) == (100,)
    feed.stop()


def test_the_sampler_pauses_while_the_supervisor_samples() -> None:
    calls: SimpleQueue[str] = SimpleQueue()
    times_s = count(1.0)

    class Logged(FakeSampler):
        def sample(self, watched: Sequence[int] = ()) -> Sample:
            calls.put("sample")
            return Sample(next(times_s))

        def pause(self) -> None:
            calls.put("pause")

        def resume(self) -> None:
            calls.put("resume")

    posted = Posted()
    feed = SamplerFeed(lambda: Logged(Sample(1.0)), posted, SOON_S)
    feed.covered_until_s = float("inf")
    feed.start()
    assert [calls.get(timeout=300) for _ in range(3)] == ["pause"] * 3
    feed.covered_until_s = 0.0
    first = posted.next(SampleArrived)
    feed.stop()
    assert isinstance(first, SampleArrived)
    assert first.sample == Sample(2.0)  # the one before it only restarts the rates
    after = [call for call in iter(calls.get_nowait, "resume") if call != "pause"]
    assert after == []
    assert [calls.get(timeout=300) for _ in range(2)] == ["sample"] * 2


def test_hardware_that_cannot_be_sampled_is_said() -> None:
    posted = Posted()

    def broken() -> FakeSampler:
        raise OSError(13, "Permission denied")

    SamplerFeed(broken, posted).start()
    trouble = posted.next(NoticeArrived)
    assert isinstance(trouble, NoticeArrived)
    assert "Permission denied" in trouble.sentence


def follower(box: FakeBox, posted: Posted, run: RunFollower | None = None) -> FollowerFeed:
    backend = box.backend() if run is None else box.backend(follow_run=lambda folder: run)
    feed = FollowerFeed(backend, posted, SOON_S)
    feed.start()
    return feed


def test_the_follower_posts_everything_once() -> None:
    posted = Posted()
    run = Script(running())
    feed = follower(FakeBox(findings=(DATA_WAIT,)), posted, run)
    feed.follow(FOLDER)
    view, window, findings = (posted.next(kind) for kind in (RunViewArrived, LogWindowArrived, FindingsArrived))
    assert isinstance(view, RunViewArrived)
    assert isinstance(window, LogWindowArrived)
    assert isinstance(findings, FindingsArrived)
    assert findings.findings == (DATA_WAIT,)
    run.asked_again.clear()
    assert run.asked_again.wait(10)
    feed.stop()
    with pytest.raises(Empty):
        posted.queue.get_nowait()


def test_a_view_that_moved_is_published_again() -> None:
    posted = Posted()
    feed = follower(FakeBox(), posted, Script(running(), ended("failed", "It raised.")))
    feed.follow(FOLDER)
    posted.next(RunViewArrived)
    moved = posted.next(RunViewArrived)
    feed.stop()
    assert isinstance(moved, RunViewArrived)
    assert moved.view.status.outcome == "failed"


def windows_of(posted: Posted, feed: FollowerFeed, request: LogWindowWanted | LogSearchWanted) -> tuple[str, ...]:
    feed.ask(request)
    arrived = posted.next(LogWindowArrived)
    assert isinstance(arrived, LogWindowArrived)
    assert arrived.window is not None
    return arrived.window.lines


def test_windows_and_hits_of_the_log_are_shown_when_asked_for() -> None:
    posted = Posted()
    box = FakeBox(output=tuple(f"line {n}" for n in range(500)))
    feed = follower(box, posted)
    feed.follow(FOLDER)
    posted.next(LogWindowArrived)
    assert windows_of(posted, feed, LogWindowWanted(100, 3)) == ("line 10", "line 11", "line 12")
    assert windows_of(posted, feed, LogWindowWanted(100, 2, before=True)) == ("line 8", "line 9")
    assert windows_of(posted, feed, LogSearchWanted("line 33", False, 100))[0] == "line 33"
    assert windows_of(posted, feed, LogSearchWanted("line 3", False, 340))[0] == "line 34"
    assert windows_of(posted, feed, LogSearchWanted("line 7", True, 340))[0] == "line 7"
    feed.ask(LogSearchWanted("nowhere", False, 0))
    trouble = posted.next(NoticeArrived)
    feed.stop()
    assert isinstance(trouble, NoticeArrived)
    assert not trouble.is_error
    assert "“nowhere” is not in the output" in trouble.sentence


def test_a_run_that_cannot_be_read_is_said_and_another_one_can_be_followed() -> None:
    class Gone:
        def poll(self) -> RunView:
            raise OSError(5, "Input/output error")

    posted = Posted()
    runs: list[RunFollower] = [Script(running()), Gone()]
    feed = FollowerFeed(FakeBox().backend(follow_run=lambda folder: runs.pop()), posted, SOON_S)
    feed.start()
    feed.follow(FOLDER)
    trouble = posted.next(NoticeArrived)
    assert isinstance(trouble, NoticeArrived)
    assert "Input/output error" in trouble.sentence
    feed.follow(FOLDER)
    assert isinstance(posted.next(RunViewArrived), RunViewArrived)
    feed.stop()


async def test_a_call_on_a_daemon_thread_returns_its_result_or_raises() -> None:
    assert await to_daemon_thread(lambda: 3) == 3
    with pytest.raises(KeyError):
        await to_daemon_thread(lambda: os.environ["TUNER_NO_SUCH_KEY"])


@pytest.mark.parametrize(("now_s", "left_s"), [(100.0, 1.0), (100.25, 0.75), (100.95, 1.05)])
def test_feeds_go_by_one_clock(now_s: float, left_s: float) -> None:
    """What two feeds bring in the same moment is one drawing; a tick all but there is left out."""
    assert seconds_to_tick(1.0, now_s) == pytest.approx(left_s)


QUICK_S = 0.001


class Published:
    """Remembers what was published and posted."""

    def __init__(self) -> None:
        self.news: SimpleQueue[int] = SimpleQueue()
        self.posted: SimpleQueue[object] = SimpleQueue()


def test_only_changes_are_published_and_the_last_item_ends_the_feed() -> None:
    published = Published()
    feed = PollingFeed(iter([1, 1, 2, 2, 3]), published.news.put, published.posted.put, period_s=QUICK_S)
    feed.start()
    assert [published.news.get(timeout=300) for _ in range(3)] == [1, 2, 3]
    assert published.news.empty()
    assert published.posted.empty()


def test_a_feed_that_is_stopped_reads_no_more() -> None:
    published, others = Published(), set(threads())
    feed = PollingFeed(count(), published.news.put, published.posted.put, period_s=60.0)
    feed.start()
    assert published.news.get(timeout=300) == 0
    feed.stop()
    for thread in set(threads()) - others:
        thread.join(10)
        assert not thread.is_alive()
    assert published.news.empty()


def test_what_cannot_be_read_is_said() -> None:
    def fail(error: Exception) -> int:
        raise error

    gone = FileNotFoundError(2, "No such file or directory")
    refused = BackendError("There is no tuning t009.")
    for items, sentence in (
        (map(fail, [gone]), "It can no longer be read: No such file or directory."),
        (map(fail, [refused]), "There is no tuning t009."),
    ):
        published = Published()
        PollingFeed(items, published.news.put, published.posted.put).start()
        notice = published.posted.get(timeout=300)
        assert isinstance(notice, NoticeArrived)
        assert notice.sentence == sentence

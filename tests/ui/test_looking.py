"""The feed of a screen that is open for a while: news only, until it is told to stop or nothing can come any more."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from threading import enumerate as threads

from tuner_tui.ui.looking import LookFeed
from tuner_tui.ui.messages import TroubleArrived
from tuner_tui.ui.services import ServiceError

QUICK_S = 0.001


class Told:
    """Remembers what was told and posted."""

    def __init__(self) -> None:
        self.news: SimpleQueue[int] = SimpleQueue()
        self.posted: SimpleQueue[object] = SimpleQueue()


def test_only_news_is_told_and_the_last_look_is_the_end() -> None:
    told, looks = Told(), iter([1, 1, 2, 2, 3])
    feed = LookFeed(lambda: lambda: next(looks), told.news.put, told.posted.put, lambda n: n == 3, QUICK_S)
    feed.start()
    assert [told.news.get(timeout=60) for _ in range(3)] == [1, 2, 3]
    assert told.news.empty()
    assert told.posted.empty()


def test_a_feed_that_is_stopped_looks_no_more() -> None:
    told, looked = Told(), Event()

    def look() -> int:
        looked.set()
        return 1

    feed = LookFeed(lambda: look, told.news.put, told.posted.put, period_s=60.0)
    feed.start()
    assert told.news.get(timeout=60) == 1
    feed.stop()
    for thread in threads():
        if thread.name == "tuner-look":
            thread.join(10)
            assert not thread.is_alive()


def test_what_cannot_be_read_is_said() -> None:
    told = Told()

    def gone() -> int:
        raise FileNotFoundError(2, "No such file or directory")

    def refused() -> Callable[[], int]:
        raise ServiceError("There is no tuning t009.")

    LookFeed(lambda: gone, told.news.put, told.posted.put).start()
    first = told.posted.get(timeout=60)
    assert isinstance(first, TroubleArrived)
    assert first.sentence == "It cannot be read any more: No such file or directory."
    LookFeed(refused, told.news.put, told.posted.put).start()
    second = told.posted.get(timeout=60)
    assert isinstance(second, TroubleArrived)
    assert second.sentence == "There is no tuning t009."

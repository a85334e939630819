"""The scroll position in a log of any size: the first line shown, whether the end is followed, and which window to
request next.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner_tui.ui.messages import LogWindowWanted

if TYPE_CHECKING:
    from tuner_tui.runs.read.log_reader import LogWindow

WINDOW_LINES = 200
"""Lines per request: several screens, whatever the size of the log."""


@dataclass(frozen=True, slots=True)
class LogScroll:
    """`top` is the index in the window of the first line shown; `follow` keeps it at the end of the log.

    While another window is waited for, `reference` is the byte of the line that is to be `offset` lines below the top.
    """

    top: int = 0
    follow: bool = True
    reference: int | None = None
    offset: int = 0


ScrollResult = tuple[LogScroll, LogWindowWanted | None]


def after_window(place: LogScroll, old: LogWindow | None, new: LogWindow, height: int) -> LogScroll:
    """Return the position after a new window: the same lines stay where they are, or the end is shown.

    Following scrolls by a third of the height at a time: scrolling by a line would repaint the panel every second.
    """
    most = max(0, len(new.lines) - height)
    if place.reference is not None:
        at = bisect_left(new.anchors, place.reference)
        return LogScroll(max(0, min(at - place.offset, most)), place.follow)
    top = _same_top(place, old, new)
    if top is None:
        return replace(place, top=most if place.follow else 0)
    if place.follow and top < most:
        top = min(most + height // 3, max(0, len(new.lines) - 1)) if old is not None and old.lines else most
    return replace(place, top=top if place.follow else min(top, most))


def _same_top(place: LogScroll, old: LogWindow | None, new: LogWindow) -> int | None:
    """Return the index in `new` of the line that was on top, None if it is gone."""
    if old is None or not place.top < len(old.anchors):
        return None
    at = bisect_left(new.anchors, old.anchors[place.top])
    return at if at < len(new.anchors) and new.anchors[at] == old.anchors[place.top] else None


def scroll_by(place: LogScroll, window: LogWindow, by: int, height: int) -> ScrollResult:
    """Scroll by lines, back if `by` is negative; requests another window at the ends of this one."""
    if not window.lines:
        return place, None
    top, most = place.top + by, max(0, len(window.lines) - height)
    if by < 0:
        return _back(place, window, top, height)
    if top >= most and window.at_end:
        return scroll_to_end()
    if top > most:
        anchor = window.anchors[min(place.top, len(window.anchors) - 1)]
        return LogScroll(place.top, False, anchor, -by), LogWindowWanted(anchor, WINDOW_LINES)
    return LogScroll(top, False), None


def _back(place: LogScroll, window: LogWindow, top: int, height: int) -> ScrollResult:
    if top >= 0 or window.at_start:
        pin = LogWindowWanted(window.start, WINDOW_LINES) if place.follow else None
        return LogScroll(max(0, top), False), pin
    mean_bytes = max(1, (window.end - window.start) // len(window.lines))
    before = max(0, window.start - mean_bytes * (height + WINDOW_LINES // 2))
    return LogScroll(0, False, window.start, -top), LogWindowWanted(before, WINDOW_LINES)


def scroll_to_line(place: LogScroll, window: LogWindow, line: int, height: int) -> ScrollResult:
    """Bring a line of the window into view and stop following the end."""
    top = place.top
    if not top <= line < top + height:
        top = max(0, min(line - height // 3, len(window.lines) - height))
    pin = LogWindowWanted(window.start, max(WINDOW_LINES, len(window.lines))) if place.follow else None
    return LogScroll(top, False), pin


def scroll_to_start() -> ScrollResult:
    """Scroll to the first line of the log."""
    return LogScroll(0, False, 0, 0), LogWindowWanted(0, WINDOW_LINES)


def scroll_to_end() -> ScrollResult:
    """Scroll to the end and follow it."""
    return LogScroll(0, True), LogWindowWanted(None, WINDOW_LINES)


def find_match(window: LogWindow, needle: str, after: int, backwards: bool) -> int | None:
    """Return the index of the next line after `after` that contains `needle`, ignoring case."""
    wanted = needle.lower()
    indices = range(after - 1, -1, -1) if backwards else range(after + 1, len(window.lines))
    return next((index for index in indices if wanted in window.lines[index].lower()), None)

"""The output panel, and where its log is scrolled to."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_share, format_size
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.terminal.base_widgets import Canvas, LineInput, set_border_text
from tuner_tui.view.cells import Line, TextSpan, crop, line, line_width, shorten

if TYPE_CHECKING:
    from tuner_tui.runs.read.log_reader import LogWindow


@dataclass(eq=False, repr=False)
class LogWindowWanted(Message):
    """Show `count` lines of the log from byte `anchor` on, or with `before` those that end there.

    With the anchor None the last lines are shown, also as the file grows.
    """

    anchor: int | None
    count: int
    before: bool = False


@dataclass(eq=False, repr=False)
class LogSearchWanted(Message):
    """Find `text` in the log from byte `start` on or, `backwards`, before it."""

    text: str
    backwards: bool
    start: int


WINDOW_LINES = 200
"""Lines per request: several screens, whatever the size of the log."""


class LogScroll(NamedTuple):
    """`top` is the index in the window of the first line shown; `follow` keeps it at the end of the log.

    While another window is waited for, `reference` is the byte of the line that is to be `offset` lines below the top.
    """

    top: int = 0
    follow: bool = True
    reference: int | None = None
    offset: int = 0


ScrollResult = tuple[LogScroll, LogWindowWanted | None]


def after_window(scroll: LogScroll, old: LogWindow | None, new: LogWindow, height: int) -> LogScroll:
    """Return the position after a new window: the same lines stay where they are, or the end is shown.

    Following scrolls by a third of the height at a time: scrolling by a line would repaint the panel every second.
    """
    most = max(0, len(new.lines) - height)
    # The user has scrolled past the end of the old window, so another one was read: the line that was at the edge is
    # looked up in it by its byte, as line numbers of a log of gigabytes are not known.
    if scroll.reference is not None:
        at = bisect_left(new.anchors, scroll.reference)
        return LogScroll(max(0, min(at - scroll.offset, most)), scroll.follow)
    top = _same_top(scroll, old, new)
    if top is None:
        return scroll._replace(top=most if scroll.follow else 0)
    if scroll.follow and top < most:
        top = min(most + height // 3, max(0, len(new.lines) - 1)) if old is not None and old.lines else most
    return scroll._replace(top=top if scroll.follow else min(top, most))


def _same_top(scroll: LogScroll, old: LogWindow | None, new: LogWindow) -> int | None:
    """Return the index in `new` of the line that was on top, None if it is gone."""
    if old is None or not scroll.top < len(old.anchors):
        return None
    at = bisect_left(new.anchors, old.anchors[scroll.top])
    return at if at < len(new.anchors) and new.anchors[at] == old.anchors[scroll.top] else None


def scroll_by(scroll: LogScroll, window: LogWindow, by: int, height: int) -> ScrollResult:
    """Scroll by lines, back if `by` is negative; requests another window at the ends of this one."""
    if not window.lines:
        return scroll, None
    top, most = scroll.top + by, max(0, len(window.lines) - height)
    if by < 0:
        return _back(scroll, window, top, height)
    if top >= most and window.at_end:
        return scroll_to_end()
    if top > most:
        anchor = window.anchors[min(scroll.top, len(window.anchors) - 1)]
        return LogScroll(scroll.top, False, anchor, -by), LogWindowWanted(anchor, WINDOW_LINES)
    return LogScroll(top, False), None


def _back(scroll: LogScroll, window: LogWindow, top: int, height: int) -> ScrollResult:
    if top >= 0 or window.at_start:
        pin = LogWindowWanted(window.start, WINDOW_LINES) if scroll.follow else None
        return LogScroll(max(0, top), False), pin
    # Where the lines before the window begin is not known, only bytes are: go back by the mean length of a line for a
    # screen and half a window more. Too few or too many lines do no harm, since `reference` marks the line to stay at.
    mean_bytes = max(1, (window.end - window.start) // len(window.lines))
    before = max(0, window.start - mean_bytes * (height + WINDOW_LINES // 2))
    return LogScroll(0, False, window.start, -top), LogWindowWanted(before, WINDOW_LINES)


def scroll_to_line(scroll: LogScroll, window: LogWindow, line: int, height: int) -> ScrollResult:
    """Bring a line of the window into view, with those around it, and stop following the end."""
    top, around = scroll.top, height // 4
    if not top + min(around, line) <= line < top + height - around:
        top = max(0, min(line - height // 2, len(window.lines) - height))
    pin = LogWindowWanted(window.start, max(WINDOW_LINES, len(window.lines))) if scroll.follow else None
    return LogScroll(top, False), pin


def scroll_to_end() -> ScrollResult:
    return LogScroll(0, True), LogWindowWanted(None, WINDOW_LINES)


def find_match(window: LogWindow, needle: str, after: int, backwards: bool) -> int | None:
    """Return the index of the next line after `after` that contains `needle`, ignoring case."""
    wanted = needle.lower()
    indices = range(after - 1, -1, -1) if backwards else range(after + 1, len(window.lines))
    return next((index for index in indices if wanted in window.lines[index].lower()), None)


def visible_lines(window: LogWindow, position: LogScroll, height: int) -> tuple[str, ...]:
    """Return the lines that `height` rows show.

    While the end is followed, an unfinished line such as a progress bar stays in the last row, where few of its cells
    change, and the lines before it are added above.
    """
    shown = window.lines[position.top : position.top + height]
    if not (position.follow and window.unfinished and window.at_end):
        return shown
    return (*shown[:-1], *[""] * (height - len(shown)), *shown[-1:])


def highlighted(text: str, needle: str) -> Line:
    """Return `text` with all matches of `needle` highlighted, ignoring case."""
    if not needle:
        return line(text)
    parts: list[TextSpan] = []
    end = 0
    for match in re.finditer(re.escape(needle), text, re.IGNORECASE):
        parts += [TextSpan(text[end : match.start()]), TextSpan(match.group(), "hit")]
        end = match.end()
    return line(*parts, text[end:])


class LogLines(Canvas):
    """Shows `lines` without their first `skipped` cells, with matches of `needle` highlighted."""

    lines: reactive[tuple[str, ...] | None] = reactive(None, init=False, repaint=False)
    needle: reactive[str] = reactive("", init=False, repaint=False)
    skipped: reactive[int] = reactive(0, init=False, repaint=False)

    class HeightChanged(Message):
        """The number of visible lines changed."""

    def on_resize(self, _event: events.Resize) -> None:
        self.post_message(self.HeightChanged())

    def rows(self, width: int, height: int) -> Sequence[Line]:
        if not self.lines:
            return [] if self.lines is None else [line(TextSpan("No output.", "dim"))]
        if self.skipped:
            return [_after(highlighted(text, self.needle), self.skipped) for text in self.lines[:height]]
        # What was searched for is read to its end; of what has no room then, the lines before it are left out.
        wanted, rows, last = self.needle.lower(), list[Line](), 0
        for text in self.lines[:height]:
            matches = bool(wanted) and wanted in text.lower()
            rows += [highlighted(part, self.needle) for part in (wrap_text(text, width) if matches else (text,))]
            last = len(rows) if matches else last
        return rows[max(0, last - height) :][:height]


def _after(cells: Line, skipped: int) -> Line:
    """Return a line without its first cells, with an ellipsis if something is left."""
    width = line_width(cells)
    return line(TextSpan("…", "dim"), crop(cells, skipped + 1, width)) if width > skipped else ()


SIDEWAYS, MOST_NEEDLE = 20, 30


class OutputPanel(Vertical, can_focus=True):
    """Shows `log_window`; requests other windows by `LogWindowWanted` and matches by `LogSearchWanted`."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["output"]]

    log_window: reactive[LogWindow | None] = reactive(None, init=False, repaint=False)

    _position = LogScroll()
    _needle = ""
    _match: int | None = None
    _searching = _backwards = False
    _shown_bytes = 0

    def compose(self) -> ComposeResult:
        yield LogLines()
        yield LineInput(placeholder="search the output")

    @property
    def following(self) -> bool:
        return self._position.follow

    @property
    def _height(self) -> int:
        return max(1, self.query_one(LogLines).size.height)

    def watch_log_window(self, old: LogWindow | None, new: LogWindow | None) -> None:
        # The answer of a search begins with a match, and at another line than before.
        is_elsewhere = self._searching and new is not None and (old is None or old.start != new.start)
        if new is None:  # of a run that is about to be read
            self._position, self._match, self._needle = LogScroll(), None, ""
        elif is_elsewhere and find_match(new, self._needle, -1, backwards=False) == 0:
            self._match = new.start  # the first line, which the lines before it belong to
            self._go(_back(self._position._replace(follow=False), new, -(self._height // 2), self._height))
        else:
            self._position = after_window(self._position, old, new, self._height)
        self._show()

    @on(LogLines.HeightChanged)
    def _fit_height(self) -> None:
        """Keep the end at the bottom after a change of height, if it is followed."""
        if self.log_window is not None and self._position.follow:
            self._position = LogScroll(max(0, len(self.log_window.lines) - self._height))
        self._show()

    def _show(self) -> None:
        lines = self.query_one(LogLines)
        window = self.log_window
        if window is not None and self._position.follow and self._position.top + self._height < len(window.lines):
            self._position = LogScroll(max(0, len(window.lines) - self._height))
        lines.lines = None if window is None else visible_lines(window, self._position, self._height)
        lines.needle = self._needle
        lines.redraw()
        set_border_text(self, self._where(window), "border_subtitle")

    def _where(self, window: LogWindow | None) -> str:
        if window is None or not window.lines:
            return ""
        at = window.anchors[min(self._position.top, len(window.anchors) - 1)]
        share = format_share(at / window.total_bytes if window.total_bytes else None)
        where = "following" if self._position.follow else f"{share} · End follows"
        searched = f"“{shorten(self._needle, MOST_NEEDLE)}” · " if self._needle else ""
        if not 0.9 * window.total_bytes <= self._shown_bytes <= window.total_bytes:  # a new one repaints the border
            self._shown_bytes = window.total_bytes
        return f"{searched}{format_size(self._shown_bytes)} · {where}"

    def _go(self, move: ScrollResult) -> None:
        self._searching = False
        self._position, wanted = move
        if wanted is not None:
            self.post_message(wanted)
        self._show()

    def action_move(self, by: int) -> None:
        if self.log_window is not None:
            self._go(scroll_by(self._position, self.log_window, by, self._height))

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self._height - 1))

    def action_start(self) -> None:
        self._go((LogScroll(0, False, 0, 0), LogWindowWanted(0, WINDOW_LINES)))

    def action_end(self) -> None:
        self._go(scroll_to_end())

    def action_sideways(self, by: int) -> None:
        lines = self.query_one(LogLines)
        lines.skipped = max(0, lines.skipped + by * SIDEWAYS)

    def action_find(self) -> None:
        self.query_one(LineInput).add_class("-open").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave escape to the screen while nothing is typed."""
        return action != "close_search" or self.query_one(LineInput).has_class("-open")

    def action_close_search(self, needle: str = "") -> None:
        """Hide the field; without a `needle` the search is given up."""
        field = self.query_one(LineInput).remove_class("-open")
        self._needle, self._match, field.value = needle, None, needle
        self.focus()
        self._show()

    @on(LineInput.Submitted)
    def _search_typed(self, event: LineInput.Submitted) -> None:
        event.stop()
        self.search_for(event.value, backwards=self._position.follow)

    def search_for(self, text: str, backwards: bool) -> None:
        self._backwards = backwards
        self.action_close_search(text)
        self.action_search(onwards=True)

    def action_search(self, onwards: bool) -> None:
        """Go to the next or previous match, in this window or in one to request.

        A search that started at the end of the log continues towards its start.
        """
        window, backwards = self.log_window, self._backwards == onwards
        if not self._needle or window is None:
            self._show()
            return
        # Without a match so far the search begins at the edge of what is visible, so the first match is the nearest
        # one. What is not in the window is searched by the reader of the log, whose answer is a window that begins with
        # the match.
        start = self._position.top + (self._height if backwards else -1)
        if self._match is not None:
            start = bisect_left(window.anchors, self._match) - (self._match not in window.anchors and not backwards)
        match = find_match(window, self._needle, min(start, len(window.lines)), backwards)
        if match is None:
            self._searching = True
            self.post_message(LogSearchWanted(self._needle, backwards, window.start if backwards else window.end))
            self._show()
            return
        self._match = window.anchors[match]
        self._go(scroll_to_line(self._position, window, match, self._height))

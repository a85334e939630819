"""The output panel: following, going back through a log of any size, searching."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace
from textual import on
from textual.app import App, ComposeResult
from textual.content import Content

from tests.ui.pilots import press_until, until
from tuner_tui.runs.read.log_reader import LogWindow
from tuner_tui.ui.panels.output import (
    WINDOW_LINES,
    LogScroll,
    LogSearchWanted,
    LogWindowWanted,
    OutputPanel,
    after_window,
    find_match,
    scroll_by,
    scroll_to_end,
    visible_lines,
)
from tuner_tui.ui.terminal.base_widgets import LineInput
from tuner_tui.ui.theme import DARK

LINE_BYTES = 10


def window(first: int, last: int, total: int) -> LogWindow:
    """Lines `first` … `last` of a log of `total` lines, each of ten bytes."""
    numbers = range(first, last)
    return LogWindow(
        lines=tuple(f"line {number:04d}" for number in numbers),
        anchors=tuple(number * LINE_BYTES for number in numbers),
        start=first * LINE_BYTES,
        end=last * LINE_BYTES,
        total_bytes=total * LINE_BYTES,
        at_start=first == 0,
        at_end=last == total,
    )


def test_the_end_is_shown_first_and_followed() -> None:
    scroll = after_window(LogScroll(), None, window(800, 1000, 1000), 20)
    assert (scroll.top, scroll.follow) == (180, True)


def test_following_goes_on_by_a_third_of_the_height() -> None:
    old, new = window(800, 1000, 1000), window(801, 1001, 1001)
    scroll = after_window(LogScroll(180), old, new, 20)
    assert scroll.top == 180 + 6
    later = after_window(scroll, new, window(804, 1004, 1004), 20)
    assert later.top == scroll.top - 3


def test_a_line_looked_at_stays_where_it_is_when_the_log_grows() -> None:
    old, new = window(0, 200, 200), window(0, 260, 260)
    assert after_window(LogScroll(50, follow=False), old, new, 20) == LogScroll(50, follow=False)


def test_going_back_beyond_the_window_asks_for_what_is_before() -> None:
    scroll, wanted = scroll_by(LogScroll(5, follow=False), window(800, 1000, 1000), -20, 20)
    assert isinstance(wanted, LogWindowWanted)
    assert wanted.anchor is not None
    assert wanted.anchor < 8000 - 20 * LINE_BYTES
    start = wanted.anchor // LINE_BYTES
    after = after_window(scroll, None, window(start, start + WINDOW_LINES, 1000), 20)
    assert start + after.top == 800 + 5 - 20


def test_going_on_beyond_the_window_asks_for_what_follows() -> None:
    scroll, wanted = scroll_by(LogScroll(175, follow=False), window(100, 300, 1000), 19, 20)
    assert wanted is not None
    assert wanted.anchor == 275 * LINE_BYTES
    after = after_window(scroll, None, window(275, 475, 1000), 20)
    assert 275 + after.top == 275 + 19


def test_at_the_end_of_the_log_going_on_follows_it() -> None:
    scroll, wanted = scroll_by(LogScroll(175, follow=False), window(800, 1000, 1000), 19, 20)
    assert scroll.follow
    assert wanted is not None
    assert wanted.anchor is None


def test_leaving_the_end_pins_the_window() -> None:
    scroll, wanted = scroll_by(LogScroll(180), window(800, 1000, 1000), -1, 20)
    assert (scroll.top, scroll.follow) == (179, False)
    assert wanted is not None
    assert wanted.anchor == 8000


def test_a_progress_bar_that_is_followed_stays_in_the_last_row() -> None:
    bar = replace(window(0, 3, 3), unfinished=True)
    first, *_, last = bar.lines
    assert visible_lines(bar, LogScroll(), 5) == (first, bar.lines[1], "", "", last)
    assert visible_lines(bar, LogScroll(follow=False), 5) == bar.lines
    assert visible_lines(replace(bar, unfinished=False), LogScroll(), 5) == bar.lines


def test_the_first_line_is_the_end_of_going_back() -> None:
    assert scroll_by(LogScroll(3, follow=False), window(0, 200, 1000), -20, 20) == (LogScroll(0, False), None)


def test_a_log_shorter_than_the_panel_stays_at_its_top() -> None:
    assert after_window(LogScroll(), None, window(0, 3, 3), 20).top == 0
    assert scroll_to_end()[0].follow


def test_hits_are_found_both_ways_whatever_their_case() -> None:
    log = LogWindow(lines=("Loss 1", "x", "loss 2", "y"), anchors=(0, 7, 9, 16))
    assert find_match(log, "LOSS", -1, backwards=False) == 0
    assert find_match(log, "loss", 0, backwards=False) == 2
    assert find_match(log, "loss", 2, backwards=True) == 0
    assert find_match(log, "loss", 2, backwards=False) is None


class OutputApp(App[None]):
    CSS = "OutputPanel { width: 100%; height: 100%; border: round $frame; }"

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[LogWindowWanted | LogSearchWanted] = []
        self.register_theme(DARK)
        self.theme = DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DARK.variables

    def compose(self) -> ComposeResult:
        yield OutputPanel()

    @property
    def panel(self) -> OutputPanel:
        return self.query_one(OutputPanel)

    @property
    def lines(self) -> list[str]:
        return [strip.text.strip("│ ") for strip in self.screen._compositor.render_strips()[1:-1]]

    @property
    def anchor(self) -> int | None:
        return cast(LogWindowWanted, self.wanted[-1]).anchor

    @on(LogWindowWanted)
    @on(LogSearchWanted)
    def _want(self, message: LogWindowWanted | LogSearchWanted) -> None:
        self.wanted.append(message)


async def test_keys_scroll_through_the_log() -> None:
    app = OutputApp()
    async with app.run_test(size=(60, 12)) as pilot:
        app.panel.focus()
        await until(pilot, lambda: not app.lines[0].strip())
        app.panel.log_window = window(800, 1000, 1000)
        await until(pilot, lambda: app.lines[-1] == "line 0999")
        assert "following" in str(app.panel.border_subtitle)
        await press_until(pilot, lambda: app.lines[-1] == "line 0998", "up")
        assert not app.panel.following
        assert app.anchor == 8000
        await press_until(pilot, lambda: app.panel.following, "end")
        assert app.anchor is None
        await press_until(pilot, lambda: app.anchor == 0, "home")
        app.panel.log_window = window(0, 200, 1000)
        await until(pilot, lambda: app.lines[0] == "line 0000")
        app.panel.log_window = LogWindow(lines=("x" * 25 + "y" * 60,), anchors=(0,), end=85, total_bytes=85)
        await press_until(pilot, lambda: app.lines[0] == "…" + "y" * 44, "right", "right")
        app.panel.log_window = None
        await until(pilot, lambda: not app.lines[0].strip())
        assert app.panel.following


async def test_a_search_goes_both_ways_and_asks_beyond_the_window() -> None:
    app = OutputApp()
    async with app.run_test(size=(60, 12)) as pilot:
        app.panel.focus()
        app.panel.log_window = window(800, 1000, 1000)
        await pilot.pause()
        app.panel.action_find()
        await pilot.press("x", "escape")
        assert app.focused is app.panel
        assert not app.wanted
        app.panel.action_find()
        await pilot.press(*"50", "enter")
        for key, line in (("", "line 0950"), ("n", "line 0850"), ("N", "line 0950")):  # from the end it goes back
            await pilot.press(*key)
            await until(pilot, lambda: line in app.lines)  # noqa: B023
        assert not app.query_one(LineInput).has_class("-open")
        assert not app.panel.following, "what was found stays in sight"
        await pilot.press("n", "n")
        asked = app.wanted[-1]
        assert isinstance(asked, LogSearchWanted)
        assert (asked.text, asked.backwards, asked.start) == ("50", True, 8000)
        app.panel.log_window = window(750, 950, 1000)  # it begins with the match: those before it are wanted, too
        await until(pilot, lambda: isinstance(app.wanted[-1], LogWindowWanted))
        assert (cast(LogWindowWanted, app.wanted[-1]).anchor or 0) < 7450
        app.panel.log_window = window(640, 840, 1000)
        await until(pilot, lambda: app.lines.index("line 0750") == len(app.lines) // 2)
        await press_until(pilot, lambda: "line 0650" in app.lines, "n")
        await press_until(pilot, lambda: "line 0750" in app.lines, "N")


async def test_a_match_is_shown_with_the_lines_around_it() -> None:
    app = OutputApp()
    async with app.run_test(size=(60, 14)) as pilot:
        app.panel.focus()
        app.panel.log_window = window(800, 1000, 1000)
        await pilot.pause()
        for text, places in (("0902", range(3, 9)), ("0905", range(3, 9)), ("0801", [1]), ("0999", [11])):
            app.panel.search_for(text, backwards=False)
            app.panel.search_for(text, backwards=True)
            await until(pilot, lambda: f"line {text}" in app.lines)  # noqa: B023
            assert app.lines.index(f"line {text}") in places


async def test_a_log_that_grows_is_not_taken_for_the_hit_of_a_search() -> None:
    app = OutputApp()
    async with app.run_test(size=(60, 12)) as pilot:
        app.panel.focus()
        app.panel.log_window = window(800, 1000, 1000)
        await pilot.pause()
        app.panel.action_find()
        await pilot.press(*"nowhere", "enter")
        app.panel.log_window = window(801, 1001, 1001)
        await until(pilot, lambda: app.lines[-1] == "" or "line 1000" in app.lines)
        assert app.panel.following


async def test_what_is_searched_for_is_shown_as_it_was_typed() -> None:
    app = OutputApp()
    async with app.run_test(size=(60, 12)) as pilot:
        app.panel.log_window = window(0, 20, 20)
        app.panel.action_close_search("loss[/b][red]")
        await pilot.pause()
        assert "loss[/b][red]" in Content.from_markup(str(app.panel.border_subtitle)).plain
        app.panel.log_window = None  # another run is opened
        app.panel.log_window = window(0, 30, 30)
        await pilot.pause()
        assert "loss" not in str(app.panel.border_subtitle)

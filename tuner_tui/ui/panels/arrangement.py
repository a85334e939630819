"""Where each panel goes for any terminal size. Imports no Textual: the first frame needs it before that.

Three shapes: *wide* shows everything, but panels about a run only if there is one; *normal* puts settings and live
figures above the findings and one of the rest below; *paged* shows one panel at a time. Panels that are not on the
screen are named in the page tabs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

PAGES = ("settings", "live", "troubles", "output", "plots")
"""The panels in the order of their number keys."""

PANEL_TITLES = {
    "settings": "Settings", "live": "Live", "troubles": "Troubleshooting", "output": "Output", "plots": "Plots",
}  # fmt: skip
BELOW = ("output", "plots")
"""The panels about a run that share the place below the findings, and are not shown before there is one."""
STRIP = "pages"
WIDE_COLUMNS, WIDE_ROWS = 170, 46
NORMAL_COLUMNS, NORMAL_ROWS = 96, 30
TROUBLES_MOST_ROWS, BRIEF_ROWS = 9, 2
LEAST_BELOW_ROWS, BELOW_PERCENT, WANTED_BELOW_PERCENT = 6, 16, 34
"""Rows of the panel below the findings, and its share of the height: the larger one while it is the page selected."""
SETTINGS_COLUMNS = 40


def panel_title(page: str) -> str:
    """Return the title of a panel in its border, after the number of its key."""
    return f"{PAGES.index(page) + 1} {PANEL_TITLES[page]}"


def first_page(width: int, height: int) -> str:
    """Return the page shown first: where one panel has room, that with the keys and the machine."""
    return PAGES[0] if width >= NORMAL_COLUMNS and height >= NORMAL_ROWS else "live"


class Box(NamedTuple):
    """Cells of a panel, its border included."""

    x: int
    y: int
    width: int
    height: int


class Arrangement(NamedTuple):
    """The box of each visible panel, the panels that share one place (`paged`), and which of them is shown."""

    boxes: Mapping[str, Box] = MappingProxyType({})
    paged: tuple[str, ...] = ()
    active: str = ""


def arrange(
    width: int, height: int, page: str, trouble_rows: int, quiet_rows: int = 1, has_run: bool = True
) -> Arrangement:
    """Return the arrangement for `width` by `height` cells.

    `page` is the panel selected last; `trouble_rows` is the height of the findings, 0 without findings, and
    `quiet_rows` the height of the text shown instead, used where more than one panel is visible. Without a run the
    panels about it would be empty: their place goes to the settings and the machine until one of them is selected.
    """
    if width < 1 or height < 1:
        return Arrangement()
    below = has_run or page in BELOW
    if width >= WIDE_COLUMNS and height >= WIDE_ROWS:
        return _wide(width, height, trouble_rows or quiet_rows, below)
    if width >= NORMAL_COLUMNS and height >= NORMAL_ROWS:
        return _normal(width, height, page, trouble_rows or quiet_rows, below)
    return _paged(width, height, page, trouble_rows)


def _wide(width: int, height: int, trouble_rows: int, below: bool) -> Arrangement:
    left = width * 25 // 100
    right = width - left
    troubles = min(max(1, trouble_rows) + 2, height // 3)
    live = (height - troubles) * 70 // 100 if below else height - troubles - 1
    y, output = live + troubles, right * 45 // 100
    boxes = {
        "settings": Box(0, 0, left, height),
        "live": Box(left, 0, right, live),
        "troubles": Box(left, live, right, troubles),
    }
    if not below:
        return Arrangement(boxes | {STRIP: Box(left, y, right, 1)}, BELOW)
    boxes["output"] = Box(left, y, output, height - y)
    boxes["plots"] = Box(left + output, y, right - output, height - y)
    return Arrangement(boxes)


def _normal(width: int, height: int, page: str, trouble_rows: int, below: bool) -> Arrangement:
    troubles = min(max(1, trouble_rows) + 2, TROUBLES_MOST_ROWS)
    room = height - troubles
    share = WANTED_BELOW_PERCENT if page in BELOW else BELOW_PERCENT
    top = max(12, room - (max(LEAST_BELOW_ROWS, room * share // 100) if below else 1))
    y = top + troubles
    left = max(SETTINGS_COLUMNS, width * 36 // 100)
    boxes = {
        "settings": Box(0, 0, left, top),
        "live": Box(left, 0, width - left, top),
        "troubles": Box(0, top, width, troubles),
        # The names of both panels stand in the border of the one that is shown, in place of its title.
        STRIP: Box(1, y, sum(len(panel_title(page)) + 4 for page in BELOW), 1) if below else Box(0, y, width, 1),
    }
    if not below:
        return Arrangement(boxes, BELOW)
    active = page if page in BELOW else "output"
    return Arrangement(boxes | {active: Box(0, y, width, height - y)}, BELOW, active)


def _paged(width: int, height: int, page: str, trouble_rows: int) -> Arrangement:
    # 80 × 24 cells: one panel at a time. The selected finding stays visible above the other panels, in brief, as it is
    # what must not be missed; a tall narrow terminal has room for the live figures too.
    if height == 1:
        return Arrangement({page: Box(0, 0, width, 1)}, PAGES, page)
    boxes = {STRIP: Box(0, 0, width, 1)}
    y = 1
    if trouble_rows and page != "troubles" and height >= 16:
        boxes["troubles"] = Box(0, 1, width, BRIEF_ROWS)
        y += boxes["troubles"].height
    rest = height - y
    if rest >= 34 and page not in ("live", "troubles"):
        boxes["live"] = Box(0, y, width, rest // 2)
        y += rest // 2
    boxes[page] = Box(0, y, width, height - y)
    return Arrangement(boxes, PAGES, page)

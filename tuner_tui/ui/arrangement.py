"""Where each panel stands, for any size of terminal. Pure: cells in, boxes out.

Three shapes: *wide* shows everything; *normal* puts three (or two) panels above the troubles and one of the rest
below; *paged* shows one panel at a time. What is not on the screen is named in the page strip, so nothing is hidden
without a sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PAGES = ("settings", "live", "hardware", "troubles", "output", "plots", "in-effect")
"""The panels in the order of their number keys."""

STRIP = "pages"
WIDE_COLUMNS, WIDE_ROWS = 170, 46
NORMAL_COLUMNS, NORMAL_ROWS = 96, 30
THREE_COLUMNS = 116
TROUBLES_MOST_ROWS = 9
LEAST_BELOW_ROWS = 9


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The box of each panel on the screen, the panels that share one place, and the one that has it now."""

    boxes: Mapping[str, Box] = field(default_factory=dict)
    paged: tuple[str, ...] = ()
    active: str = ""

    @property
    def hidden(self) -> tuple[str, ...]:
        """Panels that are not on the screen now."""
        return tuple(page for page in PAGES if page not in self.boxes)


def arrange(width: int, height: int, page: str, trouble_rows: int, quiet_rows: int = 1) -> Arrangement:
    """The arrangement for a place of `width` by `height` cells.

    `page` is the panel asked for last; `trouble_rows` the rows the findings want, 0 where there are none, and
    `quiet_rows` those of what is said instead: it gets them where more than one panel has room.
    """
    if width < 1 or height < 1:
        return Arrangement()
    if width >= WIDE_COLUMNS and height >= WIDE_ROWS:
        return _wide(width, height, trouble_rows or quiet_rows)
    if width >= NORMAL_COLUMNS and height >= NORMAL_ROWS:
        return _normal(width, height, page, trouble_rows or quiet_rows)
    return _paged(width, height, page, trouble_rows)


def _framed(trouble_rows: int) -> int:
    return min(max(1, trouble_rows) + 2, TROUBLES_MOST_ROWS)


def _wide(width: int, height: int, trouble_rows: int) -> Arrangement:
    left, middle = width * 29 // 100, width * 33 // 100
    right = width - left - middle
    hardware = min(18, height // 3)
    settings = min(47, height - 9)
    troubles = min(max(1, trouble_rows) + 2, height // 3)
    plots = (height - troubles) * 45 // 100
    output_y = troubles + plots
    return Arrangement(
        {
            "hardware": Box(0, 0, left, hardware),
            "live": Box(0, hardware, left, height - hardware),
            "settings": Box(left, 0, middle, settings),
            "in-effect": Box(left, settings, middle, height - settings),
            "troubles": Box(left + middle, 0, right, troubles),
            "plots": Box(left + middle, troubles, right, plots),
            "output": Box(left + middle, output_y, right, height - output_y),
        }
    )


def _normal(width: int, height: int, page: str, trouble_rows: int) -> Arrangement:
    three = width >= THREE_COLUMNS
    paged = ("output", "plots", "in-effect") if three else ("output", "plots", "in-effect", "hardware")
    troubles = _framed(trouble_rows)
    room = height - troubles
    top = max(12, min(room * 66 // 100, room - LEAST_BELOW_ROWS))
    below = top + troubles
    boxes = _columns(width, top, three)
    boxes["troubles"] = Box(0, top, width, troubles)
    boxes[STRIP] = Box(0, below, width, 1)
    active = page if page in paged else paged[0]
    boxes[active] = Box(0, below + 1, width, height - below - 1)
    return Arrangement(boxes, paged, active)


def _columns(width: int, height: int, three: bool) -> dict[str, Box]:
    if not three:
        left = width // 2
        return {"settings": Box(0, 0, left, height), "live": Box(left, 0, width - left, height)}
    left, right = width * 28 // 100, width * 34 // 100
    return {
        "hardware": Box(0, 0, left, height),
        "settings": Box(left, 0, width - left - right, height),
        "live": Box(width - right, 0, right, height),
    }


def _paged(width: int, height: int, page: str, trouble_rows: int) -> Arrangement:
    if height == 1:
        return Arrangement({page: Box(0, 0, width, 1)}, PAGES, page)
    boxes = {STRIP: Box(0, 0, width, 1)}
    y = 1
    if trouble_rows and page != "troubles" and height >= 16:
        boxes["troubles"] = Box(0, 1, width, min(trouble_rows + 2, 6))
        y += boxes["troubles"].height
    rest = height - y
    if rest >= 34 and page not in ("live", "troubles"):
        boxes["live"] = Box(0, y, width, rest // 2)
        y += rest // 2
    boxes[page] = Box(0, y, width, height - y)
    return Arrangement(boxes, PAGES, page)

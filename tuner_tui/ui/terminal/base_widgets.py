"""Base classes of widgets and screens: `Canvas`, an input of one line, a screen that is left."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, cast

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.color import Color
from textual.content import Content
from textual.events import Paste
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.terminal.cell_writer import Frames, PartialCompositor
from tuner_tui.view.cells import Line, TextSpan, fit, visible_rows

Result = TypeVar("Result")


class LeavableScreen(Screen[Result]):
    """A screen that is dismissed once: of two quick keys the second would take away the screen below."""

    def __init__(self, **names: str | None) -> None:
        super().__init__(**names)
        self._compositor = PartialCompositor(lambda: cast("Frames", self.app))

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_leave(self) -> None:
        self.dismiss(None)


def set_border_text(
    panel: Widget, text: str, where: Literal["border_title", "border_subtitle"] = "border_title"
) -> None:
    """Show a text in the border of a panel, unless it is there already: setting it repaints the whole panel."""
    if getattr(panel, where) != (content := Content(text)).markup:
        setattr(panel, where, content)


LINE_END = re.compile(r"[ \t]*\\?(?:\r\n?|\n)[ \t]*")


class LineInput(Input):
    """One line of text. Pasted lines are joined, at a backslash as in a shell."""

    def __init__(self, value: str = "", *, select: bool = False, id: str | None = None, placeholder: str = "") -> None:
        super().__init__(value, compact=True, select_on_focus=select, id=id, placeholder=placeholder)
        self.cursor_blink = False

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        self.replace(join_lines(event.text), *self.selection)


def join_lines(text: str) -> str:
    r"""Return `text` in one line: `python train.py \` and `  --lr 1` become `python train.py --lr 1`."""
    return LINE_END.sub(" ", text.strip())


VARIABLES = {
    "dim": "quiet", "gauge": "gauge", "curve": "primary", "second": "secondary", "third": "third", "fourth": "fourth",
    "good": "success", "warn": "warning", "bad": "error",
}  # fmt: skip
"""Styles of cells, and the variables of the theme that have their colours."""
SHADE_SHARES = {"low": 0.35, "mid": 0.55, "high": 0.75}
"""How much of the colour the shades of an area have; the rest is background."""

PATTERNS: Mapping[str, str] = {
    "fill-dim": "-", "fill-third": ":", "fill-strong": "%", "fill-fourth": "+", "fill-gauge": "/", "fill-second": "=",
    "fill-good": "#", "fill-warn": "!", "fill-bad": "x",
}  # fmt: skip
"""What tells the parts of a bar, and their places in its legend, from one another without colours,"""
BLANK = re.compile(r"(?<!\S) ")
"""in place of the blanks that are not single ones between words."""


def themed_style(name: str, variables: Mapping[str, str]) -> RichStyle:
    """Return the style `name` of cells with the colours of a theme."""
    # Component classes would do the same, but Textual applies all styles anew for each of them and each canvas.
    # A fill is the colour reversed: its text has the contrast of that colour, and without colours it is still a bar.
    kind, _, base = name.rpartition("-")
    ink, share = variables.get(VARIABLES.get(base, "")), SHADE_SHARES.get(kind, 1.0)
    return RichStyle(
        color=Color.parse(variables["background"]).blend(Color.parse(ink), share).rich_color if ink else None,
        bold=name in ("strong", "bad") or None,
        reverse=kind == "fill" or name == "hit" or None,
    )


def blank_lines(widget: Widget, crop: Region) -> list[Strip]:
    """Return the rows of a widget that others cover: one strip, where Textual keeps several for each row."""
    background = widget.background_colors[1]
    strip = Strip.blank(crop.width, RichStyle(bgcolor=background.rich_color))
    for line_filter in widget.get_line_filters():
        strip = strip.apply_filter(line_filter, background)
    return [strip] * crop.height


class Canvas(Widget):
    """Shows the rows that `rows` returns for the widget's size, and repaints only rows that changed.

    Hidden rows are counted in a sign at the end, and reached by scrolling if the canvas can take the focus.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["rows"]]
    """For canvases that can take the focus."""

    top: reactive[int] = reactive(0, repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self._styles: dict[str, RichStyle] = {}
        self._asked = False

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """Return the picture for `width` by `height` cells."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Draw again when a reactive of the canvas changes that has no watcher of its own."""
        classes = (base for base in type(self).__mro__ if issubclass(base, Canvas))
        names = {name for base in classes for name, value in vars(base).items() if isinstance(value, reactive)}
        for name in (name for name in names if not hasattr(self, f"watch_{name}")):
            self.watch(self, name, self.redraw, init=False)

    def redraw(self) -> None:
        if not self._asked and self.is_attached and self.size:  # a hidden one draws when it gets a size
            self._asked = True
            self.post_message(events.Callback(self._draw))  # `call_later` inspects the signature of a new partial

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def notify_style_update(self) -> None:
        """Clear the cached styles: the theme changed."""
        self._styles.clear()
        super().notify_style_update()

    def _draw(self) -> None:
        self._asked = False
        width, height = self.size
        if not (width and height):
            return
        # The picture is drawn as a whole and compared with the one before, line by line: drawing is cheap, but every
        # line that is refreshed is fitted, rendered, composed and compared cell by cell.
        old, lines = self._lines, self._window(list(self.rows(width, height)), height)
        # Pad to the full height, so that an added or removed row repaints one line, not all of them.
        self._lines = lines + [()] * (height - len(lines))
        changed = [y for y, (before, after) in enumerate(zip(old, self._lines, strict=False)) if before != after]
        if changed or len(old) != height:
            self.refresh(*(Region(0, y, width, 1) for y in changed if len(old) == height))

    def _window(self, rows: list[Line], height: int) -> list[Line]:
        """Return the visible rows, with a sign in place of the rows hidden at either end."""
        self.set_reactive(Canvas.top, max(0, min(self.top, len(rows) - height)))
        return visible_rows(rows, self.top, height)

    def action_scroll_rows(self, by: int) -> None:
        self.top = max(0, self.top + by)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Put changed rows between the edges that Textual has rendered: for each it looks up all styles again."""
        cache, gutter, width = self._styles_cache, self.styles.gutter, self.outer_size.width
        strips, rows = cache._cache, range(gutter.top, gutter.top + self.size.height)
        rendered = (y in rows and y in strips and strips[y].cell_length == width for y in crop.line_range)
        if crop.column_span != (0, width) or not all(rendered):
            return super().render_lines(crop)
        if dirty := cache._dirty_lines.intersection(crop.line_range):
            left, right = strips[crop.y].crop(0, gutter.left), strips[crop.y].crop(width - gutter.right, width)
            for y in dirty:
                strips[y] = Strip([*left, *self._segments(y - gutter.top), *right], width)
            cache._dirty_lines.difference_update(dirty)
        filters, background = self.get_line_filters(), self.background_colors[1]
        # Not by `Strip.apply_filter`, which makes a strip, and with it seven caches, for each filter.
        lines = [strips[y]._segments for y in crop.line_range]
        for line_filter in filters:
            lines = [line_filter.apply(segments, background) for segments in lines]
        return [Strip(segments, width) for segments in lines]

    def render_line(self, y: int) -> Strip:
        return Strip(self._segments(y), self.size.width)

    def _segments(self, y: int) -> list[Segment]:
        cells = fit(self._lines[y] if y < len(self._lines) else (), self.size.width)
        if self.app.no_color:
            cells = tuple(TextSpan(BLANK.sub(PATTERNS.get(style, " "), text), style) for text, style in cells)
        return [Segment(text, self._style(style)) for text, style in cells]

    def _style(self, name: str) -> RichStyle:
        if name not in self._styles:
            self._styles[name] = self.rich_style + themed_style(name, self.app.theme_variables)
        return self._styles[name]


class RowsPanel(Canvas):
    """Shows the rows that `draw` makes of `values`, a width, and the height that it `fills`."""

    values: reactive[tuple[Any, ...]] = reactive((), repaint=False)

    def __init__(
        self,
        draw: Callable[..., Sequence[Line]],
        *values: Any,
        can_focus: bool = False,
        fills: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._rows_of = draw
        self._fills = fills
        self.can_focus = can_focus
        self.set_reactive(RowsPanel.values, values)

    def rows(self, width: int, height: int) -> Sequence[Line]:
        return self._rows_of(*self.values, width, *[height] * self._fills)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width, 0))

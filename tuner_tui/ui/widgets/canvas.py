"""A widget that shows a picture and repaints only the cells that changed.

Over SSH every byte counts: a whole panel is some kilobytes, a changed figure some dozens of bytes. The compositor
writes a changed span from the left edge of the widget it lies in, so figures that change often are shown by `Slice`
children: small widgets whose left edge is where the figure starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from tuner_tui.ui.drawing.cells import STYLES, Line, Row, Run, cells_of, changed_span, crop, fit, line
from tuner_tui.ui.widgets.kept import Kept

Pieces = dict[tuple[int, int], Strip]
"""Of one row: what was painted of it, by its first cell and the one behind its last."""


class Slice(Widget):
    """A rectangle of its canvas that is painted apart from the rest of it."""

    DEFAULT_CSS = "Slice { position: absolute; background: transparent; }"

    def __init__(self, place: Region) -> None:
        super().__init__()
        self.place = place

    @property
    def place(self) -> Region:
        """Where the slice lies in its canvas."""
        return self._place

    @place.setter
    def place(self, place: Region) -> None:
        self._place = place
        self.styles.offset = (place.x, place.y)
        self.styles.width, self.styles.height = place.width, place.height

    def render_lines(self, crop: Region) -> list[Strip]:
        """Straight from the canvas: a slice has no border, padding or opacity to add."""
        canvas, place = self.parent, self._place
        if not isinstance(canvas, Canvas):
            return [Strip.blank(crop.width)] * crop.height
        strips = canvas.filtered(place.y + crop.y, place.y + crop.bottom, place.x, place.right)
        return strips if crop.width == place.width else [strip.crop(*crop.column_span) for strip in strips]


class Canvas(Kept):
    """Shows the rows that `rows` draws for the widget's size; redraws when asked, repaints what differs.

    Rows beyond the height are reached by scrolling, where the canvas may take the focus; a sign says that they exist.
    """

    DEFAULT_CSS = """
    Canvas { layers: base slices; }
    Canvas > Slice { layer: slices; }
    Canvas > .canvas--dim { color: $quiet; }
    Canvas > .canvas--strong { text-style: bold; }
    Canvas > .canvas--good { color: $success; }
    Canvas > .canvas--warn { color: $warning; }
    Canvas > .canvas--bad { color: $error; text-style: bold; }
    Canvas > .canvas--hit { text-style: reverse; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"canvas--{style}" for style in STYLES if style}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_rows(-1)", "Up", show=False, id="rows.up", tooltip="A row back"),
        Binding("down,j", "scroll_rows(1)", "Down", show=False, id="rows.down", tooltip="A row on"),
        Binding("pageup", "scroll_rows(-10)", "Page up", show=False, id="rows.page-up", tooltip="Ten rows back"),
        Binding("pagedown", "scroll_rows(10)", "Page down", show=False, id="rows.page-down", tooltip="Ten rows on"),
        Binding("home", "scroll_rows(-9999)", "First", show=False, id="rows.first", tooltip="The first row"),
        Binding("end", "scroll_rows(9999)", "Last", show=False, id="rows.last", tooltip="The last row"),
    ]
    """For canvases that may take the focus."""

    top: reactive[int] = reactive(0, repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self._slices: list[Region] = []
        self._styles: dict[str, RichStyle] = {}
        self._strips: list[Pieces] = []
        self._filtered: list[Pieces] = []
        self._behind: Color | None = None
        self._asked = False

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The picture for a place of `width` × `height` cells; panels say what it is."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again soon; several requests in a row become one drawing."""
        if not self._asked and self.is_attached:
            self._asked = True
            self.call_later(self._draw)

    def on_resize(self, _event: events.Resize) -> None:
        """A new size is a new picture."""
        self._draw()

    def watch_top(self) -> None:
        """Scrolled to another row."""
        self.redraw()

    def notify_style_update(self) -> None:
        """A new theme: look the styles up again."""
        self._styles.clear()
        self._behind = None
        self._forget()
        super().notify_style_update()

    def _draw(self) -> None:
        self._asked = False
        width, height = self.size
        if width and height:
            rows = self._window(list(self.rows(width, height)), height)
            lines = [fit(row.line, width) for row in rows]
            # As many lines as there is room for: one that comes or goes is a changed line, not another picture.
            lines += [fit((), width)] * (height - len(lines))
            self._show(lines, merge_slices(rows, width))

    def _window(self, rows: list[Row], height: int) -> list[Row]:
        """The rows that are visible; at an end beyond which there are more stands a sign instead."""
        self.set_reactive(Canvas.top, max(0, min(self.top, len(rows) - height)))
        shown = rows[self.top : self.top + height]
        below = len(rows) - self.top - height
        if self.top and height > 1:
            shown[0] = _more(self.top + 1)
        if below > 0:
            shown[-1] = _more(below + 1)
        return shown

    def action_scroll_rows(self, by: int) -> None:
        """Some rows on, or back where `by` is negative."""
        self.top = max(0, self.top + by)

    def _show(self, lines: list[Line], slices: list[Region]) -> None:
        old, self._lines = self._lines, lines
        if slices != self._slices or len(old) != len(lines):
            self._arrange(slices)
            return
        differing = [y for y, (before, after) in enumerate(zip(old, lines, strict=True)) if before != after]
        for y in differing:
            self._strips[y], self._filtered[y] = {}, {}
        for owner, region in self._changes(old, differing):
            owner.refresh(region)

    def _changes(self, old: list[Line], differing: Iterable[int]) -> Iterable[tuple[Widget, Region]]:
        """Each span to repaint, in the coordinates of the widget that paints it."""
        slices = list(self.query_children(Slice))
        for y in differing:
            before, after = cells_of(old[y]), cells_of(self._lines[y])
            for owner, start, end in self._owners(slices, y):
                if span := changed_span(before, after, start, end):
                    x, top = (owner.place.x, owner.place.y) if isinstance(owner, Slice) else (0, 0)
                    yield owner, Region(span[0] - x, y - top, span[1] - span[0], 1)

    def _owners(self, slices: Iterable[Slice], y: int) -> Iterable[tuple[Widget, int, int]]:
        """Which widget paints which cells of row `y`: the slices, and the canvas between them."""
        position = 0
        for piece in sorted((s for s in slices if s.place.y <= y < s.place.bottom), key=lambda s: s.place.x):
            if piece.place.x > position:
                yield self, position, piece.place.x
            yield piece, piece.place.x, piece.place.right
            position = piece.place.right
        if position < self.size.width:
            yield self, position, self.size.width

    def _arrange(self, slices: list[Region]) -> None:
        self._slices = slices
        self._forget()
        children = list(self.query_children(Slice))
        for child, place in zip(children, slices, strict=False):
            child.place = place
            child.refresh()
        if len(slices) > len(children):
            self.mount_all(Slice(place) for place in slices[len(children) :])
        for child in children[len(slices) :]:
            child.remove()
        self.refresh()

    def _forget(self) -> None:
        """The rows are no longer what they were, or no longer look like it."""
        self._strips = [{} for _ in self._lines]
        self._filtered = [{} for _ in self._lines]

    def render_line(self, y: int) -> Strip:
        return self.strip(y, 0, self.size.width)

    def strip(self, y: int, start: int, end: int) -> Strip:
        """Row `y` from cell `start` to `end`, in the colours of the theme."""
        if y >= len(self._lines):
            return Strip.blank(end - start, self._style(""))
        kept = self._strips[y]
        if (start, end) not in kept:
            cells = crop(self._lines[y], start, end)
            kept[start, end] = Strip([Segment(text, self._style(style)) for text, style in cells], end - start)
        return kept[start, end]

    def filtered(self, top: int, bottom: int, start: int, end: int) -> list[Strip]:
        """The same of rows `top` to `bottom`, as the app's filters (no colour, ASCII) let it through."""
        span, strips, filters = (start, end), [], None
        for y in range(top, bottom):
            kept = self._filtered[y] if y < len(self._filtered) else {}
            if span not in kept:
                filters = self.get_line_filters() if filters is None else filters
                kept[span] = self._through(filters, self.strip(y, start, end))
            strips.append(kept[span])
        return strips

    def _through(self, filters: Sequence[LineFilter], strip: Strip) -> Strip:
        for line_filter in filters:
            strip = strip.apply_filter(line_filter, self._background)
        return strip

    @property
    def _background(self) -> Color:
        """The colour behind the text, looked up once a theme: filters ask for it line by line."""
        if self._behind is None:
            self._behind = self.background_colors[1]
        return self._behind

    def _style(self, name: str) -> RichStyle:
        if name not in self._styles:
            self._styles[name] = self.get_component_rich_style(f"canvas--{name}") if name else self.rich_style
        return self._styles[name]


def _more(rows: int) -> Row:
    return Row(line(Run(f"… {rows} more lines", "dim")))


def merge_slices(rows: Sequence[Row], width: int) -> list[Region]:
    """The slices of all rows within `width`; equal spans of neighbouring rows become one rectangle: few widgets do."""
    merged: list[Region] = []
    for y, row in enumerate(rows):
        for start, end in ((start, min(end, width)) for start, end in row.slices if start < min(end, width)):
            same = next((i for i, r in enumerate(merged) if (r.x, r.right, r.bottom) == (start, end, y)), None)
            if same is None:
                merged.append(Region(start, y, end - start, 1))
            else:
                merged[same] = Region(start, merged[same].y, end - start, merged[same].height + 1)
    return merged

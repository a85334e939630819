"""Cells of the screen: coloured text, lines, columns and tables."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain, repeat, zip_longest
from typing import Literal, NamedTuple, get_args

from tuner_tui.core.text import end_at_word, wrap_text

GOOD = "✓"
READING = "reading …"
"""What is shown of a subject that was not read yet."""
WARN = "!"
BAD = "✗"


Style = Literal[
    "", "dim", "strong", "gauge", "curve", "second", "third", "fourth", "good", "warn", "bad", "hit",
    "fill-dim", "fill-strong", "fill-gauge", "fill-curve", "fill-second", "fill-third", "fill-fourth", "fill-good",
    "fill-warn", "fill-bad",
    "low-gauge", "mid-gauge", "high-gauge", "low-good", "mid-good", "high-good",
    "low-warn", "mid-warn", "high-warn", "low-dim", "mid-dim", "high-dim",
]  # fmt: skip
"""States, colours of curves and of parts of bars, fills: the same behind the text of a bar, shades for areas."""
FILLED = frozenset[Style](style for style in get_args(Style) if style == "hit" or style.startswith("fill-"))
"""Styles in which a space is seen."""


class TextSpan(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = ""


Line = tuple[TextSpan, ...]
Part = str | TextSpan | Line


def line(*parts: Part) -> Line:
    """Join parts to a line; adjacent spans of one style are merged, which saves bytes on the terminal.

    Spaces in front of a span belong to the one before, or are one: what draws each as a text of its own may drop them.
    """
    runs: list[TextSpan] = []
    text = ""
    style: Style | None = None
    for part in parts:
        spans = (TextSpan(part),) if isinstance(part, str) else (part,) if isinstance(part, TextSpan) else part
        for word, look in spans:
            if look != style and style is not None and word[:1] == " " and not (look in FILLED or style in FILLED):
                blanks, word = word, word.lstrip(" ")
                text += blanks[: len(blanks) - len(word)]
            if look == style:
                text += word
            elif word:
                if style is not None:
                    runs.append(TextSpan(text, style))
                text, style = word, look
    if style is not None:
        runs.append(TextSpan(text, style))
    if runs and runs[0].text[0] == " " and runs[0].style not in FILLED and not runs[0].text.isspace():
        text, style = runs[0]
        word = text.lstrip(" ")
        runs[:1] = TextSpan(" " * (len(text) - len(word)), "" if style else "dim"), TextSpan(word, style)
    return tuple(runs)


def wrapped_rows(text: str, width: int, style: Style = "", mark: str = "") -> list[Line]:
    """Return `text` wrapped to `width` cells, at least 10, in one style, all of it to the right of its `mark`."""
    room = max(10, width)
    parts = wrap_text(text, room, initial_indent=mark, subsequent_indent=" " * len(mark))
    return [line(TextSpan(shorten(part, room), style)) for part in parts]


def visible_rows(rows: Sequence[Line], top: int, height: int) -> list[Line]:
    """Return `height` rows from row `top` on, with a sign in place of those at either end for the rows hidden there."""
    shown, below = list(rows[top : top + height]), len(rows) - top - height
    if top and height > 1:
        shown[0] = line(TextSpan(f"↑ {top + 1} more lines", "dim"))
    if below > 0 and height > 1:
        shown[-1] = line(TextSpan(f"↓ {below + 1} more lines", "dim"))
    return shown


def plain_text(cells: Line) -> str:
    """Return the text of a line without its styles."""
    return "".join([text for text, _ in cells])


_NARROW = re.compile("[ -~\u00a1-\u00ac\u00ae-\u00ff–…“”✓✗■●◆◇▲▴▸▹▾→↑↓\u2500-\u259f\u2800-\u28ff]*")
"""Characters known to be one cell wide; the width of any other is looked up, and its row is written whole each time."""


def is_narrow(text: str) -> bool:
    """True if every character of `text` is known to be one cell wide."""
    return text.isascii() or _NARROW.fullmatch(text) is not None


def text_width(text: str) -> int:
    """Return the cells that `text` takes on the terminal."""
    return len(text) if is_narrow(text) else _cell_len(text)


JOINER, EMOJI_SELECTOR = "\u200d", "\ufe0f"


def _cell_len(text: str) -> int:
    # As Rich and Textual count: a character joined to the one before takes no cells, and the selector of the emoji form
    # makes a narrow character wide.
    cells, last = 0, 0
    for before, character in zip(" " + text, text, strict=False):
        if character == EMOJI_SELECTOR:
            cells, last = cells + (last == 1), 0
        elif before != JOINER:
            last = _character_cells(character) or last
            cells += _character_cells(character)
    return cells


def _character_cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def line_width(cells: Line) -> int:
    """Return the cells that a line takes."""
    return text_width(plain_text(cells))


def cut_text(text: str, width: int) -> str:
    """Return exactly `width` cells: the start of `text`, padded; a wide character cut in two becomes a space."""
    if is_narrow(text):
        return text[:width].ljust(width)
    start = _crop_text(text, 0, width)
    return start + " " * (width - text_width(start))


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, shortened with `…`, after a word if one ends near."""
    if text_width(text) <= width:
        return text
    if width < 1:
        return ""
    return end_at_word(text, width) if is_narrow(text) else cut_text(text, width - 1).rstrip() + "…"


LEAST_END = 8
"""Cells of the end of a command that say something."""
PHRASE_STARTS = (" than ", " as the ", ": ", ", ", " · ", "; ", " (")
LEAST_PHRASES = 1 / 3  # of the width, or hardly more than a label may be left


def shorten_phrases(text: str, width: int) -> str:
    """Return `text` in at most `width` cells: without its last phrases if enough is left, else shortened with `…`."""
    short = text
    while text_width(short) > width or (short != text and _is_open(short)):
        short = short[: max(0, *map(short.rfind, PHRASE_STARTS))]
        if not short or text_width(short) < width * LEAST_PHRASES:
            return shorten(text, width)
    return short


def _is_open(text: str) -> bool:
    """Whether `text` ends within a quotation or brackets."""
    return text.count("(") > text.count(")") or any(text.count(sign) % 2 for sign in '`"')


def wrapped_parts(parts: Iterable[str], width: int, most: int) -> list[str]:
    """Return as many of `parts`, joined by ` · `, as fit whole into `most` rows: half a sentence says nothing.

    Of a first one that does not fit as many phrases are taken as do.
    """
    width, parts = max(10, width), list(filter(None, parts))
    texts = [" · ".join(parts[:count]) for count in range(len(parts), 0, -1)]
    texts += [shorten_phrases(part, rows * width) for part in parts[:1] for rows in range(most, 0, -1)]
    wrapped = (wrap_text(text, width) for text in texts)
    return next(([shorten(row, width) for row in rows] for rows in wrapped if len(rows) <= most), [])


def shorten_start(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, without its start: the end of a path or a command says more."""
    total = text_width(text)
    return text if total <= width else "…" * (width > 0) + _crop_text(text, total - max(0, width - 1), total)


def shorten_command(text: str, width: int) -> str:
    """Return `text` in at most `width` cells: its program or script, and as much of the end as has room."""
    head = re.match(r"(?:\S+ ){0,2}\S*\.py(?= )|\S+", text)
    room = width - text_width(head[0]) - 1 if head else 0
    if head is None or text_width(text) <= width or room < LEAST_END:
        return shorten(text, width)
    return f"{head[0]} {shorten_start(text[head.end() + 1 :], room)}"


def fit(cells: Line, width: int) -> Line:
    """Return a line of exactly `width` cells: padded with spaces, or shortened with `…`."""
    missing = width - line_width(cells)
    if missing >= 0:
        if cells and cells[-1].style not in FILLED:  # as `line` does, which looks at every span
            return (*cells[:-1], TextSpan(cells[-1].text + " " * missing, cells[-1].style))
        return line(*cells, " " * missing) if missing else cells
    if cells and cells[-1].text.endswith(" ") and cells[-1].style not in FILLED:  # nothing is lost with blanks
        return fit((*cells[:-1], cells[-1]._replace(text=cells[-1].text.rstrip())), width)
    taken: list[TextSpan] = []
    room = width
    for run in cells:
        used = text_width(run.text)
        if used >= room:
            taken.append(TextSpan(cut_text(shorten(run.text + " ", room), room), run.style))
            break
        taken.append(run)
        room -= used
    return line(*taken)


def crop(cells: Line, start: int, end: int) -> Line:
    """Return the cells from `start` up to, but not including, `end`; a wide character cut in two becomes a space."""
    taken: list[TextSpan] = []
    position = 0
    for run in cells:
        used = text_width(run.text)
        if position + used > start and position < end:
            taken.append(TextSpan(_crop_text(run.text, max(0, start - position), min(used, end - position)), run.style))
        position += used
    return line(*taken)


def _crop_text(text: str, start: int, end: int) -> str:
    if is_narrow(text):
        return text[start:end]
    out, position = [], 0
    for character in text:
        cells = _character_cells(character)
        if position >= start and position + cells <= end:
            out.append(character)
        else:
            out.append(" " * max(0, min(end, position + cells) - max(start, position)))
        position += cells
    return "".join(out)


def join_fitting(parts: Iterable[str], width: int) -> str:
    """Return the parts joined by ` · `, without those at the end that do not fit; empty parts are left out."""
    text = ""
    for part in filter(None, parts):
        longer = f"{text} · {part}" if text else part
        if text_width(longer) > width:
            break
        text = longer
    return text


def align_right(text: str, width: int) -> str:
    """Return `text` right-aligned in `width` cells; a longer text is shortened."""
    missing = width - text_width(text)
    return " " * missing + text if missing >= 0 else cut_text(shorten(text, width), width)


def align_left(text: str, width: int) -> str:
    """Return `text` left-aligned in `width` cells; a longer text is shortened."""
    return cut_text(shorten(text, width), width)


GAP = 2


def column_widths(rows: Sequence[Sequence[str]], most: Sequence[int], width: int) -> list[int]:
    """Return column widths: the widest text, at most `most` each, shrunk to `width` cells in all."""
    widths = [min(most[at], max((text_width(row[at]) for row in rows), default=0)) for at in range(len(most))]
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0 and max(widths) > 1:
        widest = widths.index(max(widths))
        widths[widest] -= 1
        over -= 1
    return widths


def table_line(texts: Sequence[str], columns: Sequence[int], styles: Sequence[Style], aligned: str) -> Line:
    """Return one row of a table; `aligned` has `l` or `r` for each column."""
    parts: list[TextSpan] = []
    for text, width, style, side in zip(texts, columns, styles, aligned, strict=True):
        gap = " " * GAP if parts else ""
        parts.append(TextSpan(gap + (align_right if side == "r" else align_left)(text, width), style))
    return line(*parts)


def side_by_side(left: Sequence[Line], right: Sequence[Line], at: int) -> list[Line]:
    """Return two pictures side by side, the second starting at cell `at`."""
    return [line(*fit(first, at), *second) for first, second in zip_longest(left, right, fillvalue=())]


LABEL = 10
NO_BREAK = "\u00a0"


def labelled_row(label: str, *parts: Part) -> Line:
    """Return a row with a dim label, followed by at least one blank, and its contents."""
    return line(TextSpan(align_left(label, LABEL - 1) + " ", "dim"), *parts)


def labelled_rows(
    label: str, text: str, width: int, style: Style = "", labels: int = LABEL, most: int = 99
) -> list[Line]:
    """Return a dim label in `labels` cells with a text that is wrapped, to `most` rows at most."""
    room = max(10, width - labels)
    parts = [shorten(part.replace(NO_BREAK, " "), room) for part in wrap_text(text, room)] or [""]  # wide: fewer fit
    parts[most - 1 :] = [shorten(" ".join(parts[most - 1 :]), room)] if len(parts) > most else parts[most - 1 :]
    return _labelled(label, [(TextSpan(part, style),) for part in parts], labels)


def keep_values(text: str, width: int) -> str:
    """Return values, joined by commas or ` · `, with no-break spaces within those that fit into `width` cells."""
    values = re.split("(?<=[,·]) ", text)
    return " ".join(value.replace(" ", NO_BREAK) if text_width(value) <= width else value for value in values)


def _labelled(label: str, rows: Iterable[Line], labels: int) -> list[Line]:
    heads = chain([label], repeat(""))
    style: Style = "curve" if len(label) == 1 else "dim"  # a key
    return [line(TextSpan(align_left(head, labels), style), *row) for head, row in zip(heads, rows, strict=False)]


def flowing_rows(parts: Iterable[Line], width: int, gap: str = "   ") -> list[Line]:
    """Return the parts with gaps between them, in as many rows as they need."""
    rows: list[Line] = [()]
    for part in parts:
        longer = line(*rows[-1], gap if rows[-1] else "", *part)
        if rows[-1] and line_width(longer) > width:
            rows.append(part)
        else:
            rows[-1] = longer
    return rows


def balanced_rows(parts: Sequence[Line], width: int) -> list[Line]:
    """Return the parts in as few rows as `flowing_rows`, of about equal length."""
    least = len(flowing_rows(parts, width))
    return next(rows for room in range(width + 1) if len(rows := flowing_rows(parts, room)) <= least)


def labelled_flow(label: str, parts: Iterable[Line], width: int, gap: str = "   ", labels: int = LABEL) -> list[Line]:
    """Return a dim label in `labels` cells with the parts, in as many rows as they need."""
    return _labelled(label, flowing_rows(parts, width - labels, gap), labels)


def join_sections(sections: Iterable[Sequence[Line]], apart: bool = True) -> list[Line]:
    """Return the rows of all sections, with a blank row between two of them if they stand `apart`."""
    rows: list[Line] = []
    for section in sections:
        rows += [(), *section] if rows and section and apart else section
    return rows

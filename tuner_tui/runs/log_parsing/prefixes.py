"""What a log collector, a launcher, a viewer or a paste did to the lines of a program.

No list of prefixes is complete, so they are also learned: from what most lines of a log begin with, and from a
traceback, whose frames show where lines began and whose header shows where the prefix of every line ends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

HEADER = "Traceback (most recent call last):"
OWN_WORDS = frozenset({"Original", "+ Exception Group", "Exception Group", "| Exception Group"})
WHOLE_FRAME = re.compile(r'^(?:\[\w+\]: ?)?\s*File "[^"\n]+", line \d+, in \S')
BROKEN_FRAME = re.compile(
    r'^((?:\[\w+\]: ?)?[ \t]{0,4}File "[^"\n]{20,400}(?:",?(?: l?i?n?e?(?: \d*)?,?)?(?: i?n?)?)?)\n(.*)', re.MULTILINE
)
FEW_LINES = 4
"""So many lines have to look alike before it is taken for the work of a collector or a viewer."""
MOST, NEARLY_ALL = 0.8, 0.9
NARROWEST, WIDEST = 60, 250
"""Columns of a window that breaks lines."""
FULL_LINES, START_CHARS = 3, 10
"""So many lines that are as wide as the window and begin differently show that it broke them."""
WINDOWS = frozenset({80, 120})
"""Columns of most windows: one line that is as wide as they are was broken."""
BEGINS = re.compile(
    r'\s*(?:File "|Traceback \(|\[|\d{4}-\d\d|\d\d:\d\d|(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b)|\s{2}|(.)\1{3}|$'
    r"|(?:Aborted|Killed|Segmentation fault|Bus error|Terminated)\b"
)
"""The beginning of a line that continues none above it."""
BOXED = re.compile(r"([│┃║|]) ?(?P<text>.*)\1\s*|[╭╰┌└╔╚+][─━═-]{3}.*")
DRAWN = re.compile(r"[│╭╰┃╔╚|+]|(.)\1{9}|.*\d+%\|")
"""Boxes, rules and bars, which are drawn as wide as the window."""
SAMPLE_LINES = 400
LONGEST_PREFIX = 120
TOKEN = re.compile(r"\d+|\s+|[^\W\d_]+|.")
PREFIX_ENDS = frozenset(":|])>}")
PROGRESS = re.compile(r"epoch|step|iter|loss|batch|eval|train(?:ing)?\W|\d/\d|%", re.IGNORECASE)
"""What a program writes itself before each line of its progress."""


def restore_layout(lines: Sequence[str]) -> list[str]:
    """The lines as a program wrote them, where a window or a paste broke, spaced or indented them."""
    written = [line for line in lines if line.strip()]
    blank = len(lines) - len(written)
    if len(written) > FEW_LINES and blank >= NEARLY_ALL * len(written):
        pairs = sum(bool(upper.strip() and lower.strip()) for upper, lower in pairwise(lines))
        lines = written if pairs <= (1 - NEARLY_ALL) * len(written) else lines
    boxed = [match for match in map(BOXED.fullmatch, written) if match]
    if boxed and len(boxed) == len(written):
        lines = written = [(match["text"] or "").rstrip() for match in boxed]
    shallowest = min(written, key=lambda line: len(line) - len(line.lstrip()), default="")
    indent = len(shallowest) - len(shallowest.lstrip()) if len(written) >= FEW_LINES else 0
    if shallowest[indent:].startswith('File "'):
        indent = max(0, indent - 2)
    return _join_frames(_join_full_lines([line[indent:] for line in lines]))


def _join_full_lines(lines: Sequence[str]) -> Sequence[str]:
    """Joins lines that a window broke at its width: several are as wide as the widest, without blanks to fill."""
    width = max(map(len, lines), default=0)
    full = [
        len(line) == width
        and line[-2:] != "  "
        and line[-1:] not in ".!?"
        and line[:START_CHARS] != below[:START_CHARS]
        and not (DRAWN.match(line) or BEGINS.match(below))
        for line, below in pairwise((*lines, ""))
    ]
    # Messages that differ only in their numbers are as wide as one another too.
    starts = {re.sub(r"\d+", "0", line)[:START_CHARS] for line, is_full in zip(lines, full, strict=True) if is_full}
    if not NARROWEST <= width <= WIDEST or len(starts) < (1 if width in WINDOWS else FULL_LINES):
        return lines
    return "".join(line + "\n" * (not is_full) for line, is_full in zip(lines, full, strict=True)).split("\n")[:-1]


def _join_frames(lines: Sequence[str]) -> list[str]:
    """Joins the lines of frames that were broken at a width of their own."""

    def whole(match: re.Match[str]) -> str:
        return match[1] + match[2] if WHOLE_FRAME.search(match[1] + match[2]) else match[0]

    return BROKEN_FRAME.sub(whole, "\n".join(lines)).split("\n") if lines else []


def common_prefix(lines: Sequence[str], is_of_failure: Callable[[str], bool]) -> re.Pattern[str] | None:
    """What most lines begin with, in any numbers, if it hides lines that are `is_of_failure` or is surely no word of
    the program."""
    written = [line for line in lines if line.strip()]
    sample = written[:: len(written) // SAMPLE_LINES + 1]
    rows = [TOKEN.findall(line[:LONGEST_PREFIX].lstrip()) for line in sample]
    least = MOST * len(rows) if len(rows) >= FEW_LINES else max(2, len(rows))
    forms: list[str] = []
    ends = 0
    while True:
        # A line with nothing after the prefix goes along with the others.
        next_forms = Counter(_form(row[len(forms)]) for row in rows if len(row) > len(forms))
        form, count = next_forms.most_common(1)[0] if next_forms else ("", 0)
        alike = [row for row in rows if len(row) <= len(forms) or _form(row[len(forms)]) == form]
        if not count or len(alike) < least:
            break
        rows = alike
        forms.append(form)
        ends = len(forms) if form == r"\s+" or form[-1] in PREFIX_ENDS else ends
    shape = _compile_forms(forms[:ends], rows) or _names_of_sources(sample)
    stripped = () if shape is None else (shape.sub("", line, count=1) for line in written if shape.match(line))
    if any(map(is_of_failure, stripped)):
        return shape
    # Words that all lines begin with may be the program's; a collector's prefix ends with a sign, or a blank after it.
    signs = [number for number, form in enumerate(forms[:ends], 1) if form[-1] in PREFIX_ENDS]
    ends = signs[-1] + (forms[signs[-1] : signs[-1] + 1] == [r"\s+"]) if signs else 0
    shape = _compile_forms(forms[:ends], rows)
    is_sure = FEW_LINES <= NEARLY_ALL * len(sample) <= len(rows) and not PROGRESS.search("".join(rows[0][:ends]))
    # Lines that are failures as they stand, such as those of srun, are alike because their processes failed alike.
    is_error = shape is not None and any(shape.match(line) and is_of_failure(line) for line in written)
    return shape if is_sure and not is_error else None


def _names_of_sources(lines: Sequence[str]) -> re.Pattern[str] | None:
    """The first words of the lines, if they are the names of a few hosts or containers that write to one log."""
    counts = Counter(line.partition(" ")[0] for line in lines)
    names = [name for name, count in counts.items() if count >= FEW_LINES and name[-1:] in PREFIX_ENDS]
    if sum(counts[name] for name in names) < NEARLY_ALL * len(lines) or not names:
        return None
    return re.compile(rf"(?:{'|'.join(map(re.escape, names))})(?: |$)")


def _compile_forms(forms: Sequence[str], rows: Sequence[Sequence[str]]) -> re.Pattern[str] | None:
    """The expression for these tokens of `rows`. Of blanks at its end only as many as all rows have belong to it."""
    if not forms:
        return None
    *forms, last = forms
    if last == r"\s+":
        width = min((len(row[len(forms)]) for row in rows if len(row) > len(forms)), default=1)
        last = rf"(?:\s{{{width}}}|\s*$)"
    return re.compile("".join((r"\s*", *forms, last)))


def _form(token: str) -> str:
    return r"\d+" if token.isdigit() else r"\s+" if token.isspace() else re.escape(token)


class LearnedPrefix(Struct, frozen=True):
    """The prefix of the lines from the header of a traceback on; its numbers may differ from line to line."""

    first: int
    shape: re.Pattern[str]
    is_blank: bool


def traceback_prefix(lines: Sequence[str], header: int) -> LearnedPrefix | None:
    """The prefix of the traceback with its header on line `header`; None if it has none or is no traceback."""
    before, marker, _ = lines[header].partition(HEADER)
    if not marker or before.strip() in OWN_WORDS:
        return None
    blank = bool(before) and not before.strip()
    shape = re.compile(re.escape(before) if blank else _shape(before))
    # Other processes may write in between, so the first line with the same prefix counts: it must be a frame.
    same = next((match for line in lines[header + 1 : header + 40] if (match := shape.match(line))), None)
    if before and same is not None and re.match(r"\s+File \"", same.string[same.end() :]):
        return LearnedPrefix(header, shape, blank)
    # The prefix may stand before the header alone, as in "ERROR training failed: Traceback ...". A quotation mark or
    # brace there says that the traceback is a string in a record, which is no failure of this program.
    least = 2 if before else 3
    plain_frames = header + 1 < len(lines) and re.match(rf"(\s{{{least},}})File \"", lines[header + 1])
    if not plain_frames or blank or before.rstrip().endswith(('"', "'", "{", "=")):
        return None
    # A launcher's table of processes (`traceback : Traceback ...`) and some pastes indent all lines after the first.
    indent = plain_frames[1][2:]
    form = f"{re.escape(before)}(?=Traceback)" + (f"|{indent}(?=.)" if indent else "")
    return LearnedPrefix(header, re.compile(form), bool(indent))


def _shape(prefix: str) -> str:
    """A regular expression for `prefix` with other numbers. Blanks after it belong to the line."""
    body = prefix.rstrip()
    parts = re.findall(r"\d+|\s+|[^\d\s]+", body)
    return "".join(map(_form, parts)) + (rf"(?: {{1,{len(prefix) - len(body)}}}|$)" if len(prefix) > len(body) else "")

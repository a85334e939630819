"""Splits training output into lines without colours, old states of progress bars and logger prefixes."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import open_regular, read_data_file
from tuner_tui.runs.log_parsing.prefixes import (
    FEW_LINES,
    HEADER,
    NEARLY_ALL,
    LearnedPrefix,
    common_prefix,
    restore_layout,
    traceback_prefix,
)

Confidence = Literal["certain", "likely", "possible"]
"""How sure it is what lines mean."""
HEAD_BYTES = 64 << 10
TAIL_BYTES = 512 << 10
LIVE_TAIL_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20
SILENT_S = 15.0
"""How long a pipe may be silent before what has come of it is taken for all."""
LONGEST_S = 60
"""How long a pipe is read at most; `/proc/kmsg` and a followed log have no end."""


def read_head_and_tail(path: Path, *, any_kind: bool = False, silent_s: float = SILENT_S) -> tuple[str, ...]:
    """Lines of the first `HEAD_BYTES` and the last `TAIL_BYTES` of a file. Raises `OSError`.

    With `any_kind` the file may also be a link, a pipe or one of the kernel, which is read to its end or until nothing
    has come for `silent_s`; no device, which may have no end.
    """
    # Without O_NONBLOCK, to open a named pipe waits for a writer; one that nobody writes to is empty.
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY) if any_kind else open_regular(path)
    with os.fdopen(opened, "rb") as file:
        size, mode = os.fstat(file.fileno()).st_size, os.fstat(file.fileno()).st_mode
        if stat.S_ISCHR(mode) and not file.isatty():
            raise OSError(errno.EINVAL, "A device has no end", os.fspath(path))
        if any_kind and (size == 0 or not stat.S_ISREG(mode)):
            return _head_and_tail(_chunks_in_time(opened, silent_s))
        if size <= HEAD_BYTES + TAIL_BYTES:
            return read_stream_head_and_tail(file)
        head = file.read(HEAD_BYTES)
        file.seek(size - TAIL_BYTES)
        return (*_split_lines(head), *_split_lines(file.read(TAIL_BYTES)))


def read_tail(path: Path, most_bytes: int = LIVE_TAIL_BYTES) -> tuple[str, ...]:
    """The lines of the last `most_bytes` of the file. Raises `OSError` if it cannot be read."""
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return _split_lines(file.read(most_bytes))


def read_stream_head_and_tail(stream: BinaryIO) -> tuple[str, ...]:
    """The same of a stream, which is read to its end in constant memory."""
    return _head_and_tail(iter(lambda: stream.read(CHUNK_BYTES), b""))


def _chunks_in_time(descriptor: int, silent_s: float) -> Iterator[bytes]:
    """What comes from a descriptor that does not block, up to its end or to `silent_s` without a byte."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    stop_s = time.monotonic() + LONGEST_S
    while time.monotonic() < stop_s and ready.poll(silent_s * 1000):
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            return
        yield chunk


def _head_and_tail(chunks: Iterator[bytes]) -> tuple[str, ...]:
    head, tail = b"", b""
    for chunk in chunks:
        room = HEAD_BYTES - len(head)
        head, tail = head + chunk[:room], (tail + chunk[room:])[-TAIL_BYTES:]
    return _split_lines(head + tail)


def _split_lines(text: bytes) -> tuple[str, ...]:
    return tuple(text.decode("utf-8", "replace").split("\n"))


MAX_LINE_CHARACTERS = 4000
"""Longer lines are cut, which keeps the patterns fast."""
ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
BAR = re.compile(r"(\d+)/(\d+|\?) (?:\[[^\]\n]{0,80}\]|\d+:\d\d:\d\d •|[━╸╺]{3}|[\d.]+(?:it/s|s/it)\b)")
"""The count of a progress bar of tqdm, Keras, Rich or Ultralytics."""
AFTER_BAR = re.compile(r"^(.{0,300}?\d+(?:(?:/(?:\d+|\?)|it) \[[^\]\n]{0,80}\]|%\|[▉-▏█#]+(?=[A-Z][a-z])))(\S.*)$")
PREFIX_STARTS = frozenset("[(+|-*•>0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""First characters of prefixes; lines that begin otherwise are not searched for one."""
STRAIGHT_QUOTES = str.maketrans("‘’“”", "''\"\"")
"""A web page's quotation marks in place of a program's."""
MAX_PREFIXES = 4
FILE = Path(__file__).with_name("log_lines.yaml")
FRAGMENT = re.compile(r"\{([A-Z_]+)\}")
QUIET_LEVELS = frozenset({"D", "I", "W"})
FAILURE_LINES = ("exceptions", "messages-alone", "native-errors")


@cache
def log_forms(part: str) -> tuple[re.Pattern[str], ...]:
    document = read_data_file(FILE)
    forms = (row["form"] if isinstance(row, Mapping) else row for row in document[part])
    return tuple(re.compile(expand(form, document["fragments"])) for form in forms)


@cache
def _rewritten_forms() -> tuple[tuple[Sequence[str], re.Pattern[str], str], ...]:
    rows = read_data_file(FILE)["rewritten"]
    return tuple((row["has"], form, row["to"]) for row, form in zip(rows, log_forms("rewritten"), strict=True))


def expand(form: str, fragments: Mapping[str, str]) -> str:
    """A regular expression with its `{NAME}` replaced."""
    return FRAGMENT.sub(lambda name: fragments[name[1]], form)


def search_any(part: str, text: str) -> re.Match[str] | None:
    return next((match for form in log_forms(part) if (match := form.search(text))), None)


def matches_any(part: str, text: str) -> bool:
    return any(form.match(text) for form in log_forms(part))


class LogLine(Struct, frozen=True):
    """One line without its prefixes. `rank` and `level` (its first letter) are taken from a prefix.

    `local_rank` is the rank among those of its host, where the prefix has that.
    """

    number: int
    text: str
    rank: int | None = None
    level: str | None = None
    local_rank: int | None = None

    @property
    def quiet(self) -> bool:
        """Whether it was logged at a level below error."""
        return self.level in QUIET_LEVELS

    @property
    def blank(self) -> bool:
        return not self.text.strip()


def parse_lines(raw: Iterable[str]) -> tuple[LogLine, ...]:
    """The lines of `raw`, numbered from 0."""
    pieces = restore_layout([piece for line in raw for piece in _pieces(line)])
    lines = [_without_prefixes(number, piece) for number, piece in enumerate(pieces)]
    if shape := common_prefix([line.text for line in lines], _is_of_failure):
        lines = [_without_shape(line, shape) for line in lines]
    for number, piece in enumerate(pieces):
        following = lines[number + 1 : number + 3] if HEADER in piece else ()
        below = next((line.text for line in following if not line.blank), "")
        if below and (piece.startswith(HEADER) or not (lines[number].text.startswith(HEADER) and below[:1] == " ")):
            learned = traceback_prefix(pieces, number)
            if learned is not None:
                _strip_learned(pieces, lines, learned)
    return tuple(_without_constants(lines))


def _is_of_failure(text: str) -> bool:
    """Whether a line is one of a traceback, names an exception or is a message of native code."""
    return _is_of_traceback(text) or any(matches_any(part, text) for part in FAILURE_LINES)


def _is_of_traceback(text: str) -> bool:
    return text.startswith(HEADER) or FRAME_START.match(text) is not None


def _without_shape(line: LogLine, shape: re.Pattern[str]) -> LogLine:
    """The line without a prefix of this shape, which is common to most lines, and without those after it."""
    match = shape.match(line.text)
    if match is None:
        return line
    inner = _without_prefixes(line.number, line.text[match.end() :])
    named, level = _rank_and_level(match[0])
    return replace(
        inner,
        rank=next((rank for rank in (inner.rank, line.rank, named) if rank is not None), None),
        level=inner.level or line.level or level,
        local_rank=inner.local_rank if line.local_rank is None else line.local_rank,
    )


def _rank_and_level(prefix: str) -> tuple[int | None, str | None]:
    """The rank and the first letter of the level that a learned prefix names."""
    rank, level = RANK_WORD.search(prefix), LEVEL_WORD.search(prefix)
    return None if rank is None else int(rank["a"] or rank["b"]), None if level is None else level[1][0]


def _without_constants(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Without the level that all lines have, where what it says cannot be, and without line numbers taken for ranks."""
    written = [line for line in lines if not line.blank]
    ranks = [line.rank for line in written if line.rank is not None]
    if len(ranks) > FEW_LINES and all(upper < lower for upper, lower in pairwise(ranks)):
        lines = [replace(line, rank=None) for line in lines]
    level, count = Counter(line.level for line in written).most_common(1)[0] if written else (None, 0)
    if level is None or count < max(FEW_LINES, NEARLY_ALL * len(written)):
        return lines
    # A collector gives what a program writes to standard error one level: progress bars and tracebacks alike.
    is_failure = any(_is_of_traceback(line.text) for line in written) or _is_of_failure(written[-1].text)
    is_progress = len(written) > MOST_ERRORS or any(BAR.search(line.text) for line in written)
    if is_failure if level in QUIET_LEVELS else is_progress:
        return [replace(line, level=None) if line.level == level else line for line in lines]
    return lines


def _strip_learned(pieces: list[str], lines: list[LogLine], learned: LearnedPrefix) -> None:
    """Removes the prefix of a traceback from its lines, and from what has the same prefix near it."""
    begin = learned.first if learned.is_blank else max(0, learned.first - MAX_SPAN)
    for number in range(begin, min(len(pieces), learned.first + MAX_SPAN)):
        if match := learned.shape.match(pieces[number]):
            rank, level = _rank_and_level(match[0])
            # Who logs a traceback line by line below the level of an error passes on what another program wrote.
            level = None if level in QUIET_LEVELS else level
            lines[number] = LogLine(number, pieces[number][match.end() :], rank, level)
        elif learned.is_blank and pieces[number].strip():
            return


def _pieces(raw: str) -> Iterator[str]:
    """Splits a line at carriage returns into the last state of a progress bar and other text."""
    text = ANSI.sub("", raw).rstrip("\r\n").replace("\xa0", " ")
    if ENTITY.search(text):
        import html  # 2,231 names of characters, for logs copied from a web page

        text = html.unescape(text)
    for line in _restore_lines(text):
        parts = line.split("\r")
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            # A bar is drawn anew after each carriage return; only its last state before other text is kept.
            if BAR.search(part) and BAR.search(following):
                continue
            # An exception or a log line often follows a bar without a newline.
            glued = AFTER_BAR.match(part[:MAX_LINE_CHARACTERS])
            yield from (part[:MAX_LINE_CHARACTERS],) if glued is None else glued.groups()


def _without_prefixes(number: int, text: str) -> LogLine:
    rank, local_rank, level = None, None, None
    for _ in range(MAX_PREFIXES):
        if text[:1] not in PREFIX_STARTS and not text.startswith(("  |", "  +", " " * 11)):
            break
        match = next((match for prefix in log_forms("prefixes") if (match := prefix.match(text))), None)
        if match is None or not match.end():
            break
        groups = match.groupdict()
        rank = int(groups["rank"]) if groups.get("rank") else rank
        local_rank = int(groups["local"]) if groups.get("local") else local_rank
        level = (
            groups["level"][:1].upper() if groups.get("level") else None if search_any("passed-on", match[0]) else level
        )
        text = text[match.end() :]
    if "‘" in text or "“" in text:
        text = text.translate(STRAIGHT_QUOTES)
    for words, form, written in _rewritten_forms():
        if any(word in text for word in words):
            text = form.sub(written, text)
    return LogLine(number, text, rank, level, local_rank)


ENTITY = re.compile(r"&(?:quot|apos|amp|lt|gt|nbsp|#39|#x27);")
BREAK_TAG = re.compile(r"<br ?/?>")
FRAME_START = re.compile(r'\s*(File "[^"\n]{1,400}", line \d+, in )')
RECORD = re.compile(r"[\[, ]*\{\"")
LEVEL_WORD = re.compile(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b")
RANK_WORD = re.compile(r"(?<!-)(?:rank|gpu|task|worker|trainer|proc\w*)\W{0,2}(?P<a>\d{1,4})\b|\[\d+,(?P<b>\d+)\]<std")
MOST_ERRORS = 10
"""A program that logs more lines, all of them at the level of an error, does not mean the level."""
MAX_SPAN = 600
"""Lines after a traceback's header in which its prefix is looked for."""


def _restore_lines(line: str) -> Iterator[str]:
    """The lines that `line` was before its newlines were lost, or `line` itself.

    Newlines are lost in JSON records, in web forms (`<br>`) and in pastes that a browser joined.
    """
    if RECORD.match(line) and (text := _record_text(line.strip("[], "))):
        yield from text
        return
    if HEADER not in line:
        rest = FRAME_START.sub("", line, count=1) if FRAME_START.match(line) else ""
        is_flat = FRAME_START.search(rest) or (": " in line and log_forms("flat-exceptions")[0].search(rest))
        yield from _unflatten(line) if is_flat else (line,)
        return
    if BREAK_TAG.search(line):
        for part in BREAK_TAG.split(line):
            yield from _restore_lines(part)
        return
    record = _record_text(line) if line[:1] in {"{", '"'} else None
    flat = log_forms("flat")[0].match(line)
    if record is not None or flat is None:
        yield from (line,) if record is None else record
        return
    if flat["before"].strip():
        yield flat["before"].rstrip()
    if "\\n" in flat["text"][len(HEADER) : len(HEADER) + 2]:
        yield from flat["text"].rstrip("\"'").split("\\n")
    else:
        yield from _unflatten(flat["text"])


def _record_text(line: str) -> tuple[str, ...] | None:
    """The lines in a JSON string, or in the field of a log record that reports an error; None if it has none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(record, str):
        return tuple(record.split("\n")) if record.lstrip().startswith(HEADER) else None
    if not isinstance(record, dict):
        return None
    words: Mapping[str, Sequence[str]] = read_data_file(FILE)["records"]
    level = str(next((record[name] for name in words["level-fields"] if name in record), "")).lower()
    fields = (*words["error-fields"], *(words["text-fields"] if level in words["error-levels"] else ()))
    texts = [record[name] for name in fields if isinstance(record.get(name), str) and HEADER in record[name]]
    if not texts and any(name in record for name in words["stamps"]):  # of a container, a cloud or a notebook
        texts = [record[name] for name in words["text-fields"] if isinstance(record.get(name), str)]
    return tuple(texts[0].rstrip("\n").split("\n")) if texts else None


def _unflatten(text: str) -> Iterator[str]:
    """Splits a traceback on one line at its frames and before its exception."""
    first, *frames = FRAME_START.split(text)
    if not frames:
        yield text
        return
    if first.strip():
        yield first.rstrip()
    heads, rests = frames[::2], frames[1::2]
    exception = log_forms("flat-exceptions")[0].search(rests[-1])
    rests[-1] = rests[-1][: None if exception is None else exception.start()]
    for head, rest in zip(heads, rests, strict=True):
        function, _, source = rest.strip().partition(" ")
        yield f"  {head}{function}"
        if source:
            yield f"    {source}"
    if exception is not None:
        yield exception.string[exception.start() :]

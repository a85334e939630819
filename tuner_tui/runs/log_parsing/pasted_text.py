"""Restores output that was pasted, quoted or collected: lost newlines, and prefixes that the parser does not know.

A traceback shows both: its frames tell where lines began, and its header where the prefix of every line ends.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEADER = "Traceback (most recent call last):"
BREAK_TAG = re.compile(r"<br ?/?>")
FLAT = re.compile(
    r"""^(?P<before>[^{"']{0,200})(?P<text>Traceback \(most recent call last\):(?=\s{0,8}File |\\n).*)$"""
)
FRAME_START = re.compile(r'\s*(File "[^"\n]{1,400}", line \d+, in )')
FLAT_EXCEPTION = re.compile(
    r"(?<![\w.'\"])"
    r"((?:[a-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Failed|OutOfResources)\b(?=: |$))"
)
ERROR_FIELDS = ("exc_info", "exc_text", "exception", "error", "err", "traceback", "stack_trace", "stack", "stacktrace")
TEXT_FIELDS = ("message", "msg", "event", "text", "textPayload")
ERROR_LEVELS = frozenset({"error", "critical", "fatal", "err", "40", "50"})
LEVEL_FIELDS = ("level", "levelname", "severity", "lvl", "log.level")
OWN_WORDS = frozenset({"Original", "+ Exception Group", "Exception Group", "| Exception Group"})
"""What Python itself writes before the word Traceback."""
MAX_SPAN = 600
"""Lines after a traceback's header in which its prefix is looked for."""


def restore_lines(line: str) -> Iterator[str]:
    """The lines that `line` was before its newlines were lost, or `line` itself."""
    if line.startswith('{"log":'):
        yield from _record_text(line) or (line,)
        return
    if HEADER not in line:
        yield line
        return
    if BREAK_TAG.search(line) or "&quot;" in line:
        for part in BREAK_TAG.split(html.unescape(line)):
            yield from restore_lines(part)
        return
    record = _record_text(line) if line[:1] in {"{", '"'} else None
    if record is not None:
        yield from record
        return
    flat = FLAT.match(line)
    if flat is None:
        yield line
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
    except ValueError:
        return None
    if isinstance(record, str):
        return tuple(record.split("\n")) if record.lstrip().startswith(HEADER) else None
    if not isinstance(record, dict):
        return None
    if isinstance(record.get("log"), str):  # a container's log: one record a line
        return tuple(record["log"].rstrip("\n").split("\n"))
    level = str(next((record[name] for name in LEVEL_FIELDS if name in record), "")).lower()
    fields = (*ERROR_FIELDS, *(TEXT_FIELDS if level in ERROR_LEVELS else ()))
    texts = [record[name] for name in fields if isinstance(record.get(name), str) and HEADER in record[name]]
    return tuple(texts[0].split("\n")) if texts else None


def _unflatten(text: str) -> Iterator[str]:
    """Splits a traceback on one line at its frames and before its exception."""
    first, *frames = FRAME_START.split(text)
    if not frames:
        yield text
        return
    yield first.rstrip()
    heads, rests = frames[::2], frames[1::2]
    for head, rest in zip(heads[:-1], rests[:-1], strict=True):
        yield f"  {head}{rest.strip()}"
    exception = FLAT_EXCEPTION.search(rests[-1])
    if exception is None:
        yield f"  {heads[-1]}{rests[-1].strip()}"
        return
    yield f"  {heads[-1]}{rests[-1][: exception.start()].strip()}"
    yield rests[-1][exception.start() :]


@dataclass(frozen=True, slots=True)
class LearnedPrefix:
    """The prefix of the lines from the header of a traceback on; its numbers may differ from line to line."""

    first: int
    shape: re.Pattern[str]
    is_blank: bool


LEVEL_WORD = re.compile(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b")
RANK_WORD = re.compile(r"(?:rank|gpu|task|worker|trainer|proc(?:ess)?)\W{0,2}(?P<a>\d{1,4})\b|\[\d+,(?P<b>\d+)\]<std")


def learn_prefix(lines: Sequence[str], at: int) -> LearnedPrefix | None:
    """The prefix of the traceback whose header is on line `at`; None if it has none or it is not a traceback's."""
    before, found, _ = lines[at].partition(HEADER)
    if not found or not before or before.strip() in OWN_WORDS:
        return None
    blank = not before.strip()
    shape = re.compile(re.escape(before) if blank else _shape(before))
    following = next((line for line in lines[at + 1 : at + 40] if shape.match(line)), None)
    if following is not None and re.match(r"\s+File \"", following[_end(shape, following) :]):
        return LearnedPrefix(at, shape, blank)
    own_frames = at + 1 < len(lines) and re.match(r"\s+File \"", lines[at + 1])
    named = not blank and not before.rstrip().endswith(('"', "'", "{", "="))
    return LearnedPrefix(at, re.compile(f"{re.escape(before)}(?=Traceback)"), False) if own_frames and named else None


def _end(shape: re.Pattern[str], line: str) -> int:
    match = shape.match(line)
    return 0 if match is None else match.end()


def _shape(prefix: str) -> str:
    """A regular expression for `prefix` with other numbers. Blanks after it belong to the line."""
    body = prefix.rstrip()
    parts = (r"\d+" if part.isdigit() else r"\s+" if part.isspace() else re.escape(part) for part in _runs(body))
    return "".join(parts) + (r"(?: |$)" if len(prefix) > len(body) else "")


def _runs(text: str) -> list[str]:
    return re.findall(r"\d+|\s+|[^\d\s]+", text)


def strip_prefix(line: str, learned: LearnedPrefix) -> tuple[str, int | None, str | None] | None:
    """The line without the prefix, its rank, and the first letter of its level; None if it has another beginning."""
    match = learned.shape.match(line)
    if match is None:
        return None
    rank, level = RANK_WORD.search(match[0]), LEVEL_WORD.search(match[0])
    number = None if rank is None else int(rank["a"] or rank["b"])
    return line[match.end() :], number, None if level is None else level[1][0]

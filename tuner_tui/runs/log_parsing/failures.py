"""Finds failures in training output: tracebacks with their chains, exception lines, native error messages.

Only text in the position of a failure counts: an exception starts its line, a native message has its own form.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tuner_tui.runs.log_parsing.lines import BAR, LogLine
from tuner_tui.runs.log_parsing.progress_signs import DEALT_WITH, reports_progress

MAX_MESSAGE_LINES = 14
"""Lines kept of one message."""
TRACEBACK = re.compile(r"^\s*(?P<kind>Original |Exception Group |)Traceback \(most recent call last\):")
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+(?:, in (?P<function>.+))?')
DRAWN = re.compile(
    r"^╭─+ ?Traceback \(most recent call last\)|^\w+(?:Error|Exception|Interrupt) {3,}Traceback \(most recent"
)
"""The header of a traceback as drawn by Rich or printed by a notebook."""
DRAWN_FRAME = re.compile(
    r"^(?:│ ?)?(?:File )?(?P<file>(?:[A-Za-z]:)?[\w ./\\~<>-]*?(?:\bpy|>))(?::\d+)?,? in (?P<function>[\w.<>]+)"
)
TRACE_LINE = re.compile(r"^\s|^[│╭╰❱─|]|^-+>|^File \"|^\^+$")
"""A line inside a traceback, in any of its forms."""
SPAWNED = re.compile(r"^-- Process \d+ terminated with the following error")
MAX_DRAWN_LINES = 600
NAMED = r"(?:Error|Exception|Exit|Interrupt|Timeout|Failed|Missing|NotFound|Unsupported|OutOfResources|Fault|HitLimit)"
EXCEPTION = re.compile(
    rf"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*{NAMED}\w*)(?:\s?\([^)]*\))?(?:: ?(?P<message>.*)|)$"
)
ANY_EXCEPTION = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*)|:?)$")
LINK = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
IGNORED = re.compile(
    r"^(?:Exception ignored in|--- Logging error ---|Error in (?:atexit|sys\.excepthook)|Task exception was never)"
)
THREAD = re.compile(r"^Exception in thread ")
UNCAUGHT_ROOTS = frozenset({"<module>", "_run_module_as_main", "_bootstrap", "_bootstrap_inner", "_wrap", "spawn_main"})


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure at lines `first` to `last`, and the frames that led to it.

    `headline` is the exception line or native message, `message` all its lines. Exceptions raised while handling one
    another share a `chain`. `uncaught`: the traceback starts at the entry point of the program; `aside`: Python reports
    that the program continues; `thread`: only a thread ended.
    """

    first: int
    last: int
    headline: str
    message: str
    type: str | None = None
    rank: int | None = None
    frames: tuple[tuple[str, str], ...] = ()
    chain: int = 0
    uncaught: bool = False
    traceback: bool = False
    aside: bool = False
    thread: bool = False


def find_exceptions(lines: Sequence[LogLine]) -> tuple[Failure, ...]:
    """All exceptions in `lines`, in order; the lines of each rank are parsed separately."""
    streams: dict[int | None, list[LogLine]] = defaultdict(list)
    for line in lines:
        streams[line.rank].append(line)
    found = [failure for stream in streams.values() for failure in _Reader(stream).read()]
    return tuple(sorted(found, key=lambda failure: failure.first))


class _Reader:
    """Parses the lines of one rank in a single pass."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self.lines = lines
        self.at = 0
        self.chain = 0
        self.aside = False
        self.thread = False

    def read(self) -> Iterator[Failure]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if IGNORED.match(line.text) or THREAD.match(line.text):
                self.thread = THREAD.match(line.text) is not None
                self.aside = not self.thread
                self.at += 1
            elif TRACEBACK.match(line.text):
                yield from self._traceback()
            elif DRAWN.match(line.text):
                yield from self._drawing()
            elif not line.quiet and EXCEPTION.match(line.text) and not line.text.endswith("Warning"):
                yield self._exception(line, self._frames_before(), traceback=False)
                self.aside = False
            else:
                self.at += 1

    def _traceback(self) -> Iterator[Failure]:
        """Parses a traceback up to the end of its message; yields nothing if it is cut off before any frame."""
        start, quiet = self.lines[self.at], self.lines[self.at].quiet
        self.at += 1
        frames = tuple(self._frames())
        if self.at >= len(self.lines):
            if frames:
                yield Failure(start.number, self.lines[-1].number, "", "", None, start.rank, frames, self.chain)
            return
        failure = self._exception(self.lines[self.at], frames, traceback=True)
        yield replace(failure, first=start.number, aside=self.aside or quiet)
        self._follow_link()

    def _drawing(self) -> Iterator[Failure]:
        """Parses a drawn traceback up to its exception line; these are always uncaught."""
        start = self.lines[self.at]
        frames: list[tuple[str, str]] = []
        for ahead in range(self.at + 1, min(len(self.lines), self.at + MAX_DRAWN_LINES)):
            text = self.lines[ahead].text
            if EXCEPTION.match(text) and not DRAWN.match(text):
                self.at = ahead
                failure = self._exception(self.lines[ahead], tuple(frames), traceback=True)
                yield replace(failure, first=start.number, uncaught=True)
                self._follow_link()
                return
            if frame := DRAWN_FRAME.match(text):
                frames.append((frame["file"], frame["function"].rpartition(".")[2]))
        self.at += 1

    def _frames(self) -> Iterator[tuple[str, str]]:
        """The frames of a traceback, outermost first; stops at the exception line.

        Pasted output often has no indentation: the line after a frame is then its source.
        """
        source_follows = False
        while self.at < len(self.lines):
            text = self.lines[self.at].text
            frame = FRAME.match(text)
            if frame is not None:
                yield frame["file"], frame["function"] or ""
            elif self._ends_frames(text, source_follows):
                return
            source_follows = frame is not None
            self.at += 1

    @staticmethod
    def _ends_frames(text: str, source_follows: bool) -> bool:
        """Whether `text` is the exception line, not a frame's source, a progress bar or blank."""
        outside = text[:1] not in (" ", "\t") and bool(text.strip()) and not BAR.search(text)
        return outside and (not source_follows or EXCEPTION.match(text) is not None)

    def _frames_before(self) -> tuple[tuple[str, str], ...]:
        """The frames right above the current line: of a traceback whose beginning was cut off."""
        found: list[tuple[str, str]] = []
        source_follows = True
        for line in reversed(self.lines[max(0, self.at - MAX_DRAWN_LINES) : self.at]):
            frame = FRAME.match(line.text) or DRAWN_FRAME.match(line.text)
            if frame is not None:
                found.append((frame["file"].strip(), (frame["function"] or "").rpartition(".")[2]))
            elif not (TRACE_LINE.match(line.text) or source_follows) or line.blank:
                break
            source_follows = frame is not None  # read upwards: the line above a frame is the source of the one before
        return tuple(reversed(found))

    def _exception(self, line: LogLine, frames: tuple[tuple[str, str], ...], traceback: bool) -> Failure:
        """Parses the exception at the current line, with the lines of its message."""
        match = EXCEPTION.match(line.text) or (ANY_EXCEPTION.match(line.text) if traceback else None)
        self.at += 1
        message = [line.text]
        while self.at < len(self.lines) and len(message) < MAX_MESSAGE_LINES and self._continues(self.lines[self.at]):
            message.append(self.lines[self.at].text)
            self.at += 1
        root = frames[0][1] if frames else ""
        following = next((ahead.text for ahead in self.lines[self.at : self.at + 3] if not ahead.blank), "")
        spawned = line.text.rstrip() == "Exception:" and SPAWNED.match(following)
        return Failure(
            first=line.number,
            last=self.lines[self.at - 1].number,
            headline=line.text.strip(),
            message="\n".join(message),
            type="ProcessRaisedException" if spawned else match["type"] if match else None,
            rank=line.rank,
            frames=frames,
            chain=self.chain if traceback else self._next_chain(),
            uncaught=traceback and root in UNCAUGHT_ROOTS,
            traceback=traceback,
            aside=self.aside,
            thread=self.thread,
        )

    def _continues(self, line: LogLine) -> bool:
        """Whether `line` continues a message: no progress, log line or other failure."""
        begins = TRACEBACK.match(line.text) or IGNORED.match(line.text) or THREAD.match(line.text)
        goes_on = BAR.search(line.text) or reports_progress(line.text) or DEALT_WITH.search(line.text)
        return not (line.blank or line.level or goes_on or begins or line.text.startswith("{'"))

    def _follow_link(self) -> None:
        """Continues the chain if the next lines say that another exception followed."""
        ahead = self.at
        while ahead < len(self.lines) and self.lines[ahead].blank:
            ahead += 1
        linked = ahead < len(self.lines) and (
            LINK.match(self.lines[ahead].text) or self.lines[ahead].text.startswith("Original Traceback")
        )
        if not linked:
            self._next_chain()
            self.aside = self.thread = False

    def _next_chain(self) -> int:
        self.chain += 1
        return self.chain

"""Failures, launchers' reports and signs of progress in training output.

Only text in the position of a failure counts: an exception starts its line, a native message has its own form.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.inspection.process_dump import parse_stacks
from tuner_tui.runs.log_parsing.lines import BAR, LogLine, matches_any, parse_lines, read_head_and_tail, search_any

MAX_MESSAGE_LINES = 14
"""Lines kept of one message."""
TRACEBACK = re.compile(r"^\s*(?P<kind>Original |Exception Group |[A-Z]\w*Error: |)Traceback \(most recent call last\):")
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
MARKS = re.compile(r"\s*([~^]+)\s*$")
"""What underlines the part of a source line that failed."""
MAX_DRAWN_LINES = 600
MAX_INTERJECTED = 20
ANNOUNCES = re.compile(r"(?<=:)$|(?<= )Exception encountered when \w+ \S+$|^(?:terminate called |<stack|Non-OK|http).*")
"""The end of a line after which the message proper follows; Keras puts its own words before that."""
ANY_EXCEPTION = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*)|:?)$")
THREAD = re.compile(r"^Exception in thread ")
PASSES_ON = re.compile(r"(?:return|\w+ =) (?:f|fn|func|function|method|wrapped)\((?:\w+, )?(?:\*args, )?\*\*kwargs\)$")
UNCAUGHT_ROOTS = frozenset({"<module>", "_run_module_as_main", "_bootstrap", "_bootstrap_inner", "_wrap", "spawn_main"})


class CodeFrame(NamedTuple):
    """A call in a traceback; `statement` is its source line, empty if the traceback does not show it.

    `marked` is the part of the source that Python underlines.
    """

    file: str
    function: str
    line: int | None = None
    statement: str = ""
    marked: str = ""

    @property
    def place(self) -> str:
        """The file with the number of the line, if that is known."""
        return self.file if self.line is None else f"{self.file}, line {self.line}"

    @property
    def name(self) -> str:
        """`file:function`, with slashes."""
        return f"{self.file}:{self.function}".replace("\\", "/")

    @property
    def raises(self) -> bool:
        """Whether its statement raises an exception of its own: it refuses what it is given. Cython shows none."""
        return matches_any("raising-statements", self.statement) or self.file.endswith(".pyx")


class Failure(Struct, frozen=True):
    """One failure at lines `first` to `last`, and the frames that led to it.

    `headline` is the exception line or native message, `message` all its lines. Exceptions raised while handling one
    another share a `chain`. `uncaught`: the traceback starts at the entry point of the program; `ignored`: Python
    reports that the program continues; `thread`: only a thread ended; `handles`: raised while the one before in its
    chain was handled, not because of it.
    """

    first: int
    last: int
    headline: str
    message: str
    type: str | None = None
    rank: int | None = None
    frames: tuple[CodeFrame, ...] = ()
    chain: int = 0
    uncaught: bool = False
    traceback: bool = False
    ignored: bool = False
    thread: bool = False
    handles: bool = False

    @property
    def is_of_launcher(self) -> bool:
        """Whether it only reports that a child process failed."""
        is_cut = not self.headline and bool(self.frames)
        return matches_any("launcher-errors", self.frames[-1].name if is_cut else f"{self.type}: {self.headline}")

    @property
    def refuses(self) -> bool:
        """Whether the innermost call raises it: what it was given is refused."""
        is_check = str(self.type).endswith("AssertionError")
        return bool(self.calls) and (is_check or (self.calls[-1].raises and self.calls[-1].statement[:6] != "assert"))

    @property
    def calls(self) -> tuple[CodeFrame, ...]:
        """The frames without those that only pass a call on."""
        return tuple(
            frame
            for frame in self.frames
            if frame.raises or not (search_any("transparent-frames", frame.name) or PASSES_ON.match(frame.statement))
        )


def find_exceptions(lines: Sequence[LogLine]) -> tuple[Failure, ...]:
    """All exceptions in `lines`, in order; the lines of each rank are parsed separately."""
    streams: dict[tuple[int | None, int | None], list[LogLine]] = defaultdict(list)
    for line in lines:
        streams[line.rank, line.local_rank].append(line)
    failures = [failure for stream in streams.values() for failure in _ExceptionParser(stream).parse()]
    return tuple(sorted(failures, key=lambda failure: failure.first))


class _ExceptionParser:
    """Parses the lines of one rank in a single pass.

    `position` is the index of the next line. `chain`, `ignored`, `thread` and `handles` belong to the exceptions that
    come next.
    """

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self.lines = lines
        self.position = 0
        self.chain = 0
        self.ignored = self.thread = self.handles = False

    def parse(self) -> Iterator[Failure]:
        while self.position < len(self.lines):
            line = self.lines[self.position]
            if matches_any("ignored-exceptions", line.text) or THREAD.match(line.text):
                self.thread = THREAD.match(line.text) is not None
                self.ignored = not self.thread
                self.position += 1
            elif TRACEBACK.match(line.text):
                yield from self._parse_traceback()
            elif search_any("drawn", line.text):
                yield from self._parse_drawing()
            elif self._is_exception(line):
                frames, above = self._frames_above()
                yield replace(self._parse_exception(line, frames, traceback=False), first=above)
                self._follow_link()
            else:
                self.position += 1

    def _is_exception(self, line: LogLine) -> bool:
        """Whether the current line is one, of any class and level if it is right below a frame and its source."""
        text, is_known = line.text, search_any("exceptions", line.text) is not None
        if text.endswith("Warning") if is_known else not (": " in text and ANY_EXCEPTION.match(text)):
            return False
        above = [before.text for before in self.lines[max(0, self.position - 3) : self.position]]
        is_below_frame = any(map(FRAME.match, above)) and (is_known or above[-1][:1] == " ")
        return is_below_frame or (is_known and not line.quiet)

    def _parse_traceback(self) -> Iterator[Failure]:
        """Parses a traceback up to the end of its message; yields nothing if it is cut off before any frame."""
        start, quiet = self.lines[self.position], self.lines[self.position].quiet
        self.position += 1
        frames = tuple(self._parse_frames())
        if self.position >= len(self.lines):
            if frames:
                first, last, uncaught = start.number, self.lines[-1].number, _is_of_program(frames)
                yield Failure(first, last, "", "", None, start.rank, frames, self.chain, uncaught, True, self.ignored)
            return
        if TRACEBACK.match(self.lines[self.position].text):
            # Old releases of torch raise in the parent with the worker's traceback as the message ("OSError: Traceback
            # ..."). The worker's exception follows and belongs to the same chain.
            return
        failure = self._parse_exception(self.lines[self.position], frames, traceback=True)
        yield replace(failure, first=start.number, ignored=self.ignored or quiet)
        self._follow_link()

    def _parse_drawing(self) -> Iterator[Failure]:
        """Parses a drawn traceback up to its exception line; these are always uncaught."""
        start = self.lines[self.position]
        header = search_any("drawn", start.text)
        named = f"{header['type']}:" if header and header["type"] else None
        frames: list[CodeFrame] = []
        for ahead in range(self.position + 1, min(len(self.lines), self.position + MAX_DRAWN_LINES)):
            text = self.lines[ahead].text
            is_end = search_any("exceptions", text) or f"{text}:".startswith(named or "\n")
            if is_end and not search_any("drawn", text):
                # A notebook shows frames of what ends a cell; without, it is noise of a package that the cell outlives.
                is_bare = not any(re.search(r"\w", line.text) for line in self.lines[self.position + 1 : ahead])
                ignored = is_bare and any(not line.blank for line in self.lines[ahead + 1 :])
                self.position = ahead
                failure = self._parse_exception(self.lines[ahead], tuple(frames), traceback=True)
                yield replace(failure, first=start.number, uncaught=not ignored, ignored=ignored)
                self._follow_link()
                return
            broken = search_any("broken-paths", self.lines[ahead - 1].text)
            if frame := search_any("drawn-frames", broken["path"] + text.lstrip("│ ") if broken else text):
                frames.append(_frame(frame))
            elif frames and (marked := search_any("drawn-sources", text)):
                frames[-1] = frames[-1]._replace(statement=marked["statement"])
        self.position += 1

    def _parse_frames(self) -> Iterator[CodeFrame]:
        """The frames of a traceback, outermost first; stops at the exception line.

        Pasted output often has no indentation: the line after a frame is then its source.
        """
        frame, source, is_indented = None, "", False
        while self.position < len(self.lines):
            text = self.lines[self.position].text
            match = FRAME.match(text)
            is_outside = match is None and text[:1] not in (" ", "\t") and text.strip() and not BAR.search(text)
            is_source = frame is not None and not source and not is_indented and not search_any("exceptions", text)
            if is_outside and not is_source:
                if not self._is_interjected():
                    break
                self.position += 1
                continue
            if match is not None:
                if frame is not None:
                    yield frame
                frame, source, is_indented = _frame(match), "", text.startswith("  ")
            elif frame is not None and (marks := MARKS.match(text)):
                frame = frame._replace(marked=source[marks.start(1) : marks.end(1)].strip())
            elif frame is not None and text.strip():
                frame, source = frame._replace(statement=frame.statement or text.strip()), text
            self.position += 1
        if frame is not None:
            yield frame

    def _is_interjected(self) -> bool:
        """Whether the current line is output of another process, or was broken, and the traceback goes on below it."""
        line = self.lines[self.position]
        is_exception = ANY_EXCEPTION.match(line.text) is not None and not line.quiet
        for ahead in self.lines[self.position : self.position + MAX_INTERJECTED]:
            if TRACEBACK.match(ahead.text) or matches_any("links", ahead.text):
                return False
            if search_any("exceptions", ahead.text) and not ahead.quiet:
                return not is_exception
            if FRAME.match(ahead.text) and ahead.text[:1] == " ":
                return True
        return False

    def _frames_above(self) -> tuple[tuple[CodeFrame, ...], int]:
        """The frames right above the current line, of a traceback whose beginning was cut off, and where they begin."""
        frames: list[CodeFrame] = []
        first = self.lines[self.position].number
        # Read upwards, the line above a frame is the source of the frame before it; without indentation only its place
        # tells it from other output. The line above the exception is always such a source.
        source_follows, below, marked = True, "", ""
        for line in reversed(self.lines[max(0, self.position - MAX_DRAWN_LINES) : self.position]):
            frame = FRAME.match(line.text) or search_any("drawn-frames", line.text)
            if frame is not None:
                hidden = source_follows or below.startswith("│")
                frames.append(_frame(frame)._replace(statement=marked or ("" if hidden else below)))
                first, marked = line.number, ""
            elif source := search_any("drawn-sources", line.text):
                marked = source["statement"]
            elif (line.blank and source_follows and not frames) or MARKS.fullmatch(line.text):
                continue  # what marks the failing part of a line may have been stripped
            elif not (search_any("trace-lines", line.text) or source_follows) or line.blank:
                break
            source_follows, below = frame is not None, line.text.strip()
        return tuple(reversed(frames)), first

    def _parse_exception(self, line: LogLine, frames: tuple[CodeFrame, ...], traceback: bool) -> Failure:
        """Parses the exception at the current line, with the lines of its message."""
        match = search_any("exceptions", line.text) or (ANY_EXCEPTION.match(line.text) if frames or traceback else None)
        self.position += 1
        # torch.multiprocessing.spawn raises a bare "Exception:", with the other process's traceback as message.
        spawned = line.text.rstrip() == "Exception:" and search_any("spawned", self._next_text())
        message = [line.text]
        for following in self.lines[self.position : self.position + MAX_MESSAGE_LINES - 1]:
            if not self._continues(following, message[-1]):
                break
            message.append(following.text)
            self.position += 1
        whole = headline_of(message)
        headline = whole[inner.end() :] if (inner := search_any("around-in-words", whole)) else whole
        match = search_any("exceptions", headline) or match
        return Failure(
            first=line.number,
            last=self.lines[self.position - 1].number,
            headline=headline,
            message="\n".join(message),
            type="ProcessRaisedException" if spawned else match["type"] if match else None,
            rank=line.rank,
            frames=frames,
            chain=self.chain,
            uncaught=traceback and _is_of_program(frames),
            traceback=traceback,
            ignored=self.ignored,
            thread=self.thread or (bool(frames) and "/threading.py:_bootstrap" in frames[0].name),
            handles=self.handles,
        )

    def _continues(self, line: LogLine, before: str) -> bool:
        """Whether `line`, the current one, continues a message: no progress, log line or other failure."""
        # Nothing marks the end of a message. Most blank lines end it although some messages contain them: what comes
        # after is mostly the output of other processes.
        if line.blank:
            last = [after.text for after in self.lines[self.position : self.position + MAX_MESSAGE_LINES]]
            is_all = len(last) < MAX_MESSAGE_LINES and all(matches_any("prose", text) for text in last)
            return is_all or matches_any("announcements", before) or matches_any("advice", self._next_text())
        text, kinds = line.text, ("links", "drawn", "handled", "ignored-exceptions", "launcher-errors")
        is_other = any(matches_any(kind, text) for kind in kinds) or BAR.search(text) or reports_progress(text)
        begins = any(start.match(text) for start in (TRACEBACK, THREAD, FRAME)) or text.startswith("{'")
        return not (line.level or is_other or begins or matches_any("whole-messages", f"{before}\n{text}"))

    def _next_text(self) -> str:
        return next((ahead.text for ahead in self.lines[self.position : self.position + 3] if not ahead.blank), "")

    def _follow_link(self) -> None:
        """Continues the chain if the next lines say that another exception followed."""
        ahead = (self.lines[number].text for number in range(self.position, len(self.lines)))
        following = next((text for text in ahead if text.strip()), "")
        self.handles = following.startswith("During")
        if not matches_any("links", following):
            self.chain += 1
            self.ignored = self.thread = False


def _is_of_program(frames: Sequence[CodeFrame]) -> bool:
    """Whether a traceback begins at an entry point; what begins inside of a package was caught there and printed."""
    return bool(frames) and "-packages/" not in frames[0].name and frames[0].function in UNCAUGHT_ROOTS


MAX_NATIVE_LINES = 300
"""Lines between a native crash and its stack in Python; the stacks of other threads come first."""
FRAME_OF_BOX = " \t│"


def native_stack(lines: Sequence[LogLine]) -> tuple[range, tuple[CodeFrame, ...]]:
    """The stack that faulthandler shows of a native crash, outermost frame first, and the lines that it belongs to."""
    number = next((line.number for line in lines if line.text.startswith("Current thread 0x")), None)
    stacks = () if number is None else parse_stacks("\n".join(line.text for line in lines[number:]))
    if number is None or not stacks:
        return range(0), ()
    frames = tuple(CodeFrame(frame.file, frame.function, frame.line) for frame in stacks[-1].frames)
    return range(number - MAX_NATIVE_LINES, number), frames[::-1]


def native_message(lines: Sequence[LogLine], number: int, *, paragraph: bool) -> str:
    """Line `number` with those that continue it: indented ones, what comes after a colon, or all of its paragraph."""
    message = [lines[number].text.strip(FRAME_OF_BOX)]
    for line in lines[number + 1 : number + MAX_MESSAGE_LINES]:
        continues = ANNOUNCES.search(message[-1]) is not None or re.match(r"\s+\S|what\(\):", line.text) is not None
        ends = line.level or TRACEBACK.match(line.text) or not re.search(r"\w", line.text)
        if ends or matches_any("other-programs", line.text) or not (continues or paragraph):
            break
        message.append(line.text.strip(FRAME_OF_BOX))
    return "\n".join(message)


def headline_of(message: Sequence[str]) -> str:
    """The first line of a message, with the next one if it announces it."""
    proper = (line.strip() for line in message[1:6] if not ANNOUNCES.search(line) or ". " in line)
    first, second = message[0].strip(), next(filter(None, proper), "")
    if ANNOUNCES.search(first) and re.search(r"\w", second):
        return f"{ANNOUNCES.sub('', first)} {second.removeprefix('what():').strip()}".strip()
    return first


def _frame(match: re.Match[str]) -> CodeFrame:
    function = (match["function"] or "").strip().rpartition(".")[2]
    return CodeFrame(match["file"].strip(), function, int(match["line"]) if match["line"] else None)


def reports_progress(text: str) -> bool:
    return matches_any("progress", text) or matches_any("success", text)


def is_log(path: Path) -> bool:
    """Whether a file is the output of a program, by its name or its lines. False where it cannot be read."""
    if search_any("no-logs", path.name):
        return False
    try:
        raw = read_head_and_tail(path, any_kind=True)
    except OSError:
        return False
    if search_any("logs", path.name):
        return True
    lines = () if raw[0].startswith("#!") else parse_lines(raw)
    logs = any(line.level or BAR.search(line.text) or reports_progress(line.text) for line in lines)
    return logs or bool(find_exceptions(lines))


ROOT_CAUSE = re.compile(r"^\s*Root Cause \(first observed failure\)")
RANK = re.compile(r"^\s*rank\s+: (?P<rank>\d+)")
EXIT = re.compile(r"^\s*exitcode\s+: (?P<code>-?\d+)")
SIGNALS_BY_NAME: dict[str, int] = {
    **signal.Signals.__members__,
    **{(signal.strsignal(number) or "").partition(":")[0]: int(number) for number in signal.Signals},
}
"""By their names and the words that describe them, such as `Killed`."""
WINDOWS_SIGNALS = {
    0xC0000005: signal.SIGSEGV, 0xC00000FD: signal.SIGSEGV, 0xC0000409: signal.SIGABRT,
    0xC0000094: signal.SIGFPE, 0xC000001D: signal.SIGILL, 0xC000013A: signal.SIGINT,
}  # fmt: skip
REQUESTS = frozenset(map(int, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)))
"""Signals that ask a training to stop or to save; a process that they end has not crashed."""


class LauncherReport(Struct, frozen=True):
    """The rank that failed first of those that the launcher started, and its exit; `reported_failure`: whether any
    launcher reported a failure.

    `request` is a signal that asked the training to end or to save, of `REQUESTS`; `local_rank` counts on one host.
    """

    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    reported_failure: bool = False
    request: int | None = None
    local_rank: int | None = None


def parse_launcher_report(lines: Sequence[LogLine]) -> LauncherReport:
    """The first failed process and how it ended, by the words of its launcher."""
    in_root, rank, local_rank, code, number, request = False, None, None, None, None, None
    for line in lines:
        # torchrun lists the processes in the order in which it collected them; only under "Root Cause" is the first.
        in_root = in_root or ROOT_CAUSE.match(line.text) is not None
        if in_root and (match := RANK.match(line.text)):
            rank = int(match["rank"])
        if (in_root and (match := EXIT.match(line.text))) or (
            code is None and (match := search_any("exit-codes", line.text))
        ):
            code = int(match["code"])
            local_rank = int(match["local"]) if "local" in match.re.groupindex else local_rank
        elif code is None and number is None and (match := search_any("signals", line.text)):
            value = match[match.lastgroup or 0]
            # A shell's exit code for a process that a signal ended is 128 more.
            shift = 128 if match.lastgroup == "shell" else 0
            ended_by = int(value) - shift or None if value.isdecimal() else SIGNALS_BY_NAME.get(value)
            number, request = (number, ended_by) if ended_by in REQUESTS else (ended_by, request)
    reported_failure = code is not None or number is not None or in_root
    if code is not None and (ended_by := WINDOWS_SIGNALS.get(code & 0xFFFFFFFF, max(-code, 0))):
        code, number = None, int(ended_by)
    return LauncherReport(rank, code, number, reported_failure, request, local_rank)


def signal_name(number: int) -> str:
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")

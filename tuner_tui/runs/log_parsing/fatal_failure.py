"""What ended a training: the failure in its output, and the judgement of all that is known of its end.

Steps for an output: find every failure; match each against the patterns of `crashes.yaml`; drop those the training
survived; of the rest, take the first that is not a consequence of another process's end.
"""

from __future__ import annotations

import re
import signal
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, OutOfMemory, Raised
from tuner_tui.runs.log_parsing.crash_table import WRAPPERS, CrashPattern, classify, crash_table, first_of
from tuner_tui.runs.log_parsing.failures import (
    FRAME_OF_BOX,
    Failure,
    LauncherReport,
    find_exceptions,
    headline_of,
    native_message,
    native_stack,
    parse_launcher_report,
    reports_progress,
)
from tuner_tui.runs.log_parsing.lines import BAR, LogLine, log_forms, matches_any, search_any

NEAR = 4
"""Lines after a failure in which a program logs that it handled it."""
NEVER_BEGUN = frozenset({"SyntaxError", "IndentationError", "TabError"})
ORIGIN_CHARS = 24
"""What stays the same in messages that quote data begins so."""
OFTEN = 5
"""So often an error came, and the training went on after it, where the last time is handled as well."""
FAR = 12
"""Ordinary lines after a failure that a process which ends does not write."""
OPENING_LINES = 20
"""So many lines at the beginning of a log may show where a program starts."""
DIGITS = re.compile(r"\d+")
PECULIAR_CHARS, LAST_LINES = 30, 40
"""So much that a certain pattern matches at the beginning of one of the last lines needs no exception's type either."""
ONLY_BAR = re.compile(rf"{BAR.pattern}(?:[ ,|;]+[\w/.]+ ?[=:] ?[-+\d][^\s,|;]*)*\W*$")
"""A line that ends with a progress bar and its figures: no message follows."""


class _BarState(Struct, frozen=True):
    """A drawing of a progress bar on line `number`: its name with the total, and the numbers of the name and the count,
    which grow while the training goes on."""

    number: int
    rank: int | None
    name: str
    count: tuple[int, ...]


class _FailureContext:
    """What the lines of an output, numbered from 0, show around its failures: progress and ordinary lines, found once.

    `ended`: it is known that the training failed.
    """

    def __init__(self, lines: Sequence[LogLine], ended: bool) -> None:
        self._lines = lines
        self.ended = ended
        # Numbers of the lines that are neither blank nor written by a process that crashes.
        ordinary = (line for line in lines if not line.blank and not matches_any("after-a-crash", line.text))
        self._ordinary = [line.number for line in ordinary]
        drawn = ((line, [*BAR.finditer(line.text)]) for line in lines if "/" in line.text)
        self._bars = [_bar_state(line, matches[-1]) for line, matches in drawn if matches]
        # A bar with metrics behind it is judged by its count; a shell says that it is done, whatever failed.
        logged = (line for line in lines if reports_progress(line.text) and not BAR.search(line.text))
        self._logged = [line for line in logged if not matches_any("closing-words", line.text)]

    def survived(self, match: FailureMatch, matches: Sequence[FailureMatch]) -> bool:
        """Whether the training continued after the failure of `match`, one of `matches`."""
        failure = match.failure
        later = [each.failure for each in matches if each.failure.first > failure.last]
        if failure.ignored and not failure.uncaught:
            return match.cause != "compile-failed"  # what was not built is missed when its owner is deleted
        if failure.thread and not failure.uncaught:
            # It is the end where the output has nothing after it, and no word of a good end before.
            done = any(matches_any("success", line.text) for line in self._lines)
            return done or bisect_right(self._ordinary, failure.last) < len(self._ordinary)
        if failure.traceback and not failure.headline:
            # The traceback was cut off before its exception: only one from the entry point can have ended the program.
            return not failure.uncaught
        if self.makes_progress_after(failure):
            return not (match.pattern is not None and match.pattern.outcome and self._is_ended_after(failure))
        if failure.uncaught:
            return False
        # A program that retries logs the same error several times, and the last one, uncaught, ends it. Then the words
        # "retrying" after the first ones do not count.
        raised_again = any(again.uncaught and again.headline == failure.headline for again in later)
        return (self._is_handled(failure) and not raised_again) or (
            # A job system writes a summary below its report that it ended the job.
            not self.ended and match.cause != "interrupted" and self._is_far_from_end(failure, later)
        )

    def _is_ended_after(self, failure: Failure) -> bool:
        """Whether only the time that a job system leaves a job to save follows what it says of the end."""
        # A job that is started again writes to the same file: its bars go back, and nothing kills it at the end.
        furthest = _furthest(bar for bar in self._bars if bar.number <= failure.last)
        later = [bar for bar in self._bars if bar.number > failure.last]
        if later and not any(line.number > failure.last for line in self._logged):
            return all(bar.count >= furthest.get(bar.name, (*bar.count, 0)) for bar in later)
        last = max((*(line.number for line in self._logged), *(bar.number for bar in later)))
        return any(search_any("signals", line.text) for line in self._lines[last + 1 :])

    def makes_progress_after(self, failure: Failure) -> bool:
        # When one rank fails the others train on until the launcher ends them, so their progress proves nothing.
        if failure.rank is not None and self.ended:
            return False
        # Without ordinary output before the traceback, it may have been held back and written at exit, after it: then
        # only progress bars and lines of a logger count, which are written at once.
        buffered = failure.uncaught and not any(line.number < failure.first for line in self._logged)
        later = [line for line in self._logged if line.number > failure.last and _is_of_rank(failure.rank, line.rank)]
        if failure.uncaught:  # a shell script says that it is done, whatever became of the program
            later = [line for line in later if matches_any("progress", line.text)]
        # The other ranks finish a step or two before they wait for the one that failed.
        least = NEAR if failure.uncaught and (failure.rank is not None or self.ended) else 0
        return self._bars_advance(failure, least) or any(line.level or not buffered for line in later[least:])

    def _bars_advance(self, failure: Failure, least: int) -> bool:
        """Whether a bar advanced or a new one moved by more than `least` steps."""
        # tqdm draws a bar once more when it is closed, so a process that dies after its traceback prints "12/60" again:
        # the same count is no progress, and neither is a bar that is only seen once.
        before = _furthest(bar for bar in self._bars if bar.number <= failure.last)
        later = [bar for bar in self._bars if bar.number > failure.last and _is_of_rank(failure.rank, bar.rank)]
        first = {bar.name: bar.count for bar in reversed(later)}
        starts = {name: before.get(name, count) for name, count in first.items()}
        return any(count > (*starts[name][:-1], starts[name][-1] + least) for name, count in _furthest(later).items())

    def _is_handled(self, failure: Failure) -> bool:
        near = [line for line in self._lines[failure.last + 1 : failure.last + 3 * NEAR] if not line.blank][:NEAR]
        after = len(self._ordinary) - bisect_right(self._ordinary, failure.last)
        if after <= 1 and not self._logged and not self._bars:
            return False  # nothing shows a training that went on without what is skipped
        if after >= NEAR:
            # What is announced as a note, such as a model that is skipped, has the output of the others below it.
            near += self._lines[max(0, failure.first - NEAR) : failure.first]
        return any(matches_any("handled", line.text) and not BAR.search(line.text) for line in near)

    def _is_far_from_end(self, failure: Failure, later: Sequence[Failure]) -> bool:
        """Whether much ordinary output follows, which a process that ends does not write."""
        after = self._ordinary[bisect_right(self._ordinary, failure.last) :]
        if len(after) <= FAR:
            return False
        in_failures = sum(bisect_right(after, inner.last) - bisect_left(after, inner.first) for inner in later)
        return len(after) - in_failures > FAR


def _is_of_rank(rank: int | None, wanted: int | None) -> bool:
    return rank is None or wanted is None or rank == wanted


def _bar_state(line: LogLine, match: re.Match[str]) -> _BarState:
    name = re.sub(r"\d+%.*|[━╸╺]+ *", "", line.text[: match.start()])
    done, total = match.groups()
    numbers = (*re.findall(r"\d+", name)[:3], done)
    return _BarState(line.number, line.rank, f"{re.sub(r'[0-9 ]+', '', name)}{total}", tuple(map(int, numbers)))


def _furthest(bars: Iterable[_BarState]) -> dict[str, tuple[int, ...]]:
    """The highest count of each bar, by its name; of one that began again, since then."""
    furthest: dict[str, tuple[int, ...]] = {}
    for bar in bars:
        last = furthest.get(bar.name, bar.count)
        began_again = bar.count[:-1] == last[:-1] and bar.count[-1] <= last[-1] // 2
        furthest[bar.name] = bar.count if began_again else max(last, bar.count)
    return furthest


def newest_start(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """The lines of the last of several starts that were written to one log, numbered from 0.

    A start begins, after an exception that ended the one before, with a line that the program wrote once, among its
    first ones, before it first failed or logged what then failed. Where no launcher speaks, another exception that
    leaves the same script, with other lines before it, also belongs to a new start: a process has only one.
    """
    exceptions = find_exceptions(lines)
    ends = [failure for failure in exceptions if failure.uncaught or failure.type in NEVER_BEGUN]
    ends += [
        Failure(line.number, line.number, line.text, line.text) for line in lines if matches_any("job-ends", line.text)
    ]
    ends.sort(key=lambda failure: failure.first)
    if not ends:
        return lines
    begins = (line.text[:1].strip() and line.text[:9] != "Traceback" and not BAR.search(line.text) for line in lines)
    texts = [DIGITS.sub("0", line.text.strip()) if is_text else "" for is_text, line in zip(begins, lines, strict=True)]
    first = min((*exceptions, ends[0]), key=lambda failure: failure.first)
    words = first.headline.partition(": ")[2]
    logged = (line.number for line in lines[: first.first] if len(words) > PECULIAR_CHARS and words in line.text)
    before = Counter(texts[: next(logged, first.first)])
    written = (text for text in islice(filter(None, before), OPENING_LINES) if before[text] == 1 and len(text) > NEAR)
    openings = {text for text in written if re.search(r"[^\W\d_]", text) and not matches_any("success", text)}
    is_launched = parse_launcher_report(lines).reported_failure
    begin = 0
    for end, following in zip_longest(ends, ends[1:]):
        # Ordinary output right below an exception looks like the rest of its message.
        below = end.last + 1 - end.message.count("\n")
        between = texts[below : None if following is None else following.first]
        opened = [number for number, text in enumerate(between, below) if text in openings]
        again = opened[0] if opened[1:] or max(opened, default=0) > end.last else 0  # a message quotes one of them
        if not again and following is not None and _is_of_new_start(end, following, between, is_launched):
            again = end.last + 1
        begin = again or begin
    if begin == 0:
        return lines
    newest = [replace(line, number=number) for number, line in enumerate(lines[begin:])]
    # Another process of the same start may write its first lines after one has failed.
    is_start = ends[-1].first >= begin or not parse_launcher_report(newest).reported_failure
    return newest if is_start else lines


def _is_of_new_start(end: Failure, following: Failure, between: Sequence[str], is_launched: bool) -> bool:
    if following.type in NEVER_BEGUN and not following.traceback:
        return True  # a program that failed otherwise could be compiled
    scripts = {failure.frames[0].name if failure.frames else "" for failure in (end, following)}
    names_rank = any(failure.rank is not None or failure.is_of_launcher for failure in (end, following))
    is_same = not is_launched and not names_rank and len(scripts) == 1 and scripts.pop().endswith(":<module>")
    return is_same and sum(bool(text) and not matches_any("after-a-crash", text) for text in between) >= NEAR


T = TypeVar("T")
TRUST = {"certain": 0, "likely": 1, "possible": 3}
UNRECOGNISED = 2
"""Rank of an exception without pattern: above a pattern that is only possible."""
FIRST_KEPT, LAST_KEPT = 20, 80
"""Failures looked at where an output repeats one endlessly."""
VAGUE_TOPICS = frozenset({None, "native-crash", "gpu-call", "rank-output"})
"""Topics of the cause `unknown` that name no part that failed."""
ECHOES = frozenset({"worker-crash", "collective-timeout", "unknown"})
"""What other processes report when one is interrupted."""
EXPECTED = frozenset({"FileNotFoundError", "KeyError", "IndexError", "StopIteration", "AttributeError"})
SLIPS = frozenset({"AttributeError", "NameError", "UnboundLocalError"})


class FailureMatch(Struct, frozen=True):
    """A failure and its crash pattern, or None."""

    failure: Failure
    pattern: CrashPattern | None

    @property
    def cause(self) -> str:
        return "unknown" if self.pattern is None else self.pattern.cause

    @property
    def is_echo(self) -> bool:
        """Whether a process may report it because another one was interrupted. OpenBLAS interrupts a process itself."""
        topic = None if self.pattern is None else self.pattern.topic
        return (self.cause in ECHOES and topic != "process-limit") or topic == "ended-from-outside"


def find_fatal_failure(
    lines: Sequence[LogLine], launcher: LauncherReport, exited_badly: bool | None
) -> FailureMatch | None:
    """The failure that ended the training. `exited_badly` is None if the exit status is unknown."""
    exceptions = find_exceptions(lines)
    chains: dict[tuple[int | None, int], list[Failure]] = {}  # of exceptions that were raised while handling another
    for failure in exceptions:
        chains.setdefault((failure.rank, failure.chain), []).append(failure)
    of_chains = map(_match_chain, _keep_first_and_last([*chains.values()]))
    matched = (*of_chains, *_match_bare_lines(lines, exceptions))
    matches = _keep_first_and_last(sorted(matched, key=lambda match: match.failure.first))
    context = _FailureContext(lines, ended=launcher.reported_failure or bool(exited_badly))
    survived = [match for match in matches if context.survived(match, matches)]
    # An error that a program logs again and again while it trains is handled the last time too.
    origins = Counter(_origin(each) for each in survived if context.makes_progress_after(each.failure))
    handled = set[object]() if context.ended else {origin for origin, times in origins.items() if times >= OFTEN}
    named = [match for match in matches if match.pattern is not None and not _is_vague(match.pattern)]
    certain = [match for match in matches if match in named or match.failure.uncaught or _origin(match) not in handled]
    fatal = [match for match in certain if match not in survived]
    interrupts = [match for match in fatal if search_any("interrupts", match.failure.type or "")]
    stops = [match.failure for match in interrupts if not match.failure.ignored]
    if stops:
        # Somebody stopped the training. What its processes then report of each other is no failure; an error of its
        # own, such as a full disk while it saved, still is.
        fatal = [match for match in fatal if not (match in interrupts or match.is_echo)]
    # A package that did not compile is missing afterwards.
    built = min((each.failure.first for each in fatal if each.cause == "compile-failed"), default=len(lines))
    fatal = [each for each in fatal if each.cause != "missing-package" or each.failure.first < built]
    # What a program logs of an exception says less than its traceback.
    raised = {_words(match.failure) for match in fatal if match.failure.traceback} - {""}
    fatal = [match for match in fatal if match.failure.traceback or _words(match.failure) not in raised]
    if not fatal:
        pattern = next(row for row in crash_table().signals if signal.SIGINT in row.signals)
        by_hand = (failure for failure in stops if str(failure.type).endswith("KeyboardInterrupt"))
        return next((FailureMatch(failure, pattern) for failure in by_hand), None)
    any_cause = any(match.pattern is not None and not match.pattern.consequence for match in fatal)
    first = min(fatal, key=lambda match: _rank(match, launcher, any_cause))
    # An exception shows the code of what native code said before it.
    shown = (match for match in fatal if match.failure.traceback and match.pattern is first.pattern)
    return first if first.failure.frames or first.pattern is None else next(shown, first)


def _words(failure: Failure) -> str:
    return failure.headline.partition(": ")[2]


def _origin(match: FailureMatch) -> object:
    """What is the same for an error that comes again: its class and the line that raised it, else its first line."""
    failure = match.failure
    return failure.type, failure.frames[-1].place if failure.frames else failure.headline[:ORIGIN_CHARS]


def _rank(match: FailureMatch, launcher: LauncherReport, any_cause: bool) -> tuple[object, ...]:
    """Sorts the failures that ended the training: the cause before its consequences, the most trusted first.

    `any_cause`: one of them has a pattern that is no consequence of another process's end.
    """
    failure, pattern = match.failure, match.pattern
    # Each element only decides where all before it are equal.
    return (
        # A launcher's exception says that a child failed, never why.
        failure.is_of_launcher,
        # Nor does what the shell ran besides, such as ssh.
        not failure.traceback and matches_any("other-programs", failure.headline),
        # A rank whose peer died reports a lost connection or a time-out, often before the peer's own error is flushed.
        # A job system cancels what is left of the job after either. What was cut off before its exception says nothing.
        (pattern is not None and pattern.consequence and 1 + (match.cause == "interrupted"))
        or 3 * (not failure.headline),
        # Errors while Python shuts down come after the real one.
        failure.ignored,
        # torchrun names the rank that failed first; the others then fail in its wake.
        launcher.rank is not None and failure.rank is not None and failure.rank != launcher.rank,
        pattern is None and any_cause,
        # A traceback that a program caught and logged counts less than one that reached the entry point.
        failure.traceback and not failure.uncaught,
        # Errors of the program and wrappers (worker, compiler, collective) often only repeat a specific cause.
        2 if _is_vague(pattern) else int(match.cause in WRAPPERS),
        TRUST[pattern.confidence] if pattern is not None else UNRECOGNISED,
        # Of equals the first: errors cause later ones.
        failure.first,
    )


def _is_vague(pattern: CrashPattern | None) -> bool:
    """Whether a pattern names an error of the program of which little is known, or something unknown."""
    return pattern is not None and (
        (pattern.cause == "program-error" and (pattern.topic is None or pattern.confidence != "certain"))
        or (pattern.cause == "unknown" and pattern.topic in VAGUE_TOPICS)
    )


def _keep_first_and_last(items: list[T]) -> list[T]:
    return items if len(items) <= FIRST_KEPT + LAST_KEPT else items[:FIRST_KEPT] + items[-LAST_KEPT:]


def _match_chain(chain: Sequence[Failure]) -> FailureMatch:
    """The exception of a chain that says most.

    Libraries wrap errors both ways: the cause may come first (`raise ... from`) or last. So the order decides only
    between equals: the first exception with the most specific pattern, else the last one that is whole and of no
    teardown. What a worker forwards ("Caught ...") follows as the original, which is taken.
    """
    whole, chain = chain, [each for each in chain if not matches_any("around-another", each.headline)] or chain
    chain = [each for each, later in zip_longest(chain, chain[1:]) if later is None or not _gives_way(each, later)]
    # A name that a handler lacks says nothing of what it was to handle.
    chain = [each for each in chain if each is chain[0] or not each.handles or each.type not in SLIPS or each.refuses]
    forwards = len(chain) > 1 and search_any("forwarded", chain[0].headline) is not None
    # An error that fails to be put into words still is the reason.
    candidates = [each for each in chain[forwards:] if each.headline or not forwards]
    reasons = [each for each in candidates if not (each.handles and _passes("wording", each))] or chain
    matches = [FailureMatch(_extend_over(failure, chain, whole), classify(failure)) for failure in reasons]
    # A task that is cancelled, or a group of errors, never says why.
    matches = [each for each in matches if each.pattern is None or each.pattern.topic != "background-task"] or matches
    recognised = [match for match in matches if match.pattern is not None]
    if all(failure.thread for failure in chain):
        # The end of a thread ends no training, unless it is a thread that the training needs: one with a known cause.
        recognised = [match for match in recognised if match.pattern is not None and not match.pattern.consequence]
        if not recognised:
            return FailureMatch(replace(matches[0].failure, uncaught=False), matches[0].pattern)
    if not recognised:
        headlines = {"", matches[0].failure.headline}
        later = (match for match in reversed(matches) if match.failure.headline not in headlines)
        return next((match for match in later if not _passes("teardown", match.failure)), matches[0])
    best = min(recognised, key=_generality)
    innermost = matches[-1].failure
    if best.cause in WRAPPERS and best.failure.traceback and innermost.traceback and innermost.headline:
        # Show what the wrapper forwards, even where it is not recognised.
        return FailureMatch(innermost, best.pattern)
    return best


def _gives_way(failure: Failure, later: Failure) -> bool:
    """Whether the program expected a failure, and what it did then failed `later` or put it in words."""
    is_reason = bool(later.headline) and not (_passes("teardown", later) or search_any("interrupts", later.type or ""))
    return failure.type in EXPECTED and later.handles and is_reason


def _passes(kind: str, failure: Failure) -> bool:
    """Whether a failure went through a function of this kind."""
    return any(matches_any(f"{kind}-functions", frame.function) for frame in failure.frames)


def _generality(match: FailureMatch) -> tuple[bool, bool, bool, bool, int]:
    """Sorts the matches of a chain, the most specific first."""
    pattern = match.pattern
    assert pattern is not None
    wraps = pattern.cause in WRAPPERS
    is_guess = pattern.confidence == "possible"
    return pattern.consequence, is_guess or wraps, wraps and pattern.topic is None, bool(pattern.classes), is_guess


def _extend_over(failure: Failure, chain: Sequence[Failure], whole: Sequence[Failure]) -> Failure:
    """The failure extended over its whole chain, so that later failures come after all of it."""
    longest = max((member.frames for member in chain), key=len)
    # An error that is re-raised, or raised in a few frames, happened where the longest stack of its chain leads to.
    again = sum(member.headline == failure.headline for member in chain) > 1
    short = (again or len(failure.frames) <= 2) and failure.frames != longest
    return replace(
        failure,
        first=min(member.first for member in whole),
        last=max(member.last for member in whole),
        frames=(*longest, *failure.frames) if short else failure.frames,
        uncaught=any(member.uncaught or member.thread for member in whole),
        ignored=all(member.ignored for member in whole),
    )


def _match_bare_lines(lines: Sequence[LogLine], exceptions: Sequence[Failure]) -> list[FailureMatch]:
    """Matches native messages, shells and kernels: patterns that need no exception."""
    in_exceptions = {number for failure in exceptions for number in range(failure.first, failure.last + 1)}
    matches, messages = [], crash_table().messages
    crash_lines, stack = native_stack(lines)
    for line in lines:
        is_quiet = line.quiet and not matches_any("at-any-level", line.text)
        if is_quiet or line.number in in_exceptions or ONLY_BAR.search(line.text) or reports_progress(line.text):
            continue
        text = log_forms("watchdog")[0].sub("", line.text.strip(FRAME_OF_BOX).removeprefix("what():").strip())
        pattern = first_of(crash_table().bare, text)
        if pattern is None and (
            matches_any("messages-alone", text)
            or line.level == "F"
            or (text is not line.text and "what():" in line.text)
        ):
            pattern = first_of(messages, text)
        elif pattern is None and line.number >= len(lines) - LAST_LINES and not matches_any("handled", text):
            certain = (row for row in messages if row.confidence == "certain")
            begun = (match for row in certain for form in row.regexes if (match := form.match(text)))
            pattern = first_of(messages, text) if any(match.end() >= PECULIAR_CHARS for match in begun) else None
        if pattern is not None or (line.level == "F" and line.number >= len(lines) - LAST_LINES):
            paragraph = pattern is not None and pattern.cause == "bad-arguments"
            message = native_message(lines, line.number, paragraph=paragraph)
            frames = stack if line.number in crash_lines else ()
            headline = headline_of((text, *message.split("\n")[1:]))
            failure = Failure(line.number, line.number, headline, message, rank=line.rank, frames=frames)
            is_vague = pattern is None or pattern.cause == "unknown"
            specific = first_of(crash_table().bare, message) if is_vague else None
            matches.append(FailureMatch(failure, specific or pattern))
    return matches


OUT_OF_MEMORY_CAUSES = frozenset({"gpu-oom", "host-oom"})
"""Causes that count as out of memory. A full /dev/shm does not: a smaller batch would not help."""
MEMORY_CAUSES = frozenset({*OUT_OF_MEMORY_CAUSES, "shm"})
Witness = Literal["kernel", "observer", "log", "exit"]


class Judgement(Struct, frozen=True):
    """What ended a training. `by` is the best evidence: the kernel's count of kills, the `event` of the observer, the
    `match` in the output, or only the exit of the process; None if nothing is known to have failed.

    `event_pattern` explains the event. `exit_code` and `signal` are those of the process, else those that its launcher
    reports.
    """

    launcher: LauncherReport
    by: Witness | None = None
    event: OutOfMemory | Raised | None = None
    event_pattern: CrashPattern | None = None
    match: FailureMatch | None = None
    exit_code: int | None = None
    signal: int | None = None

    @property
    def cause(self) -> str:
        if self.by == "log" and self.match is not None:
            return self.match.cause
        return {"kernel": "host-oom", "observer": self.event_cause}.get(self.by or "", "unknown")

    @property
    def event_cause(self) -> str:
        """The cause by the observer alone."""
        cause = "unknown" if self.event_pattern is None else self.event_pattern.cause
        return "gpu-oom" if isinstance(self.event, OutOfMemory) and cause not in MEMORY_CAUSES else cause

    @property
    def out_of_memory(self) -> bool:
        """Whether the training certainly ran out of memory."""
        pattern = self.match.pattern if self.by == "log" and self.match is not None else self.event_pattern
        sure = self.by == "kernel" or (self.by == "observer" and isinstance(self.event, OutOfMemory))
        sure = sure or (pattern is not None and pattern.confidence == "certain")
        return sure and self.cause in OUT_OF_MEMORY_CAUSES


def judge(lines: Sequence[LogLine], state: RunState, exited: Exited | None) -> Judgement:
    """What ended a training, by its output, its events and its exit; `exited` is None if nobody saw that.

    The supervisor's outcome and the diagnosis both follow from it.
    """
    launcher = parse_launcher_report(lines)
    if launcher.rank is None and len(state.hosts) == 1 and len(state.ranks) == state.world_size:
        launcher = replace(launcher, rank=launcher.local_rank)
    unseen = exited is None or (exited.exit_code is None and exited.signal is None)
    code, number = (None, None) if exited is None else (exited.exit_code, exited.signal)
    failed = None if unseen else bool(code or number)
    if failed is False and not launcher.reported_failure:
        return Judgement(launcher)
    if number is None and code is not None and 128 < code < 160:
        number = code - 128  # of a shell whose command was ended by that signal
    event = _fatal_event(state)
    if unseen and isinstance(event, OutOfMemory) and state.raised is None:
        event = None  # it may have been caught
    match = find_fatal_failure(lines, launcher, failed)
    # A request to end that the output reports explains the end where no error does.
    if match is not None and not match.failure.headline and launcher.request is not None:
        match = None  # a traceback that was cut off
    signals = (number, launcher.signal, launcher.request if match is None else None)
    judgement = Judgement(
        launcher,
        event=event,
        event_pattern=None if event is None else _classify_event(event),
        match=match,
        exit_code=code or launcher.exit_code,
        signal=next((number for number in signals if number is not None), None),
    )
    killed_for_memory = exited is not None and exited.oom_kill is True
    return replace(judgement, by="kernel" if killed_for_memory else _best_witness(judgement, state, lines, failed))


def _fatal_event(state: RunState) -> OutOfMemory | Raised | None:
    """The observed failure that explains a bad end, or None if the observer saw none.

    An out-of-memory error counts unless the same rank went on and raised something else later.
    """
    memory, raised = state.out_of_memory, state.raised
    if memory is None or raised is None:
        return memory or raised
    other_rank_followed = memory.rank != raised.rank and memory.t <= raised.t
    return memory if _is_memory_error(raised.type, raised.message) or other_rank_followed else raised


def _is_memory_error(type_name: str, message: str) -> bool:
    return type_name.rsplit(".", 1)[-1] in ("OutOfMemoryError", "MemoryError") or "memory" in message.lower()


def _best_witness(
    judgement: Judgement, state: RunState, lines: Sequence[LogLine], failed: bool | None
) -> Witness | None:
    # The kernel's count of kills is a fact and comes first. The log comes before the observer because it also shows
    # native errors and other ranks, and because Python's last exception is often a consequence (a lost connection). An
    # exception without pattern still says more than an exit code, but not where a signal ended the process: then the
    # last exception in the log was survived.
    match, number = judgement.match, judgement.signal
    if judgement.event is not None and match is not None and _observer_contradicts(judgement, state, match):
        return "observer"
    if match is not None and match.pattern is not None:
        return "log"
    if judgement.event is not None and (number is not None or not _is_same_exception(judgement.event, match)):
        return "observer"
    if match is not None and number is None:
        return "log"
    if failed is None and any(matches_any("success", line.text) for line in lines):
        return None
    return "exit" if number is not None or judgement.exit_code else None


def _is_same_exception(event: OutOfMemory | Raised, match: FailureMatch | None) -> bool:
    """Whether the output has the exception that the observer saw, and with it the frames that raised it."""
    if match is None or not isinstance(event, Raised):
        return False
    name, _, message = match.failure.headline.partition(": ")
    is_same_type = name.rpartition(".")[2] == event.type.rpartition(".")[2]
    return is_same_type and message.strip() == event.message.partition("\n")[0].strip()


def _observer_contradicts(judgement: Judgement, state: RunState, match: FailureMatch) -> bool:
    """Whether the observer saw another end than the log: one for want of memory, or one after an error that was
    caught."""
    event, pattern = judgement.event, judgement.event_pattern
    if isinstance(event, OutOfMemory):
        return judgement.event_cause in MEMORY_CAUSES and match.cause not in MEMORY_CAUSES
    if not isinstance(event, Raised) or match.cause not in MEMORY_CAUSES or _is_memory_error(event.type, event.message):
        return False
    is_consequence = pattern is not None and (pattern.consequence or pattern.cause in WRAPPERS)
    return state.out_of_memory is not None and not is_consequence and judgement.event_cause not in MEMORY_CAUSES


def _classify_event(event: OutOfMemory | Raised) -> CrashPattern | None:
    type_name = "OutOfMemoryError" if isinstance(event, OutOfMemory) else event.type
    headline = f"{type_name}: {event.message.partition(chr(10))[0]}"
    return classify(Failure(0, 0, headline, f"{type_name}: {event.message}", type_name))

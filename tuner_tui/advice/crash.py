"""What ended a training, from its events and its log, and where in the program."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.memory import MemoryLocation, leak_before_oom
from tuner_tui.advice.findings.non_finite import find_non_finite
from tuner_tui.advice.oom_analysis import ALLOWED, format_limit, is_fragmented, limit_reached, other_processes
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.specific_errors import is_renamed_or_removed, unknown_argument, unsupported_precision
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import OutOfMemory
from tuner_tui.runs.log_parsing.failures import Failure, LauncherReport
from tuner_tui.runs.log_parsing.fatal_failure import (
    GPU_MEMORY_FULL,
    HOST_MEMORY_FULL,
    TRANSPARENT,
    Confidence,
    FailureMatch,
    Judgement,
    judge,
)
from tuner_tui.runs.log_parsing.lines import BAR, LogLine, parse_lines

FILE = Path(__file__).with_name("crash_words.yaml")
PHASE_LOCATIONS = {"evaluating": "evaluation", "saving": "checkpoint", "starting": "loading", "compiling": "training"}
LOCATIONS = frozenset({"training", "evaluation", "loading", "optimizer-step", "checkpoint"})
CAUSES_WITH_LOCATION = frozenset({"gpu-oom", "host-oom", "disk-full", "checkpoint-io", "nan"})
LEAK_LOCATIONS: Mapping[str, MemoryLocation] = {"gpu-oom": "gpu", "host-oom": "host"}
MAX_EVIDENCE_CHARS = 400
FULL_DISK_BYTES = 64e6
LOOKBACK_LINES = 60


@cache
def _pattern(name: str, flags: int = 0) -> re.Pattern[str]:
    """A list of `crash_words.yaml` as one pattern."""
    return re.compile("|".join(read_data_file(FILE)[name]), flags)


@dataclass(frozen=True, slots=True)
class CrashCause:
    """A cause before its remedies are looked up.

    `subject` is the package, precision or argument that it names, `topic` that of its pattern. `checks` is offered
    where no remedy is known.
    """

    cause: str
    sentence: str
    confidence: Confidence
    evidence: tuple[str, ...]
    where: str | None = None
    subject: str | None = None
    message: str = ""
    topic: str | None = None
    checks: tuple[Remedy, ...] = ()


def crash_findings(situation: Situation) -> tuple[Finding, ...]:
    """Why the run failed, or else that its loss was not finite. Empty for a run that is alive, completed or stopped."""
    state = situation.state
    if situation.is_alive:
        return ()
    lines = parse_lines(situation.log)
    ended_well = state.outcome in {"completed", "stopped"} or state.stop_requested
    cause = (None if ended_well else _find_cause(situation, lines)) or _non_finite_cause(lines)
    return () if cause is None else (_finding(cause, situation),)


def _non_finite_cause(lines: Sequence[LogLine]) -> CrashCause | None:
    cause = find_non_finite(lines)
    if cause is None:
        return None
    sentence, evidence, confidence = cause
    return CrashCause("nan", sentence, confidence, evidence, "training")


def _finding(cause: CrashCause, situation: Situation) -> Finding:
    remedies = remedies_for(cause.cause, situation, cause.subject or cause.where, cause.topic)
    sentence, evidence = cause.sentence, cause.evidence
    if cause.cause == "gpu-oom":
        limit = situation.memory_limit_bytes
        if limit is not None and ALLOWED.search(cause.message):
            sentence = limit_reached(limit, "the GPU's")
            remedies = (*remedies, remedy("raise-limit", limit=format_limit(limit)))
        if is_fragmented(cause.message):
            remedies = (remedy("expandable-segments"), *remedies)
        others = other_processes(cause.message)
        if others:
            evidence, remedies = (*evidence, *others), (remedy("end-other-process"), *remedies)
    elif cause.cause == "port-in-use":
        port = next(filter(None, map(_pattern("port").search, (cause.message, *evidence))), None)
        sentence = sentence if port is None else sentence.replace("port", f"port {port[1] or port[2]}", 1)
        exited = situation.state.exited
        evidence = (*evidence, *(() if exited is None else exited.evidence))
    elif sentence == HOST_MEMORY_FULL:
        limit = situation.host_memory_limit_bytes
        sentence = sentence if limit is None else limit_reached(limit, "the host's")
    if not remedies or remedies == (remedy("correct-command"),):
        remedies = (*(_advice_in(cause.message) or cause.checks), *remedies)
    location = LEAK_LOCATIONS.get(cause.cause)
    leak = None if location is None else leak_before_oom(situation, location)
    if leak is not None:
        evidence = (*evidence, leak.evidence)
        remedies = (*remedies_for("memory-grows", situation, location), *remedies)
    return Finding(cause.cause, "failed", sentence, evidence, cause.confidence, cause.where, remedies)


def _find_cause(situation: Situation, lines: Sequence[LogLine]) -> CrashCause | None:
    state = situation.state
    judgement = judge(lines, state, state.exited)
    if judgement.by == "kernel":
        return _cause_from_kernel(state)
    if judgement.by == "log" and judgement.match is not None:
        return _check_disk_full(_cause_from_log(judgement.match, judgement, lines), situation)
    if judgement.by == "observer":
        return _cause_from_observer(judgement)
    return _cause_from_exit_status(judgement, lines, state) if judgement.by == "exit" else None


def _cause_from_kernel(state: RunState) -> CrashCause:
    counted = () if state.exited is None else state.exited.evidence
    evidence = counted or ("the kernel counted an out-of-memory kill during this run",)
    sentence = "The kernel killed the training: host memory was full"
    return CrashCause("host-oom", sentence, "certain", evidence, _normalize_location(state.phase))


def _cause_from_observer(judgement: Judgement) -> CrashCause | None:
    event, pattern, cause = judgement.event, judgement.event_pattern, judgement.cause
    if event is None:
        return None
    where = _normalize_location(event.where)
    if isinstance(event, OutOfMemory):
        sentence = HOST_MEMORY_FULL if cause == "host-oom" else GPU_MEMORY_FULL
        return CrashCause(cause, sentence, "certain", (_shorten(event.message),), where, message=event.message)
    evidence = (_shorten(f"{event.type}: {event.message}"),)
    if pattern is None:
        return CrashCause("unknown", f"The training raised {event.type}", "certain", evidence, where)
    subject = _subject(cause, event.message)
    return CrashCause(cause, pattern.sentence, pattern.confidence, evidence, where, subject, topic=pattern.topic)


def _cause_from_log(match: FailureMatch, judgement: Judgement, lines: Sequence[LogLine]) -> CrashCause:
    failure, pattern, cause = match.failure, match.pattern, match.cause
    where = failure_location(failure, lines) if cause in CAUSES_WITH_LOCATION else None
    if judgement.event is not None and judgement.event_cause == cause:
        where = _normalize_location(judgement.event.where) or where
    sentence = _sentence_of_unknown(failure) if pattern is None else pattern.sentence
    confidence: Confidence = "likely" if pattern is None else pattern.confidence
    subject = _subject(cause, failure.message)
    topic = None if pattern is None else pattern.topic
    if topic == "package-versions":
        subject = _renamed_argument(failure.message) or ", ".join(_packages(failure)) or None
    elif cause == "missing-package":
        subject = missing_package(failure.headline) or subject or _failing_package(failure)
    if cause == "gpu-oom" and any(_pattern("pinning").search(f"{file}:{name}") for file, name in failure.frames):
        cause, sentence, topic = "host-oom", "No page-locked (pinned) host memory is left", None
    checks = _check_the_call(failure) if cause == "unknown" else ()
    evidence = _evidence(failure, judgement.launcher)
    return CrashCause(cause, sentence, confidence, evidence, where, subject, failure.message, topic, checks)


def _sentence_of_unknown(failure: Failure) -> str:
    """The exception with its message, which may begin on the next line, else with the statement that raised it."""
    headline, _, rest = failure.message.partition("\n")
    if headline.rstrip().endswith(":"):
        headline = f"{headline} {rest}"
    elif ":" not in headline and failure.statement:
        headline = f"{headline}, raised by `{failure.statement}`"
    return f"The training failed: {_shorten(headline, 160)}"


def _check_the_call(failure: Failure) -> tuple[Remedy, ...]:
    """Where to look in an error that no pattern recognises: the call into a package, or the program's own line.

    The innermost frame that is not installed is the program's own code; what it passed on is the first thing to check.
    """
    frames = [(file, function) for file, function in failure.frames if not TRANSPARENT.search(f"{file}:{function}")]
    if not frames:
        return ()
    file, function = frames[-1]
    package = next(iter(_installed(file)), None)
    own_frame = next((frame for frame in reversed(frames) if not _pattern("foreign-frames").match(frame[0])), None)
    statement = f"`{_shorten(failure.statement, 100)}`" if failure.statement else f"`{function}`"
    if package is None:
        title = f"look at {statement} in {function or file}"
        return (Remedy(title=title, why=f"{file} raised the error itself, in no package", source="the traceback"),)
    called = "" if own_frame is None else f"; the program's last own line is in {own_frame[1]} ({own_frame[0]})"
    return (
        Remedy(
            title=f"check what reaches {package}'s {function}, and the release of {package}",
            why=f"{statement} in {package} raised the error{called}",
            source="the traceback",
        ),
    )


def _check_disk_full(cause: CrashCause, situation: Situation) -> CrashCause:
    """Replaces a failed checkpoint write by its cause, a full disk, if the last sample shows one."""
    free = situation.samples[-1].host.disk_free_bytes if situation.samples else None
    if cause.cause != "checkpoint-io" or free is None or free > FULL_DISK_BYTES:
        return cause
    evidence = (*cause.evidence, f"{free / 1e6:.0f} MB free on the disk")
    return replace(cause, cause="disk-full", sentence="The disk is full", evidence=evidence)


def _subject(cause: str, message: str) -> str | None:
    """What the message names that the remedies depend on: a package, a precision or an argument."""
    if cause == "missing-package":
        return missing_package(message)
    if cause == "precision-unsupported":
        return unsupported_precision(message)
    return unknown_argument(message) if cause == "bad-arguments" else None


def _failing_package(failure: Failure) -> str | None:
    """The installed package whose library or import failed, or None."""
    imported = [file for file, function in failure.frames if function == "<module>"]
    places = (failure.headline, *reversed(imported), *(file for file, _ in failure.frames[-1:]))
    return next((package for folder in places for package in _installed(folder)), None)


def _packages(failure: Failure) -> tuple[str, ...]:
    """The packages whose releases do not fit: those that the message names, and the innermost that is installed."""
    named = [name.lower() for name in _named_groups("libraries", failure.headline)]
    classes_of = read_data_file(FILE)["classes-of"]
    named += islice((package for package, classes in classes_of.items() if re.search(classes, failure.headline)), 1)
    inner = (package for file, _ in reversed(failure.frames) for package in _installed(file) if package != "torch")
    return tuple(dict.fromkeys((*named, *islice(inner, 1))))[:3]


def _installed(text: str) -> tuple[str, ...]:
    return _named_groups("installed", text)


def _named_groups(pattern: str, text: str) -> tuple[str, ...]:
    """The group of each match that took part in it."""
    matches = _pattern(pattern, re.IGNORECASE if pattern == "libraries" else 0).finditer(text)
    return tuple(next(filter(None, match.groups())) for match in matches)


def _renamed_argument(message: str) -> str | None:
    name = unknown_argument(message)
    return name if is_renamed_or_removed(name) else None


def _advice_in(message: str) -> tuple[Remedy, ...]:
    """What the message itself says to do, where nothing better is known."""
    sentences = (match[1] for match in _pattern("advice").finditer(message))
    reporting = _pattern("reporting", re.IGNORECASE)
    advice = next((sentence for sentence in sentences if not reporting.search(sentence)), None)
    return () if advice is None else (remedy("do-as-it-says", advice=_shorten(advice, 300)),)


def missing_package(message: str) -> str | None:
    """The missing package that a message names, or None."""
    names = _named_groups("missing-package", message)
    return names[0].partition(".")[0] if names else None


def _evidence(failure: Failure, launcher: LauncherReport) -> tuple[str, ...]:
    evidence = [_shorten(failure.headline)]
    assertion = next((line for line in failure.message.splitlines() if "Assertion" in line), None)
    if assertion and assertion != failure.headline:
        evidence.append(_shorten(assertion))
    if failure.rank is not None:
        evidence.append(f"first failed on rank {failure.rank}")
    inner = next(((file, name) for file, name in reversed(failure.frames) if "site-packages" not in file), None)
    if inner is not None:
        evidence.append(f"in {inner[1] or 'the program'} ({inner[0]})")
    if launcher.exit_code:
        evidence.append(f"the launcher reports exit code {launcher.exit_code}")
    return tuple(evidence)


def _cause_from_exit_status(judgement: Judgement, lines: Sequence[LogLine], state: RunState) -> CrashCause:
    last = tuple(_shorten(line.text) for line in lines if not line.blank)[-3:]
    if judgement.signal is None:
        sentence = f"The training ended with exit code {judgement.exit_code}; its output does not say why"
        return CrashCause("unknown", sentence, "possible", last)
    not_for_memory = state.exited is not None and state.exited.oom_kill is False
    return _cause_from_signal(judgement.signal, judgement.launcher, last, not_for_memory)


def _cause_from_signal(
    number: int, launcher: LauncherReport, last: tuple[str, ...], not_for_memory: bool
) -> CrashCause:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    who = f" on rank {launcher.rank}" if launcher.rank is not None else ""
    evidence = (f"ended by {name}{who}", *last)
    # Memory of /dev/shm is reserved when a page is first written; where none is left, the kernel sends SIGBUS.
    if number == signal.SIGBUS:
        return CrashCause("shm", "A bus error: shared memory (/dev/shm) is full", "likely", evidence)
    if number == signal.SIGKILL and not_for_memory:
        sentence = "The training was killed, but not by the kernel's out-of-memory killer"
        return CrashCause("unknown", sentence, "likely", evidence)
    if number == signal.SIGKILL:
        sentence = "The training was killed without a message; the kernel does this when host memory is full"
        return CrashCause("host-oom", sentence, "possible", evidence)
    return CrashCause("unknown", f"The training crashed in native code ({name})", "possible", evidence)


def _normalize_location(where: str | None) -> str | None:
    location = PHASE_LOCATIONS.get(where or "", where)
    return location if location in LOCATIONS else None


def _shorten(text: str, max_chars: int = MAX_EVIDENCE_CHARS) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def failure_location(failure: Failure, lines: Sequence[LogLine]) -> str | None:
    """One of training, evaluation, loading, optimizer-step, checkpoint; None if neither stack nor output shows it."""
    return location_from_frames(failure.frames) or _location_from_output(failure, lines)


def location_from_frames(frames: Sequence[tuple[str, str]]) -> str | None:
    """The location by the stack: any frame decides for evaluation and saving, else the innermost known frame."""
    names = [(file.replace("\\", "/"), function.rpartition(".")[2]) for file, function in frames]
    # Evaluation and saving are called from the training loop and run the same forward pass, so one frame of theirs
    # anywhere in the stack decides; loading and the optimizer are recognised by what is innermost.
    if any(_pattern("evaluation").fullmatch(name) and not _is_library_eval(file) for file, name in names):
        return "evaluation"
    if any(_pattern("checkpoint").fullmatch(name) for _, name in names):
        return "checkpoint"
    for file, name in reversed(names):
        if _pattern("training").fullmatch(name):
            return "training"
        of_optimizer = _pattern("optimizer-files").search(file) and _pattern("optimizer-functions").fullmatch(name)
        if of_optimizer or _pattern("optimizer").fullmatch(name):
            return "optimizer-step"
        if _pattern("loading").fullmatch(name):
            return "loading"
    return "training" if any(_pattern("train-loop").fullmatch(name) for _, name in names) else None


def _is_library_eval(file: str) -> bool:
    """Whether `eval` is a function of torch itself, which is no evaluation of a model."""
    return "/torch/" in file and "lightning" not in file


def _location_from_output(failure: Failure, lines: Sequence[LogLine]) -> str | None:
    """The location by the last banner or progress bar before the failure."""
    before = [line.text for line in lines if line.number < failure.first][-LOOKBACK_LINES:]
    for line in reversed(before):
        if _pattern("evaluation-lines", re.IGNORECASE).match(line):
            return "evaluation"
        if _pattern("loading-lines", re.IGNORECASE).match(line):
            return "loading" if "100%" not in line else None
        bar = BAR.search(line) and "/s" in line and "ap" not in line[:3]
        if bar or _pattern("training-lines", re.IGNORECASE).match(line):
            return "training"
    return None

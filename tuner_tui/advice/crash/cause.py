"""Why a run failed: exit status, kernel evidence, observer events and log output combined into one cause."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner_tui.advice.crash.location import failure_location
from tuner_tui.advice.crash.oom_analysis import (
    EXPANDABLE,
    gpu_memory_limit,
    host_memory_limit,
    is_fragmented,
    limit_reached,
    other_processes,
    raise_limit,
)
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.memory_leak import MemoryLocation, leak_before_oom
from tuner_tui.advice.findings.non_finite import find_non_finite
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.log_parsing.crash_patterns import memory_errors
from tuner_tui.runs.log_parsing.crash_patterns.pattern import Confidence
from tuner_tui.runs.log_parsing.failures import Failure
from tuner_tui.runs.log_parsing.fatal_failure import FailureMatch, classify, find_fatal_failure
from tuner_tui.runs.log_parsing.launcher_report import LauncherReport, parse_launcher_report
from tuner_tui.runs.log_parsing.lines import LogLine, parse_lines
from tuner_tui.runs.log_parsing.progress_signs import reports_success

PHASE_LOCATIONS = {"evaluating": "evaluation", "saving": "checkpoint", "starting": "loading", "compiling": "training"}
LOCATIONS = frozenset({"training", "evaluation", "loading", "optimizer-step", "checkpoint"})
CAUSES_WITH_LOCATION = frozenset({"gpu-oom", "host-oom", "disk-full", "checkpoint-io", "nan"})
MEMORY: Mapping[str, MemoryLocation] = {"gpu-oom": "gpu", "host-oom": "host"}
STOPPED = frozenset({int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGHUP)})
MAX_EVIDENCE_CHARS = 400
FULL_DISK_BYTES = 64e6
PINNING = re.compile(r"/utils/data/_utils/pin_memory\.py:|:_?pin_memory(?:_loop)?$")
"""Where page-locked host memory is asked for; CUDA's error for it is that of the card's memory."""
PACKAGE = re.compile(
    r"No module named '?([\w.]+)|install `([\w-]+)`|pip install (?:-U )?['\"]?([\w-]+)"
    r"|requires (?:the )?`?([\w-]+)`? library|the package (\w+) seems"
    r"|`?(bitsandbytes|flash[_-]attn\w*|bnb|apex|deepspeed|triton)\b"
)
"""Where a message names the package that is missing."""


@dataclass(frozen=True, slots=True)
class CrashCause:
    """A cause found, before its remedies."""

    cause: str
    sentence: str
    confidence: Confidence
    evidence: tuple[str, ...]
    where: str | None = None
    about: str | None = None
    message: str = ""


def crash_findings(situation: Situation) -> tuple[Finding, ...]:
    """Why the run failed, else numbers that are not finite; empty for a run that lives, ended well or was stopped."""
    state = situation.state
    if situation.lives:
        return ()
    lines = parse_lines(situation.log)
    if state.outcome in {"completed", "stopped"} or state.stop_requested:
        return _non_finite_finding(situation, lines)
    verdict = _find_cause(situation, lines)
    return _non_finite_finding(situation, lines) if verdict is None else (_finding(verdict, situation),)


def _non_finite_finding(situation: Situation, lines: Sequence[LogLine]) -> tuple[Finding, ...]:
    found = find_non_finite(lines)
    if found is None:
        return ()
    sentence, evidence, confidence = found
    return (_finding(CrashCause("nan", sentence, confidence, evidence, "training"), situation),)


def _finding(verdict: CrashCause, situation: Situation) -> Finding:
    remedies = remedies_for(verdict.cause, situation, verdict.about or verdict.where)
    others: tuple[str, ...] = ()
    sentence = verdict.sentence
    if verdict.cause == "gpu-oom":
        limit = gpu_memory_limit(situation, verdict.message)
        sentence = verdict.sentence if limit is None else limit_reached(limit, "the card's")
        raised = () if limit is None else (raise_limit(limit),)
        remedies = (*((EXPANDABLE,) if is_fragmented(verdict.message) else ()), *remedies, *raised)
        others = other_processes(verdict.message)
    elif verdict.sentence == memory_errors.HOST_MEMORY_FULL:
        limit = host_memory_limit(situation)
        sentence = verdict.sentence if limit is None else limit_reached(limit, "the host's")
    place = MEMORY.get(verdict.cause)
    kept = None if place is None else leak_before_oom(situation, place)
    return Finding(
        verdict.cause,
        "failed",
        sentence,
        (*verdict.evidence, *others, *(() if kept is None else (kept.evidence,))),
        verdict.confidence,
        verdict.where,
        (*(() if kept is None else remedies_for("memory-grows", situation, place)), *remedies),
    )


def _find_cause(situation: Situation, lines: Sequence[LogLine]) -> CrashCause | None:
    """The kernel's word first, then what the observer saw, then the output, then the bare exit status."""
    status, launched = exit_status(situation), parse_launcher_report(lines)
    if status.bad is False and not launched.spoke:
        return None
    killed = _cause_from_kernel(situation)
    if killed is not None:
        return killed
    reading = find_fatal_failure(lines, launched, status.bad)
    observed = _cause_from_observer(situation)
    if reading is not None and reading.pattern is not None:
        return _check_disk_full(_cause_from_log(reading, lines, launched, observed), situation)
    if observed is not None:
        return observed
    if reading is not None and status.signal is None and launched.signal is None:
        return _cause_from_log(reading, lines, launched, None)
    return _cause_from_exit_status(status, launched, lines, situation)


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How the process ended. `bad` is None where that is not known."""

    bad: bool | None
    code: int | None = None
    signal: int | None = None


def exit_status(situation: Situation) -> ProcessExit:
    """Exit code or signal of the run; a shell's 128 + n is signal n."""
    exited = situation.state.exited
    if exited is None:
        return ProcessExit(None)
    number = exited.signal
    if number is None and exited.exit_code is not None and 128 < exited.exit_code < 160:
        number = exited.exit_code - 128
    return ProcessExit(bool(exited.exit_code or exited.signal), exited.exit_code, number)


def _cause_from_kernel(situation: Situation) -> CrashCause | None:
    """The cgroup or the kernel says that it killed this run for memory."""
    exited = situation.state.exited
    if exited is None or not exited.oom_kill:
        return None
    evidence = exited.evidence or ("the kernel counts a kill for memory during this run",)
    return CrashCause(
        "host-oom",
        "The kernel killed the training: the host's memory was full",
        "certain",
        evidence,
        _current_location(situation),
    )


def _cause_from_observer(situation: Situation) -> CrashCause | None:
    """What the observer inside the process saw."""
    state = situation.state
    if state.out_of_memory is not None and state.exited is not None:
        text = state.out_of_memory.message
        known = classify(_as_failure("OutOfMemoryError", text))
        cause = known.cause if known is not None and known.cause in {"gpu-oom", "host-oom", "shm"} else "gpu-oom"
        sentence = memory_errors.HOST_MEMORY_FULL if cause == "host-oom" else memory_errors.GPU_MEMORY_FULL
        return CrashCause(
            cause, sentence, "certain", (_shorten(text),), _normalize_location(state.out_of_memory.where), message=text
        )
    if state.raised is not None:
        raised = state.raised
        known = classify(_as_failure(raised.type, raised.message))
        evidence = (_shorten(f"{raised.type}: {raised.message}"),)
        if known is None:
            return CrashCause(
                "unknown", f"The training raised {raised.type}", "certain", evidence, _normalize_location(raised.where)
            )
        about = missing_package(raised.message) if known.cause == "missing-package" else None
        return CrashCause(
            known.cause, known.sentence, known.confidence, evidence, _normalize_location(raised.where), about
        )
    return None


def _as_failure(type_name: str, message: str) -> Failure:
    headline, _, _ = message.partition("\n")
    return Failure(0, 0, f"{type_name}: {headline}", f"{type_name}: {message}", type_name)


def _cause_from_log(
    reading: FailureMatch, lines: Sequence[LogLine], launched: LauncherReport, observed: CrashCause | None
) -> CrashCause:
    failure, pattern = reading.failure, reading.pattern
    where = failure_location(failure, lines) if reading.cause in CAUSES_WITH_LOCATION else None
    if observed is not None and observed.cause == reading.cause and observed.where is not None:
        where = observed.where
    sentence = f"The training failed: {_shorten(failure.headline, 160)}" if pattern is None else pattern.sentence
    confidence: Confidence = "likely" if pattern is None else pattern.confidence
    about = missing_package(failure.headline) if reading.cause == "missing-package" else None
    cause = reading.cause
    if cause == "gpu-oom" and any(PINNING.search(f"{file}:{name}") for file, name in failure.frames):
        cause, sentence = "host-oom", "No page-locked host memory left"
    return CrashCause(cause, sentence, confidence, _evidence(failure, launched), where, about, failure.message)


def _check_disk_full(verdict: CrashCause, situation: Situation) -> CrashCause:
    """A checkpoint that could not be written to a disk that was measured to be full: the disk is the cause."""
    free = situation.samples[-1].host.disk_free_bytes if situation.samples else None
    if verdict.cause != "checkpoint-io" or free is None or free > FULL_DISK_BYTES:
        return verdict
    evidence = (*verdict.evidence, f"{free / 1e6:.0f} MB were free on the disk")
    return replace(verdict, cause="disk-full", sentence="The disk is full", evidence=evidence)


def missing_package(message: str) -> str | None:
    """The package a message says is missing; None where it names none."""
    match = PACKAGE.search(message)
    return None if match is None else next(group for group in match.groups() if group).partition(".")[0]


def _evidence(failure: Failure, launched: LauncherReport) -> tuple[str, ...]:
    evidence = [_shorten(failure.headline)]
    assertion = next((line for line in failure.message.splitlines() if "Assertion" in line), None)
    if assertion and assertion != failure.headline:
        evidence.append(_shorten(assertion))
    if failure.rank is not None:
        evidence.append(f"first failed on rank {failure.rank}")
    inner = next(((file, name) for file, name in reversed(failure.frames) if "site-packages" not in file), None)
    if inner is not None:
        evidence.append(f"in {inner[1] or 'the program'} ({inner[0]})")
    if launched.exit_code:
        evidence.append(f"the launcher reports exit code {launched.exit_code}")
    return tuple(evidence)


def _cause_from_exit_status(
    status: ProcessExit, launched: LauncherReport, lines: Sequence[LogLine], situation: Situation
) -> CrashCause | None:
    """From the exit status alone, where nothing else says why."""
    number = status.signal if status.signal is not None else launched.signal
    code = status.code or launched.exit_code
    if number is None and not code:
        return None
    if number in STOPPED or (status.bad is None and reports_success(lines)):
        return None
    last = tuple(_shorten(line.text) for line in lines if not line.blank)[-3:]
    if number is None:
        return CrashCause(
            "unknown", f"The training ended with exit code {code}; its output does not say why", "possible", last
        )
    exited = situation.state.exited
    return _cause_from_signal(number, launched, last, exited is not None and exited.oom_kill is False)


def _cause_from_signal(number: int, launched: LauncherReport, last: tuple[str, ...], spared: bool) -> CrashCause:
    """`spared`: the kernel is known not to have killed for memory."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    who = f" on rank {launched.rank}" if launched.rank is not None else ""
    evidence = (f"ended by {name}{who}", *last)
    if number == signal.SIGBUS:
        return CrashCause("shm", "A bus error: shared memory (/dev/shm) is full", "likely", evidence)
    if number == signal.SIGKILL and spared:
        return CrashCause("unknown", "Somebody killed the training: the kernel did not, for memory", "likely", evidence)
    if number == signal.SIGKILL:
        sentence = "The training was killed, as the kernel does when the host's memory is full; nothing else says so"
        return CrashCause("host-oom", sentence, "possible", evidence)
    return CrashCause("unknown", f"Native code ended the training with {name}", "possible", evidence)


def _current_location(situation: Situation) -> str | None:
    return _normalize_location(situation.state.phase)


def _normalize_location(where: str | None) -> str | None:
    place = PHASE_LOCATIONS.get(where or "", where)
    return place if place in LOCATIONS else None


def _shorten(text: str, longest: int = MAX_EVIDENCE_CHARS) -> str:
    """A piece of evidence, one line."""
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"

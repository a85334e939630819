"""What ended a training, from its events and its log, and where in the program."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise, takewhile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.crash.failed_operation import Explanation, explain, quote_log
from tuner_tui.advice.crash.oom_analysis import explain_figures, limit_reached, read_figures
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.memory import MemoryLocation, leak_before_oom
from tuner_tui.advice.findings.non_finite import find_non_finite
from tuner_tui.advice.remedies.catalog import climb, remedies_for
from tuner_tui.advice.remedies.specific_errors import is_renamed_or_removed
from tuner_tui.advice.remedies.table import filled, remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.core.units import format_limit, format_size
from tuner_tui.inspection.process_dump import LIBRARY
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Finished, OutOfMemory
from tuner_tui.runs.log_parsing.crash_table import KILLED, Confidence, crash_table, explain_signal, first_of
from tuner_tui.runs.log_parsing.failures import CodeFrame, Failure, LauncherReport, reports_progress, signal_name
from tuner_tui.runs.log_parsing.fatal_failure import NEAR, NEVER_BEGUN, FailureMatch, Judgement, judge, newest_start
from tuner_tui.runs.log_parsing.frame_roles import location_of, role_of
from tuner_tui.runs.log_parsing.lines import BAR, LogLine, expand, matches_any, parse_lines
from tuner_tui.runs.log_parsing.progress_lines import parse_line
from tuner_tui.runs.log_parsing.rank_report import LOST_PEER, RankReport, read_ranks
from tuner_tui.runs.slurm import SLURM_OUTCOMES
from tuner_tui.runs.supervise.outcome import last_error
from tuner_tui.settings.model import FIELDS

FILE = Path(__file__).with_name("crash_words.yaml")
FACTS = Path(__file__).with_name("message_facts.yaml")
CAUSES_WITH_LOCATION = frozenset({"gpu-oom", "host-oom", "disk-full", "checkpoint-io", "nan"})
CAUSES_OF_CALLS = frozenset({"bad-arguments", "program-error", "unknown"})
LEAK_LOCATIONS: Mapping[str, MemoryLocation] = {"gpu-oom": "gpu", "host-oom": "host"}
FULL_DISK_BYTES = 64e6
PLENTY, PLENTY_SHARE = 4, 0.25
"""Free memory of so many times a request that failed, and this share of the host, means a limit of the process."""
LOOKBACK_LINES = 60
SHAPE = re.compile(r"(?:(?<!\w)|(?=.\d+,))[(\[](\d+(?:, ?\d+)*),?[)\]]|(?:\bsize |[Gg]ot |\d and )(\d+)\b(?! *[xD-])")
UNEXPLAINED = "unknown"
"""The topic of a failure that no pattern explains; the ladder of this name depends on the role of the code."""


@cache
def _pattern(name: str, flags: int = 0) -> re.Pattern[str]:
    """A list of `crash_words.yaml` as one pattern."""
    return re.compile("|".join(read_data_file(FILE)[name]), flags)


class CrashCause(Struct, frozen=True):
    """A cause before its remedies are looked up.

    `subject` is the package, precision or argument that it names, `topic` that of its pattern, `role` what the code
    that failed was doing. `checks` is offered where no remedy is known, and first where a package raised the exception
    with words of its own and only its code, not the words, was recognised (`is_refusal`). `code` is the failed line,
    its file and function, and what was logged before.
    """

    cause: str
    sentence: str
    confidence: Confidence
    evidence: tuple[str, ...]
    where: str | None = None
    subject: str | None = None
    message: str = ""
    topic: str | None = None
    role: str | None = None
    checks: tuple[Remedy, ...] = ()
    is_refusal: bool = False
    code: str = ""


def crash_findings(situation: Situation) -> tuple[Finding, ...]:
    """Why the run failed, and that its loss was not finite. Only the latter if it completed or stopped."""
    state = situation.state
    if situation.is_alive:
        return ()
    lines = newest_start(parse_lines(situation.log))
    ended_well = state.outcome in {"completed", "stopped"} or state.stop_requested
    cause = None if ended_well or state.outcome in SLURM_OUTCOMES else _find_cause(situation, lines)
    if state.finished is not None and state.outcome in (*SLURM_OUTCOMES, "out-of-memory"):
        cause = cause or _cause_from_outcome(state.finished)
    causes = [] if cause is None else [cause]
    non_finite = find_non_finite(lines, parts=cause is not None)
    if non_finite is not None and cause is not None and cause.cause == "nan":
        causes = [replace(cause, evidence=(*cause.evidence, *non_finite[1]))]
    elif non_finite is not None:
        sentence, evidence, confidence = non_finite
        # Who interrupts a training mostly has seen that its loss is nan.
        first = 0 if cause is not None and cause.cause == "interrupted" else len(causes)
        causes.insert(first, CrashCause("nan", sentence, confidence, evidence, "training"))
    return tuple(_finding(cause, situation) for cause in causes)


def _finding(cause: CrashCause, situation: Situation) -> Finding:
    sentence, evidence = cause.sentence, cause.evidence
    text = f"{cause.message}\n{cause.code}"
    figures, facts = read_figures(text), facts_in(text, situation.log)
    situation = replace(situation, backend=figures.backend)
    remedies = remedies_for(cause.cause, situation, cause.subject or cause.where, cause.topic, cause.role)
    foreign: str = read_data_file(FILE)["words-of-torch"].get(figures.backend, "(?!)")
    fitting = tuple(each for each in remedies if not re.search(foreign, f"{each.title} {each.why}"))
    remedies = fitting or (() if facts else remedies)
    peak = next(iter(situation.peaks), None) if cause.cause == "gpu-oom" else None
    if peak is not None:
        held = None if peak.largest is None else peak.largest.kind
        preferred = {offer.name for offer in climb("gpu-oom-held", situation, held)}
        remedies = tuple(sorted(remedies, key=lambda each: each.name not in preferred))
        evidence = (*evidence, peak.sentence)
    if cause.cause == "gpu-oom":
        limit = situation.memory_limit_bytes
        reading = explain_figures(figures, has_own_limit=limit is not None)
        sentence, evidence = reading.sentence or sentence, (*evidence, *reading.evidence)
        remedies = reading.remedies if reading.is_whole else (*reading.remedies, *remedies)
        if limit is not None and figures.allowed is not None:
            sentence = limit_reached(limit, "the GPU's")
            remedies = (*remedies, remedy("raise-limit", limit=format_limit(limit)))
    elif cause.cause == "port-in-use":
        port = next(filter(None, map(_pattern("port").search, (cause.message, *evidence))), None)
        sentence = sentence if port is None else sentence.replace("port", f"port {port[1] or port[2]}", 1)
        exited = situation.state.exited
        evidence = (*evidence, *(() if exited is None else exited.evidence))
    elif cause.cause == "host-oom" and cause.topic is None:  # an allocation failed: nothing was killed for memory
        limit = situation.host_memory_limit_bytes
        if limit is not None:
            sentence = limit_reached(limit, "the host's")
        elif free := _free_for_request(situation, figures.tried):
            sentence = f"An allocation of host memory failed although {format_size(free)} were free"
            remedies = (remedy("raise-process-limit"), *remedies)
    advice = _advice_in(cause.message)
    first = "" if cause.topic == UNEXPLAINED or not remedies else remedies[0].name
    detail = _detail_of(cause.message)
    if first and (cause.is_refusal or first in read_data_file(FILE)["quoting"]):
        objects = [name for name in _named_groups("objects", detail) if name not in remedies[0].title]
        title = ": ".join((remedies[0].title, *objects[:1]))  # a file, an option or a key
        named = (replace(remedies[0], title=title, why=f"{detail}{remedies[0].why}"), *remedies[1:])
        order = (*cause.checks, *named) if _says_what_is_asked(cause.checks) else (*named, *cause.checks)
        remedies = (*advice, *order) if detail or not cause.checks else (*advice, *cause.checks)
    elif not first:
        is_asked = cause.cause in CAUSES_OF_CALLS and (cause.is_refusal or advice or _says_what_is_asked(cause.checks))
        remedies = (*advice, *cause.checks, *(() if is_asked else remedies))
    elif advice and _is_new(advice[0], remedies):
        # Remedies of a topic were written for this message, but only the message knows a release; those of a cause are
        # for many.
        position = 0 if cause.topic is None or re.search(r"[<>=]=? ?\d", advice[0].why) else 1
        remedies = (*remedies[:position], *advice, *remedies[position:])
    elif len(remedies) == 1 and cause.confidence != "certain":
        remedies = (*remedies, *cause.checks)
    if cause.cause in CAUSES_OF_CALLS:
        remedies = (*_near_name(cause, situation.log), *remedies)
    general = {fact.name: fact for fact in facts if fact.name}
    remedies = tuple(general.get(each.name, each) for each in remedies) if general else (*facts, *remedies)
    stated = "|".join(_named_groups("already-set", "\n".join((cause.message, *situation.log)))) or "(?!)"
    is_set = re.compile(rf"(?:{stated})(?![\W_]*(?:false|off|none|0))", re.IGNORECASE)  # these come last
    env = {} if situation.job is None else situation.job.env
    effective = [each for each in remedies if not each.env or not each.env.items() <= env.items()]
    remedies = tuple(sorted(effective, key=lambda each: bool(is_set.search(each.title.replace(" ", "_")))))
    location = LEAK_LOCATIONS.get(cause.cause)
    leak = None if location is None else leak_before_oom(situation, location)
    growth = None if peak is None else peak.growth
    evidence = (*evidence, *([growth.sentence] if growth else []), *([leak.evidence] if leak else []))
    if location is not None and (leak is not None or growth is not None):
        remedies = (*remedies_for("memory-grows", situation, location), *remedies)
    return Finding(cause.cause, "failed", sentence, evidence, cause.confidence, cause.where, remedies)


def _free_for_request(situation: Situation, request_bytes: int | None) -> int | None:
    """The free host memory at the end, where it was plenty for a request that failed; None where it was not."""
    host = None if not situation.samples else situation.samples[-1].host
    if host is None or host.ram_used_bytes is None or host.ram_total_bytes is None or request_bytes is None:
        return None
    free = host.ram_total_bytes - host.ram_used_bytes
    return free if free >= max(PLENTY * request_bytes, PLENTY_SHARE * host.ram_total_bytes) else None


def _find_cause(situation: Situation, lines: Sequence[LogLine]) -> CrashCause | None:
    state = situation.state
    judgement = judge(lines, state, state.exited)
    match judgement.by:
        case "kernel":
            counted = () if state.exited is None else state.exited.evidence
            evidence = counted or ("the kernel counted an out-of-memory kill during this run",)
            sentence, where = "The kernel killed the training: host memory was full", _normalize_location(state.phase)
            return CrashCause("host-oom", sentence, "certain", evidence, where, topic=KILLED)
        case "log" if judgement.match is not None:
            return _check_disk_full(_cause_from_log(judgement.match, judgement, lines, state), situation)
        case "observer":
            return _cause_from_observer(judgement)
        case "exit":
            return _cause_from_exit(judgement, lines, state.exited is not None and state.exited.oom_kill is False)
    if state.exited is None and not any(matches_any("success", line.text) for line in lines):
        last = [line for line in lines if re.match(r"(?!Traceback)\S", line.text)][-LOOKBACK_LINES:]
        went_on = any(reports_progress(line.text) for line in last)
        farewells = [line for line in last if not went_on and _pattern("farewells").search(line.text)]
        return _cause_from_logged_error(farewells or last[-1:])
    return None


def _cause_from_outcome(finished: Finished) -> CrashCause | None:
    """What an outcome that a job system gave the run means; None for the others."""
    rows = (row for row in crash_table().messages if row.outcome == finished.outcome)
    evidence = (finished.sentence,)
    return next((CrashCause(row.cause, row.sentence, row.confidence, evidence, topic=row.topic) for row in rows), None)


def _cause_from_observer(judgement: Judgement) -> CrashCause | None:
    event, pattern, cause = judgement.event, judgement.event_pattern, judgement.cause
    if event is None:
        return None
    where, ran_out = _normalize_location(event.where), isinstance(event, OutOfMemory)
    evidence = (quote_log(event.message if isinstance(event, OutOfMemory) else f"{event.type}: {event.message}"),)
    if pattern is None or pattern.cause != cause:
        sentence = "The GPU's memory is full" if isinstance(event, OutOfMemory) else f"The training raised {event.type}"
        return CrashCause(cause, sentence, "certain", evidence, where, message=event.message)
    confidence, subject = "certain" if ran_out else pattern.confidence, _subject(cause, event.message)
    return CrashCause(cause, pattern.sentence, confidence, evidence, where, subject, event.message, pattern.topic)


def _cause_from_log(match: FailureMatch, judgement: Judgement, lines: Sequence[LogLine], state: RunState) -> CrashCause:
    failure, pattern, cause = match.failure, match.pattern, match.cause
    if failure.is_of_launcher:
        return _cause_from_launcher(judgement.launcher, lines, failure.headline or failure.frames[-1].statement)
    role = role_of(failure.frames, failure.message)
    name = None if role is None else role.name
    explanation = explain(failure, name, _packages_of_line(failure))
    keyword = _unknown_argument(failure.message)
    is_renamed = is_renamed_or_removed(keyword)
    if pattern is not None and explanation is not None and explanation.replaces(pattern) and not is_renamed:
        pattern, cause = None, "unknown"
    where = None
    if cause in CAUSES_WITH_LOCATION:
        where = location_of(failure.frames) or _location_from_output(failure, lines)
    if judgement.event is not None and judgement.event_cause == cause:
        where = _normalize_location(judgement.event.where) or where
    sentence = _sentence_of_unknown(failure) if pattern is None else pattern.sentence
    if pattern is not None and explanation is not None and explanation.names_what(pattern):
        sentence = explanation.sentence
    elif pattern is not None and pattern.raised:  # of many messages, which know better than the part of the package
        is_broad = cause == "program-error"
        sentence = _sentence_of_unknown(failure) if is_broad else f"{sentence}: {quote_log(failure.headline, 160)}"
    confidence: Confidence = "likely" if pattern is None else pattern.confidence
    before = lines[: failure.first]
    reason = _logged_error(before[-NEAR:]) if ":" not in failure.message else None
    message = failure.message if reason is None else f"{failure.headline}: {reason}"
    failure = replace(failure, message=message)
    subject = _subject(cause, message)
    topic = None if pattern is None else pattern.topic
    if topic == "native-crash" and (words := reason or ("what():" in message and failure.headline)):
        sentence = f"{sentence}: {quote_log(words, 160)}"
    if topic == "package-versions":
        # A keyword that one package passes to a class of another is a matter of their releases.
        caller = failure.calls[-1].file if failure.calls and "__init__()" in failure.headline else ""
        by_package = _named_groups("installed", caller)
        subject = keyword if is_renamed and not by_package else ", ".join(_packages(failure)) or None
        passed_on = not failure.calls or "**" in failure.calls[-1].statement or not _is_foreign(failure.calls[-1])
        if _pattern("of-configuration").match(lines[failure.first - 1].text):
            topic = "target-key"
        elif subject and subject != keyword and passed_on and "unexpected keyword" in failure.headline:
            topic = "program-releases"
    elif topic == "output-exists" and judgement.launcher.reported_failure:
        subject = "several-processes"
    elif cause == "missing-package":
        packages = _named_groups("installed", failure.frames[-1].file) if failure.frames else ()
        subject = missing_package(failure.headline, packages) or subject or _failing_package(failure)
    ranks = read_ranks(lines, state)
    if cause == "collective-timeout" and topic is None and ranks.are_out_of_step:
        topic = "same-steps"
    elif cause == "collective-timeout" and topic is None and any(matches_any("success", line.text) for line in before):
        sentence, topic = f"{sentence}, after the training was done", "after-training"
    elif topic in {"tracker", "git-state", "report-failed"} and (steps := _steps_done(before)):
        sentence = f"{sentence}; all {steps} steps were done before"
    innermost = failure.calls[-1] if failure.calls else CodeFrame("", "")
    forms = read_data_file(FILE)["relations"].get(topic or cause, {})
    relation = "".join(_first_form(((form, (key,)) for key, form in forms.items()), f"{message}\n{innermost.name}"))
    is_of_sizes = topic == "shapes" and not relation and name != "collate"
    name = (_relation_of_sizes(message) if is_of_sizes else relation) or name
    if pattern is None or (topic in (None, "native-crash") and cause == "unknown" and failure.frames):
        topic = UNEXPLAINED
    is_of_call = topic == "package-versions" or cause in CAUSES_OF_CALLS or (pattern is not None and pattern.raised)
    checks = _check_the_call(failure, explanation) if (is_of_call and failure.calls) or topic == UNEXPLAINED else ()
    if pattern is not None and pattern.raised and (_says_what_is_asked(checks) or _advice_in(message)):
        topic, sentence = UNEXPLAINED, _sentence_of_unknown(failure)
    if cause == "unknown" and pattern is None:
        cause, sentence = _explain_without_pattern(failure, name, explanation)
    evidence = _evidence(match, judgement.launcher, ranks)
    evidence = evidence if reason is None else (evidence[0], quote_log(reason), *evidence[1:])
    words = failure.headline.partition(": ")[2]
    logged = takewhile(lambda line: not words or words not in line.text, before[-2 * NEAR :])
    near = [{"W": "WARNING: ", "E": "ERROR: "}.get(line.level or "", "") + line.text for line in logged][::-1]
    hint = next(filter(_pattern("nothing-loaded").search, near), None)
    is_empty = hint is not None and pattern is not None
    if hint is None and pattern is None and explanation is not None:
        hint = next(filter(_pattern("hints").search, near), None)
    if hint is not None:
        evidence, checks = (*evidence, quote_log(hint)), (remedy("logged-before", hint=quote_log(hint, 120)), *checks)
    code = "\n".join((innermost.statement, innermost.name, hint or ""))
    is_unsure = (pattern is None or not (pattern.regexes or confidence == "certain")) and failure.refuses
    is_unsure = is_unsure and (" " in words or _says_what_is_asked(checks))
    is_refusal = is_empty or is_unsure or (topic == "package-versions" and subject is None)
    return CrashCause(
        cause, sentence, confidence, evidence, where, subject, message, topic, name, checks, is_refusal, code
    )


def _steps_done(lines: Sequence[LogLine]) -> str | None:
    """The number of steps, if the last bar of an output that reports progress is full; else None."""
    is_reported = any(reports_progress(line.text) for line in lines)
    bars = [bar for line in lines for bar in BAR.finditer(line.text)]
    return bars[-1][2] if is_reported and bars and bars[-1][1] == bars[-1][2] else None


def _first_form(rows: Iterable[tuple[str, tuple[str, ...]]], text: str) -> tuple[str, ...]:
    """The texts of the first form in `text`, filled with its groups; those named `low` and `high` must be in order."""
    matches = ((match.groupdict("it"), texts) for form, texts in rows if (match := re.search(form, text)))
    ordered = (each for each in matches if int(each[0].get("low", 0)) < int(each[0].get("high", 1)))
    groups, texts = next(ordered, ({}, ()))
    values = {name: quote_log(group, 120) for name, group in groups.items()}
    return tuple(filled(each, values) for each in texts)


def facts_in(text: str, log: Sequence[str] = ()) -> tuple[Remedy, ...]:
    """What to do by the numbers and names of a message, and what else the output shows."""
    rows = (
        (row["form"], (row["title"], row["why"], row.get("instead", "")))
        for row in read_data_file(FACTS)
        if re.search(row["form"], text) and any(map(re.compile(row.get("log", "")).search, (text, *log)))
    )
    texts = _first_form(rows, text)
    source = "the numbers and names of the message"
    return (Remedy(title=texts[0], why=texts[1], name=texts[2], source=source),) if texts else ()


def _relation_of_sizes(message: str) -> str | None:
    """How two sizes in a message differ, by a name of the ladder `shapes`; None if that says nothing."""
    shapes = [[int(size) for size in max(texts).split(",")] for texts in SHAPE.findall(message)]
    alike = (zip(left, right, strict=True) for left, right in pairwise(shapes) if len(left) == len(right))
    low, high = sorted(next((pair for pairs in alike for pair in pairs if pair[0] != pair[1]), (0, 0)))
    if high == low + 1 > 16:  # smaller ones are numbers of things, not lengths
        return "off-by-one"
    low, high = sorted(map(math.prod, shapes[:2])) if len(shapes) == 2 else (0, 0)
    return "multiple" if low > 4 and high % low == 0 and high > low else None


def _sentence_of_unknown(failure: Failure) -> str:
    """The exception with its message, else with the statement that raised it."""
    headline = failure.headline
    if ":" not in headline and failure.frames and failure.frames[-1].statement:
        headline = f"{headline or 'the exception is cut off'}, raised by `{failure.frames[-1].statement}`"
    return f"The training failed: {quote_log(headline, 160)}"


def _explain_without_pattern(failure: Failure, role: str | None, explanation: Explanation | None) -> tuple[str, str]:
    """The cause and the sentence of an error that no row of `crashes.yaml` explains.

    In a package it is that of what its code was doing, or that it refuses what it was given.
    """
    sentence = _sentence_of_unknown(failure) if explanation is None else explanation.sentence
    if explanation is not None and (explanation.is_specific or not _packages_of_line(failure)):
        return explanation.cause, sentence
    document = read_data_file(FILE)
    cause = document["causes-of-roles"].get(role)
    if failure.refuses and _pattern("refusing-words").search(failure.headline):
        cause = "bad-arguments" if role in document["roles-of-settings"] else cause or "bad-arguments"
    return cause or ("unknown" if explanation is None else explanation.cause), sentence


def _packages_of_line(failure: Failure) -> tuple[str, ...]:
    """The package that the failing line belongs to, which may be Python itself; empty if the program's own."""
    foreign = filter(_is_foreign, failure.calls[-1:])
    return next((_named_groups("installed", frame.file) or ("Python",) for frame in foreign), ())


def _check_the_call(failure: Failure, explanation: Explanation | None) -> tuple[Remedy, ...]:
    """Where to look in an error that no pattern recognises: the call into a package, or the program's own line.

    The innermost frame that is not installed is the program's own code; what it passed on is the first thing to check.
    """
    frames = failure.calls
    # Python's own files say less than what called them.
    named = (frame for frame in reversed(frames) if not _is_foreign(frame) or _named_groups("installed", frame.file))
    inner = next(named, None)
    if inner is None:
        return () if explanation is None else explanation.remedies
    package = next(iter(_named_groups("installed", inner.file)), None)
    is_release = _pattern("release-errors").search(failure.message) is not None
    title, why = f"look at {_show(inner)} in {inner.place}", "the program's innermost line of the traceback"
    refuses = failure.refuses and inner == frames[-1] and not _pattern("internals").search(inner.name)
    document = read_data_file(FILE)
    forms = ((expand(row["form"], document["fragments"]), (row["why"],)) for row in document["refusals"])
    condition = _pattern("no-condition").sub("", inner.statement)
    if demand := "".join(_first_form(forms, f"{failure.message}\n{condition}")) if refuses else "":
        why = f"{_show(inner)} in {inner.place}; the condition above it says when"
    if package is not None:
        release = f", and the release of {package}" if is_release else ""
        of_program = (frame for frame in reversed(frames) if not _is_foreign(frame))
        caller = _own_frame(frames) if LIBRARY.search(inner.file) else next(of_program, None)
        called = "" if caller is None else f"; called by {_show(caller)} in {caller.place}"
        title = f"check what reaches {package}'s {inner.function}{release}"
        why = f"{_show(inner)} in {package} failed{called}"
    checks: tuple[Remedy, ...] = (Remedy(title=demand or title, why=why, source="the traceback"),)
    if explanation is not None and demand and not explanation.is_specific:
        checks = (*checks, *explanation.remedies[1:])  # the first says in general to do as the message asks
    elif explanation is not None:
        checks = (*explanation.remedies, *(checks if package else ()))
    is_wordless = package is not None and failure.refuses and not failure.headline.partition(": ")[2]
    if not (is_release or is_wordless) or (explanation is not None and explanation.is_specific):
        return checks
    return (*checks, remedy("program-parts", package=package or "its packages"))


def _own_frame(frames: Sequence[CodeFrame]) -> CodeFrame | None:
    """The innermost frame that the user can edit: of the program, or of the clone of a package's repository."""
    of_program = (frame for frame in reversed(frames) if not LIBRARY.search(frame.file))
    return next((frame for frame in of_program if re.match(r"[/~]|\w:", frame.file) or not _is_foreign(frame)), None)


def _says_what_is_asked(checks: Sequence[Remedy]) -> bool:
    """Whether the first check is more than where to look."""
    return bool(checks) and not checks[0].title.startswith(("check what reaches", "look at"))


def _is_foreign(frame: CodeFrame) -> bool:
    return bool(LIBRARY.search(frame.file) or _named_groups("installed", frame.file))


def _show(frame: CodeFrame) -> str:
    return f"`{quote_log(frame.statement or frame.function, 100)}`"


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
        precisions = read_data_file(FILE)["precisions"]
        return next((name for name, words in precisions.items() if re.search(words, message)), None)
    return _unknown_argument(message) if cause == "bad-arguments" else None


def _unknown_argument(message: str) -> str | None:
    """The first argument of the message that was renamed or removed, else the first unknown one; None without one."""
    names: list[str] = []
    for listed in _named_groups("unknown-arguments", message):
        options = [next(filter(None, groups)).replace("-", "_") for groups in _pattern("option").findall(listed)]
        names += options or [listed]
    return next(iter([*filter(is_renamed_or_removed, names), *names]), None)


def _failing_package(failure: Failure) -> str | None:
    """The installed package whose library or import failed, or None. One that raises itself lacks another."""
    working = [frame for frame in failure.frames if not failure.frames[-1].raises]
    imported = [frame.file for frame in working if frame.function == "<module>"]
    places = (failure.headline, *reversed(imported), *(frame.file for frame in working[-1:]))
    return next((package for folder in places for package in _named_groups("installed", folder)), None)


def _packages(failure: Failure) -> tuple[str, ...]:
    """The packages whose releases do not fit: those that it names, and the innermost that the program calls."""
    wrapped = failure.message.partition("because of the following error")[2]
    named = [name.lower() for name in _named_groups("libraries", wrapped or failure.headline)]
    document = read_data_file(FILE)
    named += islice((name for name, form in document["classes-of"].items() if re.search(form, failure.headline)), 1)
    files = (frame.file for part in (failure.calls, failure.frames) for frame in takewhile(_is_foreign, reversed(part)))
    inner = (name for file in files for name in _named_groups("installed", file) if name not in document["messengers"])
    packages = tuple(dict.fromkeys((*named, *islice(inner, 1))))[:3] or _named_groups("owners", failure.headline)
    # A package that is run from a clone of its repository, of which the program itself is no part.
    clones = [names for frame in failure.frames if (names := _named_groups("clone", frame.file.replace("\\", "/")))]
    return packages or next((names for names in reversed(clones) if names != clones[0]), ())


def _named_groups(pattern: str, text: str) -> tuple[str, ...]:
    """The group of each match that took part in it."""
    matches = _pattern(pattern, re.IGNORECASE if pattern == "libraries" else 0).finditer(text)
    return tuple(next(filter(None, match.groups())) for match in matches)


def _advice_in(message: str) -> tuple[Remedy, ...]:
    """What the message itself says to do."""
    text = re.sub(r"(?m)^(?:wandb|clearml|mlflow|comet\w*)\b.*", "", message, flags=re.IGNORECASE)
    text = re.sub(r":\n+(?:```\w*\n)?(?=\S)", ": ", text)  # a command below the sentence that names it
    reporting = _pattern("reporting", re.IGNORECASE)
    texts = [each for each in _named_groups("advice", text) if not reporting.search(re.sub(r"\([^()]*\)?", "", each))]
    is_vague = bool(texts) and len(texts[0].split()) < 5 and not _named_groups("names", texts[0])
    advice = "; ".join(texts[: 1 + is_vague])
    return (remedy("do-as-it-says", advice=quote_log(advice, 300)),) if advice else ()


def _detail_of(message: str) -> str:
    """What a message says after the class of the exception, without addresses, to stand before other words."""
    text = re.sub(r"For further information visit |https?://\S+|\A[\w.]+:?\s*\Z", "", message)
    text = re.sub(r"(?i)\W*\bplease (?:report|file|open|submit)\b.*", "", text.partition(": ")[2] or text)
    detail = quote_log(text, 240)
    return f"{detail}; " if detail else ""


def _near_name(cause: CrashCause, log: Sequence[str]) -> tuple[Remedy, ...]:
    """The name that was meant, if the message, the settings or what a configuration printed has one that is near."""
    name = next(iter(_named_groups("refused-names", cause.message)), None)
    if name is None or is_renamed_or_removed(name):
        return ()
    *_, last = re.split(r"[./]", name)
    listed = {text for text in _named_groups("listed-names", cause.message) if text not in (name, last)}
    failed_name = re.compile(rf"['\"]{re.escape(last)}['\"]")  # the line that failed is no list of settings
    lines = (line for above, line in pairwise(("", *log)) if not above.lstrip().startswith('File "'))  # no code
    shown = (line for line in lines if not failed_name.search(line))
    printed = {text for line in shown for text in _named_groups("settings-in-output", line)} - {last}
    options = {text.replace("-", "_") for text in FIELDS} - {last.replace("-", "_")}
    for names, where in ((listed, "the message lists"), (options, "settings have"), (printed, "the output shows")):
        near = difflib.get_close_matches(last, names, n=1, cutoff=0.8)
        if near:
            return (remedy("near-name", near=near[0], name=last, where=where),)
    return ()


def _is_new(advice: Remedy, remedies: Sequence[Remedy]) -> bool:
    """Whether advice names something that the first two of `remedies` do not, or there are no two."""
    names = _named_groups("names", advice.why)
    texts = [f"{offer.title} {offer.why}" for offer in remedies[:2]]
    return len(texts) < 2 or (bool(names) and not any(name in text for text in texts for name in names))


def missing_package(message: str, present: tuple[str, ...] = ()) -> str | None:
    """The missing package that a message names, or None; not one of those `present`, whose code says so."""
    forms = read_data_file(FILE)["missing-package"]
    names = (next(filter(None, match.groups())) for form in forms for match in re.finditer(form, message))
    imported = (_pattern("imported").match(name) for name in names)
    return next((match[0] for match in imported if match is not None and match[0] not in present), None)


def _evidence(match: FailureMatch, launcher: LauncherReport, ranks: RankReport) -> tuple[str, ...]:
    failure = match.failure
    evidence = [quote_log(failure.headline or "the traceback is cut off")]
    if (detail := _pattern("details", re.MULTILINE).search(failure.message)) and detail[0] not in failure.headline:
        evidence.append(quote_log(detail[0]))
    follows = match.pattern is not None and match.pattern.consequence
    if stall := ranks.stall() if match.cause == "collective-timeout" else ():
        evidence += stall
    elif failure.rank is not None and (LOST_PEER.search(failure.headline) if match.cause == "unknown" else follows):
        evidence.append(f"rank {failure.rank} reports it; which rank failed first is not known")
    elif failure.rank is not None:
        evidence.append(f"{'first failed' if ranks.all_seen else 'raised'} on rank {failure.rank}")
    if (waited := _pattern("waited").search(failure.message)) and int(waited[2]) > 2 * int(waited[1]):
        hours, limit = (f"{int(text) / 3.6e6:.3g} h" for text in (waited[2], waited[1]))
        evidence.append(f"it waited {hours} although the limit is {limit}: the process itself stood still meanwhile")
    if inner := _own_frame(failure.frames):
        statement = f": {_show(inner)}" if inner.statement else ""
        evidence.append(f"in {inner.function or 'the program'} ({inner.place}){statement}")
    if (role := role_of(failure.frames)) and role.name not in ("forward", "step") and failure.type not in NEVER_BEGUN:
        evidence.append(role.say)
    if launcher.exit_code:
        evidence.append(f"the launcher reports exit code {launcher.exit_code}")
    return tuple(evidence)


def _cause_from_exit(judgement: Judgement, lines: Sequence[LogLine], not_for_memory: bool) -> CrashCause:
    worded = [line for line in lines if re.match(r"(?!Traceback \(| {2,}).*\w", line.text)]  # no lines of tracebacks
    # What was logged as mere information, and progress, are no signs of an error.
    logged = [line for line in worded if not line.quiet] or worded
    signs = list(islice((line for line in reversed(logged) if parse_line(line.text) is None), 3))[::-1]
    last = tuple(quote_log(line.text) for line in signs or logged[-3:])
    if judgement.signal is None and judgement.launcher.reported_failure:
        return _cause_from_launcher(judgement.launcher, lines, *last[-1:])
    if judgement.signal is None:
        reason = last_error("\n".join(line.text for line in lines if not line.blank))  # as the headline quotes it
        why = "; its output does not say why" if reason is None else f": {reason}"
        sentence = f"The training ended with exit code {judgement.exit_code}{why}"
        return CrashCause("unknown", sentence, "possible", last)
    name, pattern = signal_name(judgement.signal), explain_signal(judgement.signal, not_for_memory)
    who = "" if judgement.launcher.rank is None else f" on rank {judgement.launcher.rank}"
    sentence = pattern.sentence.replace("{signal}", name)
    evidence = (f"ended by {name}{who}", *last)
    return CrashCause(pattern.cause, sentence, pattern.confidence, evidence, topic=pattern.topic)


def _cause_from_launcher(launcher: LauncherReport, lines: Sequence[LogLine], *evidence: str) -> CrashCause:
    """What a launcher reports that says no more than that a process failed."""
    if logged := _cause_from_logged_error(lines, *evidence):
        return logged
    who = "a process" if launcher.rank is None else f"rank {launcher.rank}"
    code = "" if launcher.exit_code is None else f" with exit code {launcher.exit_code}"
    if str(launcher.exit_code) in {each for line in lines for each in _named_groups("expected-exits", line.text)}:
        sentence = f"The training left{code}, which the job system takes for no failure"
        return CrashCause("unknown", sentence, "likely", tuple(map(quote_log, evidence)), topic="resumes-itself")
    files = (match[1] for line in lines if (match := _pattern("error-file").match(line.text)))
    sentence = f"The launcher reports that {who} failed{code}; the error of the process is not in this output"
    evidence = (*map(quote_log, evidence), *(f"its error file is {file}" for file in islice(files, 1)))
    return CrashCause("unknown", sentence, "possible", evidence, topic="rank-output")


def _cause_from_logged_error(lines: Sequence[LogLine], *evidence: str) -> CrashCause | None:
    """What the program itself logged as an error before it ended; None if it did not."""
    if (logged := _logged_error(lines)) is None:
        return None
    sentence = f"The program logged an error before it ended: {quote_log(logged, 160)}"
    check = Remedy(title="correct what the program logged", why=quote_log(logged), source="the program's output")
    shown, message = (quote_log(logged), *map(quote_log, evidence)), f"ERROR: {logged}"
    if pattern := first_of(crash_table().messages, message):
        subject = _subject(pattern.cause, message)
        return CrashCause(pattern.cause, pattern.sentence, "likely", shown, None, subject, message, pattern.topic)
    return CrashCause("unknown", sentence, "likely", shown, message=message, checks=(check,))


def _logged_error(lines: Sequence[LogLine]) -> str | None:
    """The last error that the program logged in these lines."""
    words = _pattern("last-words")
    texts = (line.text for line in reversed(lines) if (line.level and not line.quiet) or words.search(line.text))
    return next((_pattern("farewells").sub("", text) for text in texts if _pattern("logged-errors").match(text)), None)


def _normalize_location(where: str | None) -> str | None:
    location: str | None = read_data_file(FILE)["locations-of-phases"].get(where, where)
    return location if location in {"training", "evaluation", "loading", "optimizer-step", "checkpoint"} else None


def _location_from_output(failure: Failure, lines: Sequence[LogLine]) -> str | None:
    """The location by the last banner or progress bar before the failure."""
    before = [line.text for line in lines if line.number < failure.first][-LOOKBACK_LINES:]
    forms: Mapping[str, str] = read_data_file(FILE)["locations"]
    locations = (name for line in reversed(before) for name, form in forms.items() if re.match(form, line))
    return _normalize_location(next(locations, None))

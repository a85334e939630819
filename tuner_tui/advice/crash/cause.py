"""What ended a training, from its events and its log, and where in the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.crash.call_checks import (
    CallChecks,
    check_the_call,
    failing_package,
    mismatched_packages,
    own_frame,
    packages_of,
    show,
)
from tuner_tui.advice.crash.crash_words import (
    FILE,
    advice_in,
    meaning_of,
    missing_package,
    named_groups,
    pattern_of,
    relation_of,
    relation_of_sizes,
    subject_of,
    unknown_argument,
)
from tuner_tui.advice.crash.failed_operation import FILE as OPERATIONS
from tuner_tui.advice.crash.failed_operation import Explanation, explain, quote_log
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.specific_errors import is_renamed_or_removed
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Finished, OutOfMemory, Raised
from tuner_tui.runs.log_parsing.crash_table import KILLED, CrashPattern, crash_table, explain_signal, first_of
from tuner_tui.runs.log_parsing.failures import CodeFrame, Failure, LauncherReport, reports_progress, signal_name
from tuner_tui.runs.log_parsing.fatal_failure import NEAR, NEVER_BEGUN, FailureMatch, Judgement, judge
from tuner_tui.runs.log_parsing.frame_roles import location_of, role_of_traceback
from tuner_tui.runs.log_parsing.lines import BAR, Confidence, LogLine, matches_any
from tuner_tui.runs.log_parsing.rank_report import LOST_PEER, RankReport, read_ranks
from tuner_tui.runs.supervise.outcome import last_error

CAUSES_WITH_LOCATION = frozenset({"gpu-oom", "host-oom", "disk-full", "checkpoint-io", "nan"})
CAUSES_OF_CALLS = frozenset({"bad-arguments", "program-error", "unknown"})
FULL_DISK_BYTES = 64e6
LOOKBACK_LINES = 60
LAST_WORDS, HEADED_LINES = 3, 15
OPEN_TOPICS = frozenset({"native-crash", "nccl-debug"})
UNEXPLAINED = "unknown"
"""The topic of a failure that no pattern explains; the ladder of this name depends on the role of the code."""


class CrashCause(Struct, frozen=True):
    """A cause before its remedies are looked up.

    `subject` is the package, precision or argument that it names, `topic` that of its pattern, `role` what the code
    that failed was doing. `checks` are offered where no remedy is known, and first where a package raised the exception
    with words of its own and only its code, not the words, was recognised (`is_refusal`). `code` is the failed line,
    its file and function, and what was logged before; `packages` are those of the calls, the innermost first.
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
    checks: CallChecks = CallChecks()
    is_refusal: bool = False
    code: str = ""
    packages: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """The package whose code failed, past the tools that it computes with; empty if there is none."""
        return next((name for name in self.packages if name not in read_data_file(FILE)["tools"]), "")


def find_cause(situation: Situation, lines: Sequence[LogLine]) -> CrashCause | None:
    """Why the training with the output `lines` failed; None if nothing shows that it did."""
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
        last = [line for line in lines if not pattern_of("notices").match(line.text)][-LOOKBACK_LINES:]
        went_on = any(reports_progress(line.text) for line in last)
        farewells = [line for line in last if not went_on and pattern_of("farewells").search(line.text)]
        return _cause_from_logged_error(farewells) or _cause_from_last_lines(last)
    return None


def cause_of_outcome(finished: Finished) -> CrashCause | None:
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
        sentence = f"The training raised {event.type}" if isinstance(event, Raised) else "The device's memory is full"
        return CrashCause(cause, sentence, "certain", evidence, where, message=event.message)
    confidence, subject = "certain" if ran_out else pattern.confidence, subject_of(cause, event.message)
    return CrashCause(cause, pattern.sentence, confidence, evidence, where, subject, event.message, pattern.topic)


def _cause_from_log(match: FailureMatch, judgement: Judgement, lines: Sequence[LogLine], state: RunState) -> CrashCause:
    """The cause by a failure in the output: by its row of `crashes.yaml`, else by the operation that failed."""
    failure, pattern, before = match.failure, match.pattern, lines[: match.failure.first]
    if failure.is_of_launcher:
        return _cause_from_launcher(judgement.launcher, lines, failure.headline or failure.frames[-1].statement)
    code_role = role_of_traceback(failure.frames, failure.message)
    role = None if code_role is None else code_role.name
    packages = packages_of(failure)
    explanation = explain(failure, packages[0] if packages else "")
    is_renamed = is_renamed_or_removed(unknown_argument(failure.message))
    if pattern is not None and explanation is not None and explanation.replaces(pattern) and not is_renamed:
        pattern = None
    # What was logged just before says more than an exception without a message.
    reason = _logged_error(before[-NEAR:]) if ":" not in failure.message else None
    failure = failure if reason is None else replace(failure, message=f"{failure.headline}: {reason}")
    ranks = read_ranks(lines, state)
    topic, subject = _topic_and_subject(failure, pattern, judgement.launcher, ranks, before)
    cause = "unknown" if pattern is None else pattern.cause
    sentence = "" if pattern is None else _sentence(failure, pattern, explanation)
    sentence += _circumstance(failure, topic, reason, before)
    innermost = failure.calls[-1] if failure.calls else CodeFrame("", "")
    sizes = relation_of_sizes(failure.message) if (topic or cause) == "shapes" and role != "collate" else None
    role = relation_of(topic or cause, f"{failure.message}\n{innermost.name}") or sizes or role
    if pattern is None or (topic in (None, "native-crash") and cause == "unknown" and failure.frames):
        topic = UNEXPLAINED
    words = failure.headline.partition(": ")[2]
    refuses_in_words = failure.refuses and " " in words
    is_broad = pattern is not None and (pattern.raised or (refuses_in_words and pattern.is_by_place(failure.headline)))
    is_of_call = failure.calls and (topic == "package-versions" or cause in CAUSES_OF_CALLS or is_broad)
    is_explained = explanation is not None and explanation.is_specific
    meant = () if is_explained or (pattern is not None and not is_broad) else meaning_of(failure.headline)[1]
    checks = check_the_call(failure, explanation, meant) if is_of_call or topic == UNEXPLAINED else CallChecks()
    if is_broad and (checks.say_demand or advice_in(failure.message)):
        topic, sentence = UNEXPLAINED, _sentence_of_unknown(failure, checks.refusal)
    if pattern is None:
        cause, sentence = _explain_without_pattern(failure, role, explanation, checks.refusal)
    evidence = _evidence(match, judgement.launcher, ranks)
    evidence = evidence if reason is None else (evidence[0], quote_log(reason), *evidence[1:])
    hint = _hint_before(words, before, is_open=topic in OPEN_TOPICS or (not pattern and bool(explanation)))
    if hint is not None:
        logged = remedy("logged-before", hint=quote_log(hint, 120))
        evidence, checks = (*evidence, quote_log(hint)), CallChecks((logged, *checks.remedies), say_demand=True)
    is_unsure = pattern is None or not (pattern.regexes or pattern.confidence == "certain")
    is_refusal = is_unsure and (refuses_in_words or (failure.refuses and checks.say_demand))
    return CrashCause(
        cause,
        sentence,
        "likely" if pattern is None else pattern.confidence,
        evidence,
        _location(failure, match.cause if pattern is not None else "unknown", judgement, lines),
        subject,
        failure.message,
        topic,
        role,
        checks,
        is_refusal or hint is not None or (topic == "package-versions" and subject is None),
        "\n".join((innermost.statement, innermost.name, hint or "")),
        packages,
    )


def _topic_and_subject(
    failure: Failure,
    pattern: CrashPattern | None,
    launcher: LauncherReport,
    ranks: RankReport,
    before: Sequence[LogLine],
) -> tuple[str | None, str | None]:
    """The ladder of remedies that a row names, or a narrower one, and what the message names for it."""
    topic, cause = (None, "unknown") if pattern is None else (pattern.topic, pattern.cause)
    subject = subject_of(cause, failure.message)
    if topic == "package-versions":
        # What one package passes to a class of another, or imports from it, is a matter of their releases.
        keyword, calls = unknown_argument(failure.message), failure.calls
        caller = calls[-1].file if calls and re.search(r"__init__\(\)|^(?!.*unexpected)", failure.headline) else ""
        is_renamed = is_renamed_or_removed(keyword) and not named_groups("installed", caller)
        subject = keyword if is_renamed else ", ".join(mismatched_packages(failure)) or None
        passed_on = not calls or "**" in calls[-1].statement or not packages_of(failure)[0]
        if pattern_of("of-configuration").match(before[-1].text if before else ""):
            topic = "target-key"
        elif subject and subject != keyword and passed_on and "unexpected keyword" in failure.headline:
            topic = "program-releases"
    elif topic == "output-exists" and launcher.reported_failure:
        subject = "several-processes"
    elif cause == "missing-package":
        packages = named_groups("installed", failure.frames[-1].file) if failure.frames else ()
        subject = missing_package(failure.headline, packages) or subject or failing_package(failure)
    elif cause == "collective-timeout" and topic is None:
        if ranks.are_out_of_step:
            topic = "same-steps"
        elif any(matches_any("success", line.text) for line in before):
            topic = "after-training"
    return topic, subject


def _sentence(failure: Failure, pattern: CrashPattern, explanation: Explanation | None) -> str:
    if explanation is not None and pattern.topic in read_data_file(OPERATIONS)["unnamed"]:
        return explanation.sentence
    if not (pattern.raised or pattern.is_by_place(failure.headline)):
        return pattern.sentence
    # The row is of many messages, which know better than the part of the package.
    is_broad = pattern.raised and pattern.cause == "program-error"
    return _sentence_of_unknown(failure) if is_broad else f"{pattern.sentence}: {quote_log(failure.headline, 160)}"


def _circumstance(failure: Failure, topic: str | None, reason: str | None, before: Sequence[LogLine]) -> str:
    """What the output adds to the sentence of a topic; empty without it."""
    if topic == "native-crash" and (reason or re.search(r"what\(\):|uncaught exc", failure.message)):
        return f": {quote_log(reason or failure.headline, 160)}"
    if topic == "after-training":
        return ", after the training was done"
    if topic not in {"tracker", "git-state", "report-failed"}:
        return ""
    bars = [bar for line in before for bar in BAR.finditer(line.text)]
    is_done = bars and bars[-1][1] == bars[-1][2] and any(reports_progress(line.text) for line in before)
    return f"; all {bars[-1][2]} steps were done before" if is_done else ""


def _location(failure: Failure, cause: str, judgement: Judgement, lines: Sequence[LogLine]) -> str | None:
    """Where in the training the failure happened, for the causes whose remedies depend on it."""
    event = judgement.event if judgement.event_cause == cause else None
    observed = None if event is None else _normalize_location(event.where)
    if observed is not None or cause not in CAUSES_WITH_LOCATION:
        return observed
    # The last banner or progress bar before the failure.
    before = [line.text for line in lines if line.number < failure.first][-LOOKBACK_LINES:]
    forms: Mapping[str, str] = read_data_file(FILE)["locations"]
    locations = (name for line in reversed(before) for name, form in forms.items() if re.match(form, line))
    return location_of(failure.frames) or _normalize_location(next(locations, None))


def _hint_before(words: str, before: Sequence[LogLine], *, is_open: bool) -> str | None:
    """The line logged before the exception `words` that explains it.

    Other warnings only count where the cause is open.
    """
    logged = takewhile(lambda line: not words or words not in line.text, before[-2 * NEAR :])
    near = [{"W": "WARNING: ", "E": "ERROR: "}.get(line.level or "", "") + line.text for line in logged][::-1]
    nothing = next(filter(pattern_of("nothing-loaded").search, near), None)
    return nothing if nothing is not None or not is_open else next(filter(pattern_of("hints").search, near), None)


def _sentence_of_unknown(failure: Failure, refusal: str = "") -> str:
    """What the code was doing, or whose code failed, and the exception with its message, else what raised it."""
    headline, role, package = failure.headline, role_of_traceback(failure.frames), "".join(packages_of(failure)[:1])
    if ":" not in headline and failure.frames and failure.frames[-1].statement:
        headline = f"{headline or 'the exception is cut off'}, raised by `{failure.frames[-1].statement}`"
    code = f"{'package' if package else 'program' if failure.frames else 'output'}{'-check' * failure.refuses}"
    if meaning := meaning_of(headline)[0] or refusal:
        return f"{meaning}: {quote_log(headline, 160)}"
    imports = any(frame.function == "<module>" for frame in failure.frames[1:])
    forms, part = read_data_file(FILE)["failed-parts"], "import" if imports else role and role.name
    return f"{(forms.get(part) or forms[code]).format(package=package)}: {quote_log(headline, 160)}"


def _explain_without_pattern(
    failure: Failure, role: str | None, explanation: Explanation | None, refusal: str
) -> tuple[str, str]:
    """The cause and the sentence of an error that no row of `crashes.yaml` explains.

    In a package it is that of what its code was doing, or that it refuses what it was given.
    """
    says = meaning_of(failure.headline)[0] or (refusal if ": " in failure.headline else "")
    is_open = explanation is None or (not explanation.is_specific and says)
    sentence = _sentence_of_unknown(failure, refusal) if explanation is None or is_open else explanation.sentence
    if explanation is not None and (explanation.is_specific or not any(packages_of(failure)[:1])):
        return explanation.cause, sentence
    document = read_data_file(FILE)
    cause = document["causes-of-roles"].get(role)
    if failure.refuses and pattern_of("refusing-words").search(failure.headline):
        cause = "bad-arguments" if role in document["roles-of-settings"] else cause or "bad-arguments"
    return cause or ("unknown" if explanation is None else explanation.cause), sentence


def _check_disk_full(cause: CrashCause, situation: Situation) -> CrashCause:
    """Replaces a failed checkpoint write by its cause, a full disk, if the last sample shows one."""
    free = situation.samples[-1].host.disk_free_bytes if situation.samples else None
    if cause.cause != "checkpoint-io" or free is None or free > FULL_DISK_BYTES:
        return cause
    evidence = (*cause.evidence, f"{free / 1e6:.0f} MB free on the disk")
    return replace(cause, cause="disk-full", sentence="The disk is full", evidence=evidence)


def _evidence(match: FailureMatch, launcher: LauncherReport, ranks: RankReport) -> tuple[str, ...]:
    failure = match.failure
    evidence = [quote_log(failure.headline or "the traceback is cut off")]
    if (detail := pattern_of("details", re.MULTILINE).search(failure.message)) and detail[0] not in failure.headline:
        evidence.append(quote_log(detail[0]))
    follows = match.pattern is not None and match.pattern.consequence
    if stall := ranks.stall() if match.cause == "collective-timeout" else ():
        evidence += stall
    elif failure.rank is not None and (LOST_PEER.search(failure.headline) if match.cause == "unknown" else follows):
        evidence.append(f"rank {failure.rank} reports it; which rank failed first is unknown")
    elif failure.rank is not None:
        evidence.append(f"{'first failed' if ranks.all_seen else 'raised'} on rank {failure.rank}")
    if (waited := pattern_of("waited").search(failure.message)) and int(waited[2]) > 2 * int(waited[1]):
        hours, limit = (f"{int(text) / 3.6e6:.3g} h" for text in (waited[2], waited[1]))
        evidence.append(f"it waited {hours} although the limit is {limit}: the process itself stood still meanwhile")
    if inner := own_frame(failure.frames):
        statement = f": {show(inner)}" if inner.statement else ""
        evidence.append(f"in {inner.function or 'the program'} ({inner.place}){statement}")
    if (
        (role := role_of_traceback(failure.frames))
        and role.name not in ("forward", "step")
        and failure.type not in NEVER_BEGUN
    ):
        evidence.append(role.say)
    if launcher.exit_code:
        evidence.append(f"the launcher reports exit code {launcher.exit_code}")
    return tuple(evidence)


NEAR_ITS_END = 10
"""Lines before a signal in which the program may have said something about it."""


def _cause_from_exit(judgement: Judgement, lines: Sequence[LogLine], not_for_memory: bool) -> CrashCause:
    # Neither lines of tracebacks nor headings of a launcher's report.
    worded = [line for line in lines if re.match(r"(?!Traceback \(| {2,}|\[\d+\]:$|Root Cause).*\w", line.text)]
    logged = [line for line in worded if not line.quiet] or worded  # neither is information, nor progress below
    near = logged if judgement.signal is None else logged[-NEAR_ITS_END:]
    signs = [line for line in near if not (reports_progress(line.text) or BAR.search(line.text))][-3:]
    by_itself = judgement.signal is None  # progress says nothing of what came from outside
    last = tuple(quote_log(line.text) for line in signs or logged[-3:] * by_itself)
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
    if str(launcher.exit_code) in {each for line in lines for each in named_groups("expected-exits", line.text)}:
        sentence = f"The training left{code}, which the job system takes for no failure"
        return CrashCause("unknown", sentence, "likely", tuple(map(quote_log, evidence)), topic="resumes-itself")
    files = (match[1] for line in lines if (match := pattern_of("error-file").match(line.text)))
    sentence = f"The launcher reports that {who} failed{code}; the error of the process is not in this output"
    evidence = (*map(quote_log, evidence), *(f"its error file is {file}" for file in islice(files, 1)))
    return CrashCause("unknown", sentence, "possible", evidence, topic="rank-output")


def _cause_from_last_lines(last: Sequence[LogLine]) -> CrashCause | None:
    """What the first says of the errors that stand together at the end of an output, after which nothing goes on."""
    errors: list[int] = []
    for number, line in reversed([*enumerate(last)][-HEADED_LINES:]):
        is_warned = pattern_of("unanswered").search(line.text) is not None
        if reports_progress(line.text) or (not errors and line.quiet and not is_warned):
            break
        is_near = (errors[-1] if errors else len(last)) - number <= LAST_WORDS
        is_error = is_near and (_logged_error([line]) or pattern_of("last-errors").search(line.text))
        if (is_error or pattern_of("error-headings").match(line.text)) and not matches_any("handled", line.text):
            errors.append(number)
    first = last[errors[-1] : errors[-1] + 1] if errors else ()
    return _cause_from_logged_error(first, last="".join(line.text for line in first))


def _cause_from_logged_error(lines: Sequence[LogLine], *evidence: str, last: str = "") -> CrashCause | None:
    """What the program logged as an error before it ended, else the `last` words of its output; None if neither."""
    logged = _logged_error(lines)
    if not (text := logged or last):
        return None
    begin = "The program logged an error before it ended" if logged else "The output ends with an error"
    check = Remedy(title="correct what the program logged", why=quote_log(text), source="the program's output")
    checks = CallChecks((*meaning_of(f": {text}")[1], check if logged else remedy("untraced")), say_demand=True)
    shown, message = (quote_log(text), *map(quote_log, evidence)), f"ERROR: {text}"
    if pattern := first_of(crash_table().messages, message):
        subject = subject_of(pattern.cause, message)
        return CrashCause(pattern.cause, pattern.sentence, "likely", shown, None, subject, message, pattern.topic)
    confidence: Confidence = "likely" if logged else "possible"
    return CrashCause("unknown", f"{begin}: {quote_log(text, 160)}", confidence, shown, message=message, checks=checks)


def _logged_error(lines: Sequence[LogLine]) -> str | None:
    """The last error that the program logged in these lines."""
    words = pattern_of("last-words")
    texts = (line.text for line in reversed(lines) if (line.level and not line.quiet) or words.search(line.text))
    errors = filter(pattern_of("logged-errors").match, texts)
    return next((pattern_of("farewells").sub("", text) for text in errors), None)


def _normalize_location(where: str | None) -> str | None:
    location: str | None = read_data_file(FILE)["locations-of-phases"].get(where, where)
    return location if location in {"training", "evaluation", "loading", "optimizer-step", "checkpoint"} else None

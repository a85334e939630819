"""The findings of a training that failed: its cause, and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from tuner_tui.advice.crash.cause import CAUSES_OF_CALLS, UNEXPLAINED, CrashCause, cause_of_outcome, find_cause
from tuner_tui.advice.crash.crash_words import FILE, advice_in, detail_of, facts_in, named_groups, pattern_of
from tuner_tui.advice.crash.oom_analysis import MemoryFigures, explain_figures, limit_reached, read_figures
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.memory import MemoryLocation, leak_before_oom
from tuner_tui.advice.findings.non_finite import find_non_finite
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.computed import climb
from tuner_tui.advice.remedies.specific_errors import is_renamed_or_removed
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.core.units import format_limit, format_size
from tuner_tui.runs.log_parsing.fatal_failure import newest_start
from tuner_tui.runs.log_parsing.lines import parse_lines
from tuner_tui.runs.slurm import SLURM_OUTCOMES
from tuner_tui.settings.model import FIELDS

LEAK_LOCATIONS: Mapping[str, MemoryLocation] = {"gpu-oom": "gpu", "host-oom": "host"}
PLENTY, PLENTY_SHARE = 4, 0.25
"""Free memory of so many times a request that failed, and this share of the host, means a limit of the process."""


def crash_findings(situation: Situation) -> tuple[Finding, ...]:
    """Why the run failed, and that its loss was not finite. Only the latter if it completed or stopped."""
    state = situation.state
    if situation.is_alive:
        return ()
    lines = newest_start(output := parse_lines(situation.log))
    ended_well = state.outcome in {"completed", "stopped"} or state.stop_requested
    cause = None if ended_well or state.outcome in SLURM_OUTCOMES else find_cause(situation, lines)
    if state.finished is not None and state.outcome in (*SLURM_OUTCOMES, "out-of-memory"):
        cause = cause or cause_of_outcome(state.finished)
    if cause is not None and len(lines) < len(output):
        times = sum(line.text == cause.message.partition("\n")[0] for line in output)
        again = f"this message stands {times} times in the log: earlier starts ended with it as well"
        cause = replace(cause, evidence=(*cause.evidence, again)) if times > 1 else cause
    causes = [] if cause is None else [cause]
    non_finite = find_non_finite(lines, parts=cause is not None)
    if non_finite is not None and cause is not None and cause.cause == "nan":
        causes = [replace(cause, evidence=(*cause.evidence, *non_finite[1]))]
    elif non_finite is not None:
        sentence, evidence, confidence = non_finite
        # Who interrupts a training mostly has seen that its loss is nan.
        first = 0 if cause is not None and cause.cause in ("interrupted", "unknown") else len(causes)
        causes.insert(first, CrashCause("nan", sentence, confidence, evidence, "training"))
    return tuple(_finding(cause, situation) for cause in causes)


def _finding(cause: CrashCause, situation: Situation) -> Finding:
    text = f"{cause.message}\n{cause.code}"
    figures, facts = read_figures(text), facts_in(text, situation.log)
    situation = replace(situation, backend=figures.backend)
    remedies = remedies_for(cause.cause, situation, cause.subject or cause.where, cause.topic, cause.role)
    foreign: str = read_data_file(FILE)["words-of-torch"].get(figures.backend, "(?!)")
    fitting = tuple(offer for offer in remedies if not re.search(foreign, f"{offer.title} {offer.why}"))
    remedies = fitting or (() if facts else remedies)
    finding = Finding(cause.cause, "failed", cause.sentence, cause.evidence, cause.confidence, cause.where, remedies)
    if cause.cause in COMPLETIONS:
        finding = COMPLETIONS[cause.cause](finding, cause, situation, figures)
    remedies = _with_words_of_message(cause, finding.remedies)
    if cause.cause in CAUSES_OF_CALLS:
        remedies = (*_near_name(cause, situation.log), *remedies)
    general = {fact.name: fact for fact in facts if fact.name}
    remedies = tuple(general.get(offer.name, offer) for offer in remedies) if general else (*facts, *remedies)
    remedies = _without_what_is_set(cause, situation, remedies)
    usable = tuple(offer for offer in remedies if not (cause.owner and offer.edits_line))
    remedies = usable or tuple(remedy("package-line", package=cause.owner) for _ in remedies[:1])
    location = LEAK_LOCATIONS.get(cause.cause)
    leak = None if location is None else leak_before_oom(situation, location)
    peak = next(iter(situation.peaks), None) if cause.cause == "gpu-oom" else None
    grown = (*([peak.growth.sentence] if peak and peak.growth else []), *([leak.evidence] if leak else []))
    if grown:
        remedies = (*remedies_for("memory-grows", situation, location), *remedies)
    return replace(finding, evidence=(*finding.evidence, *grown), remedies=remedies)


def _explain_gpu_memory(finding: Finding, cause: CrashCause, situation: Situation, figures: MemoryFigures) -> Finding:
    """By the numbers of the message, and by what was in memory at the peak."""
    evidence, remedies = finding.evidence, finding.remedies
    if peak := next(iter(situation.peaks), None):
        held = None if peak.largest is None else peak.largest.kind
        preferred = {offer.name for offer in climb("gpu-oom-held", situation, held)}
        remedies = tuple(sorted(remedies, key=lambda offer: offer.name not in preferred))
        evidence = (*evidence, peak.sentence)
    limit = situation.memory_limit_bytes
    reading = explain_figures(figures, has_own_limit=limit is not None)
    sentence, evidence = reading.sentence or finding.sentence, (*evidence, *reading.evidence)
    remedies = reading.remedies if reading.is_whole else (*reading.remedies, *remedies)
    if limit is not None and figures.allowed is not None:
        sentence = limit_reached(limit, "the GPU's")
        remedies = (*remedies, remedy("raise-limit", limit=format_limit(limit)))
    return replace(finding, sentence=sentence, evidence=evidence, remedies=remedies)


def _explain_host_memory(finding: Finding, cause: CrashCause, situation: Situation, figures: MemoryFigures) -> Finding:
    """Whether an allocation that failed met a limit although memory was free."""
    if cause.topic is not None:  # the kernel killed it for memory
        return finding
    limit = situation.host_memory_limit_bytes
    if limit is not None:
        return replace(finding, sentence=limit_reached(limit, "the host's"))
    host = situation.samples[-1].host if situation.samples else None
    used, total = (None, None) if host is None else (host.ram_used_bytes, host.ram_total_bytes)
    free = 0 if used is None or total is None else total - used
    if not (figures.tried and total) or free < max(PLENTY * figures.tried, PLENTY_SHARE * total):
        return finding
    sentence = f"An allocation of host memory failed although {format_size(free)} were free"
    return replace(finding, sentence=sentence, remedies=(remedy("raise-process-limit"), *finding.remedies))


def _name_port(finding: Finding, cause: CrashCause, situation: Situation, figures: MemoryFigures) -> Finding:
    """The number of the port, and who holds it."""
    port = next(filter(None, map(pattern_of("port").search, (cause.message, *finding.evidence))), None)
    number = "port" if port is None else f"port {port[1] or port[2]}"
    exited = situation.state.exited
    evidence = (*finding.evidence, *(() if exited is None else exited.evidence))
    return replace(finding, sentence=finding.sentence.replace("port", number, 1), evidence=evidence)


COMPLETIONS: Mapping[str, Callable[[Finding, CrashCause, Situation, MemoryFigures], Finding]] = {
    "gpu-oom": _explain_gpu_memory,
    "host-oom": _explain_host_memory,
    "port-in-use": _name_port,
}
"""The causes whose finding depends on more than their ladder of remedies."""


def _with_words_of_message(cause: CrashCause, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The remedies with what the message itself asks for, and with what to check, each where it belongs."""
    # What a tool says of calls and arguments is for the package that called it.
    is_for_caller, calls = cause.owner not in ("", *cause.packages[:1]), pattern_of("calls")
    offers, checks = advice_in(cause.message), cause.checks.remedies
    advice = [replace(offer, edits_line=is_for_caller and bool(calls.search(offer.why))) for offer in offers]
    first = "" if cause.topic == UNEXPLAINED or not remedies else remedies[0].name
    if not first:
        is_asked = cause.cause in CAUSES_OF_CALLS and (cause.is_refusal or advice or cause.checks.say_demand)
        return (*advice, *checks, *(() if is_asked else remedies))
    document = read_data_file(FILE)
    if cause.is_refusal or first in document["quoting"] or (cause.owner and first in document["yielding"]):
        if not (detail := detail_of(cause.message)) and checks:
            return (*advice, *checks)
        objects = [name for name in named_groups("objects", detail) if name not in remedies[0].title]
        title = ": ".join((remedies[0].title, *objects[: first in document["quoting"]]))  # a file or key
        named = (replace(remedies[0], title=title, why=f"{detail}{remedies[0].why}"), *remedies[1:])
        return (*advice, *checks, *named) if cause.checks.say_demand else (*advice, *named, *checks)
    texts = [f"{offer.title} {offer.why}" for offer in remedies[:2]]
    names = [name for offer in advice for name in named_groups("names", offer.why)]
    if advice and (len(texts) < 2 or (names and not any(name in text for text in texts for name in names))):
        # Remedies of a topic were written for this message, but only the message knows a release; those of a cause are
        # for many.
        position = 0 if cause.topic is None or re.search(r"(?:[<>]=?|==) ?\d", advice[0].why) else 1
        return (*remedies[:position], *advice, *remedies[position:])
    return (*remedies, *checks) if len(remedies) == 1 and cause.confidence != "certain" else remedies


def _without_what_is_set(cause: CrashCause, situation: Situation, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The remedies without what the job or the output sets already; last those that speak of more than that."""
    stated = "|".join(named_groups("already-set", "\n".join((cause.message, *situation.log)))) or "(?!)"
    is_set = re.compile(rf"(?:{stated})(?![\W_]*(?:false|off|none|0))", re.IGNORECASE)
    env = {} if situation.job is None else situation.job.env
    unset = [offer for offer in remedies if not offer.env or not offer.env.items() <= env.items()]
    besides = {offer.title: is_set.sub("", offer.title.replace(" ", "_")) for offer in unset}
    left = (offer for offer in unset if re.sub(r"(?i)set|on|true|[\W_]", "", besides[offer.title]))
    return tuple(sorted(left, key=lambda offer: len(besides[offer.title]) < len(offer.title)))


def _near_name(cause: CrashCause, log: Sequence[str]) -> tuple[Remedy, ...]:
    """The name that was meant, if the message, the settings or what a configuration printed has one that is near."""
    name = next(iter(named_groups("refused-names", cause.message)), None)
    if name is None or is_renamed_or_removed(name):
        return ()
    *_, last = re.split(r"[./]", name)
    listed = {text for text in named_groups("listed-names", cause.message) if text not in (name, last)}
    failed_name = re.compile(rf"['\"]{re.escape(last)}['\"]")  # the line that failed is no list of settings
    shown = (line for above, line in pairwise(("", *log)) if not ('File "' in above or failed_name.search(line)))
    printed = {text for line in shown for text in named_groups("settings-in-output", line)} - {last}
    plain = last.replace("-", "_")
    options = {text.replace("-", "_") for text in FIELDS} - {plain}
    for names, where in ((listed, "the message lists"), (options, "settings have"), (printed, "the output shows")):
        near = difflib.get_close_matches(plain, names, n=1, cutoff=0.9 if names is options else 0.8)
        if near:
            return (remedy("near-name", near=near[0], name=last, where=where),)
    return ()

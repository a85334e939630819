"""Findings with their evidence, and the remedies that can be selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.core.text import wrap_text
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    GOOD,
    READING,
    Line,
    Style,
    TextSpan,
    fit,
    line,
    line_width,
    shorten,
    shorten_phrases,
    text_width,
    wrapped_parts,
    wrapped_rows,
)

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding, Remedy
    from tuner_tui.inspection.first_non_finite import Replay

MARKS: dict[str, tuple[str, Style]] = {"failed": ("● ", "bad"), "warning": ("● ", "warn"), "hint": ("○ ", "curve")}
"""By severity, the most severe first."""
HEADS = tuple(line(TextSpan(*mark)) for mark in MARKS.values())
KEYS = "[a]pply  [d]iff  [w]hy"
SLOW_KEYS = "  [F] why slow"
"""Behind those of a finding that says how much time is lost, while the run can be profiled."""
STACK_KEYS = "  [W] on which line"
WAITS = ("data-wait", "stalled")
"""Findings on what every process waits for, which its stack shows sooner than a profile."""
RETRY_KEYS = "[enter] apply, run again  [d]iff  [w]hy"
"""For a remedy of what ended the run."""
MOST_DETAILS = 3
UNEXPLAINED = "The cause is unknown; E opens the output at the last error."
ENDED_BY_OTHERS = tuple(f"ended by SIG{name}" for name in ("KILL", "TERM", "HUP", "INT"))
LOOK_KEYS = "[w]hy"
GAP = "   "
ROOM_FOR_KEYS, ROOM_FOR_RETRY, ROOM_FOR_DETAILS = 48, 72, 12

ChoiceRow = tuple[Line, int | None]
"""A row, and the index of the choice that a click on it selects."""


class FindingChoice(NamedTuple):
    """What can be selected: a remedy, or a finding without remedies."""

    finding: Finding
    remedy: Remedy | None


def choices(findings: Sequence[Finding]) -> tuple[FindingChoice, ...]:
    """Return all choices in display order: those of the most severe finding first."""
    ordered = by_severity(findings)
    return tuple(FindingChoice(finding, remedy) for finding in ordered for remedy in finding.remedies or (None,))


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: list(MARKS).index(finding.severity))


def first_choice(findings: Sequence[Finding]) -> int:
    """Return the index of the choice that is selected first: a remedy of what ended the run that can be applied."""
    usable = [
        (not can_retry(finding, remedy), at)
        for at, (finding, remedy) in enumerate(choices(findings))
        if remedy is not None and finding.severity == "failed" and remedy.can_apply
    ]
    return min(usable, default=(True, 0))[1]


def good_rows(text: str, width: int) -> list[Line]:
    """Return the lines of `text` behind a mark that all is well, unless that is not known."""
    mark = TextSpan("" if text in (READING, UNEXPLAINED) else f"{GOOD} ", "good")
    parts = [part for paragraph in text.split("\n") if paragraph for part in wrap_text(paragraph, max(10, width - 2))]
    return [line("  " if at and mark.text else mark, TextSpan(part, "dim")) for at, part in enumerate(parts)]


def replay_rows(replay: Replay, width: int) -> list[Line]:
    """Return the rows of where a value of a run first was not finite, and what that rests on."""
    facts = (row for fact in replay.facts for row in wrapped_rows(f"· {fact}", width, "dim"))
    return [*wrapped_rows(replay.sentence, width, "strong"), *facts]


def finding_rows(
    findings: Sequence[Finding], selected: int, width: int, height: int = 0, running: bool = False
) -> list[ChoiceRow]:
    """Return the rows of all findings, with the keys at the selected choice.

    Where `height` is given and the choice stands below it, evidence takes a row, so that the headline stays in sight.
    """
    rows = _all_rows(findings, selected, width, MOST_DETAILS, running)
    below = height and any(choice == selected for _, choice in rows[height:])
    return _all_rows(findings, selected, width, 1, running) if below else rows


def _all_rows(findings: Sequence[Finding], selected: int, width: int, most: int, running: bool) -> list[ChoiceRow]:
    rows: list[ChoiceRow] = []
    at = 0
    for finding in by_severity(findings):
        remedies, end = finding.remedies, at + max(1, len(finding.remedies))
        is_asked = running and width >= ROOM_FOR_RETRY and (finding.lost_share or finding.cause == "stalled")
        slow = "" if not is_asked else STACK_KEYS if finding.cause in WAITS else SLOW_KEYS
        keys = f"  {LOOK_KEYS}{slow}" if not remedies and at == selected else ""
        rows += [(row, None if remedies else at) for row in _finding(finding, keys, width, most)]
        for n, remedy in enumerate(remedies, at):
            rows += [(row, n) for row in _remedy(finding, remedy, n == selected, width, slow)]
        at = end
    return rows


def _finding(finding: Finding, keys: str, width: int, most: int) -> list[Line]:
    first, *more = _wrap(finding.headline, width - 2 - len(keys))
    head = line(TextSpan(*MARKS[finding.severity]), TextSpan(first, "strong"))
    facts = [] if is_advice(finding) else further_evidence(finding)
    facts = [memory_in_words(fact) for fact in facts] if finding.severity == "failed" else facts
    evidence = " · ".join(facts)
    if evidence and not more and line_width(head) + len(GAP) + text_width(evidence) + len(keys) <= width:
        return [_with_keys(line(*head, TextSpan(GAP + evidence, "dim")), keys, width)]
    # What ended the run is read to its end; what merely slows it down is seen at a glance.
    most = most if finding.severity == "failed" else 1
    rows = [line(TextSpan(f"  {part}", "strong")) for part in more]
    rows += [line(TextSpan(f"  {part}", "dim")) for part in wrapped_parts(facts, width - 2, most)]
    return [_with_keys(head, keys, width), *rows]


def memory_in_words(fact: str) -> str:
    """Return what an out-of-memory error says in its sizes, any other fact as it is."""
    from tuner_tui.advice.crash.oom_analysis import read_figures  # not needed for the first frame

    figures = read_figures(fact)
    if figures is None or None in (figures.tried, figures.free, figures.capacity):
        return fact
    held, cached = figures.in_use, figures.cached
    parts = [f"{f.gib(figures.tried)} GiB requested, {f.gib(figures.free)} of {f.gib(figures.capacity)} GiB free"]
    parts += [f"this process holds {f.gib(held)} GiB"] if held else []
    parts += [f"{f.gib(cached)} GiB of it unused in PyTorch's cache"] if held and cached else []
    return ", ".join(parts)


def headline(finding: Finding, width: int) -> Line:
    """Return the mark and the sentence of a finding in one line."""
    return line(TextSpan(*MARKS[finding.severity]), TextSpan(shorten_phrases(finding.headline, width - 2), "strong"))


def brief_rows(findings: Sequence[Finding], selected: int, width: int) -> list[ChoiceRow]:
    """Return the finding of the selected choice and its remedy in a row each, as they stand above other panels."""
    *before, (finding, remedy) = choices(findings)[: selected + 1]
    number = len({id(choice.finding) for choice in before} | {id(finding)})
    others = f"  {number} of {len(findings)}" if len(findings) > 1 else ""
    rows = [_with_keys(headline(finding, width - len(others)), others, width)]
    if remedy is None:
        return [(rows[0], selected)]
    keys = f"  {KEYS if remedy.can_apply else LOOK_KEYS}" * (width >= ROOM_FOR_KEYS)
    title = shorten_phrases("; ".join(filter(None, (remedy.title, remedy.batch_note))), width - 4 - len(keys))
    return [(rows[0], None), (_with_keys(line(TextSpan("  ▸ ", "curve"), title), keys, width), selected)]


def further_evidence(finding: Finding) -> list[str]:
    """Return the evidence that the sentence of the finding does not repeat."""
    return [fact for fact in finding.evidence if fact.rstrip(".") not in finding.sentence]


def _remedy(finding: Finding, remedy: Remedy, selected: bool, width: int, slow: str) -> list[Line]:
    usable = RETRY_KEYS if can_retry(finding, remedy) and width >= ROOM_FOR_RETRY else KEYS
    keys = f"  {usable if remedy.can_apply else LOOK_KEYS}{slow}" if selected and width >= ROOM_FOR_KEYS else ""
    # With the title, as nobody is to start a run with another effective batch unawares.
    title = "; ".join(filter(None, (remedy.title, remedy.batch_note)))
    if remedy.batch_note and text_width(title) > width - 4 - len(keys):
        keys = keys[: keys.find("  [d]")]
    first, *more = _wrap(title, width - 4 - len(keys))
    if more and is_advice(finding):
        first, more = shorten(title, width - 4 - len(keys)), []
    mark = TextSpan("  ▸ ", "curve") if selected else TextSpan("  · ", "dim")
    parts = [part for part in (remedy.gain, remedy.rests_on) if part]
    details = " · ".join(parts)
    room = width - 4 - len(keys) - text_width(first) - len(GAP)
    is_in_line = not more and text_width(details) <= room
    # The selected remedy is about to be applied: its effect and its peak are shown in full, below it.
    below = [] if is_in_line else wrapped_parts(parts, width - 4, MOST_DETAILS if selected else 1)
    has_room = details and not below and not more and room > ROOM_FOR_DETAILS
    head = line(mark, first, TextSpan(GAP + shorten_phrases(details, room) if has_room else "", "dim"))
    rows = [_with_keys(head, keys, width), *(line(f"    {part}") for part in more)]
    return rows + [line(TextSpan(f"    {part}", "dim")) for part in below]


def is_advice(finding: Finding) -> bool:
    """True if only the user can follow it, whatever runs: it has two rows, and the rest is in its explanation."""
    remedies = finding.remedies
    return finding.severity != "failed" and bool(remedies) and not any(remedy.can_apply for remedy in remedies)


def can_retry(finding: Finding, remedy: Remedy) -> bool:
    """True if the run that ended by `finding` can be started again with what `remedy` changes."""
    return finding.severity == "failed" and bool(remedy.change or remedy.env)


def has_error(outcome: str | None, raised: object, findings: Sequence[Finding]) -> bool:
    """True if the output of a run may have an error to go to: what another process ended or lost has none."""
    evidence = (text for finding in findings for text in finding.evidence)
    ended = outcome == "lost" or any(text.startswith(ENDED_BY_OTHERS) for text in evidence)
    return outcome not in (None, "completed", "stopped") and (raised is not None or not ended)


def _with_keys(cells: Line, keys: str, width: int) -> Line:
    return line(*fit(cells, width - len(keys)), TextSpan(keys, "curve")) if keys else cells


def _wrap(text: str, width: int) -> list[str]:
    """Wrap `text` to `width` cells; words that are too long are shortened."""
    width = max(8, width)
    return [shorten(part, width) for part in wrap_text(text, width, break_long_words=False)] or [""]

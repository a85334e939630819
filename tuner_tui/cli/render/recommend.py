"""The text of `tuner-tui recommend`: setting, value, reason and source in columns.

Sources are short there (`004`), with their names in the last line. Narrow terminals get the reason on lines of its
own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable

from tuner_tui.advice.batch_scaling import BatchChange
from tuner_tui.advice.recommend.draft import RecommendedValue, RejectedValue
from tuner_tui.advice.recommend.duration_estimate import NOTED_SIZES, DurationEstimate
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, Recommendation
from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_rough_duration
from tuner_tui.settings.fields import FIELDS, Value, format_value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.origin import Resolved

NARROWEST, WIDE, WIDEST = 80, 110, 132
NOTES = re.compile(r"([^,;\[]+?) \((\d{3})\)")


def report(
    found: Recommendation,
    resolved: Resolved,
    job: BuiltinJob | CommandJob,
    expected: DurationEstimate | None,
    change: BatchChange | None,
) -> list[str]:
    """The whole report, line by line."""
    width = min(WIDEST, max(NARROWEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    sections = [
        [f"For {describe_job(job, found)}"],
        [line for note in found.notes for line in wrap_text(note, width, initial_indent="! ", subsequent_indent="  ")],
        _section("Recommended", found.advised, width),
        _given(resolved),
        [
            batch_line(found),
            *_batch_change_lines(change, width),
            *time_lines(expected, found.settings.num_train_epochs, width),
        ],
        _section("Considered and left", found.rejected, width),
        _legend([*(one.source for one in found.advised), *(one.source for one in found.rejected)], width),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section).split("\n")


def describe_job(job: BuiltinJob | CommandJob, found: Recommendation) -> str:
    """The job in a sentence."""
    if isinstance(job, CommandJob):
        return f"your command, taken as a classification of {found.settings.max_length:,} tokens"
    task = "classification" if job.task == "classification" else "causal language modelling"
    whose = ", the job of the field notes" if job == DEFAULT_JOB else ""
    return f"{task} with {job.model}, {found.settings.max_length:,} tokens a sample{whose}"


def batch_line(found: Recommendation) -> str:
    """How the effective batch comes about."""
    settings = found.settings
    parts = [settings.per_device_train_batch_size, settings.gradient_accumulation_steps]
    parts += [found.replicas] if found.replicas > 1 else []
    names = "micro batch × accumulation" + (" × cards or processes" if found.replicas > 1 else "")
    return f"Effective batch  {' × '.join(map(str, parts))} = {found.effective_batch}  ({names})"


def _batch_change_lines(change: BatchChange | None, width: int) -> list[str]:
    return [] if change is None else wrap_text(change.sentence, width, initial_indent="! ", subsequent_indent="  ")


def time_lines(expected: DurationEstimate | None, epochs: float, width: int) -> list[str]:
    """How long it will take, and what that rests on."""
    if expected is None:
        text = "no figure for this job on such a box yet: after some minutes of training here there is one"
    elif expected.samples is not None:
        text = f"{_times(expected, expected.samples)} for {expected.samples:,.0f} samples"
    else:
        sizes = (f"{size:,} samples {_times(expected, size * epochs)}" for size in NOTED_SIZES)
        text = f"{' · '.join(sizes)} ({epochs:g} epochs; how many there are is not known)"
    if expected is not None:
        text += f"; {expected.low_samples_s:,.0f}–{expected.high_samples_s:,.0f} samples/s, {expected.rests_on}"
    return wrap_text(text, width, initial_indent=f"{'Expected time':<17}", subsequent_indent=" " * 17)


def _times(expected: DurationEstimate, samples: float) -> str:
    low, high = (format_rough_duration(seconds) for seconds in expected.seconds(samples))
    return low if low == high else f"{low} to {high}"


def _section(title: str, rows: Iterable[RecommendedValue | RejectedValue], width: int) -> list[str]:
    lines = [
        line
        for row in rows
        for line in _row(row.name, row.value, f"{row.reason} [{shorten_source(row.source)}]", width)
    ]
    return [title, *lines] if lines else []


def shorten_source(source: str) -> str:
    """A source with the field notes as their numbers: `001, 003; Malladi et al. 2022`."""
    return NOTES.sub(lambda match: f"{' ' if match[1][0] == ' ' else ''}{match[2]}", source)


def _legend(sources: Iterable[str], width: int) -> list[str]:
    names = {match[2]: match[1].strip() for source in sources for match in NOTES.finditer(source)}
    text = "Sources: " + " · ".join(f"{number} {names[number]}" for number in sorted(names))
    return wrap_text(text, width, subsequent_indent="         ") if names else []


def _given(resolved: Resolved) -> list[str]:
    names = [name for name in FIELDS if name in resolved.chosen]
    if not names:
        return []
    origins = {name: resolved.origin(name) for name in names}
    texts = {name: f"{origin.kind} {origin.detail}".rstrip() for name, origin in origins.items()}
    rows = [_columns(name, getattr(resolved.settings, name)) + texts[name] for name in names]
    return ["Given, and left as it is", *rows]


def _row(name: str, value: Value, text: str, width: int) -> list[str]:
    head = _columns(name, value)
    if width < WIDE:
        return [head.rstrip(), *wrap_text(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    return wrap_text(text, width, initial_indent=head, subsequent_indent=" " * len(head))


def _columns(name: str, value: Value) -> str:
    return f"  {name:<29} {format_value(name, value) or '(empty)':<18} "

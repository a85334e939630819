"""The text of `tuner-tui recommend`: setting, value, reason and source in columns.

Sources are short there (`tuning of a T4`), and whole in the last line. Narrow terminals get the reason on lines of its
own.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence

from tuner_tui.advice.batch_scaling import BatchChange
from tuner_tui.advice.recommend.duration_estimate import DurationEstimate, describe_duration
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, Recommendation
from tuner_tui.advice.recommend.target import ConsideredValue
from tuner_tui.advice.thresholds import FIELD_NOTES
from tuner_tui.core.redaction import redact_argv
from tuner_tui.core.text import hanging_lines, join_paragraphs, titled_section, wrap_text
from tuner_tui.memory.job_task import assumes_task, modelled_job, task_text, trains_other_task
from tuner_tui.settings.job import BuiltinJob, CommandJob, named_model
from tuner_tui.settings.model import FIELDS, OriginKind, Resolved, Value, format_value

MIN_WIDTH, ONE_LINE_FROM, MAX_WIDTH = 80, 110, 132
SHORT_NOTES = {note: note.partition(",")[0] for note in FIELD_NOTES}


def recommend_report(
    recommendation: Recommendation,
    resolved: Resolved,
    job: BuiltinJob | CommandJob,
    expected: DurationEstimate | None,
    change: BatchChange | None,
    file_notes: Sequence[str] | None = None,
) -> list[str]:
    """Return the whole report, as wide as the terminal within limits.

    `file_notes` say what was read in an opened file, whose command is shown; None without one.
    """
    width = min(MAX_WIDTH, max(MIN_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns))
    is_text = modelled_job(job) is not None and not trains_other_task(job)
    batch_known = is_text or "per_device_train_batch_size" in {*recommendation.values, *resolved.origins}
    sources = "; ".join(value.source for value in (*recommendation.advised, *recommendation.rejected))
    used = [note for note in FIELD_NOTES if note in sources]
    starts = job.command if file_notes is not None and isinstance(job, CommandJob) and not job.is_unnamed else ()
    epochs = recommendation.settings.num_train_epochs
    sections = [
        [f"For {_describe_job(job, recommendation, resolved)}"],
        hanging_lines("Starts ", _start_line(job, starts), width) if starts else [],
        [line for note in file_notes or () for line in hanging_lines("· ", note, width)],
        [line for note in recommendation.notes for line in hanging_lines("! ", note, width)],
        titled_section("Recommended", _value_lines(recommendation.advised, width)),
        titled_section("Given", [*_given_lines(resolved)]),
        [
            *([_batch_line(recommendation, resolved, job)] if batch_known else []),
            *([] if change is None else hanging_lines("! ", change.sentence, width)),
            *hanging_lines("Expected time    ", describe_duration(expected, epochs), width),
        ],
        titled_section("Considered, not recommended", _value_lines(recommendation.rejected, width)),
        wrap_text("Sources: " + " · ".join(used), width, subsequent_indent="         ") if used else [],
    ]
    return join_paragraphs(sections)


def _start_line(job: BuiltinJob | CommandJob, command: Sequence[str]) -> str:
    """Return the command as a shell would be given it: in its folder, with its variables."""
    # A value that extends its variable, `.:$PYTHONPATH`, stays as it is.
    given = [f"{name}={value if '$' in value else shlex.quote(value)}" for name, value in job.env.items()]
    words = " ".join((*redact_argv(given), shlex.join(redact_argv(command))))
    cwd = job.cwd if isinstance(job, CommandJob) else None
    return f"cd {shlex.quote(cwd)} && {words}" if cwd else words


def _describe_job(job: BuiltinJob | CommandJob, recommendation: Recommendation, resolved: Resolved) -> str:
    modelled, named = modelled_job(job), named_model(job)
    if trains_other_task(job):
        return named or "your command"
    if modelled is None:
        unnamed = "your command; its model and task are unknown (--model, --task)"
        return f"{named}; its task is unknown (--task)" if named else unnamed
    whose = ", the default job" if job == DEFAULT_JOB else ""
    is_known = whose or isinstance(job, BuiltinJob) or "max_length" in {*recommendation.values, *resolved.origins}
    assumed = "" if is_known else "an assumed "
    tokens = f"{assumed}{recommendation.settings.max_length:,} tokens a sample"
    return f"{task_text(modelled, assumed=assumes_task(job))} with {modelled.model}, {tokens}{whose}"


def _batch_line(recommendation: Recommendation, resolved: Resolved, job: BuiltinJob | CommandJob) -> str:
    settings, stated = recommendation.settings, job.stated if isinstance(job, CommandJob) else {}
    given = {*recommendation.values, *resolved.origins}
    if "global_batch" in stated and not {"per_device_train_batch_size", "gradient_accumulation_steps"} <= given:
        return f"Effective batch  {stated['global_batch']}  (of all GPUs together, by the file)"
    parts = [settings.per_device_train_batch_size, settings.gradient_accumulation_steps]
    parts += [recommendation.replicas] if recommendation.replicas > 1 else []
    names = "micro batch × accumulation" + (" × GPUs or processes" if recommendation.replicas > 1 else "")
    if isinstance(job, CommandJob):
        on_each = recommendation.replicas == 1 and not {"devices", "sharding"}.isdisjoint(stated)
        on_one = recommendation.replicas == 1 and "gpus" not in stated and (job.is_unnamed or recommendation.gpus[1:])
        unsaid = f", on one GPU{': the file says no number' * job.is_unnamed}" if on_one else ""
        names += ", on each GPU" if on_each else unsaid
        names += "" if "gradient_accumulation_steps" in given else "; no accumulation was read: 1 is assumed"
    return f"Effective batch  {' × '.join(map(str, parts))} = {recommendation.effective_batch}  ({names})"


def _value_lines(rows: Iterable[ConsideredValue], width: int) -> list[str]:
    lines = []
    for row in rows:
        source = row.source
        for note, short in SHORT_NOTES.items():
            source = source.replace(note, short)  # `tuning of a T4, tuning of an RTX 3090; Malladi et al. 2022`
        columns, text = _columns(row.name, row.value), f"{row.reason} [{source}]"
        if width < ONE_LINE_FROM:  # the text below the columns
            lines += [columns.rstrip(), *wrap_text(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
        else:
            lines += hanging_lines(columns, text, width)
    return lines


def _given_lines(resolved: Resolved) -> Iterator[str]:
    for name in FIELDS:
        origin = resolved.origin(name)
        value, is_default = getattr(resolved.settings, name), origin.detail.startswith("default of")
        is_default |= origin.kind in (OriginKind.DEFAULT, OriginKind.ASSUMED) or value is FIELDS[name].default is None
        if not is_default:  # `max_steps: -1` as well
            yield (_columns(name, value) + " ".join(dict.fromkeys((origin.label, origin.detail)))).rstrip()


def _columns(name: str, value: Value) -> str:
    return f"  {name:<29} {format_value(name, value) or '(empty)':<18} "

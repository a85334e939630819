"""The text of `tuner-tui estimate`: memory by part, a bar against the capacity, and whether it fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tuner_tui.advice.estimate import JobMemoryEstimator
from tuner_tui.advice.recommend.duration_estimate import DurationEstimate
from tuner_tui.advice.recommend.gpu_plan import GpuPlan
from tuner_tui.advice.recommend.memory_breakdown import MemoryRemedy, breakdown_rows
from tuner_tui.advice.recommend.sample_lengths import SampleLengths
from tuner_tui.cli.recommend_report import duration_lines
from tuner_tui.core.redaction import redact_argv
from tuner_tui.core.text import format_table, wrap_text
from tuner_tui.core.units import GIB, MIB, UNKNOWN, format_duration, format_share, format_size
from tuner_tui.inspection.peak_memory import MemoryBreakdown, RecordedPeak
from tuner_tui.memory.calibration import MeasuredEstimate
from tuner_tui.memory.estimate import RESERVE_SHARE, MemoryEstimate
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Settings, Value, format_value
from tuner_tui.view.estimate_rows import VERDICTS, largest_text, training_method

BAR_WIDTH = 40
DIVIDED = "What fits depends on how it is divided: a run of a few steps measures it."


def estimate_report(
    estimator: JobMemoryEstimator,
    settings: Settings,
    best: MemoryEstimate,
    expected: DurationEstimate | None,
    lengths: SampleLengths | None = None,
) -> list[str]:
    """Return the whole report; `estimator` has the job, `best` is the most exact estimate."""
    return [
        *wrap_text(f"For {_describe_job(estimator, settings)}"),
        "",
        *_part_lines(estimator, best),
        "",
        DIVIDED if estimator.is_not_modelled and best.capacity_bytes is None else _bar_line(best),
        *wrap_text(_verdict_sentence(best)),
        *wrap_text(
            _batch_sentence(
                best, None if estimator.is_not_modelled else best.largest_batch(), settings.per_device_train_batch_size
            ),
        ),
        *duration_lines(expected, settings.num_train_epochs),
        *(() if lengths is None else ("", *wrap_text(data_sentence(lengths, settings)))),
        "",
        *wrap_text(
            f"Basis: {best.rests_on}. {_assumption_sentence(estimator)}{_memory_kind_sentence(estimator, best)}",
        ),
    ]


def data_sentence(lengths: SampleLengths, settings: Settings) -> str:
    """Return how long the samples are, what `max_length` cuts, and how much of a batch is padding."""
    count, most, batch = len(lengths.lengths), settings.max_length, settings.per_device_train_batch_size
    which = "" if count == lengths.total else f", {count:,} of them measured"
    spread = f"median {lengths.percentile(0.5):,}, 95 % up to {lengths.percentile(0.95):,}"
    text = f"Data: {lengths.total:,} samples{which}; {spread}, the longest {lengths.longest:,} {lengths.unit}. "
    text += f"max_length {most:,} cuts {format_share(lengths.cut_share(most))}. "
    if lengths.packed:
        return f"{text}They are packed: no padding."
    if lengths.padded:
        share = format_share(lengths.padding_share(settings))
        return f"{text}Every sample is padded to max_length: {share} of a batch is padding."
    padding = lengths.padding(batch, most)
    grouped = settings.train_sampling_strategy == "group_by_length"
    now, unchosen = (padding.grouped, padding.random) if grouped else (padding.random, padding.grouped)
    instead = "drawn at random" if grouped else "grouped by length"
    return (
        f"{text}Padding is {format_share(now)} of a batch of {batch} ({format_share(unchosen)} {instead}); the longest "
        f"batch is {batch} × {min(lengths.longest, most):,}."
    )


def measured_report(job: CommandJob, measured: MeasuredEstimate) -> list[str]:
    """Return the report on a command: the peak of its own runs, and the largest micro batch if several were run."""
    best = measured.estimate
    micro = f"micro batch {best.batch}" if best.batch else "the batch of the command"
    return [
        *wrap_text(f"For {shlex.join(redact_argv(job.command))} · {micro}"),
        "",
        _bar_line(best),
        *wrap_text(_verdict_sentence(best)),
        *wrap_text(_batch_sentence(best, measured.largest, best.batch)),
        "",
        *wrap_text(f"Basis: {best.rests_on}."),
    ]


def breakdown_report(
    estimator: JobMemoryEstimator,
    settings: Settings,
    traced: MemoryBreakdown,
    remedies: Mapping[str, MemoryRemedy],
    by: str,
) -> list[str]:
    """Return a table of the tensors at the traced peak, with the setting that removes each."""
    return [
        *wrap_text(f"For {_describe_job(estimator, settings)}"),
        "",
        *breakdown_table(traced, remedies, by),
        "",
        *wrap_text(
            f"At the peak, in {traced.phase}. `*` stands for all blocks. CUDA context and allocator overhead "
            "are extra. Savings are computed by formula for the whole peak.",
        ),
    ]


def breakdown_table(breakdown: MemoryBreakdown, remedies: Mapping[str, MemoryRemedy], by: str) -> list[str]:
    """Return the tensors at the peak by what `by` names, kind and dtype, with the setting that removes each."""
    figure = _table_format(breakdown.total)

    def line(name: str, dtype: str, size: int, remedy: str = "") -> tuple[str, ...]:
        return name, dtype, figure(size), format_share(size / breakdown.total), remedy

    lines = [
        line(row.name, row.dtype, row.size_bytes, "" if row.remedy is None else row.remedy.sentence)
        for row in breakdown_rows(breakdown, remedies, by)
    ]
    dtypes = breakdown.by(lambda part: part.dtype)
    lines += [line("all in", dtype, size) for dtype, size in dtypes.items() if dtype]
    lines.append(line("all tensors", "", breakdown.total))
    header = (by, "dtype" if any(dtypes) else "", "size", "share")
    reduced = "reduced by, and by how much the peak falls" if remedies else ""
    return format_table([(*header, reduced), *lines], right={2, 3}, indent="  ")


def peak_report(peaks: Sequence[RecordedPeak]) -> list[str]:
    """Return what held the memory of the fullest rank by line, module and part of the step; of the others a line."""
    first, *further = peaks
    lines = [f"Rank {first.rank}: {first.sentence}."]
    if first.change is not None:
        saved = format_size(first.change.saved_bytes)
        lines.append(f"The change that removes most, {saved} or more: {first.change.change}.")
    lines += [f"Rank {peak.rank}: {peak.sentence}." for peak in further]
    report = [part for text in lines for part in wrap_text(text)]
    for by in ("line", "module", "part"):
        report += ["", *breakdown_table(first.breakdown, {}, by)]
    outside = first.outside_bytes
    unused = f"PyTorch's allocator holds {format_size(first.fragmented_bytes)} more, rounded up or in gaps."
    context = "" if outside is None else f" {format_size(outside)} are the CUDA context, libraries and other processes."
    return [*report, "", *wrap_text(f"At the peak of {first.breakdown.phase}. {unused}{context}")]


def peak_document(peak: RecordedPeak) -> dict[str, object]:
    """Return what `profile --memory --json` prints of a rank."""
    return {
        "rank": peak.rank, "device": peak.device, "failed": peak.failed, "tensor_bytes": peak.peak_bytes,
        "parts": peak.breakdown.parts, "fragmented_bytes": peak.fragmented_bytes, "outside_bytes": peak.outside_bytes,
        "sentence": peak.sentence, "change": peak.change, "growth": peak.growth,
    }  # fmt: skip


def plan_report(plans: Sequence[GpuPlan]) -> list[str]:
    """Return a table of GPUs: the recommended batch, the peak, whether it fits, the largest batch, the time."""
    first = plans[0]
    job = first.estimator.job
    header = ("GPU", "how", "batch", "peak", "verdict", "largest batch", "time", "to make it fit")
    rows = [header, *(_plan_row(plan) for plan in plans)]
    untraced = [plan.not_traced for plan in plans if plan.not_traced is not None]
    timed = ((plan.gpus.label, plan.duration) for plan in plans)
    times = [f"Time on {gpus}: {each.rests_on}." for gpus, each in timed if each is not None and each.range_s]
    bases = list(dict.fromkeys(plan.best.rests_on for plan in plans if plan.best is not None))
    return [
        f"{job.task} with {job.model}{_sample_words(job, first.settings)}",
        "",
        *format_table(rows, right={2, 3, 5}, indent="  "),
        "",
        *wrap_text(
            "Settings you did not set are those recommended for each GPU. CUDA context and allocator "
            f"overhead are assumed. Basis of the rest: {', '.join(bases)}.",
        ),
        *(row for basis in times for row in wrap_text(basis)),
        *(wrap_text(f"Less exact, not traced: {untraced[0]}") if untraced else []),
    ]


def _plan_row(plan: GpuPlan) -> tuple[str, ...]:
    best, settings = plan.best, plan.settings
    batch = f"{settings.per_device_train_batch_size} × {settings.gradient_accumulation_steps}"
    method = training_method(settings.peft_method, settings.quantization)
    if best is None:
        return (plan.gpus.label, method, batch, UNKNOWN, "not known", UNKNOWN, UNKNOWN, "")
    verdict = "not known" if best.capacity_bytes is None else VERDICTS[best.verdict][2]
    largest = best.largest_batch()
    time = None if plan.duration is None else plan.duration.range_s
    span = UNKNOWN if time is None else "–".join(dict.fromkeys(map(format_duration, time)))
    return (
        plan.gpus.label,
        method,
        batch,
        f"{format_size(best.total_bytes)} ± {format_uncertainty(best)}",
        verdict,
        UNKNOWN if largest is None else f"{largest:,}",
        span,
        _fitting_text(plan),
    )


def _fitting_text(plan: GpuPlan) -> str:
    if plan.fitting is None:
        return "no known setting; use a larger GPU, or several with sharding"
    values = {name: format_value(name, cast("Value", value)) for name, value in plan.fitting.items()}
    return ", ".join(f"{FIELDS[name].label} {text}".strip() for name, text in values.items())


def _describe_job(estimator: JobMemoryEstimator, settings: Settings) -> str:
    words = [
        f"{estimator.job.task} with {estimator.job.model}",
        f"micro batch {settings.per_device_train_batch_size}{_sample_words(estimator.job, settings, ' × ')}",
        settings.precision,
        settings.optim,
    ]
    words += ["checkpointing"] if settings.gradient_checkpointing else []
    words += [f"{settings.attn_implementation} attention"] if settings.attn_implementation != "auto" else []
    words += [f"{settings.peft_method} of rank {settings.lora_r}"] if settings.peft_method != "none" else []
    words += [f"{estimator.processes} equal processes"] if estimator.processes > 1 else []
    return " · ".join(words)


def _sample_words(job: BuiltinJob, settings: Settings, separator: str = " · ") -> str:
    """Return how long a sample is; empty for images, whose size the model sets."""
    if job.task == "image-classification":
        return ""
    of_what = {"seq2seq": " and as many in the target", "speech-to-text": " of text"}.get(job.task, "")
    return f"{separator}{settings.max_length:,} tokens{of_what}"


def _part_lines(estimator: JobMemoryEstimator, best: MemoryEstimate) -> list[str]:
    parts = best.parts
    context = "CUDA context" if estimator.device.on_gpu else "Python and torch"
    rows = (
        ("weights", parts.weights),
        ("gradients", parts.gradients),
        ("optimizer states", parts.optimizer),
        ("activations", parts.activations),
        (context, parts.context),
        ("allocator overhead", parts.slack),
    )
    figure = _table_format(parts.total)
    lines = [
        f"  {name:<18} {figure(size)}  {'▇' * round(size / parts.total * BAR_WIDTH)}".rstrip() for name, size in rows
    ]
    peak = f"  {'peak':<18} {figure(parts.total)}  ± {format_uncertainty(best)}, in {best.peak_phase}"
    return [*lines, peak]


def _table_format(total_bytes: float) -> Callable[[float], str]:
    """Return the formatter of a table whose sizes add up to `total_bytes`: all in one unit."""
    if total_bytes < GIB:
        return lambda size: f"{size / MIB:8.1f} MiB"
    return lambda size: f"{size / GIB:8.2f} GiB"


def _format_range(low_bytes: float, separator: str, high_bytes: float) -> str:
    """Return two sizes with their units merged: `612 to 705 MiB`, `980 MiB to 1.10 GiB`."""
    low, high = format_size(low_bytes, 2), format_size(high_bytes, 2)
    return f"{low.removesuffix(high[-4:])} {separator} {high}"


def format_uncertainty(best: MemoryEstimate) -> str:
    """Return the uncertainty of the peak as a share of it."""
    return format_share(best.uncertainty_bytes / best.total_bytes)


def _bar_line(best: MemoryEstimate) -> str:
    if best.capacity_bytes is None:
        return f"{format_size(best.total_bytes, 2)}; capacity unknown (--gpu SIZE names it)"
    filled = min(BAR_WIDTH, round(best.total_bytes / best.capacity_bytes * BAR_WIDTH))
    bar = "━" * filled + "─" * (BAR_WIDTH - filled)
    return f"{bar} {_format_range(best.total_bytes, 'of', best.capacity_bytes)}"


def _verdict_sentence(best: MemoryEstimate) -> str:
    span = _format_range(best.low_bytes, "to", best.high_bytes)
    if best.refuted_by is not None:
        return f"Does not fit: {best.refuted_by.sentence}."
    expected = format_size(best.total_bytes, 2)
    words = {
        "fits": f"Fits: {span}, with {format_share(RESERVE_SHARE)} left free.",
        "tight": f"May not fit: {span} is too close to the capacity, "
        f"{format_share(RESERVE_SHARE)} of which should stay free.",
        "too large": f"Too large: {expected} expected, {span} possible.",
        "unknown": f"{span}, as computed here.",
    }
    return words[best.verdict]


def _batch_sentence(best: MemoryEstimate, largest: int | None, now: int) -> str:
    if largest is None:
        return ""
    if largest == 0 and (phase := best.highest_phase(1).name).startswith("evaluation"):
        return f"The {phase}, does not fit with this reserve, whatever the micro batch."
    if largest == 0:
        return "Not even a micro batch of 1 fits with this reserve."
    return f"Largest micro batch that fits with this reserve: {largest_text(largest, best.samples)}; now {now}."


def _assumption_sentence(estimator: JobMemoryEstimator) -> str:
    """Return which parts of the figure were not measured."""
    if not estimator.device.on_gpu:
        return ""
    words = []
    if not any(run.tensor_bytes for run in estimator.runs):
        words.append("CUDA context and allocator overhead are assumed until a run has been measured here.")
    if estimator.processes > 1:
        words.append("NCCL buffers are not included.")
    return " ".join(words)


def _memory_kind_sentence(estimator: JobMemoryEstimator, best: MemoryEstimate) -> str:
    """Return which memory the figure counts on a CPU: a memory limit counts more than resident memory."""
    device = estimator.device
    if device.on_gpu:
        return ""
    if not device.limited:
        return (
            "This is resident memory. A --memory-limit counts about 1 GiB more, which libraries reserve: "
            "pass it here to see what fits below it."
        )
    assumption = "" if device.import_footprint is not None else " (assumed: this Python was not measured)"
    return (
        "This is private memory, as --memory-limit counts it; libraries reserve "
        f"{format_size(best.overhead.reserved_bytes, 2)} of it without using it{assumption}."
    )

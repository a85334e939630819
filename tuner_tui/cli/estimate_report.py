"""The text of `tuner-tui estimate`: memory by part, a bar against the capacity, and whether it fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from tuner_tui.advice.estimate import JobMemoryEstimator, MemoryOutlook
from tuner_tui.advice.recommend.gpu_plan import GpuPlan
from tuner_tui.advice.recommend.memory_breakdown import MemoryRemedy, breakdown_rows
from tuner_tui.core.redaction import redact_argv
from tuner_tui.core.text import format_table, wrap_text
from tuner_tui.core.units import GIB, MIB, UNKNOWN, format_duration, format_share, format_size
from tuner_tui.inspection.peak_memory import MemoryBreakdown, RecordedPeak
from tuner_tui.memory.estimate import RESERVE_SHARE, MemoryEstimate
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Settings, Value, format_value
from tuner_tui.view.cells import Line, TextSpan, join_sections, line, wrapped_rows
from tuner_tui.view.estimate_rows import VERDICTS, estimate_rows, figures_of, training_method

BAR_WIDTH = 40


def estimate_report(
    estimator: JobMemoryEstimator, settings: Settings, outlook: MemoryOutlook, best: MemoryEstimate, width: int
) -> list[Line]:
    """Return the job and the parts of its peak, the rows of the screen, and what the figures rest on."""
    return join_sections(
        [
            wrapped_rows(f"For {_describe_job(estimator, settings)}", width),
            _part_rows(estimator, best),
            estimate_rows(outlook, width),
            _basis_rows(best, width, _assumption_sentence(estimator), _memory_kind_sentence(estimator, best)),
        ]
    )


def measured_report(job: CommandJob, outlook: MemoryOutlook, best: MemoryEstimate, width: int) -> list[Line]:
    """Return the report on a command, whose memory is known from its own runs."""
    micro = f"micro batch {best.batch}" if best.batch else "the batch of the command"
    title = wrapped_rows(f"For {shlex.join(redact_argv(job.command))} · {micro}", width)
    return join_sections([title, estimate_rows(outlook, width), _basis_rows(best, width)])


def _basis_rows(best: MemoryEstimate, width: int, *assumptions: str) -> list[Line]:
    reserve = "" if best.capacity_bytes is None else f"What fits leaves {format_share(RESERVE_SHARE)} free."
    return wrapped_rows(" ".join(filter(None, (f"Basis: {best.rests_on}.", *assumptions, reserve))), width)


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
            f"At the peak, in {traced.phase}. `*` stands for all blocks. {estimator.device.context_name} and allocator "
            "overhead are extra. Savings are computed by formula, each at most the size of its part.",
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
    reduced = "reduced by, at most" if remedies else ""
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
    times = [f"Time on {gpus}: {duration.rests_on}." for gpus, duration in timed if duration and duration.range_s]
    bases = list(dict.fromkeys(plan.best.rests_on for plan in plans if plan.best is not None))
    return [
        f"{job.task} with {job.model}{_sample_words(job, first.settings)}",
        "",
        *format_table(rows, right={2, 3, 5}, indent="  "),
        "",
        *wrap_text(
            "Settings you did not set are those recommended for each GPU. CUDA context and allocator "
            f"overhead are assumed. The rest is estimated {', '.join(bases)}.",
        ),
        *(row for basis in times for row in wrap_text(basis)),
        *(wrap_text(f"Less exact, not traced: {untraced[0]}") if untraced else []),
    ]


def _plan_row(plan: GpuPlan) -> tuple[str, ...]:
    best, settings = plan.best, plan.settings
    batch = f"{settings.per_device_train_batch_size} × {settings.gradient_accumulation_steps}"
    method = training_method(settings.peft_method, settings.quantization)
    if best is None:
        return (plan.gpus.label, method, batch, UNKNOWN, "unknown", UNKNOWN, UNKNOWN, "")
    verdict = "unknown" if best.capacity_bytes is None else VERDICTS[best.verdict][2]
    largest = best.largest_batch()
    time = None if plan.duration is None else plan.duration.range_s
    span = UNKNOWN if time is None else "–".join(dict.fromkeys(map(format_duration, time)))
    most = UNKNOWN if largest is None else f"{largest:,}"
    peak = figures_of(replace(best, capacity_bytes=None))
    return (plan.gpus.label, method, batch, peak, verdict, most, span, _fitting_text(plan))


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


def _part_rows(estimator: JobMemoryEstimator, best: MemoryEstimate) -> list[Line]:
    parts, figure = best.parts, _table_format(best.parts.total)
    sizes = {
        "weights": parts.weights,
        "gradients": parts.gradients,
        "optimizer states": parts.optimizer,
        "activations": parts.activations,
        estimator.device.context_name: parts.context,
        "allocator overhead": parts.slack,
    }
    bars = {name: TextSpan("▇" * round(size / parts.total * BAR_WIDTH), "gauge") for name, size in sizes.items()}
    rows = [line(f"  {name:<18} {figure(size)}  ", bars[name]) for name, size in sizes.items()]
    doubt = format_share(best.uncertainty_bytes / best.total_bytes)
    return [*rows, line(f"  {'peak':<18} {figure(parts.total)}  ± {doubt}, in {best.peak_phase}")]


def _table_format(total_bytes: float) -> Callable[[float], str]:
    """Return the formatter of a table whose sizes add up to `total_bytes`: all in one unit."""
    if total_bytes < GIB:
        return lambda size: f"{size / MIB:8.1f} MiB"
    return lambda size: f"{size / GIB:8.2f} GiB"


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

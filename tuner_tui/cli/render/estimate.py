"""The text of `tuner-tui estimate`: the parts of the memory in columns, a bar against the capacity, and whether it
fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import GIB, MIB, format_share, format_size
from tuner_tui.memory.estimate import RESERVE_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.model import Settings

WIDTH = 100
BAR = 40


def report(found: JobMemoryEstimator, settings: Settings, best: MemoryEstimate) -> list[str]:
    """The whole report, line by line."""
    return [
        *wrap_text(f"For {describe_job(found, settings)}", WIDTH),
        "",
        *part_lines(found, best),
        "",
        bar_line(best),
        *wrap_text(verdict_sentence(best), WIDTH),
        *wrap_text(batch_sentence(best, settings), WIDTH),
        "",
        *wrap_text(
            f"Rests on: {best.rests_on}. {assumption_sentence(found)}{memory_kind_sentence(found, best)}", WIDTH
        ),
    ]


def describe_job(found: JobMemoryEstimator, settings: Settings) -> str:
    """What is trained, and how."""
    words = [
        f"{found.job.task} with {found.job.model}",
        f"micro batch {settings.per_device_train_batch_size} × {settings.max_length:,} tokens",
        settings.precision,
        settings.optim,
    ]
    words += ["checkpointing"] if settings.gradient_checkpointing else []
    words += [f"{settings.attn_implementation} attention"] if settings.attn_implementation != "auto" else []
    words += [f"{settings.peft_method} of rank {settings.lora_r}"] if settings.peft_method != "none" else []
    words += [f"{found.processes} processes, each the same"] if found.processes > 1 else []
    return " · ".join(words)


def part_lines(found: JobMemoryEstimator, best: MemoryEstimate) -> list[str]:
    """One line a part, with its share of the whole."""
    parts = best.parts
    context = "CUDA context" if found.device.on_gpu else "Python and torch"
    rows = (
        ("weights", parts.weights),
        ("gradients", parts.gradients),
        ("optimizer states", parts.optimizer),
        ("activations", parts.activations),
        (context, parts.context),
        ("allocator's slack", parts.slack),
    )
    figure = table_unit(parts.total)
    shown = [f"  {name:<18} {figure(size)}  {block(size / parts.total)}".rstrip() for name, size in rows]
    whole = f"  {'peak':<18} {figure(parts.total)}  ± {format_uncertainty(best)}, in {best.moment}"
    return [*shown, whole]


def table_unit(total_bytes: float) -> Callable[[float], str]:
    """How every figure of a table is written that adds up to `total_bytes`: one unit, so that they compare."""
    if total_bytes < GIB:
        return lambda size: f"{size / MIB:8.1f} MiB"
    return lambda size: f"{size / GIB:8.2f} GiB"


def format_range(low_bytes: float, joint: str, high_bytes: float) -> str:
    """Two sizes: `612 to 705 MiB`, `980 MiB to 1.10 GiB`."""
    low, high = format_size(low_bytes, 2), format_size(high_bytes, 2)
    return f"{low.removesuffix(high[-4:])} {joint} {high}"


def format_uncertainty(best: MemoryEstimate) -> str:
    """By how much the peak may be off, in per cent of it."""
    return format_share(best.doubt_bytes / best.total_bytes)


def block(part: float) -> str:
    """A bar of at most `BAR` cells."""
    return "▇" * round(part * BAR)


def bar_line(best: MemoryEstimate) -> str:
    """The peak against what there is."""
    if best.capacity_bytes is None:
        return f"{format_size(best.total_bytes, 2)}; how much there is, is not known (--memory SIZE)"
    filled = min(BAR, round(best.total_bytes / best.capacity_bytes * BAR))
    bar = "█" * filled + " " * (BAR - filled)
    return f"▕{bar}▏ {format_range(best.total_bytes, 'of', best.capacity_bytes)}"


def verdict_sentence(best: MemoryEstimate) -> str:
    """Whether it fits."""
    span = format_range(best.low_bytes, "to", best.high_bytes)
    words = {
        "fits": f"Fits: {span}, with {format_share(RESERVE_SHARE)} left free.",
        "tight": f"May not fit: {span} is too near to what there is, "
        f"{format_share(RESERVE_SHARE)} of which should stay free.",
        "too large": f"Does not fit: {span}.",
        "unknown": f"Between {span}.",
    }
    return words[best.verdict]


def batch_sentence(best: MemoryEstimate, settings: Settings) -> str:
    """The largest micro batch, or that there is none."""
    largest = best.largest_batch()
    if largest is None:
        return ""
    if largest == 0:
        return "Not even one sample at a time fits with that reserve."
    every = ", all its samples" if largest == best.samples else ""
    now = settings.per_device_train_batch_size
    return f"Largest micro batch that fits with that reserve: {largest:,}{every} (now {now})."


def assumption_sentence(found: JobMemoryEstimator) -> str:
    """What of the figure nobody has measured."""
    if not found.device.on_gpu:
        return ""
    words = []
    if not any(run.tensor_bytes for run in found.runs):
        words.append("The CUDA context and the allocator's slack are assumed until a run has been measured here.")
    if found.processes > 1:
        words.append("What NCCL takes between the processes is not counted.")
    return " ".join(words)


def memory_kind_sentence(found: JobMemoryEstimator, best: MemoryEstimate) -> str:
    """On a CPU, which memory is meant: a limit counts more than the kernel does."""
    device = found.device
    if device.on_gpu:
        return ""
    if not device.limited:
        return (
            "This is resident memory, what is really used; a --memory-limit counts what libraries reserve as well, "
            "about 1 GiB more: give it here too."
        )
    known = "" if device.started is not None else " (assumed: this Python was not measured)"
    return (
        "This is private memory, which a --memory-limit counts; "
        f"{format_size(best.overhead.reserved_bytes, 2)} of it are what libraries reserve and never use{known}."
    )

"""What memory and time the settings need, and how long the samples of the data are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner_tui.core.units import GIB, MIB, format_share
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    BAD,
    GOOD,
    WARN,
    Line,
    Style,
    TextSpan,
    crop,
    line,
    line_width,
    plain_text,
    shorten_phrases,
    text_width,
    wrapped_rows,
)

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import DataOutlook, MemoryOutlook
    from tuner_tui.advice.recommend.duration_estimate import DurationEstimate
    from tuner_tui.memory.estimate import MemoryEstimate

LEAST_BAR, MOST_BAR = 6, 40
LEAST_SOURCE = 12
MEMORY_KEY = " · m shows where it goes"
START_UP = " + start-up"
SMALL_BYTES = 20 * GIB
LEAST_GIB_BYTES = 0.1 * GIB
"""Smaller sizes are shown in MiB."""
OUT_OF_MEMORY = "ran out of memory"
TOO_LARGE = f"too large: these settings {OUT_OF_MEMORY}"
GPU, HOST = "peak memory", "peak RAM"
VERDICTS: Mapping[str, tuple[str, Style, str]] = {
    "fits": (GOOD, "good", "fits"),
    "tight": (WARN, "warn", "may not fit"),
    "too large": (BAD, "bad", "too large"),
    "unknown": (" ", "", "of unknown size"),
}
"""Mark, its style, and words."""


def estimate_rows(shown: MemoryOutlook | None, width: int, ended: str = "") -> list[Line]:
    """Return the bar with its figures, a row with verdict, largest batch and source, expected time and the data.

    `ended` says how a run with these settings failed: nothing is said to fit then.
    """
    if shown is None:
        return [line(TextSpan("peak memory …", "dim"))]
    last = [_time_row(shown.duration, width), *([] if shown.data is None else [_data_row(shown.data, width)])]
    if shown.estimate is None:
        words = TOO_LARGE if ended == OUT_OF_MEMORY else shown.unknown
        label = GPU if shown.on_gpu else HOST
        return [*wrapped_rows(f"{label} {words}", width, "bad" if words == TOO_LARGE else "dim"), *last]
    return [_bar_row(shown, shown.estimate, width, ended), *_words_rows(shown, shown.estimate, width, ended), *last]


def _time_row(expected: DurationEstimate | None, width: int) -> Line:
    from tuner_tui.advice.recommend.duration_estimate import VARIED, summarise_duration

    label, words = TextSpan("time ", "dim"), summarise_duration(expected)
    text = shorten_phrases(words, width - 5)
    if expected is None or words == VARIED:
        return line(label, TextSpan(text, "dim"))
    if expected.range_s is not None and text_width(text) + text_width(START_UP) <= width - 5:
        text += START_UP
    room = width - 5 - text_width(text) - 3
    sources = (expected.rests_on.partition(end)[0] for end in ("\n", " with ", "; ", " by "))
    rests_on = next((f" · {words}" for words in sources if text_width(words) <= room), "")
    return line(label, text, TextSpan(rests_on, "dim"))


def _data_row(data: DataOutlook, width: int) -> Line:
    """Return what a batch loses first: `data 21 % padding · 3 % cut · median 310, longest 2,048 tokens`."""
    lengths = data.lengths
    padding = "packed" if lengths.packed else f"{format_share(data.padding_share)} padding"
    spread = f"median {lengths.percentile(0.5):,}, longest {lengths.longest:,}"
    parts = (padding, f"{format_share(data.cut_share)} cut", spread, f"{lengths.total:,} samples")
    return line(TextSpan("data ", "dim"), shorten_phrases(" · ".join(parts), width - 5))


def _bar_row(shown: MemoryOutlook, estimate: MemoryEstimate, width: int, ended: str) -> Line:
    label = GPU if shown.on_gpu else HOST
    mark, style, _ = VERDICTS["unknown" if ended and estimate.verdict == "fits" else estimate.verdict]
    figures = f"{mark} {figures_of(estimate)}"
    whose = f" {shown.against}" if shown.against else ""
    bar_width = width - text_width(label) - text_width(figures) - 2
    if bar_width - len(whose) >= LEAST_BAR + 2:
        figures, bar_width = figures + whose, bar_width - len(whose)
    wrong = style in ("warn", "bad")  # a bar that fits is quiet: the eye belongs elsewhere
    figured = TextSpan(figures, style if wrong else "")
    bar: Line = ()
    if estimate.capacity_bytes and bar_width >= LEAST_BAR:
        bar = line(memory_bar(estimate, min(bar_width, MOST_BAR), style if wrong else "gauge"), " ")
    return line(TextSpan(f"{label} ", "dim"), bar, figured)


def memory_bar(estimate: MemoryEstimate, width: int, style: Style) -> Line:
    """Return the estimate as a bar that ends at the capacity, its uncertainty dashed."""
    capacity = estimate.capacity_bytes or 1
    filled = min(width, max(1, round(estimate.total_bytes / capacity * width)))
    doubtful = min(width, max(filled, round(estimate.high_bytes / capacity * width)))
    bar = TextSpan("━" * filled + "╍" * (doubtful - filled), style)
    return line(bar, TextSpan("─" * (width - doubtful), "dim"))


def figures_of(estimate: MemoryEstimate) -> str:
    """Return `61 ± 2 of 80 GiB`, with one decimal for small sizes, or `612 ± 95 MiB of 31 GiB`."""
    capacity, total, doubt = estimate.capacity_bytes, estimate.total_bytes, estimate.uncertainty_bytes
    if estimate.refuted_by is not None and capacity:
        return f"over {_gib(capacity)} GiB"
    of = f" of {_gib(capacity)} GiB" if capacity else ""
    if total < GIB:
        return f"{total / MIB:.0f} ± {doubt / MIB:.0f} MiB{of}"
    number = f.gib if total < SMALL_BYTES or doubt < GIB / 2 else f.whole_gib
    return f"{_gib(total)}{f' ± {number(doubt)}' if doubt >= LEAST_GIB_BYTES else ''}{of or ' GiB'}"


def _gib(size_bytes: float) -> str:
    return f.gib(size_bytes) if size_bytes < SMALL_BYTES else f.whole_gib(size_bytes)


def _words_rows(shown: MemoryOutlook, estimate: MemoryEstimate, width: int, ended: str) -> list[Line]:
    most, refuted = shown.largest, estimate.refuted_by
    _, style, verdict = VERDICTS[estimate.verdict]
    verdict = verdict if refuted is None else "does not fit"
    if shown.unused_gpus:  # what the GPUs would hold is another question
        verdict += " for RAM" if refuted is None and estimate.verdict == "too large" else " in RAM"
    if ended and estimate.verdict == "fits":
        return [line(TextSpan(f"these settings {ended}"))]
    words = line(TextSpan(verdict, style))
    if refuted is not None:
        first, *rest = wrapped_rows(f"{plain_text(words)} · {refuted.sentence}", width, "warn")
        return [line(*words, crop(first, line_width(words), width)), *rest]
    if most is not None:
        fitting = f" · largest micro batch {most:,}"
        if most == estimate.samples:  # nobody takes all of them at once: the figure says nothing
            fitting = " · at any micro batch"
        if line_width(words) + text_width(fitting) > width:
            fitting = fitting.replace("largest micro batch", "micro batch ≤")
            fitting = shorten_phrases(fitting, width - line_width(words))
        limit = " at any micro batch" if shown.nothing_fits else " · try micro batch 1" * (estimate.batch > 1)
        if "evaluation" in estimate.highest_phase(1).name:  # which no micro batch changes
            limit = " · lower the eval batch"
        words = line(*words, fitting if most else limit)
    room = width - line_width(words)
    phase = "" if shown.measured else f" · peak in {estimate.peak_phase}"
    least = 0 if "evaluation" in phase else LEAST_SOURCE  # what sets the peak and is easily changed, before the source
    if room - text_width(phase) >= least:
        words, room = line(*words, TextSpan(phase, "dim")), room - text_width(phase)
    if estimate.verdict != "fits" and not shown.measured and room >= text_width(MEMORY_KEY):
        words, room = line(*words, TextSpan(MEMORY_KEY, "curve")), room - text_width(MEMORY_KEY)
    if room >= LEAST_SOURCE and (rests_on := source(estimate.rests_on, room - 3)):
        words = line(*words, TextSpan(f" · {rests_on}", "dim"))
    return [words]


def source(rests_on: str, width: int) -> str:
    """Return the source of an estimate in `width` cells: `traced, corrected by run r007: ×1.02`, its end or nothing."""
    later = rests_on.rpartition(", ")[2]
    return next((words for words in (rests_on, later, later.partition(":")[0]) if text_width(words) <= width), "")


def training_method(peft_method: object, quantization: object) -> str:
    """Return how weights are trained: `full`, `LoRA`, or `QLoRA` on weights of 4 bits."""
    method = {"lora": "LoRA", "dora": "DoRA"}.get(str(peft_method))
    return "full" if method is None else {"int8": "8-bit ", "nf4": "Q", "fp4": "Q"}.get(str(quantization), "") + method

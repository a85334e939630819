"""Where the memory of a training's peak goes, and the change of settings that reduces each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.units import format_size
from tuner_tui.inspection.peak_memory import MemoryBreakdown, MemoryPart
from tuner_tui.memory.estimate import MemoryEstimate
from tuner_tui.settings.model import FIELDS, Settings, Value, format_value

LEAST_SHARE = 0.002
"""Share of the tensors from which a part has a row of its own."""

RECOMPUTED = frozenset({"activations", "attention", "MLP", "normalisation", "residual stream and other"})
"""Kinds of activations that gradient checkpointing computes again instead of keeping."""


class MemoryRemedy(Struct, frozen=True):
    """The change that removes a kind of memory, and the bytes it saves of the peak or of one part; None if unknown."""

    change: Mapping[str, Value]
    saved_bytes: int | None

    @property
    def sentence(self) -> str:
        """The change, and how much it saves."""
        words = ", ".join(f"{FIELDS[name].label} {format_value(name, value)}" for name, value in self.change.items())
        return words if self.saved_bytes is None else f"{words}: {format_size(self.saved_bytes)}"


class BreakdownRow(Struct, frozen=True):
    """A part of the peak: its bytes and their share of all tensors (0 to 1); no dtype for several parts together."""

    name: str
    dtype: str
    size_bytes: int
    share: float
    remedy: MemoryRemedy | None = None


KEYS: Mapping[str, Callable[[MemoryPart], str]] = {
    "kind": lambda part: "",
    "module": lambda part: part.module,
    "line": lambda part: part.line,
    "part": lambda part: part.step_part,
}


def breakdown_rows(traced: MemoryBreakdown, remedies: Mapping[str, MemoryRemedy], by: str) -> list[BreakdownRow]:
    """The parts by kind and dtype, and by what `by` names in `KEYS`, the largest first; small ones are one row."""
    kinds = traced.by(lambda part: part.kind)

    def remedy_of(kind: str, size: int) -> MemoryRemedy | None:
        remedy = remedies.get(kind)
        if remedy is None or remedy.saved_bytes is None:
            return remedy
        # What a change saves is divided among the parts that it reduces.
        reduced = sum(kinds.get(other, 0) for other, also in remedies.items() if also.change == remedy.change)
        return replace(remedy, saved_bytes=min(size, round(remedy.saved_bytes * size / reduced)))

    sizes = traced.by(lambda part: (KEYS[by](part), part.kind, part.dtype))
    rows = [
        BreakdownRow(f"{name} · {kind}" if name else kind, dtype, size, size / traced.total, remedy_of(kind, size))
        for (name, kind, dtype), size in sizes.items()
        if size >= LEAST_SHARE * traced.total
    ]
    rest = traced.total - sum(row.size_bytes for row in rows)
    return [*rows, BreakdownRow("the rest", "", rest, rest / traced.total)] if rest else rows


def memory_remedies(
    estimate: Callable[[Settings], MemoryEstimate | None], settings: Settings, kinds: Iterable[str], phase: str
) -> dict[str, MemoryRemedy]:
    """The remedy of each kind that has one with these settings, at a peak in `phase`; a change that saves nothing by
    `estimate` is none."""
    before = estimate(settings)
    remedies = {}
    for kind in kinds:
        change = _change(kind, settings, "evaluation" in phase)
        if change is not None:
            after = estimate(settings.changed(**change))
            saved = None if before is None or after is None else before.total_bytes - after.total_bytes
            if saved is None or saved > 0:
                remedies[kind] = MemoryRemedy(change, saved)
    return remedies


def _change(kind: str, settings: Settings, in_evaluation: bool) -> dict[str, Value] | None:
    full = settings.peft_method == "none"
    if kind == "attention probabilities" and settings.attn_implementation == "eager":
        return {"attn_implementation": "sdpa"}
    if in_evaluation and kind in (*RECOMPUTED, "attention probabilities", "logits and loss"):  # it keeps no activations
        half = settings.per_device_eval_batch_size // 2
        return {"per_device_eval_batch_size": half} if half else None
    if kind in (*RECOMPUTED, "attention probabilities") and not settings.gradient_checkpointing:
        return {"gradient_checkpointing": True}
    if kind in ("optimizer states", "temporary in the optimizer step") and "8bit" not in settings.optim:
        return {"optim": "adamw_bnb_8bit"}
    if kind == "gradients" and full:
        return {"peft_method": "lora"}
    if kind in ("weights", "16-bit copies of weights") and not full and settings.quantization == "none":
        return {"quantization": "nf4"}
    if kind == "logits and loss" and settings.per_device_train_batch_size > 1:
        half = settings.per_device_train_batch_size // 2
        return {"per_device_train_batch_size": half, "gradient_accumulation_steps": settings.effective_batch() // half}
    return None

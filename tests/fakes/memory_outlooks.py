"""A made-up estimate: 12 GiB that no batch changes, and 2.6 GiB a sample."""

from __future__ import annotations

from tuner_tui.advice.estimate import EstimateRequest, MemoryOutlook, PeakMemory
from tuner_tui.advice.recommend.memory_breakdown import MemoryRemedy, breakdown_rows
from tuner_tui.inspection.peak_memory import MemoryBreakdown, MemoryPart
from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import MemoryEstimate, estimate_from_phases
from tuner_tui.settings.model import Settings

GIB = 2**30
H100 = Device(True, (9, 0), int(79.6 * GIB))
LOSS = MemoryPhase("loss", 4.0 * GIB, 0.0, 8.0 * GIB, 0.0, 2.6 * GIB)


def estimated(
    batch: int = 16, device: Device = H100, uncertainty: float = 0.04, rests_on: str = "by formula"
) -> MemoryEstimate:
    """What `batch` would take of the GPU."""
    return estimate_from_phases((LOSS,), Settings(per_device_train_batch_size=batch), device, uncertainty, rests_on)


def outlook_of(request: EstimateRequest) -> MemoryOutlook:
    """The outlook for the batch asked for."""
    return MemoryOutlook(estimated(request.resolved.settings.per_device_train_batch_size))


PARTS = MemoryBreakdown(
    "forward and backward",
    (
        MemoryPart("model.layers.*.mlp", "MLP", "bf16", 24 * GIB),
        MemoryPart("model.layers.*.self_attn", "attention", "bf16", 12 * GIB),
        MemoryPart("model.layers.*.mlp", "weights", "fp32", 3 * GIB),
        MemoryPart("model.embed_tokens", "weights", "fp32", 1 * GIB),
    ),
)
"""40 GiB: 36 of activations, which checkpointing computes again, and 4 of weights."""


def parts_of(request: EstimateRequest) -> PeakMemory:
    """The parts of a model for the batch asked for."""
    remedies = {"MLP": MemoryRemedy({"gradient_checkpointing": True}, 30 * GIB)}
    batch = request.resolved.settings.per_device_train_batch_size
    by_kind, by_module = (tuple(breakdown_rows(PARTS, remedies, by)) for by in ("kind", "module"))
    title = f"llama-1b · micro batch {batch}"
    return PeakMemory(title, PARTS.phase, PARTS.total, by_kind, by_module, H100.context_name)

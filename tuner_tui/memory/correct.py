"""An estimate put right by runs of the same job that were measured on this box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner_tui.memory.estimate import MemoryEstimate
from tuner_tui.memory.slack import Overhead
from tuner_tui.settings.model import Settings

CORRECTED_DOUBT = 0.03
"""What is left between two runs whose settings differ in the batch alone; judgement."""
SAME = (
    "precision", "optim", "gradient_checkpointing", "attn_implementation", "torch_compile", "max_length",
    "peft_method", "lora_r",
)  # fmt: skip
"""What a run must have had as well for its memory to say something: all but the batch and what does not matter."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What one run took. On a GPU: the peaks of tensors and of the allocator; on a CPU: the largest resident set."""

    id: str
    settings: Settings
    tensor_bytes: int | None = None
    reserved_bytes: int | None = None
    resident_bytes: int | None = None

    def alike(self, settings: Settings) -> bool:
        """Whether only the batch, or what takes no memory, is different."""
        batches = self.settings.gradient_accumulation_steps > 1, settings.gradient_accumulation_steps > 1
        same = all(getattr(self.settings, name) == getattr(settings, name) for name in SAME)
        return same and batches[0] == batches[1]


def corrected(
    found: MemoryEstimate,
    settings: Settings,
    on_gpu: bool,
    runs: Sequence[MeasuredRun],
    again: Callable[[Settings], MemoryEstimate],
) -> MemoryEstimate:
    """`found` put right by those of `runs` (newest first) that had the same settings but for the batch.

    `again` gives the uncorrected estimate for the settings of a run. Where no run says anything, `found` as it is.
    """
    alike = [run for run in runs if run.alike(settings)]
    return _on_gpu(found, alike, again) if on_gpu else _on_cpu(found, alike, again)


def _on_gpu(
    found: MemoryEstimate, runs: Sequence[MeasuredRun], again: Callable[[Settings], MemoryEstimate]
) -> MemoryEstimate:
    newest: dict[int, MeasuredRun] = {}
    for run in runs:
        if run.tensor_bytes:
            newest.setdefault(run.settings.per_device_train_batch_size, run)
    if not newest:
        return found
    ratios = tuple(
        (batch, run.tensor_bytes / again(run.settings).tensor_bytes(batch))
        for batch, run in sorted(newest.items())
        if run.tensor_bytes
    )
    last = next(iter(newest.values()))
    better = replace(
        found, ratios=ratios, overhead=_measured_slack(found.overhead, last), doubt=CORRECTED_DOUBT, less=0.0
    )
    words = f"{found.rests_on}, corrected by run {last.id}: ×{better.ratio(found.batch):.2f}"
    return replace(better, rests_on=words)


def _measured_slack(overhead: Overhead, run: MeasuredRun) -> Overhead:
    """The share that the run's allocator held beyond its tensors, in place of the assumed one."""
    if not run.tensor_bytes or not run.reserved_bytes:
        return overhead
    share = max(0.0, run.reserved_bytes / run.tensor_bytes - 1)
    return replace(overhead, slack_share=share, slack_bytes=0.0)


def _on_cpu(
    found: MemoryEstimate, runs: Sequence[MeasuredRun], again: Callable[[Settings], MemoryEstimate]
) -> MemoryEstimate:
    """On a CPU only the whole process is measured: what stands above the tensors is libraries, data and slack.

    What a limit counts beside the resident memory is not measured by a run and stays as it was.
    """
    run = next((run for run in runs if run.resident_bytes), None)
    if run is None or run.resident_bytes is None:
        return found
    tensors = again(run.settings).tensor_bytes(run.settings.per_device_train_batch_size)
    rest = run.resident_bytes - tensors
    if rest <= 0:
        return found
    words = f"{found.rests_on}, corrected by run {run.id}: {rest / 2**20:,.0f} MiB beside the tensors"
    context = max(0.0, rest - found.overhead.slack(tensors))
    overhead = replace(found.overhead, context_bytes=context, context_doubt_bytes=0.0)
    return replace(found, overhead=overhead, doubt=CORRECTED_DOUBT, rests_on=words, less=0.0)

"""Remedies for a GPU that is underused, slow, throttled, shared or reports an error."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.advice.batch_scaling import BatchSplit, scale_learning_rate
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings


def underused(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """More work per step. `where` is `both-low` if the CPU idles, too."""
    settings = situation.settings
    if settings is None:
        return ()
    far = (*four_times_batch(situation, settings), LOG_LESS) if where == "both-low" else ()
    return (*larger_batch(situation, settings), *far, *compile_model(situation, settings))


def busy_and_slow(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Features that make the work of a busy GPU cheaper."""
    settings = situation.settings
    if settings is None:
        return ()
    return (
        *precision(situation, settings), *tf32(situation, settings), *fused(situation, settings),
        *attention(situation, settings), *no_checkpointing(situation, settings), *compile_model(situation, settings),
    )  # fmt: skip


def larger_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The next larger micro batch that keeps the effective batch, with less accumulation."""
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    share = micro * accumulation
    larger = next((size for size in range(micro + 1, 2 * micro + 1) if share % size == 0), None)
    if larger is not None:
        split = BatchSplit(larger, share // larger, situation.replicas)
        yield Remedy(
            title=f"micro batch {micro} → {split.micro}, accumulation {accumulation} → {split.accumulation}",
            why=f"more work in each kernel; the effective batch stays {split.effective}, so the learning rate stays",
            change=split.change,
            effect=f"15-20 % faster where the card idles; activation memory × {split.micro / micro:.2f}",
            rests_on="RTX 3070 and RTX 3090 as noted there; not measured here",
            source=f"{NOTES_3070}, {NOTES_3090}",
        )


def four_times_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Four times the micro batch, with less accumulation or a larger effective batch."""
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    before = BatchSplit(micro, accumulation, situation.replicas)
    after = BatchSplit(4 * micro, max(1, accumulation // 4), situation.replicas)
    change: dict[str, int | float] = {**after.change}
    why = f"the batch is far too small for this card; the effective batch stays {after.effective}"
    if after.effective != before.effective:
        rate, rule = scale_learning_rate(settings.learning_rate, after.effective / before.effective, settings.optim)
        change["learning_rate"] = float(f"{rate:.3g}")
        why = (
            f"the batch is far too small for this card; effective batch {before.effective} → {after.effective}, "
            f"learning rate {rate:.3g} by {rule}"
        )
    yield Remedy(
        title=f"micro batch {micro} → {after.micro}, accumulation {accumulation} → {after.accumulation}",
        why=why,
        change=change,
        effect="the card has work for most of the step; activation memory × 4",
        rests_on="as noted there (4 or 8 times); not measured here",
        source=NOTES_UTILISATION,
    )


def compile_model(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if not settings.torch_compile and situation.has_gpu is not False:
        yield Remedy(
            title="compile on",
            why="many small kernels become few large ones; the first epoch is slow",
            change={"torch_compile": True},
            effect="1.1-1.5 times the speed after the first epoch",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


def precision(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    wanted = situation.best_precision
    if settings.precision == "fp32" and wanted != "fp32":
        yield Remedy(
            title=f"precision fp32 → {wanted}",
            why="the card's matrix units run at full speed in 16 bits",
            change={"precision": wanted},
            effect="1.5-2 times the speed, 40-50 % less memory",
            rests_on="RTX 3090 as noted there; not measured here",
            source=NOTES_3090,
        )


def tf32(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.tf32 is not True and settings.precision == "fp32" and situation.supports("tf32"):
        yield Remedy(
            title="TF32 on",
            why="matrix products with 10 mantissa bits on Ampere and newer",
            change={"tf32": True},
            effect="1.2-1.5 times the speed of matrix products",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_3070}, {NOTES_T4}",
        )


def fused(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.optim == "adamw_torch" and situation.has_gpu:
        yield Remedy(
            title="optimizer adamw_torch → adamw_torch_fused",
            why="one kernel in place of many; the same numbers",
            change={"optim": "adamw_torch_fused"},
            effect="the optimizer step 5-20 % shorter",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


def attention(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.attn_implementation == "eager":
        yield Remedy(
            title="attention eager → sdpa",
            why="one kernel that keeps no matrix of scores",
            change={"attn_implementation": "sdpa"},
            effect="attention 30-50 % faster, less memory",
            rests_on="RTX 3090 as noted there; not measured here",
            source=NOTES_3090,
        )


def no_checkpointing(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Checkpointing off, only if the GPU is known to have enough memory."""
    if settings.gradient_checkpointing and _has_free_memory(situation):
        yield Remedy(
            title="gradient checkpointing off",
            why="the card has memory to spare; activations need not be computed twice",
            change={"gradient_checkpointing": False},
            effect="steps about 20 % shorter; activation memory × 1.7",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


def _has_free_memory(situation: Situation) -> bool:
    """Whether every GPU is less than half full."""
    gpus = situation.samples[-1].gpus if situation.samples else ()
    shares = [
        gpu.memory_used_bytes / gpu.memory_total_bytes
        for gpu in gpus
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    return bool(shares) and max(shares) < 0.5


XID_LIST = "NVIDIA's Xid catalogue, docs.nvidia.com/deploy/xid-errors"
DEBUG_KERNELS = Remedy(
    title="run it once with CUDA_LAUNCH_BLOCKING=1",
    why="the traceback then names the line whose kernel failed: an index out of bounds, most often a label or token id",
    effect="slower, but it fails where the mistake is",
    source=XID_LIST,
)
RESET_CARD = Remedy(
    title="have the card reset, and tested if it comes back",
    why="nvidia-smi -q shows what its memory and links count; sudo nvidia-smi --gpu-reset -i N clears what a reset can",
    source=XID_LIST,
)
LOG_LESS = Remedy(
    title="log, evaluate and save less often",
    why="each makes the card wait; so does every `.item()` in the loop",
    source=f"{NOTES_UTILISATION}, {NOTES_3090}",
)
LOOP_HABITS = Remedy(
    title="let the loop run ahead of the GPU",
    why="`zero_grad(set_to_none=True)`, one `.item()` a step, and the sums of an evaluation accumulated on the card",
    effect="5-10 % shorter steps, as noted there; not measured here",
    source=NOTES_3090,
)
COOLING = Remedy(
    title="look at cooling and power",
    why="the card reduces its clocks to protect itself; no setting compensates for that",
    source="NVML: clocks event reasons",
)
CLOSE_OTHERS = Remedy(
    title="end the other process on the card, or train on another card",
    why="it takes time and memory of the same card",
    source=f"{NOTES_T4}: close other notebooks",
)
FIRST_EPOCH = Remedy(
    title="wait for the compiler",
    why="the first steps compile; batches of one shape (padding to max length) compile once",
    source=NOTES_T4,
)
LARGER_MODEL = Remedy(
    title="a larger model costs little more time",
    why="kernels this small leave most of the card unused",
    source=NOTES_UTILISATION,
)


def launch_bound(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """More work per kernel launch, and nothing in the loop that waits for the GPU."""
    habits = () if isinstance(situation.job, BuiltinJob) else (LOOP_HABITS,)
    return (*underused(situation, where), *habits, LARGER_MODEL)

"""Remedies for a GPU that is underused, slow, throttled, shared or reports an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner_tui.advice.batch_scaling import BatchSplit, divisors, scale_learning_rate, scale_linear, scale_square_root
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules import TRITON_MIN_CAPABILITY


def underused(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """More work per step. `where` is `both-low` if the CPU idles, too, `very-low` if the GPU is idle half the time."""
    settings = situation.settings
    if settings is None:
        return ()
    most = 4 if where in {"both-low", "very-low"} else 2
    less = (LOG_LESS,) if where == "both-low" else ()
    return (*larger_batch(situation, settings, most), *less, *compile_model(situation, settings))


def busy_and_slow(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Features that make the work of a busy GPU cheaper."""
    settings = situation.settings
    if settings is None:
        return ()
    return (
        *precision(situation, settings), *tf32(situation, settings), *fused(situation, settings),
        *attention(situation, settings), *no_checkpointing(situation, settings),
    )  # fmt: skip


def larger_batch(situation: Situation, settings: Settings, most: int = 2) -> Iterator[Remedy]:
    """A larger micro batch, at most `most` times: with less accumulation, else with a larger effective batch.

    Of the sizes whose memory fits it is the largest, of those that may not fit the smallest. Where the GPU has very
    little to do, a larger effective batch is offered, too.
    """
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    share = micro * accumulation
    own_loop = situation.has_own_loop  # which has no accumulation
    divided = () if own_loop else divisors(share)
    held = [BatchSplit(size, share // size, situation.replicas) for size in divided if size > micro]
    split = _largest_that_fits(situation, [split for split in held if split.micro <= most * micro])
    if split is not None:
        yield Remedy(
            title=f"micro batch {micro} → {split.micro}, accumulation {accumulation} → {split.accumulation}",
            why=f"more work per kernel; the effective batch stays {split.effective}, so the learning rate stays",
            change=split.change,
            effect=f"15–20 % faster if the GPU is idle at times; activation memory × {split.micro / micro:.2f}",
            rests_on="RTX 3070 and RTX 3090 as noted there; not measured here",
            source=f"{NOTES_3070}, {NOTES_3090}",
        )
    if own_loop or accumulation == 1 or most > 2:
        sizes = dict.fromkeys(_round_batch(micro * times) for times in STEPS_UP if times <= most)
        split = _largest_that_fits(situation, [BatchSplit(n, 1, situation.replicas) for n in sizes if n > share])
        if split is not None:
            yield _grown_batch(situation, settings, split)


STEPS_UP = (1.25, 1.5, 2, 3, 4)
"""Steps of the micro batch, where the effective batch grows with it: 12 → 14, 32 → 48 and × 4 in the notes."""


def _round_batch(size: float) -> int:
    """Down to a multiple of 8 from 16 on, as the GPU's matrix units take them."""
    return int(size) // 8 * 8 if size >= 16 else int(size)


def _largest_that_fits(situation: Situation, splits: Sequence[BatchSplit]) -> BatchSplit | None:
    """The largest of `splits`, ascending, whose memory fits; else the smallest, if it is not known to be too large."""
    peaks = [(split, expected_peak(situation, split.change)) for split in splits]
    fitting = [split for split, peak in peaks if peak is not None and peak.verdict == "fits"]
    open_ones = [split for split, peak in peaks if peak is None or peak.verdict == "tight"]
    return fitting[-1] if fitting else next(iter(open_ones), None)


def _grown_batch(situation: Situation, settings: Settings, split: BatchSplit) -> Remedy:
    """A larger micro batch with the larger effective batch and its learning rate."""
    before = settings.effective_batch(situation.replicas)
    ratio = split.effective / before
    rate, rule = scale_learning_rate(settings.learning_rate, ratio, settings.optim)
    rate = float(f"{rate:.3g}")
    change: dict[str, int | float] = {**split.change}
    if situation.has_own_loop:
        del change["gradient_accumulation_steps"]
    if situation.is_known("learning_rate"):
        change["learning_rate"] = rate
    root, linear = scale_square_root(settings.learning_rate, ratio), scale_linear(settings.learning_rate, ratio)
    rates = f"learning rate {settings.learning_rate:.3g} → {rate:.3g} by {rule}"
    both = f"square-root scaling gives {root:.3g}, linear scaling {linear:.3g}"
    micro = settings.per_device_train_batch_size
    return Remedy(
        title=f"micro batch {micro} → {split.micro}, effective batch {before} → {split.effective}, "
        f"learning rate {rate:.3g}",
        why=f"more work per kernel; there is no accumulation to reduce, so the effective batch grows: {rates} "
        f"({both}); results may differ",
        change=change,
        effect=f"15–20 % faster if the GPU is idle at times; activation memory × {split.micro / micro:.2f}",
        rests_on="RTX 3070 and RTX 3090 as noted there; not measured here",
        source=f"{NOTES_3070}, {NOTES_3090}, {NOTES_UTILISATION}; Malladi et al. 2022",
    )


def spare_memory(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """What the unused memory of a GPU can buy: a larger batch, or activations that are not computed twice."""
    settings = situation.settings
    if settings is None:
        return ()
    return (*no_checkpointing(situation, settings), *larger_batch(situation, settings))


def compile_model(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    runs = situation.has_gpu is not False and not situation.has_gpu_below(TRITON_MIN_CAPABILITY)
    if runs and not settings.torch_compile:
        yield Remedy(
            title="compile on",
            why="fuses many small kernels into a few large ones; the first steps compile, as may each new batch shape",
            change={"torch_compile": True},
            effect="1.1–1.5× faster once it is compiled",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


def precision(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    wanted = situation.best_precision
    if settings.precision == "fp32" and wanted != "fp32":
        yield Remedy(
            title=f"precision fp32 → {wanted}",
            why="tensor cores run at full speed in 16 bits",
            change={"precision": wanted},
            effect="1.5–2× faster, 40–50 % less activation memory; weights and optimizer unchanged",
            rests_on="RTX 3090 as noted there; not measured here",
            source=NOTES_3090,
        )


def tf32(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.tf32 is not True and settings.precision == "fp32" and situation.supports("tf32"):
        yield Remedy(
            title="TF32 on",
            why="fp32 matrix products run on tensor cores, on Ampere and newer",
            change={"tf32": True},
            effect="steps 1.2–1.5× faster; inputs of matrix products are rounded to 10 bits",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_3070}, {NOTES_T4}",
        )


def fused(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.optim == "adamw_torch" and situation.has_gpu and situation.supports("fused") is not False:
        yield Remedy(
            title="optimizer adamw_torch → adamw_torch_fused",
            why="one kernel instead of many, for the same update",
            change={"optim": "adamw_torch_fused"},
            effect="a 5–20 % shorter optimizer step",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


def attention(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.attn_implementation == "eager":
        yield Remedy(
            title="attention eager → sdpa",
            why="fused kernels do not store the score matrix",
            change={"attn_implementation": "sdpa"},
            effect="30–50 % faster attention, less memory",
            rests_on="RTX 3090 as noted there; not measured here",
            source=NOTES_3090,
        )


def no_checkpointing(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Checkpointing off, only if the GPU is known to have enough memory; a step is 1/1.2 of one that computes twice."""
    change = {"gradient_checkpointing": False}
    peak = expected_peak(situation, change) if settings.gradient_checkpointing else None
    if peak is not None and peak.verdict == "fits":
        yield Remedy(
            title="gradient checkpointing off",
            why="the GPU has memory to spare, so activations need not be recomputed",
            change=change,
            effect="steps about 17 % shorter: one forward pass less",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


XID_LIST = "NVIDIA's Xid catalogue, docs.nvidia.com/deploy/xid-errors"
DEBUG_KERNELS = Remedy(
    title="run it once with CUDA_LAUNCH_BLOCKING=1",
    why="the traceback then shows the line that failed, usually an index out of range: a label or token id",
    effect="slower, but the error points to the right line",
    source=XID_LIST,
)
RESET_CARD = Remedy(
    title="reset the GPU, and have it tested if the error returns",
    why="nvidia-smi -q shows its memory and link errors; sudo nvidia-smi --gpu-reset -i N resets it",
    source=XID_LIST,
)
LOG_LESS = Remedy(
    title="log, evaluate and save less often",
    why="each of them makes the GPU wait; so does every `.item()` in the loop",
    source=f"{NOTES_UTILISATION}, {NOTES_3090}",
)
LOOP_HABITS = Remedy(
    title="avoid synchronizing with the GPU in the loop",
    why="`.item()`, `.cpu()` and printing a tensor wait for all kernels before them: at most one "
    "per step; sum metrics on the GPU and copy batches with `non_blocking=True` from pinned memory",
    effect="5–10 % shorter steps in the notes; not measured here",
    source=NOTES_3090,
)
COOLING = Remedy(
    title="check cooling and power",
    why="the GPU lowers its clocks to protect itself; no setting helps",
    source="NVML: clocks event reasons",
)
CLOSE_OTHERS = Remedy(
    title="end the other process on the GPU, or train on another GPU",
    why="it uses time and memory of the same GPU",
    source=f"{NOTES_T4}: close other notebooks",
)
FIRST_EPOCH = Remedy(
    title="wait for the compiler",
    why="the first steps compile, and batches of another shape compile again: padding to max length keeps one shape",
    source=NOTES_T4,
)
LARGER_MODEL = Remedy(
    title="a larger model costs little more time",
    why="kernels this small leave most of the GPU unused",
    source=NOTES_UTILISATION,
)


def launch_bound(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """More work per kernel launch, and nothing in the loop that waits for the GPU."""
    habits = () if isinstance(situation.job, BuiltinJob) else (LOOP_HABITS,)
    return (*underused(situation, where), *habits, LARGER_MODEL)

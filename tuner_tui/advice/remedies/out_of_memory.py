"""What to do when the card's memory is full, in order of least harm.

Gradient checkpointing is only ever switched on here: switching it off, as one of the notes says, costs memory.
Where the memory ran out decides the order: a smaller batch does nothing for an optimizer step or a model that does
not load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tuner_tui.advice.batch_scaling import (
    BatchSplit,
    RebalancedBatch,
    rebalance,
    scale_learning_rate,
    smaller_micro_batches,
)
from tuner_tui.advice.expected_memory import expected_peak
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070, NOTES_3070_8BIT, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.settings.job import SHAPES, BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules import FOUR_BIT_LEAST

RemedyBuilder = Callable[[Situation, Settings], Iterator[Remedy]]
SHORTEST_LENGTH = 32
CONSERVATIVE_BATCH = 8


def ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The remedies for out-of-memory at `where`: training, evaluation, loading, optimizer-step, checkpoint or None."""
    settings = situation.settings
    if settings is None:
        remedies = IN_WORDS.get(where or "training", IN_WORDS["training"])
        return tuple(
            remedy for remedy in remedies if remedy not in (ADAPTERS, PURE_BF16) or not log_shows_adapters(situation)
        )
    rungs = ANYWHERE if where is None else BUILDERS.get(where, ANYWHERE)
    remedies = tuple(remedy for rung in rungs for remedy in rung(situation, settings))
    unknown = smaller_micro_batch in rungs and not situation.is_known("per_device_train_batch_size")
    half = HALVE_BATCH if situation.has_own_loop else HALVE
    after = AFTER.get(where or "", ())
    return (*((half,) if unknown else ()), *remedies, *after, *automatic_fallback(situation))


ADAPTERS_IN_LOG = re.compile(r"trainable%|\bpeft[/.]|\bqlora\b|\blora_[AB]\b|PeftModel", re.IGNORECASE)


def log_shows_adapters(situation: Situation) -> bool:
    """Whether the log shows that adapters are trained already: peft prints their share, a traceback names its files."""
    return any(ADAPTERS_IN_LOG.search(line) for line in situation.log)


def automatic_fallback(situation: Situation) -> Iterator[Remedy]:
    """The automatic fallback, unless the job has it switched on."""
    if situation.job is not None and not situation.job.fallback and not situation.has_own_loop:
        yield AUTOMATIC_FALLBACK


def smaller_micro_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The largest smaller micro batch that fits and keeps the effective batch; also the nearest inexact one if far.

    One step to what fits: a batch that may still be too large would cost another start. Where no peak is known, it is
    the next smaller one.
    """
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    if situation.has_own_loop:
        yield from _smaller_batch(situation, settings)
        return
    sizes = smaller_micro_batches(micro, accumulation)
    if not sizes:
        return
    largest = _largest_fitting(situation, settings, sizes) or sizes[-1]
    if largest == sizes[0] and 2 * largest < micro:
        yield _inexact_split(rebalance(micro, accumulation, situation.replicas, micro * 3 // 4), settings)
    yield _exact_split(BatchSplit(largest, micro * accumulation // largest, situation.replicas), settings)


def _largest_fitting(situation: Situation, settings: Settings, sizes: Sequence[int]) -> int | None:
    """The first of `sizes` that is known to fit, else the first that may fit; None if all are too large."""
    share = settings.per_device_train_batch_size * settings.gradient_accumulation_steps
    possible = None
    for size in sizes:
        peak = expected_peak(situation, BatchSplit(size, max(1, share // size), situation.replicas).change)
        if peak is not None and peak.verdict == "fits":
            return size
        if peak is None or peak.verdict == "tight":
            possible = possible or size
    return possible


def _smaller_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """For a loop without accumulation: the half, or the largest power of two of it that may fit."""
    batch = settings.per_device_train_batch_size
    halves = [batch >> shift for shift in range(1, batch.bit_length())]
    smaller = _largest_fitting(situation, settings, halves)
    if smaller is not None:
        yield Remedy(
            title=f"batch size {batch} → {smaller}",
            why="activations shrink with the batch; this loop does not accumulate gradients, so the effective "
            "batch shrinks too and the learning rate may need adjusting",
            change={"per_device_train_batch_size": smaller},
            effect=f"activation memory {_times(smaller, batch)}; weights and optimizer unchanged",
            rests_on="activations are proportional to the batch",
            source=f"{NOTES_3070}, {NOTES_T4}",
        )


def _exact_split(split: BatchSplit, settings: Settings) -> Remedy:
    return Remedy(
        title=f"micro batch {settings.per_device_train_batch_size} → {split.micro}, accumulation "
        f"{settings.gradient_accumulation_steps} → {split.accumulation}",
        why=f"activations shrink with the micro batch; the effective batch stays {split.effective}, "
        "so the learning rate stays",
        change=split.change,
        effect=f"activation memory {_times(split.micro, settings.per_device_train_batch_size)}; "
        "weights and optimizer unchanged",
        rests_on="activations are proportional to the micro batch",
        source=f"{NOTES_3070}, {NOTES_T4}",
    )


def _inexact_split(new: RebalancedBatch, settings: Settings) -> Remedy:
    rate, rule = scale_learning_rate(settings.learning_rate, new.ratio, settings.optim)
    rate = float(f"{rate:.3g}")
    return Remedy(
        title=f"micro batch {settings.per_device_train_batch_size} → {new.split.micro}, effective batch "
        f"{new.wanted} → {new.split.effective}, learning rate {rate:.3g}",
        why=f"{new.wanted} has no divisor near it: the effective batch changes, and the learning rate by {rule}",
        change={**new.split.change, "learning_rate": rate},
        effect=f"activation memory {_times(new.split.micro, settings.per_device_train_batch_size)}",
        rests_on="activations are proportional to the micro batch",
        source=f"{NOTES_3070}, {rule}",
    )


def _times(after: int, before: int) -> str:
    """The factor `× 0.75`, or `÷ 64` where that would round to nothing."""
    return f"× {after / before:.2f}" if 10 * after > before else f"÷ {before / after:.3g}"


def checkpointing(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if not settings.gradient_checkpointing:
        yield CHECKPOINTING


def mixed_precision(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    precision = situation.best_precision
    if settings.precision == "fp32" and precision != "fp32":
        yield Remedy(
            title=f"precision fp32 → {precision}",
            why="activations are stored in 16 bits",
            change={"precision": precision},
            effect="40–50 % less activation memory, faster on this GPU",
            rests_on="RTX 3090 and Gemma-1B as noted there; not measured here",
            source=NOTES_3090,
        )


def smaller_eval_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Three quarters of the evaluation batch as in the notes, or half of a small one."""
    batch = settings.per_device_eval_batch_size
    if batch > 1:
        smaller = batch * 3 // 4 if batch >= 16 else batch // 2
        yield replace(
            HALVE_EVAL,
            title=f"eval batch {batch} → {smaller}",
            change={"per_device_eval_batch_size": smaller},
            effect=f"evaluation activations × {smaller / batch:.2f}; training is unchanged",
        )


def shorter_sequences(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Two thirds of the sequence length, rounded down to a multiple of 8."""
    length = settings.max_length
    new = max(SHORTEST_LENGTH, length * 2 // 3 // 8 * 8)
    if new < length:
        yield replace(
            SHORTER,
            title=f"max length {length} → {new}",
            change={"max_length": new},
            effect=f"activation memory × {new / length:.2f} or less",
        )


def eight_bit_optimizer(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """8-bit AdamW for a training of all weights."""
    if settings.optim not in {"adamw_torch", "adamw_torch_fused"} or settings.peft_method != "none":
        return
    if not runs_bitsandbytes(situation):
        return
    parameters = situation.state.trainable_parameters
    saved = "6 bytes per parameter" if parameters is None else f"{parameters * 6 / 1e9:.1f} GB"
    yield replace(
        LESS_OPTIMIZER,
        title=f"optimizer {settings.optim} → adamw_bnb_8bit",
        change={"optim": "adamw_bnb_8bit"},
        effect=f"{saved} less",
    )


def runs_bitsandbytes(situation: Situation) -> bool:
    """Whether bitsandbytes may run here: on a GPU of Volta or newer, unless it is known to be missing."""
    missing = situation.has_package("bitsandbytes") is False
    return situation.has_gpu is not False and not missing and not situation.has_gpu_below(FOUR_BIT_LEAST)


def pure_bf16(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """A full fine-tuning without fp32 master weights, where the card computes in bf16."""
    full = settings.peft_method == "none" and settings.quantization == "none"
    if full and settings.weights_dtype in ("auto", "fp32") and situation.best_precision == "bf16":
        yield replace(PURE_BF16, change={"weights_dtype": "bf16", "precision": "bf16"})


def adapters(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """LoRA on trained weights; on random ones it learns next to nothing."""
    fits = settings.peft_method == "none" and not starts_from_random_weights(situation)
    if fits and situation.has_package("peft") is not False:
        yield replace(ADAPTERS, change={"peft_method": "lora"})


def starts_from_random_weights(situation: Situation) -> bool:
    """Whether the job trains a built-in shape."""
    return isinstance(situation.job, BuiltinJob) and situation.job.model in SHAPES


def quantized_base(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The frozen weights under an adapter in 4 bits."""
    adapted = settings.peft_method != "none" and settings.quantization in ("none", "int8")
    if adapted and runs_bitsandbytes(situation) and not starts_from_random_weights(situation):
        yield replace(
            FOUR_BIT,
            title="quantize the frozen weights: 4 bits (QLoRA)",
            why="only the adapters train; the weights under them are dequantized layer by layer",
            change={"quantization": "nf4", "bnb_4bit_use_double_quant": True},
            effect="linear layers need about a quarter of their 16-bit size; steps are slower",
            rests_on="0.52 bytes per weight instead of 2",
        )


def safe_batch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """The conservative micro batch of the notes with the same effective batch."""
    micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    sizes = smaller_micro_batches(micro, accumulation)
    safe = next((size for size in sizes if size <= CONSERVATIVE_BATCH), None)
    if safe is not None and safe != sizes[0]:
        split = BatchSplit(safe, micro * accumulation // safe, situation.replicas)
        yield Remedy(
            title=f"back to a safe batch: {split.micro} × {split.accumulation}",
            why=f"the batch of the conservative preset; the effective batch stays {split.effective}",
            change=split.change,
            effect=f"activation memory {_times(split.micro, micro)}",
            rests_on="activations are proportional to the micro batch",
            source=NOTES_UTILISATION,
        )


CHECKPOINTING = Remedy(
    title="gradient checkpointing on",
    why="only the inputs of blocks are stored; the backward pass computes the other activations again, block by block",
    change={"gradient_checkpointing": True},
    effect="at least about 40 % less activation memory, steps about 20 % slower (one more forward pass)",
    rests_on="T4 and RTX 3090 as noted there; not measured here",
    source=f"{NOTES_T4}, {NOTES_3090}",
)
AUTOMATIC_FALLBACK = Remedy(
    title="turn on OOM retries",
    why="`fallback: 3` in the job, or `--fallback 3`: retries with a smaller micro batch from the newest checkpoint",
    effect="the effective batch stays the same; each retry is recorded in the run",
    source="OOM retries, off by default",
)
OFFLOAD_PREDICTIONS = Remedy(
    title="move predictions off the GPU regularly",
    why="Trainer keeps all predictions of an evaluation on the GPU; `eval_accumulation_steps=20` moves "
    "them to the host every 20 batches",
    effect="evaluation memory no longer grows with the data; slightly slower",
    rests_on="transformers: eval_accumulation_steps",
    source=f"{NOTES_3090}: GPU-side accumulation in evaluation",
)
HALVE = Remedy(
    title="halve the micro batch, double the accumulation",
    why="activations shrink with the micro batch; the effective batch and the learning rate stay",
    effect="activation memory halves; weights and optimizer unchanged",
    rests_on="activations are proportional to the micro batch",
    source=f"{NOTES_3070}, {NOTES_T4}",
)
HALVE_BATCH = replace(
    HALVE,
    title="halve the batch size",
    why="activations shrink with the batch; the effective batch halves too, and the learning rate may need adjusting",
)
SHORTER = Remedy(
    title="shorter sequences or smaller images",
    why="activations grow at least in proportion to the tokens; longer samples are truncated",
    effect="activation memory shrinks with the length, that of eager attention with its square",
    rests_on="activations are at least proportional to the tokens",
    source=NOTES_T4,
)
LESS_OPTIMIZER = Remedy(
    title="an 8-bit optimizer: adamw_bnb_8bit",
    why="AdamW stores two 32-bit values per parameter; bitsandbytes stores them in 8 bits, but for embeddings",
    effect="6 bytes per parameter less",
    rests_on="two states of 4 bytes become two of 1 byte",
    source=f"{NOTES_3070_8BIT}, {NOTES_3090}",
)
PAGED_OPTIMIZER = Remedy(
    title="a paged optimizer: paged_adamw_8bit",
    why="its states move to host memory when the GPU is full, and back for the optimizer step",
    effect="the optimizer's peak fits; slower while paging",
    source="bitsandbytes: paged optimizers",
)
PURE_BF16 = Remedy(
    title="pure bf16: weights, gradients and states in 16 bits",
    why="a full fine-tuning without fp32 master weights: updates below 1/256 of a weight are rounded away, so that it "
    "learns less at a low learning rate. A model loaded with dtype=torch.bfloat16, on Ampere or newer",
    effect="8 bytes a parameter less with AdamW; every weight is still trained",
    rests_on="weight, gradient and two states of 4 bytes become 2",
    source="PyTorch: bfloat16; LLaMA-Factory: pure_bf16",
)
ADAPTERS = Remedy(
    title="train adapters: LoRA",
    why="only adapters need gradients and optimizer states; this changes the training",
    effect="saves gradients and optimizer states of the frozen weights, about 12 bytes per parameter",
    rests_on="92 % fewer trainable parameters in the notes",
    source=NOTES_3090,
)
HALVE_EVAL = Remedy(
    title="halve the evaluation batch (per_device_eval_batch_size)",
    why="evaluation needs activations and logits of a whole batch; its size does not affect training",
    effect="halves evaluation activations; training is unchanged",
    rests_on="activations are proportional to the batch",
    source=f"{NOTES_3070_8BIT}, {NOTES_T4}",
)
METRICS_ON_DEVICE = Remedy(
    title="compute metrics on the GPU, batch by batch",
    why="`preprocess_logits_for_metrics` keeps the argmax instead of all logits; `batch_eval_metrics` or "
    "a running sum keeps nothing; without metrics, use `prediction_loss_only=True`",
    effect="evaluation keeps one integer per token instead of a row of logits",
    source=f"{NOTES_3090}; transformers: Trainer",
)
SMALLER_DTYPE = Remedy(
    title="load the weights in 16 bits: dtype=torch.bfloat16 (torch_dtype in older releases)",
    why="before Transformers 5, models load in fp32 by default; full fine-tuning in pure bf16 loses small updates, so "
    "use this for adapters and inference",
    effect="halves the weights",
    rests_on="2 bytes per parameter instead of 4",
    source="transformers: from_pretrained",
)
DEVICE_MAP = Remedy(
    title="shard the weights: FSDP or DeepSpeed ZeRO-3 for training, device_map='auto' for inference",
    why="a model too large for one GPU is split over several GPUs or offloaded to the host",
    effect="each GPU holds a part",
    source="accelerate: big model inference; transformers: FSDP",
)
FOUR_BIT = Remedy(
    title="quantize the base model: 4 bits with LoRA (QLoRA)",
    why="`BitsAndBytesConfig(load_in_4bit=True)`: the frozen weights need about half a byte per parameter",
    effect="a quarter of the 16-bit weights; only the adapters train",
    source="QLoRA (Dettmers et al. 2023)",
)
STATE_ON_HOST = Remedy(
    title="gather the checkpoint on the host, or save it in shards",
    why="FSDP: `state_dict_type` SHARDED_STATE_DICT, or a full one with `offload_to_cpu`; ZeRO-3: "
    "`stage3_gather_16bit_weights_on_model_save` off; a checkpoint is loaded with `map_location='cpu'`",
    effect="saving no longer needs a copy of the weights on the GPU",
    source="PyTorch: FSDP state dicts; transformers: DeepSpeed",
)
IN_WORDS: dict[str, tuple[Remedy, ...]] = {
    "training": (HALVE, CHECKPOINTING, SHORTER, LESS_OPTIMIZER, PURE_BF16, ADAPTERS, FOUR_BIT),
    "evaluation": (HALVE_EVAL, OFFLOAD_PREDICTIONS, METRICS_ON_DEVICE),
    "optimizer-step": (LESS_OPTIMIZER, PAGED_OPTIMIZER, PURE_BF16, ADAPTERS, HALVE),
    "loading": (SMALLER_DTYPE, DEVICE_MAP, FOUR_BIT),
    "checkpoint": (STATE_ON_HOST, HALVE),
}
"""The ladders where only a log is known."""

ANYWHERE: tuple[RemedyBuilder, ...] = (
    smaller_micro_batch, checkpointing, mixed_precision, smaller_eval_batch, shorter_sequences, eight_bit_optimizer,
    pure_bf16, adapters, quantized_base, safe_batch,
)  # fmt: skip
"""The ladder where it is not known in which phase the memory ran out."""
BUILDERS: dict[str, tuple[RemedyBuilder, ...]] = {
    "training": tuple(rung for rung in ANYWHERE if rung is not smaller_eval_batch),
    "evaluation": (smaller_eval_batch, mixed_precision, shorter_sequences),
    "optimizer-step": (eight_bit_optimizer, pure_bf16, adapters, quantized_base, smaller_micro_batch, checkpointing),
    "loading": (quantized_base, pure_bf16, adapters, eight_bit_optimizer),
    "checkpoint": (smaller_micro_batch, eight_bit_optimizer, pure_bf16, adapters, quantized_base),
}  # fmt: skip
AFTER: dict[str, tuple[Remedy, ...]] = {
    "evaluation": (OFFLOAD_PREDICTIONS, METRICS_ON_DEVICE),
    "loading": (SMALLER_DTYPE, DEVICE_MAP),
    "checkpoint": (STATE_ON_HOST,),
}
"""Remedies outside the settings, after those of the ladder."""

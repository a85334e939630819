"""Recommends micro batch, accumulation and learning rate, and what saves the memory that the batch needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from tuner_tui.advice.batch_scaling import divisors, scale_learning_rate, scale_linear
from tuner_tui.advice.recommend.notes import fill_in, read_notes
from tuner_tui.advice.recommend.sample_lengths import SampleLengths
from tuner_tui.advice.recommend.target import (
    MEMORY_SHORT_SHARE,
    RecommendationDraft,
    TrainingTarget,
    is_memory_short,
    other_processes_bytes,
    training_code_of,
)
from tuner_tui.advice.recommend.workload import Workload
from tuner_tui.advice.thresholds import JUDGEMENT, NOTES_UTILISATION
from tuner_tui.core.units import GIB, format_share
from tuner_tui.memory.estimate import MemoryEstimate, estimate
from tuner_tui.memory.fixed_memory import fixed_sizes
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.settings.command_training import own_settings
from tuner_tui.settings.dialects.dialect import dialect_by_name
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Settings, Value

HOPELESS_SHARE = 0.75
COMFORTABLE_BATCH = 4
LEAST_SAMPLES, LEAST_TOKENS = 2, 2048
"""A smaller micro batch of a training in full keeps a GPU too little busy; judgement."""
QUANTIZE_SHARE = 0.5
"""Frozen weights above this share of the GPU leave too little for a batch."""


def optimizer(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends fused AdamW, or 8-bit AdamW if full states leave no room and bitsandbytes is installed."""
    target = draft.target
    if not target.on_gpu:
        draft.advise("optim", "adamw_torch", *draft.why("optimizer-on-cpu"))
        return
    if target.sharding is None and _eight_bit(draft, workload):
        return
    if target.able("fused") and target.has("torch", (2, 0)):
        draft.advise("optim", "adamw_torch_fused", *draft.why("fused"))
        return
    version = f"torch {target.machine.version_text('torch') or ''}" if target.has("torch") else "an unknown torch"
    draft.reject("optim", "adamw_torch_fused", *draft.why("no-fused", version=version))
    draft.advise("optim", "adamw_torch", *draft.why("plain-adamw"))


def _eight_bit(draft: RecommendationDraft, workload: Workload) -> bool:
    """Whether 8-bit AdamW is recommended: where only a very small batch fits with full states, by checkpointing."""
    optim, memory = "adamw_bnb_8bit", draft.target.device.capacity_bytes
    if draft.settings.peft_method != "none" or workload.shape is None or memory is None:
        return False
    size = _gb(fixed_sizes(workload.shape, Settings()).before_a_sample)
    states = f"{workload.label} takes {size} with full AdamW states"
    if _fits(draft, workload, {}, samples=max(LEAST_SAMPLES, LEAST_TOKENS // max(1, workload.tokens))):
        if is_memory_short(workload.shape, memory):
            draft.reject("optim", optim, *draft.why("no-8-bit-needed", states=states, memory=_gb(memory)))
        return False
    short = f"{states}, too much for this GPU"
    return _by_bitsandbytes(draft, "8-bit", "optim", optim, _fits(draft, workload, {"optim": optim}), short=short)


def _by_bitsandbytes(
    draft: RecommendationDraft, kind: str, name: str, value: Value, fits: bool, **figures: str
) -> bool:
    """Recommends a value that needs bitsandbytes, or says why not; `fits`: it would be enough."""
    able = draft.target.able("4-bit")
    if able and draft.target.has("bitsandbytes"):
        draft.advise(name, value, *draft.why(kind, **figures))
        return True
    hurdle = ("package" if able else "on-this-gpu") if fits else "fits"
    draft.reject(name, value, *draft.why(f"no-{kind}-{hurdle}", **figures))
    return False


ACCUMULATED: Mapping[str, Value] = {"gradient_accumulation_steps": 2}
"""Gradients then stay between micro batches, however many."""
FOUR_BITS: Mapping[str, Value] = {"peft_method": "lora", "quantization": "nf4", "bnb_4bit_use_double_quant": True}


def adapter(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends LoRA if a full training cannot fit at any batch size, on quantized weights where they are large."""
    target, memory = draft.target, draft.target.device.capacity_bytes
    if memory is None or workload.shape is None:
        return
    eight_bit = target.able("4-bit") and target.has("bitsandbytes")
    optim = draft.given.get("optim", "adamw_bnb_8bit" if eight_bit else "adamw_torch")
    full: Mapping[str, Value] = {"peft_method": "none", "quantization": "none", "optim": optim}
    least = fixed_sizes(workload.shape, draft.settings.changed(**full)).before_a_sample
    needed = f"a full training of {workload.label} needs {_gb(least)} before the first sample"
    if workload.shape.quantized_bytes is not None and target.has("peft"):
        draft.advise("peft_method", "lora", *draft.why("saved-quantized", model=workload.label))
        return
    if least < HOPELESS_SHARE * memory and _fits(draft.of(target.alone), workload, {"optim": optim}, LEAST_SAMPLES):
        draft.reject("peft_method", "lora", *draft.why("full-training-fits", model=workload.label))
    elif not workload.pretrained:
        draft.reject("peft_method", "lora", *draft.why("random-weights", needed=needed))
    elif target.has("peft"):
        draft.advise("peft_method", "lora", *draft.why("lora", needed=needed))
    else:
        packages = _packages_to_fit(draft, workload)
        row = "no-adapter-fits" if packages is None else "no-peft"
        draft.reject("peft_method", "lora", *draft.why(row, needed=needed, packages=packages))
    if draft.settings.peft_method != "none" and workload.pretrained:
        _frozen_weights(draft, workload, workload.shape, memory)
    gpus = len(target.gpus)
    most = MEMORY_SHORT_SHARE * memory
    if gpus > 1 and draft.settings.peft_method != "none" and least / gpus < most <= least:
        draft.note("sharded-weights", model=workload.label, count=gpus, size=_gb(least / gpus))
    if isinstance(target.job, CommandJob) and "peft_method" in draft.advised:
        draft.note("by-the-command")


def _packages_to_fit(draft: RecommendationDraft, workload: Workload) -> str | None:
    """The missing packages with which adapters would fit; None where they would not."""
    if _fits(draft, workload, {"peft_method": "lora"}):
        return "peft"
    if not draft.target.able("4-bit") or not _fits(draft, workload, FOUR_BITS):
        return None
    return "peft" if draft.target.has("bitsandbytes") else "peft bitsandbytes"


def _fits(draft: RecommendationDraft, workload: Workload, changes: Mapping[str, Value], samples: int = 1) -> bool:
    """Whether `samples` at a time fit by estimate, with checkpointing and accumulation; True where unknown."""
    most = largest_batch(draft, workload, **{"gradient_checkpointing": True, **ACCUMULATED, **changes})
    return most is None or most >= samples


def _frozen_weights(draft: RecommendationDraft, workload: Workload, shape: ModelShape, memory: int) -> None:
    """Recommends 4-bit weights under an adapter where those as saved leave too little of the GPU, or no sample."""
    target = draft.target
    if shape.weight_bytes == 2 and draft.settings.precision == "fp32" and target.machine.gpu_below("bf16") is not None:
        draft.advise("weights_dtype", "fp32", *draft.why("weights-without-bf16", model=workload.label))
    saved = fixed_sizes(shape, draft.settings.changed(quantization="none")).weights
    fits = saved <= QUANTIZE_SHARE * memory and _fits(draft, workload, {"quantization": "none"})
    if fits or not target.on_gpu:
        return
    small = fixed_sizes(shape, draft.settings.changed(**FOUR_BITS)).weights
    frozen = f"the frozen weights of {workload.label} take {_gb(small)} in 4 bits, {_gb(saved)} as loaded"
    would_fit = _fits(draft, workload, FOUR_BITS)
    quantized = _by_bitsandbytes(draft, "4-bit", "quantization", "nf4", would_fit, frozen=frozen)
    if quantized and draft.settings.quantization in ("nf4", "fp4"):
        draft.advise("bnb_4bit_use_double_quant", True, *draft.why("double-quantization"))


def checkpointing(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends gradient checkpointing if only a very small batch fits without it; on a CPU if none does."""
    if not workload.is_estimated:
        return
    without = largest_batch(draft, workload, gradient_checkpointing=False, **ACCUMULATED)
    if without is not None and without < (COMFORTABLE_BATCH if draft.target.on_gpu else 1):
        count = "no sample" if without == 0 else f"{without} at once"
        draft.advise("gradient_checkpointing", True, *draft.why("checkpointing", count=count))
    else:
        draft.reject("gradient_checkpointing", True, *draft.why("no-checkpointing"))


def largest_batch(draft: RecommendationDraft, workload: Workload, **changes: Value) -> int | None:
    """The largest micro batch that fits by estimate; None if the memory or the size of the model is unknown.

    Evaluation is left out, because its batch is derived from this one.
    """
    if draft.target.device.capacity_bytes is None or not workload.is_estimated:
        return None
    return _estimate(draft, workload, **changes).largest_batch()


def _estimate(draft: RecommendationDraft, workload: Workload, **changes: Value) -> MemoryEstimate:
    """The estimate for the workload with the settings so far and `changes`; evaluation takes one sample at a time."""
    tried = draft.settings.changed(**{"per_device_eval_batch_size": 1, **changes})
    if workload.trace is not None:
        return workload.trace(draft.target, tried)
    tried = tried.changed(max_length=max(8, workload.tokens))
    assert workload.shape is not None  # nothing is estimated without a size
    code = training_code_of(draft.target.job, draft.target.interpreter)
    target = draft.target
    sharding = target.sharding if target.is_modelled else None
    return estimate(workload.shape, tried, target.device, target.processes, code, sharding)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


SOLD_SHARE = 0.9
"""GPUs report less than they are sold with: a T4 15.0 of 16 GiB, an A10 22.5 of 24."""
NOTES_TOKENS = 128
SMALL_GIB = 8
EFFECTIVE_BATCH, MAX_EFFECTIVE_BATCH = 32, 256
"""Samples per step of one GPU that takes fewer at once, and of all GPUs together."""
MIN_STEPS = 50
MAX_EVAL_BATCH = int(FIELDS["per_device_eval_batch_size"].maximum or 0)
STARTING_POINT = "a starting point; `tuner-tui tune` measures"


class NotedBatch(Struct, frozen=True):
    """The field notes' micro batch for one class of GPU, how often they accumulate it, and the largest that fitted."""

    micro: int
    label: str
    accumulated: int = 1
    most: int | None = None
    source: str = "{NOTES_UTILISATION}"
    gib: int = 0
    needs: str = ""
    optim: str = ""


def recommend_batch(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends micro batch, accumulation and evaluation batch.

    A step takes the samples of one GPU's step times the number of GPUs, up to a limit, also where only a smaller micro
    batch fits. Neither more memory nor more GPUs lead to a smaller step; only the notes' own for 8 GB is larger.
    """
    replicas, noted = draft.target.replicas, noted_batch(draft.target, draft.settings.optim)
    limit = limit_micro_batch(draft, workload, noted)
    alone = limit if replicas == 1 else limit_micro_batch(draft.of(draft.target.alone), workload, noted)
    step = max(EFFECTIVE_BATCH, _round_down(alone.noted))
    if noted.accumulated > 1:  # the notes' own for 8 GB, and for nothing else
        step = step * noted.accumulated if alone.from_notes else EFFECTIVE_BATCH
    share = samples_per_gpu(draft.target, step)
    micro = max(size for size in divisors(share) if size <= limit.micro)
    if _fitting(draft, workload) == 0:
        _note_not_one_sample(draft, workload)
    guess = "" if workload.is_estimated else f"; the size of {workload.label} is unknown"
    few = f"; {share} per GPU keep the effective batch reasonable" if share < limit.micro else ""
    draft.advise("per_device_train_batch_size", micro, f"{limit.reason}{guess}{few}; {STARTING_POINT}", limit.source)
    if noted.most is not None and limit.from_notes:
        draft.reject("per_device_train_batch_size", noted.most, *draft.why("largest-noted-batch"))
    _accumulation(draft, share, step)
    _eval_batch(draft, workload)


def _round_down(samples: int) -> int:
    """`samples` rounded to a power of two, or to a multiple of 8 above `EFFECTIVE_BATCH`: smaller batches divide it."""
    return samples // 8 * 8 if samples > EFFECTIVE_BATCH else 1 << max(0, samples.bit_length() - 1)


def noted_batch(target: TrainingTarget, optim: str) -> NotedBatch:
    """The notes' largest micro batch for GPUs with as much memory as the smallest or less."""
    memory = target.memory_bytes
    if not target.on_gpu or memory is None:
        return NotedBatch(**read_notes("other-batches")["memory-unknown" if target.on_gpu else "no-gpu"])
    batches = (NotedBatch(**row) for row in read_notes("batches"))
    reached = (batch for batch in batches if memory >= batch.gib * SOLD_SHARE * GIB and batch.optim in optim)
    fitting = (batch for batch in reached if not batch.needs or target.able(batch.needs))
    return max(fitting, key=lambda batch: batch.micro)  # of equal ones the first: of most memory


def _note_not_one_sample(draft: RecommendationDraft, workload: Workload) -> None:
    """Notes that no sample is certain to fit, and what would change that."""
    missing = (value.reason for value in draft.rejected if "pip install" in value.reason)
    why = next(missing, f"use {_ways_to_fit(draft, workload)}")
    smallest = _estimate(draft, workload, per_device_train_batch_size=1)
    # It may fit, where the estimate's bounds are on both sides.
    certainly = "fits" if smallest.verdict == "too large" else "is certain to fit"
    by_name = workload.shape is not None and workload.shape.size_only
    name = "large-by-name" if by_name else "not-one-sample"
    draft.note(name, model=_describe_model(workload), certainly=certainly, why=why)


def _ways_to_fit(draft: RecommendationDraft, workload: Workload) -> str:
    """What is left to take where not one sample fits."""
    settings, target, ways = draft.settings, draft.target, ["shorter samples", "a smaller model"]
    if workload.pretrained and settings.peft_method == "none":
        ways += ["LoRA"] * _fits(draft, workload, {"peft_method": "lora"})
    if workload.pretrained and settings.quantization == "none" and target.able("4-bit"):
        ways += ["LoRA on 4-bit weights"] * _fits(draft, workload, FOUR_BITS)
    if target.sharding is not None:
        ways += [*["weights divided too (stage 3)"] * ((target.sharding.stage or 0) < 3), "more GPUs"]
    held = any(other_processes_bytes(gpu) for gpu in target.gpus)
    larger = "or a larger GPU" if target.on_gpu else "or a machine with more memory"
    return f"{', '.join(ways)}{', or close the other programs on the GPU' if held else f' {larger}'}"


class MicroBatchLimit(Struct, frozen=True):
    """The largest micro batch to start with, with reason and source.

    `noted` is the notes' batch for samples of this length, whether it fits or not; `from_notes`: it is theirs as it is.
    """

    micro: int
    reason: str
    source: str
    noted: int
    from_notes: bool = False


def limit_micro_batch(draft: RecommendationDraft, workload: Workload, noted: NotedBatch) -> MicroBatchLimit:
    """The notes' batch where the job is of their kind and it fits by estimate; else what fits.

    The notes classify texts. For a language model, images and speech the estimate alone decides; where the size of a
    language model is not known, it is one sample.
    """
    memory, scaled_to, micro = draft.target.memory_bytes, [], noted.micro
    fits = _fitting(draft, workload)
    if memory is not None and memory < SMALL_GIB * SOLD_SHARE * GIB:
        micro = max(1, int(micro * memory / (SMALL_GIB * GIB)))
        scaled_to.append(f"{memory / GIB:.1f} GiB")
    if workload.tokens > NOTES_TOKENS:
        micro = max(1, micro * NOTES_TOKENS // workload.tokens)
        scaled_to.append(f"{workload.tokens:,} tokens")
    if workload.language_model and not workload.is_estimated:
        return MicroBatchLimit(1, *draft.why("batch-of-unknown-size"), micro)
    if (workload.language_model or workload.trace is not None) and fits is not None:
        count = f"{fits} samples" if fits > 1 else "one sample" if fits else "not one sample"
        source, size = ("estimate", f" of {workload.tokens:,} tokens") if workload.trace is None else ("trace", "")
        reason = f"{source}: {count}{size} fit for {_describe_model(workload)}"
        return MicroBatchLimit(max(1, min(fits, noted.micro)), reason, source, micro)
    limit = micro
    if fits is not None and fits < micro:
        limit = max(1, fits)
        scaled_to.append(f"{_describe_model(workload)} (estimate: {fits} fit)")
    words = f" at {NOTES_TOKENS} tokens, scaled to {', '.join(scaled_to)}" if scaled_to else ""
    if fits is not None and fits > limit:
        words += f"; estimate: {fits} fit for {_describe_model(workload)}"
    source = f"{fill_in(noted.source)}, for 128-token classification"
    return MicroBatchLimit(limit, f"{noted.label}{words}", source, micro, not scaled_to)


def _fitting(draft: RecommendationDraft, workload: Workload) -> int | None:
    """The micro batches that fit, accumulated where a whole step at once does not; None where unknown."""
    fits = largest_batch(draft, workload)
    at_once = samples_per_gpu(draft.target, EFFECTIVE_BATCH)
    return fits if fits is None or fits >= at_once else largest_batch(draft, workload, **ACCUMULATED)


def samples_per_gpu(target: TrainingTarget, wanted: int) -> int:
    """Samples per step and GPU: `wanted`, less for many GPUs or few samples; together no less than of one."""
    share = min(wanted, _round_down(MAX_EFFECTIVE_BATCH // target.replicas))
    samples = target.job.max_samples if isinstance(target.job, BuiltinJob) else None
    if samples is None:
        return share
    of_data = math.ceil(_round_down(samples // MIN_STEPS) / target.replicas)
    return min(share, of_data if of_data > EFFECTIVE_BATCH else 1 << (of_data - 1).bit_length())


def _accumulation(draft: RecommendationDraft, share: int, step: int) -> None:
    if isinstance(draft.target.job, CommandJob) and "per_device_train_batch_size" in draft.given:
        return  # the command's learning rate belongs to its own effective batch, which stays as it is
    micro, replicas = draft.settings.per_device_train_batch_size, draft.target.replicas
    # Several GPUs rather take a few samples more than fewer than one would.
    steps = math.ceil(share / micro) if replicas > 1 else max(1, share // micro)
    gpus = f" × {replicas} GPUs" if replicas > 1 else ""
    reason = f"{micro} × {steps}{gpus} = effective batch {micro * steps * replicas}"
    if steps == 1:
        reason += "; accumulation only if memory requires it"
    elif draft.target.on_gpu and micro * steps == step:
        reason += f"; {step} a step keep each GPU of this size busy"
    draft.advise("gradient_accumulation_steps", steps, reason, NOTES_UTILISATION)


def _eval_batch(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends the batch of an evaluation, halved until it fits by estimate; as it is where that is not known.

    At most the micro batch where not even one sample would fit.
    """
    micro = draft.settings.per_device_train_batch_size
    job = draft.target.job
    if isinstance(job, CommandJob) and {**own_settings(job), **draft.given}["eval_strategy"] == "no":
        return
    if workload.language_model and workload.has_large_logits:
        wanted, row = micro, "eval-batch-with-logits"
    else:
        wanted, row = min(2 * micro, MAX_EVAL_BATCH), "eval-batch"
    fitting = wanted
    if draft.target.device.capacity_bytes is not None and workload.is_estimated:
        sizes = (wanted >> shift for shift in range(wanted.bit_length()))
        at = partial(_estimate, draft, workload, per_device_train_batch_size=1)
        fits = (size for size in sizes if at(per_device_eval_batch_size=size).verdict == "fits")
        fitting = next(fits, min(wanted, micro))
    why = draft.why("eval-batch-too-large" if fitting < wanted else row, wanted=wanted)
    draft.advise("per_device_eval_batch_size", fitting, *why)


def _describe_model(workload: Workload) -> str:
    size = workload.parameters
    return workload.label if size is None else f"{workload.label} of {size / 1e6:,.0f} M parameters"


BASE_LEARNING_RATE, BASE_BATCH = 2e-5, 8
LARGEST_NOTED_BATCH = 128
ADAPTER_LEARNING_RATE = 2e-4
WARMUP_SHARE = 0.06


def learning_rate(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends the notes' rate, scaled with the effective batch; rejects a rate where the notes have none."""
    effective = draft.settings.effective_batch(draft.target.replicas)
    if not isinstance(draft.target.job, BuiltinJob):
        if "per_device_train_batch_size" not in draft.given:
            draft.note("rate-of-the-command", effective=effective)
    elif draft.settings.peft_method != "none":
        draft.advise("learning_rate", ADAPTER_LEARNING_RATE, *draft.why("rate-of-adapters"))
    elif workload.language_model and workload.pretrained and workload.is_large:
        draft.advise("learning_rate", BASE_LEARNING_RATE, *draft.why("rate-of-large-models"))
    elif workload.language_model or not workload.pretrained:
        kind = "a language model" if workload.language_model else "a model that starts from random weights"
        draft.reject("learning_rate", BASE_LEARNING_RATE, *draft.why("rate-not-noted", what=kind, effective=effective))
    else:
        _scaled_learning_rate(draft, effective, workload)


LARGEST_RATES = (("deberta-v3-large", 1e-5), ("deberta", 4e-5))
"""The largest rate of the authors' own search for models that larger ones keep from learning."""


def _scaled_learning_rate(draft: RecommendationDraft, effective: int, workload: Workload) -> None:
    ratio = min(effective, LARGEST_NOTED_BATCH) / BASE_BATCH
    rate, rule = scale_learning_rate(BASE_LEARNING_RATE, ratio, draft.settings.optim)
    linear = f"linear scaling would give {scale_linear(BASE_LEARNING_RATE, ratio):.1e}"
    beyond = f"; not scaled beyond {LARGEST_NOTED_BATCH}, the notes' largest" if effective > LARGEST_NOTED_BATCH else ""
    reason = f"{BASE_LEARNING_RATE:.0e} at batch {BASE_BATCH}, {rule} to effective batch {effective}{beyond}; {linear}"
    source = f"{NOTES_UTILISATION}; Malladi et al. 2022"
    rates = ((rate, "DeBERTaV3 (He et al. 2021)") for name, rate in LARGEST_RATES if name in workload.label.lower())
    most = next(rates, (BASE_LEARNING_RATE, JUDGEMENT) if workload.is_large else None)
    if most is not None and rate > most[0]:
        reason = f"the largest that {workload.label} is usually trained with; scaled with the batch it would be "
        draft.advise("learning_rate", most[0], f"{reason}{rate:.1e} at effective batch {effective}", most[1])
        return
    draft.advise("learning_rate", float(f"{rate:.2g}"), reason, source)


def warmup(draft: RecommendationDraft) -> None:
    job = draft.target.job
    by_trainer = isinstance(job, BuiltinJob) or dialect_by_name(job.dialect).extends_hf
    # A recipe may have no schedule that could warm up.
    if draft.settings.lr_scheduler_type != "constant" and (by_trainer or "lr_scheduler_type" in draft.given):
        draft.advise("warmup_steps", WARMUP_SHARE, *draft.why("warmup"))


LEAST_PADDING_SAVED = 0.1
"""Share of a batch from which grouping is worth that batches are no longer drawn at random; judgement."""
LEAST_SAMPLES_IN_ROW = 1.5
"""Below this, samples put end to end leave as much of a row unused as padding does; judgement."""
LEAST_CUT = 0.01
LENGTH_TILE = 64


def sampling(draft: RecommendationDraft, lengths: SampleLengths | None = None) -> None:
    """Recommends batches of samples of similar length where batches are padded."""
    job, name = draft.target.job, "train_sampling_strategy"
    if lengths is not None and lengths.padded and not lengths.packed:
        draft.reject(name, "group_by_length", *draft.why("padded-by-the-tool"))
    elif lengths is not None and not lengths.packed:
        batch = draft.settings.per_device_train_batch_size
        padding = lengths.padding(batch, draft.settings.max_length)
        now, grouped = format_share(padding.random), format_share(padding.grouped)
        pays = padding.random - padding.grouped >= LEAST_PADDING_SAVED
        consider = draft.advise if pays else draft.reject
        consider(name, "group_by_length", *draft.why("padding", now=now, batch=batch, grouped=grouped))
    elif lengths is None and isinstance(job, BuiltinJob) and job.task == "classification":
        draft.advise(name, "group_by_length", *draft.why("similar-lengths"))


def note_lengths(draft: RecommendationDraft, lengths: SampleLengths) -> None:
    """Notes on packing, and on a `max_length` that cuts samples or that none reaches: memory is planned for it."""
    if lengths.packed:
        return
    if draft.target.job.task != "classification":
        _note_packing(draft, lengths)
    most, cut = draft.settings.max_length, lengths.cut_share(draft.settings.max_length)
    if cut >= LEAST_CUT:
        kept = f"{_whole_tiles(lengths.percentile(1 - LEAST_CUT)):,}"
        draft.note("samples-cut", cut=format_share(cut), most=f"{most:,}", kept=kept)
    elif len(lengths.lengths) == lengths.total and _whole_tiles(lengths.longest) < most:
        draft.note("samples-short", longest=f"{lengths.longest:,}", enough=f"{_whole_tiles(lengths.longest):,}")


def _note_packing(draft: RecommendationDraft, lengths: SampleLengths) -> None:
    most, padding = draft.settings.max_length, lengths.padding_share(draft.settings)
    each = most / lengths.mean(most)
    grouped = draft.settings.train_sampling_strategy == "group_by_length"
    why = f"{'grouped by length, ' if grouped else ''}{format_share(padding)} of a batch is padding"
    if lengths.padded:
        why += ", because the tool pads every sample to max_length"
    pays = "packing" if each >= LEAST_SAMPLES_IN_ROW else "no-packing-of-long-samples"
    row = "no-packing" if padding < LEAST_PADDING_SAVED else pays
    draft.note(row, why=why, each=f"{each:.1f}", most=f"{most:,}")


def _whole_tiles(length: int) -> int:
    return -(-length // LENGTH_TILE) * LENGTH_TILE

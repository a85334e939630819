"""Recommended optimizer, adapters and checkpointing, from the estimated memory of the model."""

from __future__ import annotations

from tuner_tui.advice.recommend.draft import RecommendationDraft
from tuner_tui.advice.recommend.workload import Workload
from tuner_tui.advice.thresholds import NOTES_3070_8BIT, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.memory.closed_form import fixed_sizes
from tuner_tui.memory.estimate import estimate
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.weights import FOUR_BIT_LEAST

MEMORY_SHORT_SHARE = 1 / 3
"""Weights, gradients and AdamW states above this share of the GPU leave too little for a batch."""
HOPELESS_SHARE = 0.75
BITSANDBYTES_LEAST = (7, 0)
COMFORTABLE_BATCH = 4
QUANTIZE_SHARE = 0.5
"""Frozen weights above this share of the GPU leave too little for a batch."""
BY_THE_COMMAND = (
    "Adapters and 4-bit weights are made by the command itself: `--use_peft --load_in_4bit` of trl, `adapter: qlora` "
    "of axolotl, `quantization_bit: 4` of LLaMA-Factory; in a script BitsAndBytesConfig and get_peft_model."
)
QLORA = "QLoRA (Dettmers et al. 2023)"


def optimizer(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends fused AdamW, or 8-bit AdamW if full states leave no room and bitsandbytes is installed."""
    target = draft.target
    if not target.on_gpu:
        draft.advise("optim", "adamw_torch", "fused kernels are faster only on a GPU", NOTES_T4)
        return
    if _is_memory_short(draft, workload) and _eight_bit(draft, workload):
        return
    if target.able("fused") and target.has("torch", (2, 0)):
        reason = "one kernel instead of many: saves 5–20 % of the optimizer step"
        draft.advise("optim", "adamw_torch_fused", reason, f"{NOTES_T4}, {NOTES_3090}")
        return
    known = target.has("torch")
    version = f"torch {target.machine.version_text('torch') or ''}" if known else "an unknown torch"
    why = f"{target.card_label} with {version}"
    draft.reject("optim", "adamw_torch_fused", f"needs torch 2.0 and a card of capability 5.0; here {why}", NOTES_T4)
    draft.advise("optim", "adamw_torch", "works with every torch and GPU", NOTES_T4)


def _eight_bit(draft: RecommendationDraft, workload: Workload) -> bool:
    target = draft.target
    size = _gb(_full_bytes(workload, "adamw_torch"))
    short = f"{workload.model.label} needs {size} with full AdamW states, too much for this GPU"
    card = target.weakest
    if card is None or card.capability is None or card.capability < BITSANDBYTES_LEAST:
        draft.reject("optim", "adamw_bnb_8bit", f"{short}; but bitsandbytes needs capability 7.0", NOTES_3070_8BIT)
        return False
    if not target.has("bitsandbytes"):
        why = f"{short}; but bitsandbytes is not installed (pip install bitsandbytes)"
        draft.reject("optim", "adamw_bnb_8bit", why, NOTES_3070_8BIT)
        return False
    draft.advise("optim", "adamw_bnb_8bit", f"{short}; 8-bit states save 6 bytes per parameter", NOTES_3070_8BIT)
    return True


def adapter(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends LoRA if a full training cannot fit at any batch size, on quantized weights where they are large."""
    target, memory, model = draft.target, draft.target.memory_bytes, workload.model
    is_command = isinstance(target.job, CommandJob)
    if memory is None or (is_command and model.guessed):
        return
    optim = "adamw_bnb_8bit" if target.has("bitsandbytes") else "adamw_torch"
    least = _full_bytes(workload, optim)
    needed = f"a full training of {model.label} needs {_gb(least)} before the first sample"
    if least < HOPELESS_SHARE * memory and _full_training_fits(draft, workload, optim):
        why = f"a full training of {model.label} fits; LoRA and DoRA train a few percent of the parameters"
        draft.reject("peft_method", "lora", why, NOTES_3090)
    elif not model.pretrained:
        why = f"{needed}; but the model starts from random weights, where adapters learn almost nothing"
        draft.reject("peft_method", "lora", why, "LoRA (Hu et al. 2021)")
    elif target.has("peft"):
        draft.advise("peft_method", "lora", f"{needed}; adapters leave the weights unchanged", NOTES_3090)
    else:
        draft.reject("peft_method", "lora", f"{needed}; peft is not installed (pip install peft)", NOTES_3090)
    if draft.settings.peft_method != "none" and model.pretrained:
        _quantization(draft, workload, memory)
    cards = len(target.cards)
    if cards > 1 and draft.settings.peft_method != "none" and least / cards < MEMORY_SHORT_SHARE * memory:
        draft.note(
            f"All weights of {model.label} can be trained where they are divided among the {cards} cards: FSDP "
            f"full_shard or DeepSpeed ZeRO-3, about {_gb(least / cards)} a card before the first sample."
        )
    if is_command and "peft_method" in draft.advised:
        draft.note(BY_THE_COMMAND)


def _full_training_fits(draft: RecommendationDraft, workload: Workload, optim: str) -> bool:
    """Whether more than one sample at a time fits by estimate, with checkpointing and accumulation."""
    asked = draft.settings.changed(
        optim=optim,
        gradient_checkpointing=True,
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=1,
        max_length=max(8, workload.tokens),
    )
    most = estimate(workload.model.shape, asked, draft.target.device, draft.target.processes).largest_batch()
    return most is None or most > 1


def _quantization(draft: RecommendationDraft, workload: Workload, memory: int) -> None:
    """Recommends 4-bit weights under an adapter if the weights as saved take more than half of the card."""
    target, model = draft.target, workload.model
    saved = _frozen_bytes(workload, Settings(peft_method="lora"))
    if saved <= QUANTIZE_SHARE * memory:
        return
    small = _frozen_bytes(workload, Settings(peft_method="lora", quantization="nf4", bnb_4bit_use_double_quant=True))
    why = f"the frozen weights of {model.label} take {_gb(small)} in 4 bits, {_gb(saved)} as saved"
    card = target.weakest
    if card is None or card.capability is None or card.capability < FOUR_BIT_LEAST:
        draft.reject("quantization", "nf4", f"{why}; but bitsandbytes needs capability 7.0", QLORA)
    elif not target.has("bitsandbytes"):
        draft.reject(
            "quantization", "nf4", f"{why}; but bitsandbytes is not installed (pip install bitsandbytes)", QLORA
        )
    else:
        draft.advise("quantization", "nf4", f"{why}: QLoRA", QLORA)
        if draft.settings.quantization in ("nf4", "fp4"):
            draft.advise(
                "bnb_4bit_use_double_quant", True, "quantizes the scales too: saves 0.4 bits per weight", QLORA
            )


def _frozen_bytes(workload: Workload, settings: Settings) -> float:
    """Bytes of the model's weights under an adapter."""
    return fixed_sizes(workload.model.shape, settings).weights


def checkpointing(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends gradient checkpointing if only a very small batch fits without it."""
    source = f"{NOTES_T4}, {NOTES_3090}, {NOTES_UTILISATION}"
    cost = "steps about 20 % slower, about 40 % less activation memory"
    if not draft.target.on_gpu:
        return
    without = largest_batch(draft, workload, checkpointing=False, accumulated=True)
    if without is not None and without < COMFORTABLE_BATCH:
        count = "no sample" if without == 0 else f"{without} at once"
        draft.advise("gradient_checkpointing", True, f"estimate: {count} would fit without it; {cost}", source)
    else:
        draft.reject("gradient_checkpointing", True, f"{cost}; not needed here", source)


def largest_batch(
    draft: RecommendationDraft, workload: Workload, checkpointing: bool | None = None, accumulated: bool = False
) -> int | None:
    """The largest micro batch that fits by estimate; None if GPU memory is unknown.

    `accumulated`: with gradient accumulation, whose gradients stay between micro batches. Evaluation is left out,
    because its batch is derived from this one.
    """
    target, settings = draft.target, draft.settings
    if target.memory_bytes is None:
        return None
    checkpointing = settings.gradient_checkpointing if checkpointing is None else checkpointing
    asked = settings.changed(
        gradient_checkpointing=checkpointing,
        per_device_eval_batch_size=1,
        max_length=max(8, workload.tokens),
        gradient_accumulation_steps=max(2 if accumulated else 1, settings.gradient_accumulation_steps),
    )
    return estimate(workload.model.shape, asked, target.device, target.processes).largest_batch()


def _is_memory_short(draft: RecommendationDraft, workload: Workload) -> bool:
    memory = draft.target.memory_bytes
    if memory is None or draft.settings.peft_method != "none":
        return False
    return _full_bytes(workload, "adamw_torch") > MEMORY_SHORT_SHARE * memory


def _full_bytes(workload: Workload, optim: str) -> float:
    """Estimated bytes of a full training before its first sample."""
    return fixed_sizes(workload.model.shape, Settings(optim=optim)).before_a_sample


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"

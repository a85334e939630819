"""Recommended precision, TF32, attention and compilation, from what GPU, torch and packages support."""

from __future__ import annotations

from tuner_tui.advice.recommend.draft import RecommendationDraft
from tuner_tui.advice.thresholds import NOTES_3070, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.hardware.inventory import FP16_SLOW, has_tensor_cores
from tuner_tui.memory.model_shape import known_shape
from tuner_tui.settings.job import BuiltinJob, modelled_job
from tuner_tui.settings.rules.speed import TRITON_MIN_CAPABILITY
from tuner_tui.settings.rules.weights import overflows_fp16

PRECISION_SOURCE = f"{NOTES_T4}, {NOTES_3090}, {NOTES_UTILISATION}; CUDA C++ Programming Guide"


def precision(draft: RecommendationDraft) -> None:
    """Recommends a 16-bit precision by compute capability; torch reports emulation as support."""
    target = draft.target
    if not target.on_gpu:
        draft.advise("precision", "fp32", f"{target.card_label}; fp32 works on every CPU", "PyTorch")
        draft.reject("precision", "fp16", "accelerate has no fp16 autocast on the CPU", "accelerate 1.15")
    elif target.able("bf16"):
        reason = f"{target.card_label} has bf16 tensor cores: the range of fp32, no loss scaler"
        draft.advise("precision", "bf16", reason, PRECISION_SOURCE)
    elif target.weakest is None or target.weakest.capability is None:
        reason = "the driver does not report the compute capability; fp32 works on every GPU"
        draft.advise("precision", "fp32", reason, "capability unknown")
    else:
        _before_ampere(draft, target.weakest.capability)


def _before_ampere(draft: RecommendationDraft, capability: tuple[int, int]) -> None:
    label = draft.target.card_label
    emulated = f"{label} only emulates bf16 (torch.cuda.is_bf16_supported() says yes nevertheless)"
    draft.reject("precision", "bf16", emulated, PRECISION_SOURCE)
    modelled = modelled_job(draft.target.job)
    model = None if modelled is None else modelled.model
    if overflows_fp16(model):
        why = f"{model} was trained in bf16, and its activations overflow in fp16: the loss becomes nan"
        draft.reject("precision", "fp16", why, "transformers: notes on Gemma and T5")
        draft.advise("precision", "fp32", f"{label} has no bf16, and in fp16 this model's loss becomes nan", "PyTorch")
        return
    if all(has_tensor_cores(card.name, capability) for card in draft.target.cards):
        reason = f"{label} has fp16 tensor cores and no bf16; training uses a loss scaler"
        draft.advise("precision", "fp16", reason, PRECISION_SOURCE)
        _note_16_bit_weights(draft)
        return
    slow = "at 1/64 of fp32's speed" if capability == FP16_SLOW else "without tensor cores, so there is little to gain"
    has = capability >= (5, 3)
    why = f"{label} computes in fp16 {slow}" if has else f"{label} does not compute in fp16"
    draft.reject("precision", "fp16", why, PRECISION_SOURCE)
    draft.advise("precision", "fp32", f"{why}", PRECISION_SOURCE)


def _note_16_bit_weights(draft: RecommendationDraft) -> None:
    """A command loads its model itself: as saved in Transformers 5, and the loss scaler takes no 16-bit gradients."""
    job, settings = draft.target.job, draft.settings
    modelled = modelled_job(job)
    if isinstance(job, BuiltinJob) or modelled is None or settings.peft_method != "none":
        return
    shape = known_shape(modelled.model, modelled.task)
    if shape is not None and shape.weight_bytes == 2 and settings.weights_dtype in ("auto", "saved"):
        draft.note(
            f"{modelled.model} is saved in 16 bit, and Transformers 5 loads it so: the loss scaler of fp16 then fails "
            "in the first step. Load it with dtype=torch.float32, or train an adapter."
        )


def tf32(draft: RecommendationDraft) -> None:
    """Recommends TF32 for matrix products that stay in fp32."""
    target = draft.target
    source = f"{NOTES_3070}, {NOTES_3090}"
    if target.able("tf32"):
        reason = f"{target.card_label}: fp32 operations run on tensor cores (10 mantissa bits, 19 in all)"
        draft.advise("tf32", True, reason, source)
    elif target.on_gpu:
        why = f"{target.card_label} has none: it needs Ampere (8.0), and TrainingArguments rejects it"
        draft.reject("tf32", True, why, NOTES_T4)


def attention(draft: RecommendationDraft) -> None:
    """Recommends SDPA where the model supports it, the default of Transformers."""
    target = draft.target
    flash = " with torch's flash kernels" if target.able("flash") else ""
    reason = f"Transformers takes SDPA{flash} where the model supports it: 30–50 % faster attention in the notes"
    draft.advise("attn_implementation", "auto", reason, NOTES_3090)
    if not target.on_gpu:
        return
    if not target.able("flash"):
        why = f"flash attention needs capability 8.0; {target.card_label} has less or does not report it"
    elif not target.has("flash-attn"):
        why = "flash-attn is not installed, and SDPA runs the same kind of kernel"
    else:
        why = "not every model supports it, and SDPA runs the same kind of kernel; worth trying with long sequences"
    draft.reject("attn_implementation", "flash_attention_2", why, NOTES_3090)


def compilation(draft: RecommendationDraft) -> None:
    """Rejects `torch.compile` as a default: fast but fragile in the notes."""
    target = draft.target
    below = target.machine.gpu_below(TRITON_MIN_CAPABILITY)
    if below is not None:
        why = f"{target.card_label} is too old for its kernels, which need capability 7.0"
    else:
        why = (
            "1.1–1.5× faster after a slow first epoch, and it may fail; try it for trainings of more than a few minutes"
        )
    draft.reject("torch_compile", True, why, f"{NOTES_T4}, {NOTES_3090}")

"""Replacements for features that do not run here: precision, attention, fused optimizer, compiler, package."""

from __future__ import annotations

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070_8BIT, NOTES_3090, NOTES_T4

DISTRIBUTIONS = {
    "flash_attn": "flash-attn", "sklearn": "scikit-learn", "yaml": "pyyaml", "cv2": "opencv-python", "PIL": "pillow",
    "bnb": "bitsandbytes", "SentencePiece": "sentencepiece", "dateutil": "python-dateutil", "skimage": "scikit-image",
}  # fmt: skip


def precision(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The best precision that the GPU supports."""
    settings = situation.settings
    wanted = situation.best_precision if situation.inventory is not None else "fp32"
    if settings is not None and settings.precision == "bf16" and situation.inventory is None:
        wanted = "fp16"
    tf32 = settings is not None and bool(settings.tf32) and situation.supports("tf32") is not True
    change: dict[str, str | None] = {"precision": wanted}
    if tf32:
        change["tf32"] = None
    return (
        Remedy(
            title=f"precision → {wanted}" + (", TF32 left to PyTorch" if tf32 else ""),
            why="bf16 and TF32 need compute capability 8.0 (Ampere); fp16 needs a GPU; fp32 runs everywhere",
            change=change,
            effect="the training starts" + ("; more memory and slower than 16 bits" if wanted == "fp32" else ""),
            rests_on="the card's compute capability",
            source=f"{NOTES_T4}, {NOTES_3090}",
        ),
    )


def attention(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """SDPA, which runs on every GPU, or eager attention for models without it."""
    return tuple(
        Remedy(
            title=f"attention → {name}",
            why=why,
            change={"attn_implementation": name},
            effect=effect,
            source=f"{NOTES_3090}, transformers: attn_implementation",
        )
        for name, why, effect in (
            ("sdpa", "PyTorch's own attention picks a kernel that this card has", "nearly as fast as flash attention"),
            ("eager", "plain attention runs everywhere", "slower, and memory grows with the square of the length"),
        )
    )


def fused(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="optimizer → adamw_torch",
            why="the same AdamW without the fused kernel",
            change={"optim": "adamw_torch"},
            effect="the same training; the optimizer step 5-20 % slower",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        ),
    )


def compiler(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="compile off",
            why="the training does not need it",
            change={"torch_compile": False},
            effect="the training starts; steps 1.1-1.5 times as long as compiled ones",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        ),
    )


def package(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """How to install the package that `where` names, and what works without it."""
    name = DISTRIBUTIONS.get(where or "", where or "")
    python = situation.interpreter.path if situation.interpreter is not None else "python"
    install = Remedy(
        title=f"install {name}" if name else "install the package that is named",
        why=f"{python} -m pip install {name}" if name else "into the interpreter that trains",
        source="the training interpreter",
    )
    return (install, *_without(name, situation))


def _without(name: str, situation: Situation) -> tuple[Remedy, ...]:
    if name == "bitsandbytes":
        optimizer = "adamw_torch" if situation.has_gpu is False else "adamw_torch_fused"
        return (
            Remedy(
                title=f"optimizer → {optimizer}",
                why="AdamW without bitsandbytes",
                change={"optim": optimizer},
                effect="6 bytes more a parameter than 8-bit AdamW",
                rests_on="two states of 1 byte become two of 4 bytes",
                source=NOTES_3070_8BIT,
            ),
        )
    if name in {"flash-attn", "flash_attn_2_cuda", "xformers"}:
        return attention(situation, None)[:1]
    return compiler(situation, None) if name == "triton" else ()

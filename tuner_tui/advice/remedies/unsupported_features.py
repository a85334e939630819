"""Replacements for features that do not run here: precision, attention, fused optimizer, compiler, package."""

from __future__ import annotations

import re
from dataclasses import replace

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Precision

DISTRIBUTIONS = {
    "flash_attn": "flash-attn", "flash_attn_2_cuda": "flash-attn", "sklearn": "scikit-learn",
    "yaml": "pyyaml", "cv2": "opencv-python", "PIL": "pillow",
    "bnb": "bitsandbytes", "SentencePiece": "sentencepiece", "dateutil": "python-dateutil", "skimage": "scikit-image",
}  # fmt: skip


def unsupported_precision(message: str) -> str | None:
    """What an error about precision is about: tf32, scaler, fp8, mixed, bf16 or fp16; None if that is unknown."""
    return next((name for name, pattern in PRECISION_WORDS if pattern.search(message)), None)


PRECISION_WORDS = (
    ("tf32", re.compile(r"(?i)\btf32\b|tf32")),
    ("scaler", re.compile(r"unscale FP16 gradients|No inf checks were recorded")),
    ("both", re.compile(r"At most one of fp16 and bf16")),
    ("fp8", re.compile(r"(?i)fp8|float8|e4m3|e5m2")),
    (
        "mixed",
        re.compile(
            r"(?i)expected (?:m1 and m2|scalar type|mat1 and mat2|object of scalar)"
            r"|same d?type|dtypes match|should be the same"
        ),
    ),
    ("bf16", re.compile(r"(?i)bf16|bfloat16")),
    ("fp16", re.compile(r"(?i)fp16|float16|\bhalf\b|'Half'|\bAMP\b")),
)


def precision(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """What takes the place of the precision named by `where`, of those that `unsupported_precision` returns."""
    if where == "tf32":
        settings = situation.settings
        return (remedy("tf32-off", {"tf32": None} if settings is None or settings.tf32 else {}),)
    if where == "scaler":
        bf16 = (remedy("bf16-without-scaler"),) if situation.supports("bf16") else ()
        return (*bf16, _fp32_weights(situation))
    if where == "mixed":
        return (remedy("one-dtype"), _other_precision(situation, None))
    return (_other_precision(situation, where),)


def _other_precision(situation: Situation, where: str | None) -> Remedy:
    settings = situation.settings
    wanted: Precision = situation.best_precision if situation.inventory is not None else "fp32"
    refused_bf16 = where == "bf16" or (settings is not None and settings.precision == "bf16")
    if situation.has_gpu is not False and refused_bf16 and (situation.inventory is None or wanted == "bf16"):
        wanted = "fp32" if situation.overflows_fp16 else "fp16"
    if where == "both" and situation.inventory is None:
        wanted = "bf16"
    tf32 = settings is not None and bool(settings.tf32) and situation.supports("tf32") is not True
    change: dict[str, str | None] = {"precision": wanted}
    if tf32:
        change["tf32"] = None
    unknown = situation.inventory is None and wanted == "fp16"
    return remedy(
        "other-precision",
        change,
        wanted=wanted,
        where=" where the GPU has it (Volta, Turing), else fp32" if unknown else "",
        tf32=", TF32 left to PyTorch" if tf32 else "",
        cost="; more memory and slower than 16 bits" if wanted == "fp32" else "",
    )


def _fp32_weights(situation: Situation) -> Remedy:
    """fp32 weights: a setting of the built-in job, an argument of `from_pretrained` elsewhere."""
    settings = situation.settings
    weights = remedy("fp32-weights")
    chosen = settings is not None and settings.weights_dtype in ("bf16", "saved")
    if not chosen or not isinstance(situation.job, BuiltinJob):
        return weights
    return replace(weights, title="weights → auto: fp32", change={"weights_dtype": "auto"})


def package(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """How to install the package that `where` names, and what works without it."""
    name = DISTRIBUTIONS.get(where or "", where or "")
    if not name:
        return (remedy("install-some-package"),)
    python = situation.interpreter.path if situation.interpreter is not None else "python"
    return (remedy("install-package", package=name, python=python), *_without(name, situation))


def broken_package(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """A build of the package that `where` names for the installed torch, and what works without it."""
    name = DISTRIBUTIONS.get(where or "", where or "")
    return (remedy("reinstall-package", package=name or "the package that fails"), *_without(name, situation))


def _without(name: str, situation: Situation) -> tuple[Remedy, ...]:
    if name == "bitsandbytes":
        optimizer = "adamw_torch" if situation.has_gpu is False else "adamw_torch_fused"
        return (remedy("adamw-without-bitsandbytes", {"optim": optimizer}, optimizer=optimizer),)
    if name in {"flash-attn", "xformers"}:
        return (remedy("attention-sdpa"),)
    return (remedy("compile-off"),) if name == "triton" else ()

"""Replacements for features that do not run here: precision, attention, fused optimizer, compiler, package."""

from __future__ import annotations

import re
from dataclasses import replace

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070_8BIT, NOTES_3090, NOTES_T4
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
        return (_tf32_off(situation),)
    if where == "scaler":
        return (*_bf16_without_scaler(situation), _fp32_weights(situation))
    if where == "mixed":
        return (ONE_DTYPE, *_precision_for(situation, None))
    return _precision_for(situation, where)


def _tf32_off(situation: Situation) -> Remedy:
    settings = situation.settings
    return Remedy(
        title="TF32 off",
        why="TF32 needs Ampere (compute capability 8.0): remove `--tf32` or set it to False. The training "
        "precision does not change",
        change={"tf32": None} if settings is None or settings.tf32 else {},
        effect="the training starts; nothing else changes, as this GPU computes in fp32 anyway",
        rests_on="the GPU's compute capability",
        source=f"{NOTES_T4}, {NOTES_3090}",
    )


def _bf16_without_scaler(situation: Situation) -> tuple[Remedy, ...]:
    if not situation.supports("bf16"):
        return ()
    return (
        Remedy(
            title="precision → bf16",
            why="bf16 has the range of fp32 and needs no loss scaler, so 16-bit weights work",
            change={"precision": "bf16"},
            effect="the training starts; the same speed and memory",
            rests_on="the GPU's compute capability",
            source=f"{NOTES_T4}, {NOTES_3090}",
        ),
    )


def _precision_for(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
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
    return (
        Remedy(
            title=f"precision → {wanted}"
            + (" where the GPU has it (Volta, Turing), else fp32" if unknown else "")
            + (", TF32 left to PyTorch" if tf32 else ""),
            why="bf16 and TF32 need compute capability 8.0 (Ampere), fp16 on tensor cores 7.0; fp32 runs everywhere",
            change=change,
            effect="the training starts" + ("; more memory and slower than 16 bits" if wanted == "fp32" else ""),
            rests_on="the GPU's compute capability",
            source=f"{NOTES_T4}, {NOTES_3090}",
        ),
    )


def _fp32_weights(situation: Situation) -> Remedy:
    """fp32 weights: a setting of the built-in job, an argument of `from_pretrained` elsewhere."""
    settings = situation.settings
    chosen = settings is not None and settings.weights_dtype in ("bf16", "saved")
    if not chosen or not isinstance(situation.job, BuiltinJob):
        return FP32_WEIGHTS
    return replace(FP32_WEIGHTS, title="weights → auto: fp32", change={"weights_dtype": "auto"})


FP32_WEIGHTS = Remedy(
    title="load the weights in fp32: dtype=torch.float32",
    why="the loss scaler needs fp32 weights; autocast still computes in fp16. With adapters, cast only "
    "the trainable parameters: `param.data = param.data.float()`",
    effect="the training starts; with AdamW 8 bytes more per trained parameter: weight, gradient and two states",
    rests_on="torch.amp.GradScaler unscales fp32 gradients only",
    source="PyTorch: automatic mixed precision",
)
ONE_DTYPE = Remedy(
    title="use one dtype throughout",
    why="run the step under `torch.autocast`, or cast the inputs to the dtype of the layer in the error; "
    "modules added after loading have the default dtype, fp32",
    effect="both operands have the same dtype",
    source="PyTorch: automatic mixed precision",
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
            (
                "sdpa",
                "PyTorch's own attention picks a kernel that this GPU supports",
                "nearly as fast as flash attention",
            ),
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
            why="training does not need it",
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
        title=f"install {name}" if name else "install the package named in the error",
        why=f"{python} -m pip install {name}" if name else "into the training interpreter",
        source="the training interpreter",
    )
    return (install, *_without(name, situation))


def broken_package(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """A build of the package that `where` names for the installed torch, and what works without it."""
    name = DISTRIBUTIONS.get(where or "", where or "")
    reinstall = Remedy(
        title=f"reinstall {name or 'the package that fails'} for the installed torch",
        why="its binary was built for another torch, CUDA or system library: uninstall it, then install a release made "
        "for `torch.__version__` and `torch.version.cuda`; flash-attn with `--no-build-isolation`",
        source="the training interpreter",
    )
    return (reinstall, *_without(name, situation))


def _without(name: str, situation: Situation) -> tuple[Remedy, ...]:
    if name == "bitsandbytes":
        optimizer = "adamw_torch" if situation.has_gpu is False else "adamw_torch_fused"
        return (
            Remedy(
                title=f"optimizer → {optimizer}",
                why="AdamW without bitsandbytes",
                change={"optim": optimizer},
                effect="6 bytes more per parameter than 8-bit AdamW",
                rests_on="two states of 1 byte become two of 4 bytes",
                source=NOTES_3070_8BIT,
            ),
        )
    if name in {"flash-attn", "xformers"}:
        return attention(situation, None)[:1]
    return compiler(situation, None) if name == "triton" else ()

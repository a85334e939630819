"""The settings of a training, declared once; form, `--set`, YAML, help and validation are derived from this model.

Names are those of Hugging Face `TrainingArguments` where it has one; `precision` stands for its `bf16` and `fp16` pair;
`max_length`, `attn_implementation`, `weights_dtype`, the LoRA fields and those of quantization (`bnb_4bit_…` as in
`BitsAndBytesConfig`) for what a script passes elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Precision = Literal["fp32", "fp16", "bf16"]
IntervalStrategy = Literal["no", "steps", "epoch"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
WeightsDtype = Literal["auto", "saved", "fp32", "bf16"]
Quantization = Literal["none", "int8", "nf4", "fp4"]


@dataclass(frozen=True, slots=True)
class FieldDisplay:
    """How a field is shown: short label, group in the form, unit, suggestions for free text."""

    label: str
    group: str
    unit: str = ""
    suggestions: tuple[str, ...] = ()


OPTIMIZERS = (
    "adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit", "adafactor", "sgd", "lion_8bit",
)  # fmt: skip
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup", "cosine_with_restarts", "inverse_sqrt")

WORD = r"^[A-Za-z0-9_.-]+$"


class Settings(BaseModel):
    """The settings of one training, immutable. Bounds of single fields are here, rules across fields in `rules`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    per_device_train_batch_size: Annotated[int, FieldDisplay("micro batch", "Batch", "samples")] = Field(
        8,
        ge=1,
        le=65536,
        description="Samples per device and step; lower it first when memory runs out.",
    )
    per_device_eval_batch_size: Annotated[int, FieldDisplay("eval batch", "Batch", "samples")] = Field(
        8,
        ge=1,
        le=65536,
        description="Samples per device in evaluation; twice the micro batch usually fits.",
    )
    gradient_accumulation_steps: Annotated[int, FieldDisplay("accumulation", "Batch", "micro batches")] = Field(
        1,
        ge=1,
        le=65536,
        description="Micro batches per optimizer step; keeps the effective batch.",
    )
    precision: Annotated[Precision, FieldDisplay("precision", "Speed")] = Field(
        "fp32",
        description="bf16 needs capability 8.0; fp16 uses a loss scaler; fp32 works everywhere.",
    )
    tf32: Annotated[bool | None, FieldDisplay("TF32", "Speed")] = Field(
        None,
        description="TF32 matrix products, Ampere and newer; empty: PyTorch's default.",
    )
    optim: Annotated[str, FieldDisplay("optimizer", "Optimizer", suggestions=OPTIMIZERS)] = Field(
        "adamw_torch",
        pattern=WORD,
        description="Fused AdamW is fastest; 8-bit AdamW saves 6 bytes per parameter.",
    )
    learning_rate: Annotated[float, FieldDisplay("learning rate", "Optimizer")] = Field(
        5e-5, gt=0, le=10, description="Peak learning rate, reached at the end of the warmup."
    )
    lr_scheduler_type: Annotated[str, FieldDisplay("schedule", "Optimizer", suggestions=SCHEDULES)] = Field(
        "linear", pattern=WORD, description="How the learning rate decays after the warmup."
    )
    warmup_steps: Annotated[float, FieldDisplay("warmup", "Optimizer", "steps or share")] = Field(
        0.0,
        ge=0,
        le=10_000_000,
        description="Steps with rising learning rate; below 1: a share of all steps.",
    )
    weight_decay: Annotated[float, FieldDisplay("weight decay", "Optimizer")] = Field(
        0.0, ge=0, le=1, description="Decoupled weight decay of AdamW."
    )
    max_grad_norm: Annotated[float, FieldDisplay("clip norm", "Optimizer")] = Field(
        1.0, ge=0, le=1_000_000, description="Gradients are scaled down to this norm; 0 turns clipping off."
    )
    gradient_checkpointing: Annotated[bool, FieldDisplay("checkpointing", "Memory")] = Field(
        False,
        description="Recompute activations in the backward pass: less memory, steps 20 % slower.",
    )
    attn_implementation: Annotated[Attention, FieldDisplay("attention", "Speed")] = Field(
        "auto", description="auto: Transformers chooses (SDPA if the model supports it)."
    )
    torch_compile: Annotated[bool, FieldDisplay("compile", "Speed")] = Field(
        False, description="Compile the model: a slow first epoch, then faster steps."
    )
    max_length: Annotated[int, FieldDisplay("max length", "Memory", "tokens")] = Field(
        128,
        ge=8,
        le=1_048_576,
        description="Tokens per sample, longer ones are truncated; memory grows with it.",
    )
    train_sampling_strategy: Annotated[
        Literal["random", "sequential", "group_by_length"], FieldDisplay("sampling", "Speed")
    ] = Field("random", description="group_by_length batches samples of similar length: less padding.")
    peft_method: Annotated[Literal["none", "lora", "dora"], FieldDisplay("adapter", "Memory")] = Field(
        "none", description="Train small adapter matrices instead of all weights."
    )
    lora_r: Annotated[int, FieldDisplay("LoRA rank", "Memory")] = Field(
        16, ge=1, le=4096, description="Rank of the adapters."
    )
    lora_alpha: Annotated[int, FieldDisplay("LoRA alpha", "Memory")] = Field(
        32, ge=1, le=65536, description="Adapter scale: alpha divided by rank."
    )
    lora_dropout: Annotated[float, FieldDisplay("LoRA dropout", "Memory")] = Field(
        0.0, ge=0, lt=1, description="Dropout before the adapters."
    )
    weights_dtype: Annotated[WeightsDtype, FieldDisplay("weights", "Memory")] = Field(
        "auto",
        description="auto: fp32, frozen weights as saved; bf16: pure bf16, which loses small updates.",
    )
    quantization: Annotated[Quantization, FieldDisplay("quantization", "Memory")] = Field(
        "none",
        description="Store frozen weights in 8 or 4 bits (bitsandbytes); nf4 with LoRA is QLoRA.",
    )
    bnb_4bit_compute_dtype: Annotated[
        Literal["auto", "fp32", "fp16", "bf16"], FieldDisplay("4-bit compute", "Memory")
    ] = Field("auto", description="Data type 4-bit weights are computed in; auto: as precision.")
    bnb_4bit_use_double_quant: Annotated[bool, FieldDisplay("double quant", "Memory")] = Field(
        False, description="Also quantize the scales of 4-bit weights: saves 0.4 bits per weight."
    )
    dataloader_num_workers: Annotated[int, FieldDisplay("workers", "Data loading", "processes")] = Field(
        0,
        ge=0,
        le=1024,
        description="Processes that prepare batches; 0: the training process does.",
    )
    dataloader_prefetch_factor: Annotated[
        int | None, FieldDisplay("prefetch", "Data loading", "batches per worker")
    ] = Field(None, ge=1, le=1024, description="Batches each worker keeps ready; needs at least one worker.")
    dataloader_pin_memory: Annotated[bool, FieldDisplay("pin memory", "Data loading")] = Field(
        True, description="Page-locked host memory: faster copies to the GPU."
    )
    dataloader_persistent_workers: Annotated[bool, FieldDisplay("persistent", "Data loading")] = Field(
        False, description="Keep workers alive between epochs; needs at least one worker."
    )
    num_train_epochs: Annotated[float, FieldDisplay("epochs", "Length", "epochs")] = Field(
        3.0, gt=0, le=100_000, description="Passes over the data; ignored if max steps is set."
    )
    max_steps: Annotated[int | None, FieldDisplay("max steps", "Length", "steps")] = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="Stop after this many optimizer steps; empty: use epochs.",
    )
    eval_strategy: Annotated[IntervalStrategy, FieldDisplay("evaluate", "Length")] = Field(
        "epoch", description="When to evaluate."
    )
    eval_steps: Annotated[int | None, FieldDisplay("eval every", "Length", "steps")] = Field(
        None, ge=1, le=1_000_000_000, description="Steps between evaluations; needs evaluate = steps."
    )
    save_strategy: Annotated[IntervalStrategy, FieldDisplay("save", "Length")] = Field(
        "epoch", description="When to save a checkpoint."
    )
    save_steps: Annotated[int, FieldDisplay("save every", "Length", "steps")] = Field(
        500, ge=1, le=1_000_000_000, description="Steps between checkpoints; needs save = steps."
    )
    save_total_limit: Annotated[int | None, FieldDisplay("keep", "Length", "checkpoints")] = Field(
        2, ge=1, le=10_000, description="Checkpoints kept on disk; empty: all."
    )
    logging_steps: Annotated[int, FieldDisplay("log every", "Length", "steps")] = Field(
        10, ge=1, le=1_000_000, description="Steps between log lines of loss and learning rate."
    )
    seed: Annotated[int, FieldDisplay("seed", "Length")] = Field(
        42, ge=0, le=2**32 - 1, description="Seed of all random numbers."
    )

    def effective_batch(self, processes: int = 1) -> int:
        """Samples per optimizer step: micro batch × accumulation × processes."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps * processes

    def changed(self, **values: Any) -> Settings:
        """A validated copy with `values` replaced. Raises `pydantic.ValidationError`."""
        return Settings.model_validate({**self.model_dump(), **values})

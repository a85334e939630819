"""The items of the five field notes: document, place, what is asked of the program, and the document's own answer.

Where a note is wrong the answer is the right one, and the item says so. `ask` names a function of
`test_documents.py` and its arguments. The values are the documents', never what the program returned.
"""

# ruff: noqa: E501  (one item a line)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One item; `answer` is what the document says, or the truth where it errs."""

    document: str
    place: str
    ask: tuple[Any, ...]
    answer: Any

    @property
    def id(self) -> str:
        """`000 batch: preset rtx3070-8gb per_device_train_batch_size`."""
        return f"{self.document} {self.place}: {' '.join(str(word) for word in self.ask)}"


def _able(document: str, card: str, capability: str, fp16: bool, bf16: bool, tf32: bool) -> tuple[Item, ...]:
    names = zip(("fp16", "bf16", "tf32"), (fp16, bf16, tf32), strict=True)
    return (
        Item(document, "GPU architecture support", ("capability", card), capability),
        *(Item(document, "GPU architecture support", ("able", card, name), able) for name, able in names),
    )


def _preset(document: str, place: str, name: str, **values: Any) -> tuple[Item, ...]:
    return tuple(Item(document, place, ("preset", name, key), value) for key, value in values.items())


HARDWARE = (
    *_able("001", "T4", "7.5", True, False, False),
    *_able("001", "V100", "7.0", True, False, False),
    *_able("001", "A100", "8.0", True, True, True),
    *_able("001", "A10", "8.6", True, True, True),
    Item("004", "batch size guidelines", ("memory", "K80"), 12),
    Item("004", "batch size guidelines", ("memory", "V100"), 16),
    Item("004", "batch size guidelines", ("memory", "A100"), 40),
    Item("000", "TF32: RTX 3070 is Ampere", ("able", "RTX 3070", "tf32"), True),
    Item("003", "all optimizations, 2: TF32", ("able", "RTX 3090", "tf32"), True),
    Item("001", "6: 'TF32 on V100+' (wrong: Ampere and newer)", ("recommend", "V100", "tf32"), None),
    Item("004", "3: is_bf16_supported() (wrong on T4: emulation)", ("recommend", "T4", "precision"), "fp16"),
    Item(
        "000",
        "TF32 magic: '19-bit mantissa' (wrong: 10 bits, 19 in all)",
        ("reason", "RTX 3070", "tf32"),
        "10 mantissa bits, 19 in all",
    ),
)

PRESETS = (
    *_preset("000", "1. batch size", "rtx3070-8gb", per_device_train_batch_size=48, per_device_eval_batch_size=96, gradient_accumulation_steps=2, effective_batch=96),
    *_preset("000", "2. workers", "rtx3070-8gb", dataloader_num_workers=4, dataloader_prefetch_factor=2),
    *_preset("000", "3. TF32", "rtx3070-8gb", tf32=True),
    *_preset("001", "default vs optimized", "t4-16gb", per_device_train_batch_size=16, per_device_eval_batch_size=32, optim="adamw_torch_fused", dataloader_num_workers=2, gradient_checkpointing=True, precision="fp16"),
    *_preset("001", "3: sequence length 192", "t4-16gb", max_length=192, dataloader_pin_memory=True),
    *_preset("001", "troubleshooting: 'keep effective batch = 32'", "t4-16gb", effective_batch=32),
    *_preset("002", "1. batch size", "rtx3070-8gb-8bit", per_device_train_batch_size=64, per_device_eval_batch_size=128, gradient_accumulation_steps=2, effective_batch=128),
    *_preset("002", "2. optimizer", "rtx3070-8gb-8bit", optim="adamw_bnb_8bit"),
    *_preset("002", "4. warmup", "rtx3070-8gb-8bit", warmup_steps=0.06),
    *_preset("002", "5. workers", "rtx3070-8gb-8bit", dataloader_num_workers=4),
    *_preset("003", "GPU utilization", "rtx3090-24gb-max-perf", per_device_train_batch_size=12, precision="bf16", tf32=True, attn_implementation="sdpa", gradient_checkpointing=True, optim="adamw_torch_fused"),
    *_preset("003", "6. DoRA", "rtx3090-24gb-max-perf", peft_method="dora"),
    *_preset("003", "CPU utilization", "rtx3090-24gb-max-perf", dataloader_num_workers=8, dataloader_prefetch_factor=4, dataloader_pin_memory=True, dataloader_persistent_workers=True),
    Item("003", "Expected performance: Gemma-1B NLI", ("job", "rtx3090-24gb-max-perf"), "google/gemma-3-1b-pt"),
    *_preset("004", "recommended configuration", "v100-16gb", per_device_train_batch_size=32, gradient_accumulation_steps=1, dataloader_num_workers=8, dataloader_prefetch_factor=4, learning_rate=4e-5, max_length=128),
    *_preset("004", "1. dynamic batch size", "rtx3090-24gb", per_device_train_batch_size=48, gradient_accumulation_steps=1),
    *_preset("004", "1. dynamic batch size", "a100-40gb", per_device_train_batch_size=64, gradient_accumulation_steps=1),
    *_preset("004", "batch size guidelines: A100 (80GB), at 128 tokens", "a100-80gb", per_device_train_batch_size=128, max_length=128),
    *_preset("004", "recommended configuration, K80", "k80-12gb", per_device_train_batch_size=16, gradient_accumulation_steps=2, dataloader_num_workers=4, dataloader_prefetch_factor=2, learning_rate=3e-5),
    *_preset("004", "2. DataLoader", "a100-40gb", dataloader_num_workers=8, dataloader_prefetch_factor=4, dataloader_persistent_workers=True),
    *_preset("004", "expected improvements: conservative", "conservative", per_device_train_batch_size=8),
    *_preset("004", "expected improvements: balanced", "balanced", per_device_train_batch_size=16),
    *_preset("004", "expected improvements: optimized", "optimized", per_device_train_batch_size=32),
    *_preset("004", "expected improvements: max performance", "max-performance", per_device_train_batch_size=64),
)  # fmt: skip

CHOOSING = (
    Item("004", "recommended batch, K80", ("split", "K80"), (16, 2)),
    Item("004", "recommended batch, T4", ("split", "T4"), (32, 1)),
    Item("004", "recommended batch, V100", ("split", "V100"), (32, 1)),
    Item("004", "recommended batch, RTX 3090", ("split", "RTX 3090"), (48, 1)),
    Item("004", "recommended batch, RTX 4090", ("split", "RTX 4090"), (48, 1)),
    Item("004", "recommended batch, A100 (40GB)", ("split", "A100"), (64, 1)),
    Item("004", "recommended batch, A100 (80GB)", ("split", "A100-80"), (128, 1)),
    Item("000", "batch of an 8 GB card", ("split", "RTX 3070"), (48, 2)),
    Item("002", "batch of an 8 GB card with 8-bit AdamW", ("split", "RTX 3070", "adamw_bnb_8bit"), (64, 2)),
    Item("004", "max batch, K80", ("most", "K80"), 24),
    Item("004", "max batch, T4", ("most", "T4"), 48),
    Item("004", "max batch, RTX 3090", ("most", "RTX 3090"), 80),
    Item("004", "max batch, A100 (40GB)", ("most", "A100"), 128),
    Item("004", "max batch, A100 (80GB): '256+' is a batch, not a length", ("most", "A100-80"), 256),
    Item("001", "3. precision, T4", ("recommend", "T4", "precision"), "fp16"),
    Item("001", "3. precision, A100", ("recommend", "A100", "precision"), "bf16"),
    Item("003", "1. precision, RTX 3090", ("recommend", "RTX 3090", "precision"), "bf16"),
    Item("001", "6. TF32, A10", ("recommend", "A10", "tf32"), True),
    Item("001", "4. fused AdamW", ("recommend", "T4", "optim"), "adamw_torch_fused"),
    Item("001", "4. fused: 10-20 %, 003: 5-10 %", ("reason", "T4", "optim"), "5–20 %"),
    Item("004", "workers: min(8, cores - 2), 16 cores", ("workers", 16), 8),
    Item("004", "workers: min(8, cores - 2), 8 cores", ("workers", 8), 6),
    Item("004", "workers: min(8, cores - 2), 4 cores", ("workers", 4), 2),
    Item("004", "heavy preprocessing: min(16, cores - 1)", ("left", "T4", "dataloader_num_workers", 15), "preparing a sample is expensive"),
    Item("004", "prefetch factor", ("recommend", "T4", "dataloader_prefetch_factor"), 4),
    Item("001", "5. pin memory", ("recommend", "T4", "dataloader_pin_memory"), True),
    Item("003", "9. persistent workers", ("recommend", "RTX 3090", "dataloader_persistent_workers"), True),
    Item("001", "torch.compile: off by default", ("recommend", "T4", "torch_compile"), False),
    Item("001", "torch.compile: first epoch slow", ("left", "T4", "torch_compile", True), "slow first epoch"),
    Item("001", "2. checkpointing: ~20 % slower", ("left", "A10", "gradient_checkpointing", True), "about 20 % slower"),
    Item("003", "4. checkpointing: 40 % memory", ("left", "A10", "gradient_checkpointing", True), "about 40 % less activation memory"),
    Item("003", "3. SDPA: 30-50 % of attention", ("reason", "RTX 3090", "attn_implementation"), "30–50 %"),
    Item("000", "eval batch twice the train batch", ("recommend", "RTX 3070", "per_device_eval_batch_size"), 96),
    Item("002", "4. warmup 6 % for ~20k samples", ("recommend", "T4", "warmup_steps"), 0.06),
    Item("004", "learning rate scaling: sqrt, 8 → 32 (named 'linear' there, wrongly)", ("scaled", "adamw_torch", 2e-5, 4.0), 4e-5),
    Item("004", "learning rate scaling: linear, 8 → 32", ("scaled", "sgd", 2e-5, 4.0), 8e-5),
    Item("004", "quick wins 1: shown with the batch of the notes", ("reason", "T4", "learning_rate"), "square-root scaling"),
    Item("003", "length bucketing", ("recommend", "T4", "train_sampling_strategy"), "group_by_length"),
    Item("001", "expected training time, 24K samples × 3 epochs: 12-15 min", ("minutes", "T4", 24_000), (12, 15)),
    Item("001", "expected training time, 50K: 25-30 min", ("minutes", "T4", 50_000), (25, 30)),
    Item("001", "expected training time, 100K: 50-60 min", ("minutes", "T4", 100_000), (50, 60)),
    Item("002", "3. O2 (wrong: Apex, removed in transformers 5)", ("imported", "fp16_opt_level", "O2"), "Apex"),
    Item("002", "warmup_ratio, as transformers 4 spells it", ("setting_of", "warmup_ratio", 0.06, "warmup_steps"), 0.06),
    Item("003", "group_by_length, as transformers 4 spells it", ("setting_of", "group_by_length", True, "train_sampling_strategy"), "group_by_length"),
)  # fmt: skip

WATCHING = (
    Item("000", "bad signs: GPU util < 90 %", ("threshold", "GPU_BUSY_GOOD_PCT"), 90),
    Item("001", "monitor: < 70 %", ("threshold", "GPU_LOW_PCT"), 70),
    Item("004", "GPU utilization < 50 %", ("threshold", "GPU_VERY_LOW_PCT"), 50),
    Item("004", "target metrics: GPU memory 80-95 %, lower end", ("threshold", "VRAM_LOW_SHARE"), 0.80),
    Item("004", "target metrics: GPU memory 80-95 %, upper end", ("threshold", "VRAM_NEAR_LIMIT_SHARE"), 0.95),
    Item("004", "CPU utilization < 50 %", ("threshold", "CPU_LOW_PCT"), 50),
    Item("000", "problem: GPU 85 %, 32 × 3", ("finding", {"utilisation_pct": 85.0}, {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 3}), ("gpu-underused", {"per_device_train_batch_size": 48, "gradient_accumulation_steps": 2})),
    Item("001", "monitor: GPU 65 %: larger batch", ("finding", {"utilisation_pct": 65.0}, {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2}), ("gpu-underused", {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 1})),
    Item("003", "GPU < 80 %: batch 12 → 14", ("grows", 79.0, 12), (13, 24)),
    Item("003", "GPU < 80 %, waiting: workers 8 → 10", ("waiting", 0.4, {"dataloader_num_workers": 8}), {"dataloader_num_workers": 10}),
    Item("002", "slow: workers 4 → 6", ("waiting", 0.4, {"dataloader_num_workers": 4}), {"dataloader_num_workers": 6}),
    Item("003", "verification: TF32 asked for and not in effect", ("unverified", "tf32", True, False), True),
    Item("003", "verification: workers as asked for", ("unverified", "dataloader_num_workers", 8, 8), False),
)  # fmt: skip

TROUBLE = (
    Item("000", "OOM option 1: 48 → 40 or 32, product held (40 × 2 is not 96)", ("oom", 48, 2), (32, 3)),
    Item("001", "OOM: BATCH_TRAIN 8, GRAD_ACCUM 4: 'keep effective batch = 32'", ("oom", 16, 2), (8, 4)),
    Item("002", "OOM 1: 48 × 3 'still 144' (wrong: it was 128)", ("oom", 64, 2), (32, 4)),
    Item("003", "OOM with 12 → 10 (12 has no divisor there: 6 × 2)", ("oom", 12, 1), (6, 2)),
    Item("000", "OOM option 2: checkpointing", ("ladder", "gpu-oom", "gradient_checkpointing"), True),
    Item("001", "OOM option 2: 'disable checkpointing' (wrong: it costs memory)", ("ladder_off", "gpu-oom", "gradient_checkpointing"), False),
    Item("001", "OOM option 3: 192 → 128", ("ladder", "gpu-oom", "max_length"), 128),
    Item("002", "OOM 3: eval batch 128 → 96", ("ladder", "gpu-oom", "per_device_eval_batch_size"), 96),
    Item("003", "8-bit AdamW if memory is needed", ("ladder", "gpu-oom", "optim"), "adamw_bnb_8bit"),
    Item("003", "DoRA/LoRA", ("ladder", "gpu-oom", "peft_method"), "lora"),
    Item("001", "Optimizer not found: adamw_torch_fused", ("ladder", "fused-unsupported", "optim"), "adamw_torch"),
    Item("002", "bitsandbytes missing: install", ("title", "missing-package", "bitsandbytes"), "install bitsandbytes"),
    Item("002", "bitsandbytes fails: another AdamW", ("ladder", "missing-package", "optim", "bitsandbytes"), "adamw_torch_fused"),
    Item("001", "torch.compile may crash: off", ("ladder", "compile-failed", "torch_compile"), False),
    Item("000", "6 workers → 4", ("ladder", "too-many-workers", "dataloader_num_workers"), 4),
    Item("000", "prefetch 4 → 2", ("ladder", "too-many-workers", "dataloader_prefetch_factor"), 2),
    Item("004", "GPU < 50 %: prefetch 4", ("ladder", "data-wait", "dataloader_prefetch_factor"), 4),
    Item("004", "both low: 4x batch", ("ladder", "gpu-underused", "per_device_train_batch_size", "both-low"), 32),
    Item("004", "both low: less logging and checkpointing", ("title", "gpu-underused", "both-low"), "log, evaluate and save less often"),
    Item("004", "both low: faster storage", ("title", "data-wait", "storage"), "move the data to faster storage"),
    Item("001", "close other notebooks", ("title", "other-process", None), "end the other process on the GPU, or train on another GPU"),
    Item("003", "12-14: zero_grad(set_to_none), one .item()", ("title", "launch-bound", None), "avoid synchronizing with the GPU in the loop"),
)  # fmt: skip

ITEMS = (*HARDWARE, *PRESETS, *CHOOSING, *WATCHING, *TROUBLE)

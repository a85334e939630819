"""The recommendations for twenty machines and five models, as one file to read: `python -m tests.advice.machines`.

Each line is what `recommend` says for one model on one machine, with an interpreter that has torch 2.13, transformers,
peft and bitsandbytes, and samples of the usual length of the model's task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.fakes.inventories import GIB, box, card, python
from tuner_tui.advice.recommend.recommendation import Recommendation, recommend
from tuner_tui.advice.recommend.target import target_of
from tuner_tui.advice.recommend.workload import JobMemoryEstimator
from tuner_tui.core.units import format_size
from tuner_tui.hardware.inventory import Inventory, MigSlice
from tuner_tui.settings.job import BuiltinJob

FILE = Path(__file__).parent / "machines.md"
PYTHON = python(bitsandbytes="0.50.2", accelerate="1.15.0", datasets="4.0")
SLICE = MigSlice("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-3g", 19_968 * 2**20, 0)


MACHINES: Mapping[str, Inventory] = {
    "K80, one die": box(card("K80", gib=11.2), cores=8),
    "T4": box(card("T4", gib=15.0), cores=4),
    "V100 16 GB": box(card("V100", gib=15.8)),
    "RTX 2080 Ti": box(card("RTX 2080 Ti", gib=10.8)),
    "RTX 3070": box(card("RTX 3070", gib=8.0), cores=12),
    "RTX 3090": box(card("RTX 3090", gib=24.0)),
    "2 × RTX 3090": box(card("RTX 3090"), card("RTX 3090", 1), cores=32),
    "RTX 3090 + RTX 4060": box(card("RTX 3090"), card("RTX 4060", 1)),
    "RTX 4060": box(card("RTX 4060"), cores=12),
    "RTX 4090": box(card("RTX 4090", gib=24.0), cores=32),
    "A100 40 GB": box(card("A100", gib=39.4), cores=32),
    "A100 80 GB": box(card("A100", gib=79.2), cores=32),
    "A100, MIG 3g.20gb": box(card("A100", gib=39.4, mig=True, slices=(SLICE,))),
    "H100": box(card("H100", gib=79.6), cores=64),
    "8 × H100": box(*(card("H100", index, 79.6) for index in range(8)), cores=192, ram_gib=1024),
    "B200": box(card("B200", gib=178.4), cores=64),
    "CPU, 2 cores": box(cores=2, ram_gib=8),
    "CPU, 64 cores": box(cores=64, ram_gib=256),
    "T4, /dev/shm of 64 MB": box(card("T4", gib=15.0), shm_mib=64),
    "RTX 3090, 2 GB free of 24": box(card("RTX 3090", memory_used_bytes=22 * GIB)),
}
MODELS: Mapping[str, tuple[BuiltinJob, int]] = {
    "BERT-base": (BuiltinJob(model="bert-base-uncased"), 128),
    "DeBERTa-v3-base": (BuiltinJob(model="microsoft/deberta-v3-base"), 256),
    "Gemma-3-1B": (BuiltinJob(task="classification", model="google/gemma-3-1b-pt"), 256),
    "Llama-3.2-1B": (BuiltinJob(task="causal-lm", model="meta-llama/Llama-3.2-1B"), 1024),
    "Qwen2.5-7B": (BuiltinJob(task="causal-lm", model="Qwen/Qwen2.5-7B"), 1024),
}


def lines() -> Iterator[str]:
    yield "# What is recommended for twenty machines and five models"
    yield ""
    yield "Written by `python -m tests.advice.machines`; a test compares it. The peak is the estimate's, of one card."
    for machine, inventory in MACHINES.items():
        yield f"\n## {machine}\n"
        yield "| model | batch | eval | precision | optimizer | weights | checkpointing | workers | LR | peak |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        notes: dict[str, None] = {}
        for model, (job, tokens) in MODELS.items():
            found = recommend(inventory, PYTHON, job, {"max_length": tokens})
            yield row(f"{model}, {tokens}", found, inventory, job)
            notes |= dict.fromkeys(found.notes)
        yield from (["", *(f"- {note}" for note in notes)] if notes else [])


def row(name: str, found: Recommendation, inventory: Inventory, job: BuiltinJob) -> str:
    s = found.settings
    batch = f"{s.per_device_train_batch_size} × {s.gradient_accumulation_steps}"
    batch += f" × {found.replicas}" if found.replicas > 1 else ""
    weights = "all" if s.peft_method == "none" else str(s.peft_method)
    weights += "" if s.quantization == "none" else f" on {s.quantization}"
    precision = s.precision + (" + tf32" if s.tf32 else "")
    workers = f"{s.dataloader_num_workers}" + (f" × {s.dataloader_prefetch_factor}" if s.dataloader_num_workers else "")
    target = target_of(inventory, PYTHON, job)
    estimate = JobMemoryEstimator(job, target.device, target.processes).closed_form(s)
    peak = "?" if estimate is None else f"{format_size(estimate.total_bytes)}, {estimate.verdict}"
    cells = (
        name, batch, s.per_device_eval_batch_size, precision, s.optim, weights,
        "on" if s.gradient_checkpointing else "off", workers, f"{s.learning_rate:.1e}", peak,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def text() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")

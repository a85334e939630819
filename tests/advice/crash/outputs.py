"""Outputs of trainings: those of the data files, and a traceback of any error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import RunState

FOLDER = Path(__file__).parent
SITE = "/opt/env/lib/python3.11/site-packages"
FRAMES = {
    "main": ("/home/ann/train.py", "<module>"),
    "launch": ("/home/ann/train.py", "main"),
    "train": (f"{SITE}/transformers/trainer.py", "train"),
    "loop": (f"{SITE}/transformers/trainer.py", "_inner_training_loop"),
    "step": (f"{SITE}/transformers/trainer.py", "training_step"),
    "adam": (f"{SITE}/torch/optim/adamw.py", "step"),
    "evaluate": (f"{SITE}/transformers/trainer.py", "evaluate"),
    "evaluation": (f"{SITE}/transformers/trainer.py", "evaluation_loop"),
    "predict": (f"{SITE}/transformers/trainer.py", "prediction_step"),
    "save": (f"{SITE}/transformers/trainer.py", "_save_checkpoint"),
    "torch-save": (f"{SITE}/torch/serialization.py", "save"),
    "pretrained": (f"{SITE}/transformers/modeling_utils.py", "from_pretrained"),
    "loader": (f"{SITE}/torch/utils/data/dataloader.py", "__next__"),
    "arguments": ("<string>", "__init__"),
}
HEALTHY_START = """Some weights were newly initialized and should be trained.
{'loss': '1.932', 'grad_norm': '2.1', 'learning_rate': '4.9e-05', 'epoch': '0.1'}
{'loss': '1.511', 'grad_norm': '1.7', 'learning_rate': '4.5e-05', 'epoch': '0.2'}
"""
HEALTHY_END = """{'loss': '1.201', 'grad_norm': '1.4', 'learning_rate': '1e-06', 'epoch': '3'}
{'train_runtime': '301.2', 'train_samples_per_second': '83.1', 'train_loss': '1.4', 'epoch': '3'}
"""
CUDA_27 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.68 GiB "
    "of which 211.06 MiB is free. Including non-PyTorch memory, this process has 23.46 GiB memory in use. Of the "
    "allocated memory 22.1 GiB is allocated by PyTorch, and 988.41 MiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation."
)
CUDA_113 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 15.90 GiB total capacity; 14.55 GiB already "
    "allocated; 51.75 MiB free; 14.80 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb"
)


@dataclass(frozen=True, slots=True)
class Output:
    """An output and the cause a person would name; `cause` None where nothing failed. The rest is checked if given."""

    name: str
    log: str
    cause: str | None = None
    where: str | None = None
    remedy: str | None = None


def whole_logs() -> list[Output]:
    """The outputs of `logs.yaml`, and those that `provoke.py` made; their files are named `cause.where.name.txt`.

    `<healthy start>` and `<healthy end>` stand for the beginning and the end of a training.
    """
    outputs = []
    for row in read_yaml(FOLDER / "logs.yaml"):
        log = row.pop("log").replace("<healthy start>\n", HEALTHY_START).replace("<healthy end>\n", HEALTHY_END)
        outputs.append(Output(log=log, **row))
    for path in sorted((FOLDER / "provoked").glob("*.txt")):
        cause, where, _ = path.stem.split(".")
        outputs.append(Output(path.stem, path.read_text(), None if cause == "healthy" else cause, where or None))
    return outputs


def read_yaml(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)


def read(log: str) -> tuple[Finding, ...]:
    """The findings of an output of which nothing else is known."""
    return crash_findings(Situation(RunState(), 0.0, log=tuple(log.split("\n"))))


def trace(error: str, *frames: str) -> str:
    """A traceback through the named frames to `error`."""
    lines = ["Traceback (most recent call last):"]
    for number, name in enumerate(frames):
        file, function = FRAMES[name]
        lines += [f'  File "{file}", line {10 + number}, in {function}', f"    call_{number}()"]
    return "\n".join((*lines, error))

"""A case of the corpus, and builders for the parts that many outputs share."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from dataclasses import dataclass

SITE = "/opt/env/lib/python3.11/site-packages"
FRAMES = {
    "main": ("/home/ann/train.py", "<module>"),
    "launch": ("/home/ann/train.py", "main"),
    "train": (f"{SITE}/transformers/trainer.py", "train"),
    "loop": (f"{SITE}/transformers/trainer.py", "_inner_training_loop"),
    "step": (f"{SITE}/transformers/trainer.py", "training_step"),
    "loss": (f"{SITE}/transformers/trainer.py", "compute_loss"),
    "forward": (f"{SITE}/torch/nn/modules/module.py", "_call_impl"),
    "linear": (f"{SITE}/torch/nn/modules/linear.py", "forward"),
    "backward": (f"{SITE}/torch/_tensor.py", "backward"),
    "adam": (f"{SITE}/torch/optim/adamw.py", "step"),
    "adam-init": (f"{SITE}/torch/optim/adamw.py", "_init_group"),
    "fused-adam": (f"{SITE}/torch/optim/adamw.py", "_fused_adamw"),
    "bnb": (f"{SITE}/bitsandbytes/optim/optimizer.py", "step"),
    "evaluate": (f"{SITE}/transformers/trainer.py", "evaluate"),
    "evaluation": (f"{SITE}/transformers/trainer.py", "evaluation_loop"),
    "predict": (f"{SITE}/transformers/trainer.py", "prediction_step"),
    "concat": (f"{SITE}/transformers/trainer_pt_utils.py", "nested_concat"),
    "save": (f"{SITE}/transformers/trainer.py", "_save_checkpoint"),
    "torch-save": (f"{SITE}/torch/serialization.py", "save"),
    "load": (f"{SITE}/torch/serialization.py", "load"),
    "pretrained": (f"{SITE}/transformers/modeling_utils.py", "from_pretrained"),
    "to": (f"{SITE}/torch/nn/modules/module.py", "to"),
    "place": (f"{SITE}/transformers/trainer.py", "_move_model_to_device"),
    "loader": (f"{SITE}/torch/utils/data/dataloader.py", "__next__"),
    "pin": (f"{SITE}/torch/utils/data/_utils/pin_memory.py", "do_one_step"),
    "fetch": (f"{SITE}/torch/utils/data/_utils/fetch.py", "fetch"),
    "worker": (f"{SITE}/torch/utils/data/_utils/worker.py", "_worker_loop"),
    "dynamo": (f"{SITE}/torch/_dynamo/eval_frame.py", "compile_wrapper"),
    "arguments": ("<string>", "__init__"),
    "validate": ("/home/ann/loop.py", "validate"),
    "epoch": ("/home/ann/loop.py", "train_one_epoch"),
    "lightning-step": (f"{SITE}/lightning/pytorch/strategies/strategy.py", "training_step"),
    "lightning-optimizer": (f"{SITE}/lightning/pytorch/core/module.py", "optimizer_step"),
    "lightning-validation": (f"{SITE}/lightning/pytorch/strategies/strategy.py", "validation_step"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """An output and the cause a person would name; `cause` None where nothing failed. `where` is checked if given."""

    name: str
    text: str
    cause: str | None = None
    where: str | None = None


def trace(error: str, *frames: str, prefix: str = "") -> str:
    """A traceback through the named frames to `error`; `prefix` stands before every line."""
    lines = ["Traceback (most recent call last):"]
    for number, name in enumerate(frames or ("main", "train", "step")):
        file, function = FRAMES[name]
        lines += [f'  File "{file}", line {10 + number}, in {function}', f"    call_{number}()"]
    return "\n".join(prefix + line for line in (*lines, *error.split("\n")))


def bar(done: int, total: int) -> str:
    """A progress bar as tqdm draws it."""
    return f"\r{100 * done // total:3d}%|{'█' * (10 * done // total):10}| {done}/{total} [00:{done % 60:02d}<01:00,  2.31it/s]"


HEALTHY_START = """Some weights were newly initialized and should be trained.
{'loss': '1.932', 'grad_norm': '2.1', 'learning_rate': '4.9e-05', 'epoch': '0.1'}
{'loss': '1.511', 'grad_norm': '1.7', 'learning_rate': '4.5e-05', 'epoch': '0.2'}
"""
HEALTHY_END = """{'loss': '1.201', 'grad_norm': '1.4', 'learning_rate': '1e-06', 'epoch': '3'}
{'train_runtime': '301.2', 'train_samples_per_second': '83.1', 'train_loss': '1.4', 'epoch': '3'}
"""

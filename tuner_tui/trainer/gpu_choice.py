"""Chooses the GPUs of a training in one process."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from transformers import TrainingArguments


def use_one_kind_of_card(arguments: TrainingArguments, quantized: bool = False) -> None:
    """Train on the best card alone where the others differ: in DataParallel each step waits for the slowest.

    The best has most memory, then the newest generation, as the recommendation has it. Where CUDA does not count it
    first, the process starts again with this card alone, since the Trainer takes the first. Quantized weights train on
    one card, too: DataParallel cannot copy them to others.
    """
    if arguments.n_gpu < 2:
        return
    cards = [torch.cuda.get_device_properties(number) for number in range(arguments.n_gpu)]
    best = max(range(len(cards)), key=lambda number: (*rank(cards[number]), -number))
    if len({(card.name, card.total_memory // 2**30) for card in cards}) > 1:
        arguments._n_gpu = 1
        chosen = f"training on {cards[best].name} only (set CUDA_VISIBLE_DEVICES to choose others)"
        print(f"the GPUs differ: {chosen}", flush=True)
        if best > 0:
            start_again_on(best)
    elif quantized:
        arguments._n_gpu = 1
        print(f"quantized weights train on one GPU per process: torchrun starts {len(cards)}")


def rank(card: Any) -> tuple[int, int, int]:
    return card.total_memory // 2**30, card.major, card.minor


def start_again_on(number: int) -> None:
    """Replace this process by the same command with only the card that CUDA counts as `number` visible."""
    # CUDA has been initialised by now, and then ignores changes of CUDA_VISIBLE_DEVICES: only a new process sees
    # another card. exec keeps the pid, which the supervisor watches.
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    chosen = visible[number] if visible else str(number)
    argv = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, argv, {**os.environ, "CUDA_VISIBLE_DEVICES": chosen})  # noqa: S606  the same program

"""Batch finders of Lightning and accelerate, run as installed on the simulated GPUs."""

from __future__ import annotations

import logging
import tempfile
import warnings
from typing import Any, Literal

import torch
from accelerate.utils import find_executable_batch_size
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.tuner import Tuner
from torch.utils.data import DataLoader, TensorDataset

from tests.benchmarks.tuning.simulated_gpu import SimulatedGpu
from tuner_tui.tuning.search.batch_search import BatchProbe

LARGEST = 512
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."


class Card:
    """The GPU during one search of another package: records every run."""

    def __init__(self, machine: SimulatedGpu) -> None:
        self.machine = machine
        self.probes: list[BatchProbe] = []

    def train(self, batch: int) -> None:
        """One run at `batch`; raises torch's error if it does not fit."""
        self.probes.append(self.machine.run(batch))
        if self.probes[-1].peak_bytes is None:
            raise RuntimeError(OUT_OF_MEMORY)


class Model(LightningModule):
    """The smallest LightningModule that runs on `card`.

    There must be more samples than the first size that fails: Lightning 2.6 loops forever if a batch as large as the
    data set runs out of memory.
    """

    def __init__(self, card: Card, most: int) -> None:
        super().__init__()
        self.card, self.most, self.batch_size = card, most, 2
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        self.card.train(len(batch[0]))
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.zeros(self.most)), batch_size=self.batch_size)


def lightning_power(machine: SimulatedGpu, most: int) -> tuple[int, list[BatchProbe]]:
    """Lightning's `power`: double until it fails."""
    return _lightning(machine, most, "power")


def lightning_binsearch(machine: SimulatedGpu, most: int) -> tuple[int, list[BatchProbe]]:
    """Lightning's `binsearch`: double until it fails, then bisect, then subtract a margin of 5 %."""
    return _lightning(machine, most, "binsearch")


def _lightning(machine: SimulatedGpu, most: int, mode: Literal["power", "binsearch"]) -> tuple[int, list[BatchProbe]]:
    card = Card(machine)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, max_steps=1, default_root_dir=folder,
        )  # fmt: skip
        found = Tuner(trainer).scale_batch_size(Model(card, most), mode=mode, steps_per_trial=1)
    return found or 0, card.probes


def accelerate_finder(machine: SimulatedGpu, most: int) -> tuple[int, list[BatchProbe]]:
    """accelerate's `find_executable_batch_size`: × 0.9 after every out-of-memory."""
    card = Card(machine)

    def train(batch_size: int) -> int:
        card.train(batch_size)
        return batch_size

    finder = find_executable_batch_size(train, starting_batch_size=min(most, LARGEST))
    return int(finder()), card.probes

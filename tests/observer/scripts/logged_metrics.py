"""A loop that prints nothing and logs by the package named by its argument, as its documentation shows it."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Log = Callable[[dict[str, float], int], None]


def wandb_log() -> Log:
    run = import_module("wandb").init(project="test", mode="offline")
    return lambda values, step: run.log(values, step=step)


def tensorboard_log() -> Log:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(Path(os.environ["TUNER_RUN_DIR"]) / "logs"))

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log


def tensorboardx_log() -> Log:
    writer = import_module("tensorboardX").SummaryWriter(str(Path(os.environ["TUNER_RUN_DIR"]) / "logs"))

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(tag=name, scalar_value=value, global_step=step)

    return log


def mlflow_log() -> Log:
    mlflow = import_module("mlflow")
    return lambda values, step: mlflow.log_metrics(values, step=step)


def trackio_log() -> Log:
    trackio = import_module("trackio")
    trackio.init(project="test")
    return lambda values, step: trackio.log(values, step)


def accelerate_log() -> Log:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    return lambda values, step: accelerator.log(values, step=step)


LOGS = (wandb_log, tensorboard_log, tensorboardx_log, mlflow_log, trackio_log, accelerate_log)


def main(log: Log) -> None:
    """The loss of `w` at a target of 1 is (w - 1)², from 1 down; each step takes half of the way: 1, 1/4, 1/16, ..."""
    loader = DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=2)
    held_out = DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=2)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    step = 0
    for epoch in range(2):
        for (inputs,) in loader:
            loss = ((weight - inputs) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            log({"train/loss": loss, "lr": 0.25, "train/time": 3.0}, step)
        with torch.no_grad():
            for (inputs,) in held_out:
                loss = ((weight - inputs) ** 2).mean()
        log({"val/loss": loss.item(), "val_acc": 0.5 + epoch / 4, "best_val_loss": 0.0}, step)


if __name__ == "__main__":
    main(next(log for log in LOGS if log.__name__ == sys.argv[1])())

"""Lightning on a tiny regression, no network. Arguments: a folder, then `resume`, `order=WORD`, `stream`."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Regression(LightningModule):
    """One hidden layer; prints its losses bit for bit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        print("loss", loss.item().hex())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.layers(batch[0]), batch[1]), on_step=True, on_epoch=True)

    def test_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.log("test_loss", nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Stream(IterableDataset):
    """Twelve pairs of a stream that does not know its length."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(12):
            yield torch.randn(8, generator=generator), torch.randn(1, generator=generator)


class Orders(Callback):
    """Writes an order into the control file, as a person at the screen does while the training runs."""

    def __init__(self, word: str) -> None:
        self.word = word

    def on_train_start(self, *_: object) -> None:
        Path(os.environ["TUNER_RUN_DIR"], "control").write_text(self.word + "\n")


def main() -> None:
    seed_everything(0)
    folder = sys.argv[1]
    data = TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
    orders = [Orders(each.partition("=")[2]) for each in sys.argv if each.startswith("order=")]
    trainer = Trainer(
        default_root_dir=folder,
        max_epochs=4 if "resume" in sys.argv else 2,
        accumulate_grad_batches=2,
        log_every_n_steps=1,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=CSVLogger(folder),
        callbacks=[ModelCheckpoint(dirpath=folder, save_last=True), *orders],
    )
    train = DataLoader(Stream(), batch_size=4) if "stream" in sys.argv else DataLoader(data, batch_size=4, shuffle=True)
    last = str(Path(folder, "last.ckpt")) if "resume" in sys.argv else None
    trainer.fit(Regression(), train, DataLoader(data, batch_size=8), ckpt_path=last)
    if "resume" not in sys.argv:
        trainer.test(verbose=False, dataloaders=DataLoader(data, batch_size=8))
    print("random", torch.rand(1).item().hex())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()

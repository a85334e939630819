"""Trains 36 steps and saves after 20, or goes on from there without a part of the state.

`resumed_loop.py FOLDER` or `resumed_loop.py FOLDER PART`, which is not restored: `none` for all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, SAVED_AT, BATCH = 36, 20, 8


def main(folder: Path, missing: str | None) -> None:
    """Epochs of 12 steps, each in an order of its own."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 16), torch.randn(96, 4))
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
    parts: dict[str, Any] = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    global_step = first_epoch = skipped = 0
    random_state = None
    if missing is not None:
        saved = torch.load(folder / "checkpoint.pt", weights_only=False)
        left = "3." if missing == "weights" else "left out"
        weights = {name: value for name, value in saved["model"].items() if not name.startswith(left)}
        model.load_state_dict(weights, strict=False)
        for name in parts.keys() - {missing}:
            parts[name].load_state_dict(saved[name])
        global_step = 0 if missing == "step" else saved["step"]
        first_epoch = 0 if missing == "epoch" else saved["epoch"]
        skipped = 0 if missing == "position" else saved["position"]
        random_state = None if missing == "random" else saved["random"]
    for epoch in range(first_epoch, STEPS):
        order = torch.Generator().manual_seed(epoch)
        batches = iter(DataLoader(data, BATCH, shuffle=True, generator=order))
        for _ in range(skipped):
            next(batches)
        if random_state is not None:
            torch.set_rng_state(random_state)
        for position, (inputs, targets) in enumerate(batches, skipped + 1):
            loss = (model(inputs) - targets).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            global_step += 1
            print("loss", global_step, loss.item().hex())
            if global_step == SAVED_AT and missing is None:
                state = {name: part.state_dict() for name, part in parts.items()}
                state |= {"step": global_step, "epoch": epoch, "position": position, "random": torch.get_rng_state()}
                torch.save({"model": model.state_dict(), **state}, folder / "checkpoint.pt")
            if global_step == STEPS:
                return
        skipped, random_state = 0, None


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)

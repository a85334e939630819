"""Injection of settings into DataLoaders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.observer.observed_process import SITE, run_python

pytest.importorskip("torch")


def test_injection_into_loaders(tmp_path: Path) -> None:
    code = """
import torch
from torch.utils.data import DataLoader, TensorDataset, SequentialSampler
data = TensorDataset(torch.zeros(8, 2))
ordered = SequentialSampler(data)
for loader in (DataLoader(data, 2, True), DataLoader(data, batch_size=2), DataLoader(data, 2, sampler=ordered)):
    print(loader.batch_size, loader.num_workers, loader.prefetch_factor, loader.drop_last)
"""
    inject = {"per_device_train_batch_size": 4, "dataloader_num_workers": 0, "dataloader_prefetch_factor": 3, "lr": 1}
    environment = {"PYTHONPATH": str(SITE), "TUNER_RUN_DIR": str(tmp_path), "TUNER_INJECT": json.dumps(inject)}
    result = run_python("-c", code, settings=environment)
    assert result.stdout.splitlines() == ["4 0 None False", "2 0 None False", "2 0 None False"], result.stderr
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    [injected] = [line for line in lines if line["kind"] == "injected"]
    assert "not_found" not in injected or injected["not_found"] == [], "another place may still take it"
    assert injected["values"]["per_device_train_batch_size"] == 4

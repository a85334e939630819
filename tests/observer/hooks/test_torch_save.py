"""Evaluations and saves of a plain loop that does not say where they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, last_steps, observe
from tests.observer.scripts.evaluation_at_the_end import EVALUATION_S, SAVING_S
from tuner_tui.runs.events.types import Options, Phase, Saved

pytestmark = pytest.mark.train
SCRIPT = str(SCRIPTS / "evaluation_at_the_end.py")


def test_an_evaluation_that_ends_the_run_is_counted(tmp_path: Path) -> None:
    final = last_steps(observe(tmp_path, SCRIPT).events)
    assert final.own_steps == 8
    assert final.eval_s >= 3 * EVALUATION_S
    assert final.save_s == 0


@pytest.mark.full
def test_a_save_right_after_an_evaluation_is_a_save(tmp_path: Path) -> None:
    found = observe(tmp_path, SCRIPT, "save")
    final = last_steps(found.events)
    assert final.save_s >= 2 * SAVING_S
    assert final.eval_s >= 3 * EVALUATION_S
    phases = [event.phase for event in found.of(Phase)]
    assert phases[:6] == ["starting", "training", "evaluating", "saving", "training", "evaluating"]


def test_what_is_saved_into_an_archive_is_reported_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [(event.step, event.path) for event in observe(tmp_path, SCRIPT, "zip").of(Saved)][-1] == (
        8,
        str(tmp_path / "model.zip"),
    )


PARSER = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int)
parser.add_argument("--resume", action="store_true")
parser.add_argument("data", nargs="?")
for _ in range(2):
    parser.parse_args([])
"""
SAVES = """
import torch
model = torch.nn.Linear(2, 1)
torch.save({"model": model.state_dict()}, "before.pt")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
torch.save({"model": model.state_dict(), "epoch": 1}, f="full.pt")
with open("weights.pt", "wb") as file:
    torch.save(obj=model.state_dict(), f=file)
"""
RENAMES = """
import os, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
torch.save({"model": model.state_dict()}, "part.tmp")
open("other", "w").close()
os.rename("other", "elsewhere")
os.replace("part.tmp", "full.pt")
"""
UPDATES_BY_HAND = """
import torch
model = torch.nn.Linear(2, 1)
torch.save(model, "before.pt")
model(torch.ones(1, 2)).sum().backward()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(parameter.grad, alpha=-0.1)
torch.save(model, "after.pt")
"""
FABRIC = """
import torch
from lightning.fabric import Fabric
fabric = Fabric(accelerator="cpu", devices=1)
model = torch.nn.Linear(2, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
fabric.backward(model(torch.ones(1, 2)).sum())
optimizer.step()
fabric.save("full.ckpt", {"model": model, "optimizer": optimizer})
fabric.save(path="weights.ckpt", state=model.state_dict())
"""


def test_the_options_of_the_scripts_parser_are_reported_once(tmp_path: Path) -> None:
    [event] = observe(tmp_path, "-c", PARSER).of(Options)
    assert (event.options, event.switches) == (("-b --batch-size",), ("--resume",))


def test_saved_files_are_reported_after_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", SAVES).of(Saved)
    assert [(event.step, event.path, event.resumable) for event in saved] == [
        (1, str(tmp_path / "full.pt"), True),
        (1, str(tmp_path / "weights.pt"), False),
    ]


def test_a_file_that_is_renamed_when_it_is_whole_has_its_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", RENAMES).of(Saved)
    assert [Path(event.path).name for event in saved] == ["part.tmp", "full.pt"]
    assert (saved[-1].step, saved[-1].resumable) == (1, True)


def test_a_file_saved_by_a_loop_without_an_optimizer_has_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", UPDATES_BY_HAND).of(Saved)
    assert [(event.step, event.path) for event in saved] == [(None, str(tmp_path / "after.pt"))]


@pytest.mark.full
def test_the_files_that_fabric_writes_from_memory_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", FABRIC).of(Saved)
    assert [(event.step, Path(event.path).name, event.resumable) for event in saved] == [
        (1, "full.ckpt", True),
        (1, "weights.ckpt", False),
    ]

"""`tuner-tui diff`: two run folders side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.invoke import invoke
from tests.runs.builders import counters, record
from tuner_tui.runs.events.types import Metrics
from tuner_tui.runs.read.comparison import format_figure
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import write_record

Call = Callable[..., Result]


def a_run(root: Path, batch: int, train_s: float, **settings: object) -> None:
    folder = create_folder(root)
    write_record(folder, record({"per_device_train_batch_size": batch, **settings}, id=folder.id))
    with folder.events.open("wb") as file:
        for steps in (10, 100):
            file.write(encode_event(Metrics(t=1.0, rank=0, step=steps, loss=10 / steps)))
        file.write(encode_event(counters(100, batch, train_s)))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    a_run(tmp_path / "runs", 8, 50.0)
    a_run(tmp_path / "runs", 8, 25.0, precision="bf16")
    return partial(invoke, "diff")


def test_the_figures_stand_side_by_side(call: Call) -> None:
    rows = [line.split() for line in call("r001", "r002").stdout.splitlines()]
    assert ["precision", "fp32", "bf16", "default", "→", "flag", "--set"] in rows
    assert ["throughput", "16.0", "samples/s", "32.0", "samples/s", "×2"] in rows
    assert ["800", "samples", "0.1000", "0.1000", "+0.0000"] in rows


def test_json_is_one_document(call: Call) -> None:
    document = json.loads(call("1", "2", "--json").stdout)
    assert document["runs"] == ["r001", "r002"]
    assert [recommended_setting["name"] for recommended_setting in document["settings"]] == ["precision"]
    assert document["figures"][0]["ratio"] == 2.0
    assert document["loss"][-1]["samples"] == 800
    assert document["doubt"] == ""


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "B", "–"), (0.123, "share", "12.3 %"), (2.5 * 2**30, "B", "2.50 GiB"), (0.25, "s", "0.250 s"),
        (83.2, "s", "83.2 s"), (12_000.0, "samples", "12,000"), (160.04, "samples/s", "160.0 samples/s"),
    ],
)  # fmt: skip
def test_figures_have_their_units(value: float | None, unit: str, text: str) -> None:
    assert format_figure(value, unit) == text

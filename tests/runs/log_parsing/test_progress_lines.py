"""Progress parsed from lines that real programs print."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner_tui.runs.log_parsing.progress_lines import (
    LOG,
    MAX_BARS,
    ProgressRecord,
    may_have_figures,
    parse_clock_time,
    parse_line,
    parse_output,
)

Row = dict[str, Any]
ROWS: dict[str, list[Row]] = yaml.load(
    Path(__file__).with_name("progress_lines.yaml").read_text("utf-8"), yaml.CSafeLoader
)


def line_of(row: Row) -> str:
    return repr(row["line"])


def record(figures: dict[str, Any]) -> ProgressRecord:
    return ProgressRecord(**{"source": LOG, **figures})


@pytest.mark.parametrize("row", ROWS["outputs"], ids=line_of)
def test_the_figures_of_an_output(row: Row) -> None:
    assert list(parse_output(row["line"])) == ([record(row["figures"])] if "figures" in row else [])


@pytest.mark.parametrize("row", ROWS["lines"], ids=line_of)
def test_a_line_of_the_training(row: Row) -> None:
    assert may_have_figures(row["line"])
    assert parse_line(row["line"]) == record(row["figures"])


@pytest.mark.parametrize("row", ROWS["evaluations"], ids=line_of)
def test_a_line_of_an_evaluation_has_a_loss_of_the_training_only_if_it_names_one(row: Row) -> None:
    parsed = parse_line(row["line"])
    assert (parsed.loss, parsed.evaluation) == (row.get("loss"), row["evaluation"])


def test_several_bars_in_one_piece_and_a_dictionary_behind_one() -> None:
    text = (
        "  1%|  | 1/100 [00:01<01:39,  1.0it/s]\r  2%|  | 2/100 [00:02<01:38,  1.0it/s]{'loss': '0.5', 'epoch': '0.1'}"
    )
    assert [(record.step, record.loss) for record in parse_output(text)] == [(1, None), (2, None), (None, 0.5)]


def test_a_bar_that_is_named_by_its_loss_counts_the_steps() -> None:
    [record] = parse_output("loss: 0.37:  10%|▏ | 5/50 [00:01<00:09, 5.0it/s]\r")
    assert (record.step, record.total_steps, record.loss) == (5, 50, 0.37)
    [begun] = parse_output("loss: 0.00:   0%|   | 0/50 [00:00<?, ?it/s]\r")
    assert (begun.step, begun.loss) == (0, None)
    evaluated = parse_output("val_loss: 0.37:  10%|▏ | 5/50 [00:01<00:09, 5.0it/s]\r")
    assert not any(record.step for record in evaluated)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("00:12", 12.0), ("1:00:01", 3601.0), ("26:00:05", 93605.0), ("?", None)],
)
def test_durations(text: str, expected: float | None) -> None:
    assert parse_clock_time(text) == expected


def test_of_very_many_states_of_a_bar_its_ends_and_its_course_remain() -> None:
    epochs, steps = 3, 5 * MAX_BARS
    drawn = "".join(
        f"\r{step * 100 // steps:3d}%|#| {step}/{steps} [00:01<00:01, 9.0it/s, loss=0.5]{chr(10) * (step == steps)}"
        for _ in range(epochs)
        for step in range(1, steps + 1)
    )
    parsed = [record.step or 0 for record in parse_output(drawn + "{'eval_loss': 0.5}\n") if record.bar]
    assert len(parsed) < 2 * MAX_BARS
    assert parsed.count(steps) == epochs
    assert parsed.count(1) >= 1
    assert max(b - a for a, b in pairwise(parsed)) < 3 * epochs * steps // MAX_BARS


def test_of_a_line_without_an_end_the_end_is_parsed() -> None:
    (record,) = list(parse_output("x" * 300_000 + " step 7 loss 0.5"))
    assert (record.step, record.loss) == (7, 0.5)


def test_a_loss_that_is_not_a_number() -> None:
    loss = parse_line("epoch 2: loss=nan").loss
    assert loss is not None
    assert math.isnan(loss)


@pytest.mark.parametrize(
    ("table", "loss", "evaluation"),
    [
        (
            "  epoch    train_loss    valid_acc    valid_loss     dur\n-------  ------------  -----------  ---------\n"
            "      3        \x1b[36m0.53\x1b[0m       0.86        0.37  1.17",
            0.53,
            {"eval_loss": 0.37, "eval_acc": 0.86},
        ),
        ("epoch     train_loss  valid_loss  time\n0         0.61      0.55      00:02", 0.61, {"eval_loss": 0.55}),
        ("| Step | Training Loss | Validation Loss |\n| 500 | 2.11 | 2.01 |", 2.11, {"eval_loss": 2.01}),
        ("epoch     loss  time\n0         0.61      0.55      00:02", None, {}),
        ("name      size  time\n0         0.61      0.55", None, {}),
    ],
)
def test_a_row_of_a_table_has_the_names_above_it(table: str, loss: float | None, evaluation: dict[str, float]) -> None:
    records = list(parse_output(table))
    assert [each.loss for each in records if each.loss is not None] == ([] if loss is None else [loss])
    assert [each.evaluation for each in records if each.evaluation] == ([evaluation] if evaluation else [])

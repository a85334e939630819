"""`tuner-tui batches`: the suspicious steps of a run, the rows of one step, and a run that recorded none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_run import Shell, shell
from tuner_tui.core.json_struct import to_json
from tuner_tui.inspection.first_non_finite import ReplayReport, judge_replay

__all__ = ["shell"]


def record(shell: Shell, count: int = 30) -> Path:
    """A run with steps of two rows; the loss of the last is nan."""
    folder: Path = shell.home / "state" / "runs" / "r001"
    folder.mkdir(parents=True)
    lines = [
        {"step": n, "epoch": 1, "rows": [[2 * n, 2 * n + 1]], "shape": [2, 8], "losses": [1.0 if n < count else "nan"]}
        for n in range(1, count + 1)
    ]
    (folder / "batches-rank0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_suspicious_steps_are_listed(shell: Shell) -> None:
    record(shell)
    shown = shell("batches", "r001")
    assert shown.stdout.splitlines() == [
        "Steps 1 to 30 are recorded.",
        "- the loss is nan first in step 30: rows 60, 61",
    ]
    document = json.loads(shell("batches", "r001", "--json").stdout)
    assert document["suspects"]["suspects"][0]["rows"] == [60, 61]


@pytest.mark.parametrize("failed", [False, True])
def test_a_batch_that_no_step_followed_is_suspicious_only_where_the_run_failed(shell: Shell, failed: bool) -> None:
    folder = record(shell)
    with (folder / "batches-rank0.jsonl").open("a") as file:
        file.write('{"step":31,"rows":[[62,63]],"unfinished":true}\n')
    end = '"kind":"raised","type":"ValueError","message":"bad row"' if failed else '"kind":"ended"'
    (folder / "events.jsonl").write_text(f'{{"story":1,{end},"v":1,"t":9.0,"rank":0}}\n')
    assert ("step 31, which failed" in shell("batches", "r001").stdout) == failed


def test_the_rows_of_a_step_are_listed(shell: Shell) -> None:
    record(shell)
    shown = shell("batches", "r001", "--step", "7")
    assert "14, 15" in shown.stdout
    assert "2 × 8" in shown.stdout
    assert "`tuner-tui replay r001 --step 7` reads what the rows hold." in shown.stdout
    assert json.loads(shell("batches", "r001", "--step", "7", "--json").stdout)[0]["step"] == 7


def test_what_the_rows_of_a_step_hold_is_shown_after_a_replay(shell: Shell) -> None:
    report = ReplayReport(
        0, 30, texts={14: "a text\nwith HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh", 60: "another"}
    )
    replayed = judge_replay(30, 0, [report], [], [])
    (record(shell) / "replay.json").write_text(json.dumps(to_json(replayed)))
    lines = shell("batches", "r001", "--step", "7").stdout.splitlines()
    assert lines[-1].startswith("row 14: a text")
    assert "hf_" not in lines[-1]
    texts = json.loads(shell("batches", "r001", "--step", "7", "--json").stdout)[0]["texts"]
    assert list(texts) == ["14", "60"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(("--step", "99"), "Step 99 is not recorded; steps 1 to 30 are."), ((), "r001 has recorded no steps")],
)
def test_what_was_not_recorded_is_said(shell: Shell, arguments: tuple[str, ...], sentence: str) -> None:
    folder = record(shell)
    if not arguments:
        (folder / "batches-rank0.jsonl").unlink()
    shown = shell("batches", "r001", *arguments)
    assert shown.returncode == 1
    assert sentence in shown.stderr

"""Every form of `log_lines.yaml` reads its example."""

from __future__ import annotations

from signal import Signals
from typing import Any

import pytest
import yaml

from tuner_tui.runs.log_parsing.failures import parse_launcher_report, reports_progress
from tuner_tui.runs.log_parsing.lines import FILE, log_forms, matches_any, parse_lines

DOCUMENT: dict[str, list[dict[str, Any]]] = yaml.load(FILE.read_text("utf-8"), yaml.CSafeLoader)


@pytest.mark.parametrize("row", DOCUMENT["prefixes"], ids=lambda row: row["of"])
def test_a_prefix_is_taken_off(row: dict[str, Any]) -> None:
    prefix, rest = row["example"]
    form = log_forms("prefixes")[DOCUMENT["prefixes"].index(row)]
    match = form.match(prefix + rest)
    assert match is not None
    assert match[0] == prefix


@pytest.mark.parametrize("row", DOCUMENT["rewritten"], ids=lambda row: row["of"])
def test_an_exception_is_rewritten_as_python_prints_it(row: dict[str, Any]) -> None:
    written, rewritten = row["example"]
    assert log_forms("rewritten")[DOCUMENT["rewritten"].index(row)].sub(row["to"], written) == rewritten


def test_prefixes_follow_one_another() -> None:
    (line,) = parse_lines(["[rank3]: 2026-03-01 10:00:01,123 - train - ERROR - step 5"])
    assert (line.text, line.rank, line.level) == ("step 5", 3, "E")


def test_a_tab_ends_the_time() -> None:
    (line,) = parse_lines(["2026-03-01 10:00:01,884\tERROR worker.py:431 -- no plates"])
    assert (line.text, line.level) == ("no plates", "E")


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [("[rank1]:  ", 1), ("oven gpu 3 |    ", 3), ("oven-worker-1: ", None)],
    ids=["blanks of its own", "a column", "the name of a host"],
)
def test_the_prefix_of_a_traceback_is_taken_off_with_its_blanks(prefix: str, rank: int | None) -> None:
    texts = ("Traceback (most recent call last):", '  File "/home/ann/bake.py", line 7, in main', "ValueError: no")
    lines = parse_lines([prefix + text for text in texts])
    assert [(line.text, line.rank) for line in lines] == [(text, rank) for text in texts]


def test_frames_that_a_paste_joined_are_parted_without_their_exception() -> None:
    line = 'File "/home/ann/train.py", line 7, in <module> bake() File "/home/ann/oven.py", line 9, in bake turn(*rims)'
    assert [each.text for each in parse_lines([line])] == [
        '  File "/home/ann/train.py", line 7, in <module>',
        "    bake()",
        '  File "/home/ann/oven.py", line 9, in bake',
        "    turn(*rims)",
    ]


def test_a_record_with_only_the_time_is_blank() -> None:
    assert [line.text for line in parse_lines(["10:00:01 ", f"{' ' * 12}ERROR    No plates"])] == ["", "No plates"]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ('{"log": "step 5\\n", "stream": "stderr"}', "step 5"),
        ('{"severity": "INFO", "message": "step 5", "timestamp": "2026"}', "step 5"),
        (',{"stream_name": "stdout", "time": 1.5, "data": "step 5\\n"}]', "step 5"),
        ('{"text": "step 5", "label": 1}', '{"text": "step 5", "label": 1}'),
    ],
)
def test_a_record_of_a_line_is_that_line(record: str, text: str) -> None:
    assert [line.text for line in parse_lines([record])] == [text]


@pytest.mark.parametrize("row", DOCUMENT["exit-codes"], ids=lambda row: row["of"])
def test_an_exit_code_is_read(row: dict[str, Any]) -> None:
    report = parse_launcher_report(parse_lines([row["example"]]))
    assert report.reported_failure
    assert (report.exit_code, report.signal) == ((row["gives"], None) if row["gives"] > 0 else (None, -row["gives"]))


@pytest.mark.parametrize("row", DOCUMENT["signals"], ids=lambda row: row["of"])
def test_a_signal_is_read(row: dict[str, Any]) -> None:
    report = parse_launcher_report(parse_lines([row["example"]]))
    assert (report.signal or report.request) == Signals[row["gives"]]


@pytest.mark.parametrize(
    ("text", "progress", "handled"),
    [
        ("{'loss': 1.2, 'epoch': 0.1}", True, False),
        ("Epoch 3: train loss 0.41", True, False),
        ("Training completed.", True, False),
        ("episode 20 reward 18.1", True, False),
        ("Ep 2  train 0.41  val 0.51", True, False),
        ("episode 20 failed with reward 3", False, False),
        ('{"train_lr": 1e-4, "train_loss": 1.9}', True, False),
        ("[05/01 10:00:09 d2.utils.events]:  eta: 0:19:00  iter: 39  total_loss: 1.1", True, False),
        ("out of memory, trying a smaller batch", False, True),
        ("skipped a broken image", False, True),
        ("please consider falling back to fp32", False, False),
        ("To keep retrying until the cluster is up, use the flag", False, False),
        ("hello", False, False),
    ],
)
def test_progress_and_a_handled_failure_are_told_apart(text: str, progress: bool, handled: bool) -> None:
    assert (reports_progress(text), matches_any("handled", text)) == (progress, handled)

"""The lines of a program are the same whatever a collector, a launcher or a viewer did to them."""

from __future__ import annotations

import html
import json

import pytest

from tests.advice.crash.outputs import read
from tuner_tui.runs.log_parsing.lines import parse_lines
from tuner_tui.runs.log_parsing.prefixes import restore_layout

OUTPUT = """Loading plates
Baking 12 rims of the first kind, as the oven is warm enough and nobody waits for another one
Traceback (most recent call last):
  File "/home/ann/bake.py", line 31, in <module>
    bake(rims, oven=Oven(kind="wide"))
  File "/home/ann/bake.py", line 12, in bake
    return oven.turn(rims, times=len(rims) * 4 // plates_that_are_left, until=lambda rim: rim.done)
RuntimeError: CUDA error: an illegal memory access was encountered""".splitlines()
COLLECTORS = {
    "host": "node-a: ",
    "domain": "node7.cluster.local: ",
    "pod": "bake-job-x7d9f main ",
    "bracketed pod": "[pod/bake-job-x7d9f/main] ",
    "step of a workflow": "bake\tRun bake\t2026-09-27T22:46:{}.1234567Z ",
    "container": "algo-1-abcde  | ",
    "torchelastic": "trainer/0 [0]:",
    "tagged rank": "[1,mpirank:0,algo-1]<stderr>:",
    "cloud console": "ERROR\t2026-09-27 22:46:{} +0000\tworkerpool0-0\t",
    "logger of a wrapper": "2026-09-27 22:46:{} [INFO] Oven: ",
    "loguru": "2026-09-27 22:46:{}.123 | INFO     | runner.exec:stream:88 - ",
    "Airflow": "[2026-09-27T22:46:{}.123+0000] {{subprocess.py:93}} INFO - ",
    "Prefect": "22:46:{}.123 | INFO    | Task run 'bake-0' - ",
    "supervisor": "2026-09-27 22:46:{},123 DEBG 'bake' stderr output: ",
    "seconds since boot": "[   12.0000{}] ",
    "seconds since 1970": "17589999{}.123 ",
    "half of the day": "09/27/2026 10:46:{} PM - ",
    "line numbers": "{}: ",
    "line numbers in a column": "   {}  ",
    "grep": "bake.log:{}:",
    "a letter": "E: ",
    "indent": "\t",
}


def texts(lines: list[str]) -> list[str]:
    return [line.text.rstrip() for line in parse_lines(lines)]


@pytest.mark.parametrize("prefix", COLLECTORS.values(), ids=COLLECTORS.keys())
def test_what_most_lines_begin_with_is_taken_off(prefix: str) -> None:
    lines = [prefix.format(number) + line for number, line in enumerate(OUTPUT, 10)]
    assert texts(lines) == OUTPUT
    assert all(line.rank in (None, 0) and not line.quiet for line in parse_lines(lines))
    assert [finding.cause for finding in read("\n".join(lines))] == ["illegal-access"]


@pytest.mark.parametrize("error", ["bake.py: error: the following arguments are required: --oven", "Killed"])
def test_a_wrapper_passes_on_what_is_no_python(error: str) -> None:
    lines = [
        f"22:46:0{number} | INFO    | Task run 'bake-0' - {text}" for number, text in enumerate((*OUTPUT[:2], error))
    ]
    assert texts(lines) == [*OUTPUT[:2], error]


def test_the_names_of_several_hosts_are_taken_off() -> None:
    lines = [f"oven-{name}: {line}" for line in OUTPUT for name in ("a", "b")]
    assert texts(lines) == [line for line in OUTPUT for _ in range(2)]
    assert [finding.cause for finding in read("\n".join(lines))] == ["illegal-access"]


@pytest.mark.parametrize(
    "lines",
    [
        [text for line in OUTPUT for text in (line, "")],
        [line + "\r" for line in OUTPUT],
        [html.escape(line) for line in OUTPUT],
        [line.replace("  ", "\xa0 ") for line in OUTPUT],
        [line[start : start + 80] for line in [*OUTPUT[:2], "Warm: " * 20, *OUTPUT[2:]] for start in range(0, 120, 80)],
        [json.dumps({"time": 1.5, "log": line}) for line in OUTPUT],
        ["╭──────╮", *(f"│ {line:<90} │" for line in OUTPUT), "╰──────╯"],
    ],
    ids=["a blank line after each", "CRLF", "HTML", "fixed blanks", "a window of 80 columns", "records", "a box"],
)
def test_the_layout_of_a_viewer_is_undone(lines: list[str]) -> None:
    assert [line for line in texts(lines) if line and not line.startswith("Warm")] == OUTPUT


@pytest.mark.parametrize(
    "lines",
    [
        [f"Epoch {number}: loss 0.{number}" for number in range(9)],
        [f"INFO:oven:rim {number} is warm" for number in range(9)],
        ["plates: 4", "rims: 3", "plates: 5", "rims: 2", "ValueError: no"],
    ],
    ids=["progress", "words of the program", "too few"],
)
def test_words_of_the_program_stay(lines: list[str]) -> None:
    assert [line.removeprefix("INFO:oven:") for line in lines] == texts(lines)


@pytest.mark.parametrize(
    ("lines", "is_broken"),
    [
        (["ValueError: " + "n" * 68, "of plates"], True),
        (["a" * 79 + ".", "The rim is warm"], False),
        (["a" * 80, "ValueError: no"], False),
        (["a" * 77, "of plates"], False),
    ],
)
def test_one_line_as_wide_as_a_window_was_broken(lines: list[str], is_broken: bool) -> None:
    assert restore_layout(lines) == (["".join(lines)] if is_broken else lines)


def test_messages_of_one_length_are_not_joined() -> None:
    lines = [f"block {number}: assertion `plate < {'n' * 60}` failed" for number in range(9)]
    assert restore_layout(lines) == lines


def test_lines_that_a_terminal_filled_with_blanks_are_not_joined() -> None:
    lines = [f"{word} the plates".ljust(120) for word in ("warm", "turn", "bake", "cool")]
    assert restore_layout(lines) == lines


def test_a_level_that_all_lines_have_says_nothing() -> None:
    bar = "ERROR: 40%|####      | 4/10 [00:04<00:06]"
    assert [line.level for line in parse_lines([*(f"ERROR: rim {number}" for number in range(5)), bar])] == [None] * 6
    assert [line.level for line in parse_lines([f"ERROR: rim {number}" for number in range(5)])] == ["E"] * 5
    assert [line.level for line in parse_lines([f"INFO: rim {number}" for number in range(40)])] == ["I"] * 40

"""Whatever an output holds, reading it gives findings or none, never an exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.advice.crash.outputs import read, whole_logs

LOGS = [output.log for output in whole_logs()]

PIECES = st.sampled_from(
    [line for log in LOGS for line in log.split("\n")]
    + [
        "\r",
        "\x1b[0m",
        "│ x",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "",
        "[rank1]: ",
        "\ufffd",
    ]
)


@given(st.text())
def test_any_text(text: str) -> None:
    for finding in read(text):
        assert finding.evidence


@given(st.lists(PIECES, max_size=60))
def test_any_mixture_of_lines(lines: list[str]) -> None:
    for finding in read("\n".join(lines)):
        assert finding.sentence
        assert finding.evidence


@given(st.sampled_from(LOGS), st.integers(0, 4000), st.integers(0, 4000))
def test_any_cut_of_an_output(log: str, start: int, length: int) -> None:
    read(log[start : start + length])


@given(st.binary(max_size=2000))
def test_any_bytes(raw: bytes) -> None:
    read(raw.decode("utf-8", "replace"))

"""Whatever an output holds, reading it gives findings or none, never an exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.advice.crash.corpus import memory, other
from tests.advice.crash.corpus.case import Case
from tests.advice.crash.test_cause import read

PIECES = st.sampled_from(
    [line for case in (*memory.CASES, *other.CASES) for line in case.text.split("\n")]
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


@given(st.sampled_from(memory.CASES), st.integers(0, 4000), st.integers(0, 4000))
def test_any_cut_of_an_output(case: Case, start: int, length: int) -> None:
    read(case.text[start : start + length])


@given(st.binary(max_size=2000))
def test_any_bytes(raw: bytes) -> None:
    read(raw.decode("utf-8", "replace"))

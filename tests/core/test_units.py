"""Per cent in words: one form everywhere, nothing that is there shown as nothing."""

from __future__ import annotations

import pytest

from tuner_tui.core.units import format_percent, format_share


@pytest.mark.parametrize(
    ("part", "digits", "signed", "words"),
    [
        (0.314, 0, False, "31 %"),
        (0.314, 1, False, "31.4 %"),
        (0.0, 0, False, "0 %"),
        (0.004, 0, False, "<1 %"),
        (0.0004, 1, False, "<0.1 %"),
        (1.0, 0, False, "100 %"),
        (0.02, 0, True, "+2 %"),
        (-0.021, 1, True, "-2.1 %"),
        (0.0, 0, True, "+0 %"),
        (None, 0, False, "–"),
    ],
)
def test_a_share(part: float | None, digits: int, signed: bool, words: str) -> None:
    """Number, space, sign."""
    assert format_share(part, digits, signed) == words


@pytest.mark.parametrize(("value", "words"), [(97.4, "97 %"), (0.3, "<1 %"), (None, "–")])
def test_a_percentage(value: float | None, words: str) -> None:
    """One that is a percentage already is not multiplied."""
    assert format_percent(value) == words

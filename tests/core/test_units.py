"""Sizes, durations and percentages: one form of each everywhere."""

from __future__ import annotations

import pytest

from tuner_tui.core.units import (
    GIB,
    MIB,
    format_duration,
    format_gib,
    format_percent,
    format_rough_duration,
    format_share,
    format_short_duration,
    format_size,
    parse_size,
)


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (252, "4 min 12 s"), (2460, "41 min"), (11_100, "3 h 05 min"), (187_200, "2 d 4 h")],
)
def test_durations_grow_coarser(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_an_estimate_does_not_flicker() -> None:
    assert {format_rough_duration(seconds) for seconds in range(2400, 2429)} == {"40 min"}
    assert format_rough_duration(12) == "15 s"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (512 * 1024**2, "512 MiB"), (61.2 * 1024**3, "61.2 GiB"), (1.8 * 1024**4, "1.8 TiB")],
)
def test_sizes_carry_their_unit(size_bytes: float, text: str) -> None:
    assert format_size(size_bytes) == text


def test_sizes_with_two_digits_keep_three_significant_ones() -> None:
    sizes = (612.3 * MIB, 1.314 * GIB, 22.54 * GIB)
    assert [format_size(size, 2) for size in sizes] == ["612 MiB", "1.31 GiB", "22.5 GiB"]
    assert [format_gib(size) for size in (*sizes, None)] == ["0.6 GiB", "1.3 GiB", "22.5 GiB", "–"]


@pytest.mark.parametrize(("seconds", "text"), [(89, "89 s"), (720, "12 min"), (18_720, "5.2 h"), (293_760, "3.4 d")])
def test_short_durations_have_one_unit(seconds: float, text: str) -> None:
    assert format_short_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("6GiB", 6 * GIB), ("6.5 GB", 6_500_000_000), ("800M", 800_000_000), ("12", 12), ("six", None), ("-1", None)],
)
def test_a_size_is_read_with_its_unit(text: str, size_bytes: int | None) -> None:
    assert parse_size(text) == size_bytes

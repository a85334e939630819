"""Numbers as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.core.units import format_percent, format_share
from tuner_tui.ui.drawing import number_format as f

ALL = (
    f.count, f.significant, f.metric, f.exponent, format_share, format_percent, f.gib, f.whole_gib, f.size,
    f.short_size, f.mb_s,
    f.integer, f.duration, f.short_duration, f.rough_duration, f.capability, f.tens,
)  # fmt: skip


@pytest.mark.parametrize("shown", ALL, ids=lambda function: function.__name__)
def test_unknown_is_a_dash_and_never_zero(shown: object) -> None:
    assert callable(shown)
    assert shown(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"),
     (0.424, "0.42"), (3.1, "3.10"), (24.82, "24.8"), (512.4, "512"), (999.6, "1.00k"), (50_234, "50.2k"),
     (1_203_000, "1.20M"), (float("nan"), "nan"), (float("-inf"), "-inf")],
)  # fmt: skip
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert f.significant(value) == text


@given(st.floats(0, 1e13))
def test_a_figure_never_outgrows_its_cell(value: float) -> None:
    assert len(f.significant(value)) <= 6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (252, "4 min 12 s"), (2460, "41 min"), (11_100, "3 h 05 min"), (187_200, "2 d 4 h")],
)
def test_durations_grow_coarser(seconds: float, text: str) -> None:
    assert f.duration(seconds) == text


@given(st.floats(0, 3e7))
def test_short_durations_and_sizes_fit_their_column(value: float) -> None:
    assert len(f.short_duration(value)) <= 7
    assert len(f.short_size(value * 1e6)) <= 8


def test_an_estimate_does_not_flicker() -> None:
    assert {f.rough_duration(seconds) for seconds in range(2400, 2429)} == {"40 min"}
    assert f.rough_duration(12) == "15 s"


@pytest.mark.parametrize(("part", "text"), [(0.0, "0 %"), (0.001, "<1 %"), (0.14, "14 %"), (1.0, "100 %")])
def test_shares_tell_little_from_nothing(part: float, text: str) -> None:
    assert format_share(part) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.8404, "1.8404"), (0.0173, "0.0173"), (3.1e-05, "3.1e-05"), (24.5, "24.50"), (12_345.0, "12345")],
)
def test_metrics_keep_what_matters(value: float, text: str) -> None:
    assert f.metric(value) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (512 * 1024**2, "512 MiB"), (61.2 * 1024**3, "61.2 GiB"), (1.8 * 1024**4, "1.8 TiB")],
)
def test_sizes_carry_their_unit(size_bytes: float, text: str) -> None:
    assert f.size(size_bytes) == text

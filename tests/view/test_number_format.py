"""Numbers as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.core.units import (
    format_duration,
    format_percent,
    format_rough_duration,
    format_share,
    format_short_duration,
    format_size,
)
from tuner_tui.view import number_format as f

ALL = (
    f.count, f.significant, f.metric, f.exponent, format_share, format_percent, f.gib, f.whole_gib, format_size,
    f.short_size, f.mb_s,
    f.integer, format_duration, format_short_duration, format_rough_duration,
)  # fmt: skip


@pytest.mark.parametrize("shown", ALL, ids=lambda function: function.__name__)
def test_unknown_is_a_dash_and_never_zero(shown: object) -> None:
    assert callable(shown)
    assert shown(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.00042, "4e-04"), (0.0042, "0.0042"), (0.0099, "0.0099"),
     (0.424, "0.42"), (3.1, "3.10"), (24.82, "24.8"), (512.4, "512"), (999.6, "1.00k"), (50_234, "50.2k"),
     (1_203_000, "1.20M"), (float("nan"), "nan"), (float("-inf"), "-inf")],
)  # fmt: skip
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert f.significant(value) == text


@given(st.floats(0, 1e13))
def test_a_figure_never_outgrows_its_cell(value: float) -> None:
    assert len(f.significant(value)) <= 6


@given(st.floats(0, 3e7))
def test_short_durations_and_sizes_fit_their_column(value: float) -> None:
    assert len(format_short_duration(value)) <= 7
    assert len(f.short_size(value * 1e6)) <= 8


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.8404, "1.8404"), (0.0173, "0.0173"), (3.1e-05, "3.1e-05"), (24.5, "24.50"), (12_345.0, "12345")],
)
def test_metrics_keep_what_matters(value: float, text: str) -> None:
    assert f.metric(value) == text

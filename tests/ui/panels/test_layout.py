"""Every size has an arrangement, and nothing is hidden without a sign."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region

from tuner_tui.ui.panels.layout import PAGES, STRIP, arrange

sizes = st.tuples(st.integers(1, 400), st.integers(1, 200))


settings_rows = st.none() | st.integers(0, 60)


@given(sizes, st.sampled_from(PAGES), st.integers(0, 40), settings_rows)
def test_boxes_fill_the_place_without_overlap(
    size: tuple[int, int], page: str, rows: int, settings: int | None
) -> None:
    whole = Region(0, 0, *size)
    boxes = list(arrange(*size, page, rows, settings_rows=settings).boxes.values())
    assert all(box.area and whole.contains_region(box) for box in boxes)
    assert sum(box.area for box in boxes) == whole.area
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@given(sizes, st.sampled_from(PAGES), st.integers(0, 40), settings_rows)
def test_the_page_asked_for_is_shown_and_what_is_not_shown_is_named(
    size: tuple[int, int], page: str, rows: int, settings: int | None
) -> None:
    arrangement = arrange(*size, page, rows, settings_rows=settings)
    assert page in arrangement.boxes
    assert set(arrangement.hidden) <= set(arrangement.paged)
    assert not arrangement.hidden or STRIP in arrangement.boxes or size[1] == 1


def test_a_place_without_cells_has_no_boxes() -> None:
    assert not arrange(0, 10, "live", 0).boxes


@pytest.mark.parametrize("page", PAGES)
def test_trouble_is_seen_beside_every_page_of_80_by_24(page: str) -> None:
    assert "troubles" in arrange(80, 23, page, 4).boxes


def test_wide_shows_everything_about_a_run_and_needs_no_strip() -> None:
    arrangement = arrange(200, 59, "settings", 3, settings_rows=12)
    assert not arrangement.hidden
    assert STRIP not in arrangement.boxes


def test_before_a_run_wide_shows_the_hardware_in_place_of_empty_panels() -> None:
    arrangement = arrange(200, 59, "settings", 0)
    assert set(arrangement.boxes) == {"settings", "live", "troubles", "hardware", STRIP}
    assert arrange(200, 59, "plots", 0).active == "plots"


def test_the_form_is_whole_at_200_by_60_and_a_folded_one_as_high_as_its_rows() -> None:
    assert arrange(200, 59, "settings", 0).boxes["settings"].height >= 47
    assert arrange(200, 58, "settings", 3, settings_rows=12).boxes["settings"].height == 12 + 9

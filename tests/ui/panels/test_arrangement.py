"""Every size has an arrangement, and nothing is hidden without a sign."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region

from tuner_tui.ui.panels.arrangement import PAGES, STRIP, arrange, first_page

sizes = st.tuples(st.integers(1, 400), st.integers(1, 200))


@given(sizes, st.sampled_from(PAGES), st.integers(0, 40), st.booleans())
def test_boxes_fill_the_place_without_overlap(size: tuple[int, int], page: str, rows: int, has_run: bool) -> None:
    whole = Region(0, 0, *size)
    shown = arrange(*size, page, rows, has_run=has_run)
    in_border = bool(shown.active) and shown.boxes.get(STRIP, (0, 0))[:2] == (1, shown.boxes[shown.active].y)
    boxes = [Region(*box) for name, box in shown.boxes.items() if name != STRIP or not in_border]
    assert all(box.area and whole.contains_region(box) for box in boxes)
    assert sum(box.area for box in boxes) == whole.area
    assert not any(first_box.overlaps(second) for first_box, second in combinations(boxes, 2))


@given(sizes, st.sampled_from(PAGES), st.integers(0, 40), st.booleans())
def test_the_page_asked_for_is_shown_and_what_is_not_shown_is_named(
    size: tuple[int, int], page: str, rows: int, has_run: bool
) -> None:
    arrangement = arrange(*size, page, rows, has_run=has_run)
    assert page in arrangement.boxes
    hidden = set(PAGES) - set(arrangement.boxes)
    assert hidden <= set(arrangement.paged)
    assert not hidden or STRIP in arrangement.boxes or size[1] == 1


def test_a_place_without_cells_has_no_boxes() -> None:
    assert not arrange(0, 10, "live", 0).boxes


@pytest.mark.parametrize("page", PAGES)
def test_trouble_is_seen_beside_every_page_of_80_by_24(page: str) -> None:
    assert "troubles" in arrange(80, 23, page, 4).boxes


def test_wide_shows_everything_about_a_run_and_needs_no_strip() -> None:
    arrangement = arrange(200, 59, "settings", 3)
    assert set(PAGES) <= set(arrangement.boxes)
    assert STRIP not in arrangement.boxes


@pytest.mark.parametrize(("width", "height"), [(200, 59), (120, 38)])
def test_before_a_run_its_panels_are_shown_only_when_asked_for(width: int, height: int) -> None:
    before = arrange(width, height, "settings", 0, has_run=False)
    assert set(before.boxes) == {"settings", "live", "troubles", STRIP}
    assert before.boxes["live"].height > arrange(width, height, "settings", 0).boxes["live"].height
    assert "plots" in arrange(width, height, "plots", 0, has_run=False).boxes


def test_a_screen_of_one_panel_begins_with_what_is_trained_and_the_keys() -> None:
    assert [first_page(*size) for size in ((80, 22), (120, 28), (120, 38), (200, 58))] == ["live"] * 2 + [
        "settings"
    ] * 2


def test_the_form_is_whole_at_200_by_60() -> None:
    assert arrange(200, 59, "settings", 3).boxes["settings"].height == 59

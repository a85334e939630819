"""Lines of cells: exact widths, coalesced runs, the smallest span that changed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tuner_tui.ui.drawing.cells import (
    STYLES,
    Line,
    Run,
    cells_of,
    changed_span,
    crop,
    cut,
    fit,
    left,
    line,
    right,
    shorten,
    text_of,
    text_width,
    width_of,
)

TEXTS = st.text(st.one_of(st.characters(min_codepoint=32, max_codepoint=126), st.sampled_from("━█▇─│–…·°×✓⠿日本語é😀")))
LINES = st.lists(st.builds(Run, TEXTS, st.sampled_from(STYLES)), max_size=6).map(lambda runs: line(*runs))
WIDTHS = st.integers(0, 60)


@given(LINES, WIDTHS)
def test_a_fitted_line_has_exactly_its_width(content: Line, width: int) -> None:
    assert width_of(fit(content, width)) == width


@given(LINES, WIDTHS, WIDTHS)
def test_a_cropped_line_has_exactly_the_cells_asked_for(content: Line, start: int, length: int) -> None:
    whole = width_of(content)
    assert width_of(crop(content, start, start + length)) == max(0, min(whole, start + length) - min(whole, start))


@given(TEXTS, WIDTHS)
def test_text_is_set_to_exact_widths(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) == width
    assert cell_len(left(text, width)) == width
    assert cell_len(right(text, width)) == width
    assert cell_len(shorten(text, width)) <= width


@given(TEXTS)
def test_width_agrees_with_rich(text: str) -> None:
    assert text_width(text) == cell_len(text)


@given(LINES)
def test_neighbours_of_one_style_become_one_run(content: Line) -> None:
    styles = [run.style for run in content]
    assert all(run.text for run in content)
    assert all(a != b for a, b in pairwise(styles))


@given(LINES)
def test_there_is_a_cell_for_each_column(content: Line) -> None:
    assert len(cells_of(content)) == width_of(content)


def test_equal_styles_make_one_run_for_one_escape_sequence() -> None:
    assert line("a", "b", Run("c"), Run("d", "dim"), Run("e", "dim")) == (Run("abc"), Run("de", "dim"))


@given(LINES, LINES, st.integers(1, 40))
def test_the_changed_span_holds_every_difference_and_no_more(before: Line, after: Line, width: int) -> None:
    old, new = cells_of(fit(before, width)), cells_of(fit(after, width))
    span = changed_span(old, new, 0, width)
    differing = [at for at in range(width) if old[at] != new[at]]
    assert span == ((differing[0], differing[-1] + 1) if differing else None)


def test_a_span_keeps_to_the_cells_asked_about() -> None:
    old, new = cells_of(line("0123456789")), cells_of(line("X1234X678X"))
    assert changed_span(old, new, 1, 9) == (5, 6)
    assert changed_span(old, new, 6, 9) is None


def test_a_wide_character_cut_in_two_leaves_a_blank() -> None:
    assert text_of(crop(line("a日b"), 2, 4)) == " b"
    assert cut("日本", 3) == "日 "

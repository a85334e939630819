"""Lines of cells: exact widths, coalesced runs, the smallest span that changed."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tuner_tui.view.cells import (
    Line,
    Style,
    TextSpan,
    align_left,
    align_right,
    crop,
    cut_text,
    fit,
    line,
    line_width,
    plain_text,
    shorten,
    shorten_command,
    shorten_phrases,
    shorten_start,
    text_width,
)

TEXTS = st.text(st.one_of(st.characters(min_codepoint=32, max_codepoint=126), st.sampled_from("━█▇─│–…·°×✓⠿日本語é😀")))
LINES = st.lists(st.builds(TextSpan, TEXTS, st.sampled_from(get_args(Style))), max_size=6).map(lambda runs: line(*runs))
WIDTHS = st.integers(0, 60)


@given(LINES, WIDTHS)
def test_a_fitted_line_has_exactly_its_width(content: Line, width: int) -> None:
    assert line_width(fit(content, width)) == width


@given(LINES, WIDTHS, WIDTHS)
def test_a_cropped_line_has_exactly_the_cells_asked_for(content: Line, start: int, length: int) -> None:
    whole = line_width(content)
    assert line_width(crop(content, start, start + length)) == max(0, min(whole, start + length) - min(whole, start))


@given(TEXTS, WIDTHS)
def test_text_is_set_to_exact_widths(text: str, width: int) -> None:
    assert cell_len(cut_text(text, width)) == width
    assert cell_len(align_left(text, width)) == width
    assert cell_len(align_right(text, width)) == width
    assert cell_len(shorten(text, width)) <= width
    assert cell_len(shorten_start(text, width)) <= width


def test_without_any_room_nothing_is_shown() -> None:
    assert (shorten("peak memory", -1), shorten_start("peak memory", -1)) == ("", "")
    assert fit((), -1) == fit(line("peak memory"), -1) == ()


@given(TEXTS | st.sampled_from(["⚠\ufe0f careful", "👩\u200d🚀 launched", "🤗 Trainer", "e\u0301t\u0301"]))
def test_width_agrees_with_rich(text: str) -> None:
    assert text_width(text) == cell_len(text)


@given(LINES)
def test_neighbours_of_one_style_become_one_run(content: Line) -> None:
    styles = [run.style for run in content]
    assert all(run.text for run in content)
    assert all(a != b for a, b in pairwise(styles))


def test_equal_styles_make_one_run_for_one_escape_sequence() -> None:
    assert line("a", "b", TextSpan("c"), TextSpan("d", "dim"), TextSpan("e", "dim")) == (
        TextSpan("abc"),
        TextSpan("de", "dim"),
    )


def test_a_text_is_not_cut_within_a_quotation_or_brackets() -> None:
    text = 'torch sees no GPU, `python -c "import torch; print(1)"` prints None, as 2.13 (CPU, no CUDA) does'
    assert shorten_phrases(text, 90) == 'torch sees no GPU, `python -c "import torch; print(1)"` prints None, as 2.13'
    assert shorten_phrases(text, 50) == "torch sees no GPU"


def test_a_label_alone_is_not_what_is_left_of_a_text() -> None:
    text = "r005: own code after the step takes 71 % of the time in save_state, line 12 of fine.py"
    assert shorten_phrases(text, 40) == "r005: own code after the step takes 71 …"
    assert shorten_phrases(text, 75) == "r005: own code after the step takes 71 % of the time in save_state"
    assert [shorten_phrases(text, width) for width in (0, -5)] == ["", ""]


def test_a_wide_character_cut_in_two_leaves_a_blank() -> None:
    assert plain_text(crop(line("a日b"), 2, 4)) == " b"
    assert cut_text("日本", 3) == "日 "


def test_a_command_keeps_its_script_and_the_end_of_its_options() -> None:
    command = "python fine.py --output_dir out/A --max_steps 300 --report_to none"
    assert shorten_command(command, 40) == "python fine.py …eps 300 --report_to none"
    assert shorten_command(command, 20) == "python fine.py …"
    assert shorten_command(command, 80) == command

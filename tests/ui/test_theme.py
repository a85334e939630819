"""ASCII means ASCII, cell for cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.theme import Theme

from tests.fakes.ui_backend import FakeBox
from tests.ui.pilots import on_screen, press_to, screen_text
from tuner_tui.ui.screens.dialogs import InspectionScreen
from tuner_tui.ui.terminal.base_app import SharedStylesheet
from tuner_tui.ui.terminal.base_widgets import VARIABLES
from tuner_tui.ui.terminal.cell_writer import Ascii, to_ascii
from tuner_tui.ui.theme import DARK, LIGHT, SIXTEEN, THEMES
from tuner_tui.view.charts import BarPart, stacked_bar


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Mn", "Me", "Cf"))))
def test_ascii_has_the_same_width(text: str) -> None:
    plain = to_ascii(text)
    assert plain.isascii()
    assert cell_len(plain) == cell_len(text)


@pytest.mark.parametrize(
    ("fancy", "plain"),
    [
        ("╭─ 8 → 4 ─╮", "+- 8-> 4 -+"),
        ("│ ✓ No problems.  │", "| ok No problems. |"),
        ("workers 8 → 4   +22 %", "workers 8 -> 4  +22 %"),
        ("▁▄█", "_=#"),
        ("● ✓ × 68 °C", "* + x 68 C "),
        ("reading …", "reading.."),
        ("big.…", "bi..."),
        ("⣿⠒⠁", "#*."),
        ("日", "??"),
        ("61 ± 2", "61 +-2"),
        ("+22 … +31 %", "+22...+31 %"),
    ],
)  # fmt: skip
def test_likenesses(fancy: str, plain: str) -> None:
    assert to_ascii(fancy) == plain


def test_the_filter_leaves_styles_and_control_codes_alone() -> None:
    segments = [Segment("│", None), Segment("a")]
    assert [segment.text for segment in Ascii().apply(segments, Color(0, 0, 0))] == ["|", "a"]


def test_every_theme_has_the_colours_that_mean_a_state() -> None:
    for theme in THEMES:
        assert None not in (theme.primary, theme.success, theme.warning, theme.error)
        assert {"frame", "quiet", "cursor"} <= set(theme.variables)


@pytest.mark.parametrize("theme", [DARK, SIXTEEN, LIGHT])
def test_text_has_a_contrast_of_at_least_four_and_a_half(theme: Theme) -> None:
    # Fills of bars are these colours reversed, which have the same contrast.
    colours = {**theme.to_color_system().generate(), **theme.variables}
    for variable in ("foreground", *VARIABLES.values()):
        assert contrast(colours[variable], colours["background"]) >= 4.5, variable
        if variable in ("foreground", "primary", "quiet"):
            assert contrast(colours[variable], colours["panel"]) >= 4.5, f"{variable} on a panel"


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of WCAG 2.1, 1.4.3."""
    darker, lighter = sorted(luminance(Color.parse(colour)) for colour in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: Color) -> float:
    parts = (part / 255 for part in colour.rgb)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_without_colours_the_page_behind_a_dialog_stays_in_sight() -> None:
    async with on_screen(FakeBox(), colour=False) as pilot:
        await press_to(pilot, "Job", "e")
        assert "1 Settings" in screen_text(pilot.app)


@pytest.mark.parametrize("colour", [False, True])
async def test_without_colours_signs_tell_the_parts_of_a_bar_from_one_another(colour: bool) -> None:
    parts = [
        BarPart("data", 0.45, "fill-third"),
        BarPart("compute", 0.5, "fill-curve"),
        BarPart("x", 0.05, "fill-good"),
    ]
    async with on_screen(FakeBox(), colour=colour) as pilot:
        bar, legend = stacked_bar(parts, 40)
        await pilot.app.push_screen(InspectionScreen("Bars", lambda _: [bar, *legend]))
        await pilot.pause()
        shown = screen_text(pilot.app)
    assert ("▏data 45 % :::::::▏compute 50 %       ▏" in shown) != colour
    assert ("# x 5 %" in shown) != colour, "and in the legend"


def test_rules_are_parsed_once_for_the_same_colours() -> None:
    first, same, other = (SharedStylesheet(variables={"ink": ink}) for ink in ("#010203", "#010203", "#030201"))
    for sheet in (first, same, other):
        sheet.add_source("Label { color: $ink; }", read_from=("here", ""))
    assert first.rules[0] is same.rules[0]
    assert [sheet.rules[0].styles.color.hex for sheet in (first, other)] == ["#010203", "#030201"]

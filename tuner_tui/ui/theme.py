"""Themes: dark, light, one for terminals with sixteen colours and one for those without.

Colour means state: primary marks the focus, changed values and curves, secondary a second curve such as the evaluation,
success what runs well, warning what needs attention, error what is wrong. Everything else is foreground, plain or dim.
The third and fourth colour are only for parts of a bar, such as the wait for data and the optimizer.
"""

from __future__ import annotations

from typing import Any

from textual.theme import Theme

from tuner_tui.ui.palette import DARK_COLOURS, DARK_VARIABLES, NAMES

DARK = Theme(name="tuner-dark", **DARK_COLOURS, dark=True, variables=DARK_VARIABLES)
SIXTEEN_COLOURS: dict[str, Any] = {
    "primary": "#55ffff", "secondary": "#ff55ff", "accent": "#55ffff", "success": "#55ff55", "warning": "#ffff55",
    "error": "#ff5555", "foreground": "#ffffff", "background": "#000000", "surface": "#000000", "panel": "#000000",
}  # fmt: skip
SIXTEEN_VARIABLES = dict(zip(NAMES, ("#555555", "#aaaaaa", "#00aaaa", "#0000aa", "#00aa00", "#ffffff"), strict=True))
SIXTEEN = Theme(name="tuner-16", **SIXTEEN_COLOURS, variables=SIXTEEN_VARIABLES)
"""Dark, of the sixteen colours that every terminal has: the nearest of them to the soft ones of `DARK` are grey."""
LIGHT_COLOURS: dict[str, Any] = {
    "primary": "#0a5cc2", "secondary": "#7440c8", "accent": "#0a5cc2", "success": "#1a7f37", "warning": "#8a5a00",
    "error": "#c4232f", "foreground": "#1f2328", "background": "#fcfcfa", "surface": "#fcfcfa", "panel": "#eceef0",
}  # fmt: skip
LIGHT_VARIABLES = dict(zip(NAMES, ("#b4bcc5", "#59636e", "#4a719c", "#d9e8fb", "#00796b", "#b0307a"), strict=True))
LIGHT = Theme(name="tuner-light", **LIGHT_COLOURS, dark=False, variables=LIGHT_VARIABLES)
PLAIN_VARIABLES = (
    *LIGHT_VARIABLES, "ansi-background", "ansi-foreground", "border", "border-blurred", "block-cursor-foreground",
    "block-cursor-background", "input-cursor-background", "input-cursor-foreground", "input-selection-background",
    "input-selection-foreground", "screen-selection-background", "screen-selection-foreground",
)  # fmt: skip
PLAIN_COLOURS: dict[str, Any] = dict.fromkeys([*LIGHT_COLOURS, "boost"], "ansi_default")
PLAIN = Theme(
    name="tuner-plain",
    **PLAIN_COLOURS,
    ansi=True,
    variables={
        **dict.fromkeys(PLAIN_VARIABLES, "ansi_default"),
        **dict.fromkeys(("block-cursor-text-style", "input-cursor-text-style"), "reverse"),
    },
)
THEMES = (DARK, SIXTEEN, LIGHT, PLAIN)

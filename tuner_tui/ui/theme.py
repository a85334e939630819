"""Themes: dark, light, and one for terminals without colour.

Colour means state: primary marks the focus, changed values and curves, secondary a second curve such as the evaluation,
success what runs well, warning what needs attention, error what is wrong. Everything else is foreground, plain or dim.
"""

from __future__ import annotations

from textual.theme import Theme

from tuner_tui.ui.palette import DARK_COLOURS, DARK_VARIABLES

DARK = Theme(name="tuner-dark", **DARK_COLOURS, dark=True, variables=DARK_VARIABLES)
LIGHT = Theme(
    name="tuner-light",
    primary="#0a5cc2",
    secondary="#7440c8",
    accent="#0a5cc2",
    success="#1a7f37",
    warning="#8a5a00",
    error="#c4232f",
    foreground="#1f2328",
    background="#fcfcfa",
    surface="#fcfcfa",
    panel="#eceef0",
    dark=False,
    variables={"frame": "#b4bcc5", "quiet": "#59636e", "gauge": "#4a719c", "cursor": "#d9e8fb"},
)
PLAIN = Theme(
    name="tuner-plain",
    ansi=True,
    primary="ansi_default",
    secondary="ansi_default",
    accent="ansi_default",
    success="ansi_default",
    warning="ansi_default",
    error="ansi_default",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        **dict.fromkeys(
            (
                "frame", "gauge", "quiet", "cursor", "ansi-background", "ansi-foreground", "border", "border-blurred",
                "block-cursor-foreground", "block-cursor-background", "input-cursor-background",
                "input-cursor-foreground", "input-selection-background", "input-selection-foreground",
                "screen-selection-background", "screen-selection-foreground",
            ),
            "ansi_default",
        ),
        "block-cursor-text-style": "reverse",
        "input-cursor-text-style": "reverse",
    },
)  # fmt: skip
THEMES = (DARK, LIGHT, PLAIN)

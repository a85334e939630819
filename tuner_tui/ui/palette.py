"""Colours of the dark theme, and whether the terminal has any. Imports no Textual, as the first frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DARK_COLOURS: dict[str, Any] = {
    "primary": "#6cb6ff", "secondary": "#b99cf5", "accent": "#6cb6ff", "success": "#7ccf8a", "warning": "#e6b450",
    "error": "#ff7b72", "foreground": "#d3d9e0", "background": "#0f1317", "surface": "#0f1317", "panel": "#1d242c",
}  # fmt: skip
NAMES = ("frame", "quiet", "gauge", "cursor", "third", "fourth")
DARK_VARIABLES = dict(zip(NAMES, ("#39424d", "#8b96a3", "#5f89b8", "#1f3044", "#3aae9a", "#f0a0cb"), strict=True))
COLOURLESS = ("dumb", "vt100", "vt102", "vt220", "linux-m", "xterm-mono")


def theme_for(theme: str, environ: Mapping[str, str]) -> str:
    """Return the `theme` wanted, but `sixteen` for the dark one where Rich would take no more colours than that."""
    return theme if has_many_colours(environ) or theme != "dark" else "sixteen"


def has_true_colour(environ: Mapping[str, str]) -> bool:
    """Return whether Rich would write 24-bit colours."""
    return environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit")


def has_many_colours(environ: Mapping[str, str]) -> bool:
    """Return whether Rich would write more than sixteen colours."""
    return has_true_colour(environ) or environ.get("TERM", "").endswith(("256color", "kitty"))


def wants_colour(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal supports colours and NO_COLOR is not set (https://no-color.org)."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in COLOURLESS


def wants_ascii(environ: Mapping[str, str]) -> bool:
    """Return whether the locale that is set has no UTF-8; without one, as in most containers, terminals have it.

    `environ` is what the program was started with: Python sets another locale in place of C.
    """
    locale = next(filter(None, map(environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "UTF-8")
    return "utf" not in locale.lower()

"""Text shared by all commands: sections, tables, labelled and wrapped lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner_tui.core.text import wrap_text

WIDTH = 100
"""Columns of a report."""


def join_sections(sections: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of all sections that have any, with a blank line between two sections."""
    return "\n\n".join("\n".join(section) for section in sections if section).split("\n")


def titled_section(title: str, lines: Sequence[str]) -> list[str]:
    """Return `lines` below their title; nothing without lines."""
    return [title, *lines] if lines else []


def hanging_lines(first: str, text: str, width: int = WIDTH) -> list[str]:
    """Wrap `text` behind `first`; the following lines are indented by the length of `first`."""
    return wrap_text(text, width, initial_indent=first, subsequent_indent=" " * len(first))

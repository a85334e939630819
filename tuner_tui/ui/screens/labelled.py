"""Labels and what is said of each, in two columns: a long text wraps beside its label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.table import Table


def labelled(lines: Iterable[tuple[str, str | None]], width: int | None = None, quiet: bool = True) -> Table:
    """A row for each label that has something to say; labels take `width` cells, or what they need."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=width)
    table.add_column(overflow="fold")
    for label, said in lines:
        if said:
            table.add_row(Text(label, "dim" if quiet else ""), Text(said))
    return table


def announced(lines: Iterable[tuple[str, str]]) -> Table:
    """What is about to start: the command stands out, and what it will not get is told as such."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    left_out = False
    for label, said in lines:
        left_out = label == "Not applied" or (left_out and not label)
        style = "bold" if label in ("Command", "Not applied") else "dim" if left_out else ""
        table.add_row(Text(label, "bold" if label == "Not applied" else "dim"), Text(said, style))
    return table

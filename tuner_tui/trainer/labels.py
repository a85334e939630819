"""Labels of any sort as class numbers from 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets

from .errors import JobError

MOST_CLASSES = 10_000


def class_names(tables: Sequence[Any], column: str) -> list[str]:
    """The names of the classes in `column` of all `tables`, in the order of their numbers.

    A Hub dataset's own names are kept; numbers are in numeric order, strings in alphabetical. `JobError` for fractions,
    and where there is one class only.
    """
    own = getattr(tables[0].features[column], "names", None)
    if own:
        return list(own)
    if not isinstance(tables[0].features[column], datasets.Value):
        raise JobError(f"column `{column}` holds lists or records; classification needs one class a row")
    distinct = {value for table in tables for value in table[column]}
    if any(isinstance(value, float) and not value.is_integer() for value in distinct):
        raise JobError(f"column `{column}` holds fractions; classification needs classes")
    if not 1 < len(distinct) <= MOST_CLASSES:
        sort = (
            f"one class only ({next(iter(distinct))})" if len(distinct) == 1 else f"{len(distinct):,} different values"
        )
        raise JobError(f"column `{column}` holds {sort}; classification needs 2 to {MOST_CLASSES:,} classes")
    return [class_name(value) for value in sorted(distinct, key=lambda value: (isinstance(value, str), value))]


def class_name(value: Any) -> str:
    """The name of a class: 3 and 3.0 are both `3`."""
    return str(int(value)) if isinstance(value, float) else str(value)


def class_numbers(table: Any, column: str, names: Sequence[str]) -> list[int]:
    """The class number of each row of `table`."""
    if getattr(table.features[column], "names", None):
        return list(table[column])
    number = {name: index for index, name in enumerate(names)}
    return [number[class_name(value)] for value in table[column]]

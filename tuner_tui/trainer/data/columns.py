"""Finds the columns with the text, the second text and the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import JobError

TEXT_NAMES = (
    "text",
    "sentence",
    "sentence1",
    "premise",
    "question",
    "question1",
    "content",
    "review",
    "document",
    "body",
)
PAIR_NAMES = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("text", "text_pair"),
)
LABEL_NAMES = ("label", "labels", "target", "class", "category", "sentiment", "gold_label", "y")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns in use; `pair` and `label` are None if there is none."""

    text: str
    pair: str | None = None
    label: str | None = None

    def used(self) -> list[str]:
        """The names that are not None."""
        return [name for name in (self.text, self.pair, self.label) if name is not None]


def find_columns(
    present: Sequence[str],
    task: str,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
) -> Columns:
    """The columns to use of those `present`: the ones named, else the ones with a usual name, in any case.

    Raises `JobError` if one is missing.
    """
    for name in (text, pair, label):
        if name is not None and name not in present:
            raise missing_column(f"column `{name}`", present)
    lower = {name.lower(): name for name in reversed(present)}
    usual_text, usual_pair = find_text_columns(lower)
    found_text, found_label = text or usual_text, label or first_present(LABEL_NAMES, lower)
    if found_text is None:
        raise missing_column("text column (set `text_column`)", present)
    if task == "causal-lm":
        return Columns(found_text)
    if found_label is None:
        raise missing_column("label column (set `label_column`)", present)
    return Columns(found_text, pair or (None if text else usual_pair), found_label)


def find_text_columns(lower: dict[str, str]) -> tuple[str | None, str | None]:
    """The columns of a usual pair of texts if both exist, else of a usual single text."""
    for text, pair in PAIR_NAMES:
        if text in lower and pair in lower:
            return lower[text], lower[pair]
    return first_present(TEXT_NAMES, lower), None


def first_present(names: Sequence[str], lower: dict[str, str]) -> str | None:
    """The column, in its own spelling, of the first of `names` that exists."""
    return next((lower[name] for name in names if name in lower), None)


def missing_column(what: str, present: Sequence[str]) -> JobError:
    """The error for a column that does not exist."""
    return JobError(f"the data has no {what}; it has {', '.join(present)}")

"""Two runs looked at side by side: what the compare screen shows, and how it is read again while one of them lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.runs.read.comparison import Comparison
    from tuner_tui.runs.read.reader import RunView

Curve = tuple[tuple[float, float], ...]
"""Losses over samples seen."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs at one look: their names, how each stands in a sentence, what differs, the loss of each."""

    names: tuple[str, str]
    said: tuple[str, str]
    found: Comparison
    curves: tuple[Curve, Curve]
    live: bool = False


class Comparing(Protocol):
    """Reads two runs."""

    def look(self) -> Compared:
        """Both as they are now. Touches files: not for an event loop."""


class ComparingRuns:
    """Follows the runs in two folders, the older one first: a ratio then says what came of the later one."""

    def __init__(self, first: Path, second: Path) -> None:
        from tuner_tui.runs.read.reader import RunReader
        from tuner_tui.runs.store.folder import RunFolder

        self._readers = [RunReader(RunFolder(folder)) for folder in (first, second)]

    def look(self) -> Compared:
        """Both as they are now. Raises `OSError`."""
        pairs = [(reader.folder.id, reader.poll()) for reader in self._readers]
        (name, one), (other_name, other) = sorted(pairs, key=lambda pair: _begun(pair[1]))
        return compared((name, other_name), one, other)


def compared(names: tuple[str, str], one: RunView, other: RunView) -> Compared:
    """What differs between two views."""
    from tuner_tui.runs.read.comparison import compare, over_samples

    return Compared(
        names,
        (_said(one), _said(other)),
        compare(one, other),
        (tuple(over_samples(one, one.history.loss)), tuple(over_samples(other, other.history.loss))),
        one.status.live or other.status.live,
    )


def _said(view: RunView) -> str:
    """How a run stands, in a sentence short enough for a line."""
    from tuner_tui.ui.drawing.ending import ending_sentence

    limit_bytes = None if view.record is None else view.record.memory_limit_bytes
    return ending_sentence(view.state, limit_bytes) or view.status.sentence


def _begun(view: RunView) -> float:
    return view.record.created_t if view.record is not None else view.state.launched_t or 0.0

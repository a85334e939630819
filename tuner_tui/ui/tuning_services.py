"""What the tune screen needs from the rest of the program. Every call may touch files: never on the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.ui.services import Opened


@dataclass(frozen=True, slots=True)
class TuningLine:
    """One tuning in the list of tunings."""

    id: str
    folder: Path
    status: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class TuningLook:
    """A tuning at one moment, in seconds since the epoch; the moment is None once nothing moves any more."""

    view: TuningView
    now_s: float | None


class FollowedTuning(Protocol):
    """Reads one tuning's folder."""

    def look(self) -> TuningLook:
        """The tuning as it is now. Raises `OSError`."""


class WatchedTunings(Protocol):
    """Looks whether a tuning is under way on this box, started here or elsewhere."""

    def look(self) -> TuningView | None:
        """The one that is under way; where none is any more, how the last one ended; None before the first."""


class TuningServices(Protocol):
    """The calls; those that can fail raise `ServiceError`."""

    def plan(self, opened: Opened) -> Sequence[tuple[str, str]]:
        """What a tuning of `opened` would do: label and text."""

    def start(self, opened: Opened, minutes: float) -> Path:
        """Begin one that may take so long; it goes on without the screen. Gives its folder."""

    def all(self) -> Sequence[TuningLine]:
        """The tunings there are, newest first."""

    def under_way(self) -> WatchedTunings:
        """Look for one again and again."""

    def follow(self, folder: Path) -> FollowedTuning:
        """Read one again and again."""

    def tunes(self, folder: Path, opened: Opened) -> bool:
        """Whether it tunes the job that is `opened`."""

    def abort(self, folder: Path) -> None:
        """End it after the trial under way was ended; every figure is kept."""

    def resume(self, folder: Path, opened: Opened | None, minutes: float) -> None:
        """Go on with one that was ended early for so long; by the job of `opened` where it is the same."""

"""What the tune screen needs from the rest of the program. Every call may touch files: never on the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuner_tui.tuning.view import TuningView
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


class TuningServices(Protocol):
    """The calls; those that can fail raise `ServiceError`."""

    def plan(self, opened: Opened) -> Sequence[tuple[str, str]]:
        """What a tuning of `opened` would do and how long it may take: label and text."""

    def start(self, opened: Opened) -> Path:
        """Begin one; it goes on without the screen. Gives its folder."""

    def all(self) -> Sequence[TuningLine]:
        """The tunings there are, newest first."""

    def follow(self, folder: Path) -> FollowedTuning:
        """Read one again and again."""

    def tunes(self, folder: Path, opened: Opened) -> bool:
        """Whether it tunes the job that is `opened`."""

    def abort(self, folder: Path) -> None:
        """End it after the trial under way was ended; every figure is kept."""

    def resume(self, folder: Path, opened: Opened | None) -> None:
        """Go on with one that was ended early, from where it stood; by the job of `opened` where it is the same."""

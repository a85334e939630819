"""All messages: requests (`…Wanted`, `SettingEdited`) go up to the app, news (`…Arrived`) come from the feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.advice.finding import Finding, Remedy
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.hosts.watcher import HostView
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.machine_monitor import MachineView
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.tuning.process.trial_log import TuningView
    from tuner_tui.ui.backend.records import ComparedRuns, MemoryOutlook, TuningSnapshot


# Without `eq` and `repr`, which nothing uses: generating them would double the time that the classes below cost before
# the first frame. The values of panels and drawings are NamedTuples for the same reason: a frozen dataclass with slots
# takes eight times as long to define (1.2 ms against 0.15 ms on a loaded core), and there are forty of them.


class Newest(Message):
    """A message that replaces an older one of its type still waiting in the queue."""

    # Textual asks this of neighbours in the queue. A screen that was suspended or is busy so handles one sample, not
    # all those that arrived meanwhile.
    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


@dataclass(eq=False, repr=False)
class SampleArrived(Newest):
    """A new sample of the hardware."""

    sample: Sample


@dataclass(eq=False, repr=False)
class MachineViewArrived(Newest):
    """The machine and the jobs on it, or several hosts, read again."""

    view: MachineView | tuple[HostView, ...]


@dataclass(eq=False, repr=False)
class RunViewArrived(Newest):
    """The followed run has changed."""

    view: RunView


@dataclass(eq=False, repr=False)
class FindingsArrived(Newest):
    """The findings of the followed run; empty if there are none."""

    findings: tuple[Finding, ...]


@dataclass(eq=False, repr=False)
class LogWindowArrived(Newest):
    """Lines of the followed run's log; `window` is None if there is no log."""

    window: LogWindow | None


@dataclass(eq=False, repr=False)
class EstimateArrived(Newest):
    """The expected memory of the settings shown."""

    outlook: MemoryOutlook


@dataclass(eq=False, repr=False)
class ComparisonArrived(Newest):
    """Two runs were read and compared."""

    compared: ComparedRuns


@dataclass(eq=False, repr=False)
class TuningArrived(Newest):
    """The tuning in `folder` was read."""

    folder: Path
    snapshot: TuningSnapshot


@dataclass(eq=False, repr=False)
class TuningStatusArrived(Newest):
    """The tuning that runs on this machine, else the one that ended last; None if there was none."""

    view: TuningView | None


@dataclass(eq=False, repr=False)
@dataclass(eq=False, repr=False)
class NoticeArrived(Message):
    """Something failed (`is_error`) or gave no result; `sentence` says what, and what to do."""

    sentence: str
    is_error: bool = True


@dataclass(eq=False, repr=False)
class SettingEdited(Message):
    """The user gave the field `name` a new value, as typed; the app parses and checks it."""

    name: str
    text: str


@dataclass(eq=False, repr=False)
class ChoiceWanted(Message):
    """Show the choices of the field `name` as a list."""

    name: str


@dataclass(eq=False, repr=False)
class ValueTyped(Newest):
    """A value is being typed for the field `name`; `text` is None while it is not valid, and at the end."""

    name: str
    text: str | None


@dataclass(eq=False, repr=False)
class ActionWanted(Message):
    """Do what the key of `keys.MAIN_KEYS` with the action `want('what')` says."""

    what: str


@dataclass(eq=False, repr=False)
class RemedyWanted(Message):
    """Apply `remedy`, which answers `finding`, to the settings."""

    finding: Finding
    remedy: Remedy


class DiffWanted(RemedyWanted):
    """Show what `remedy` would change."""


@dataclass(eq=False, repr=False)
class LogWindowWanted(Newest):
    """Show `count` lines of the log from byte `anchor` on, or with `before` those that end there.

    With the anchor None the last lines are shown, also as the file grows.
    """

    anchor: int | None
    count: int
    before: bool = False


@dataclass(eq=False, repr=False)
class LogSearchWanted(Newest):
    """Find `text` in the log from byte `start` on or, `backwards`, before it."""

    text: str
    backwards: bool
    start: int


@dataclass(eq=False, repr=False)
class TuningWanted(Message):
    """`start` a tuning, `abort` or `resume` the one shown, `pick` another one, `apply` its winner."""

    what: str


class ThemeWanted(Message):
    """Switch between dark and light."""


class QuitWanted(Message):
    """Leave the screen; a training goes on."""

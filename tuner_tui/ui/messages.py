"""Every message of the screen. Intent goes up (`…Wanted`, `SettingEdited`), news comes in (`…Arrived`).

News says how things are now, so a newer one replaces an older one that still waits in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.advice.finding import Finding, Remedy, Value
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.box_monitor import BoxView
    from tuner_tui.runs.read.log_reader import LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.ui.backend.estimates import MemoryOutlook
    from tuner_tui.ui.backend.interface import TuningSnapshot
    from tuner_tui.ui.backend.runs import ComparedRuns


class Newest(Message):
    """News of which only the newest matters."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


class SampleArrived(Newest):
    """A new sample of the hardware."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.sample = sample


class BoxViewArrived(Newest):
    """The box and the jobs on it, looked at anew."""

    def __init__(self, view: BoxView) -> None:
        super().__init__()
        self.view = view


class RunViewArrived(Newest):
    """The followed run's folder was read again and something in it moved."""

    def __init__(self, view: RunView) -> None:
        super().__init__()
        self.view = view


class FindingsArrived(Newest):
    """What is wrong or improvable now; empty where nothing is."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__()
        self.findings = findings


class LogWindowArrived(Newest):
    """Lines of the followed run's log; `window` is None where there is no log."""

    def __init__(self, window: LogWindow | None) -> None:
        super().__init__()
        self.window = window


class EstimateArrived(Newest):
    """The memory that the settings shown would take."""

    def __init__(self, outlook: MemoryOutlook) -> None:
        super().__init__()
        self.outlook = outlook


class ComparedArrived(Newest):
    """Two runs were looked at side by side."""

    def __init__(self, compared: ComparedRuns) -> None:
        super().__init__()
        self.compared = compared


class TuningArrived(Newest):
    """The tuning in `folder` was looked at."""

    def __init__(self, folder: Path, look: TuningSnapshot) -> None:
        super().__init__()
        self.folder = folder
        self.look = look


class TuningSeen(Newest):
    """A tuning is under way on this box, or the last one has ended; None where none was."""

    def __init__(self, view: TuningView | None) -> None:
        super().__init__()
        self.view = view


class TroubleArrived(Message):
    """Something the user asked for did not work; `sentence` says what and what to do. `grave`: it is an error."""

    def __init__(self, sentence: str, grave: bool = True) -> None:
        super().__init__()
        self.sentence = sentence
        self.grave = grave


class SettingEdited(Message):
    """The user gave the field `name` a new value, as typed; the value is read and checked by the app."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self.name = name
        self.text = text


class ValueTyped(Newest):
    """A value is being typed for the field `name`; `text` is None where it means nothing, and once it is over."""

    def __init__(self, name: str, text: str | None) -> None:
        super().__init__()
        self.name = name
        self.text = text


class UndoWanted(Message):
    """Take back the last change of settings."""


class RedoWanted(Message):
    """Make the last change taken back again."""


class TrainWanted(Message):
    """Start a training with the settings shown."""


class JobWanted(Message):
    """Edit what trains."""


class RestartWanted(Message):
    """Have the followed run save, end, and go on as a new run with the settings shown."""


class StopWanted(Message):
    """Stop the followed run; `how` is a rung of the ladder: stop, terminate, kill."""

    def __init__(self, how: str = "stop") -> None:
        super().__init__()
        self.how = how


class CheckpointWanted(Message):
    """Save a checkpoint of the followed run now."""


class RemedyWanted(Message):
    """Put `remedy`'s change into the settings, as the answer to `finding`."""

    def __init__(self, finding: Finding, remedy: Remedy) -> None:
        super().__init__()
        self.finding = finding
        self.remedy = remedy

    @property
    def change(self) -> Mapping[str, Value]:
        """Settings names to new values."""
        return self.remedy.change


class LogWindowWanted(Newest):
    """Show `count` lines of the log from byte `anchor` on, or, `before`, those that end there.

    None as the anchor is the end of the file, and follows it as it grows.
    """

    def __init__(self, anchor: int | None, count: int, before: bool = False) -> None:
        super().__init__()
        self.anchor = anchor
        self.count = count
        self.before = before


class LogSearchWanted(Newest):
    """Find `text` in the log from byte `start` on or, `backwards`, before it."""

    def __init__(self, text: str, backwards: bool, start: int) -> None:
        super().__init__()
        self.text = text
        self.backwards = backwards
        self.start = start


class PresetsWanted(Message):
    """Show the presets to load one."""


class SaveWanted(Message):
    """Save the settings under the name they have."""


class SaveAsWanted(Message):
    """Save the settings under a new name."""


class RunsWanted(Message):
    """Show the runs to follow one."""


class CompareWanted(Message):
    """Show two runs side by side."""


class TuneWanted(Message):
    """Show the newest tuning, or offer one."""


class TuningWanted(Message):
    """`start` a tuning, `abort` or `resume` the one shown, `pick` another one, `apply` its winner."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what


class ThemeWanted(Message):
    """Go from dark to light, or back."""


class QuitWanted(Message):
    """Leave the screen; a training goes on."""

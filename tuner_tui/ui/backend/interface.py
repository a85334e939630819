"""What the screen asks of the rest of the program: calls, their results, their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuner_tui.advice.finding import Finding
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.log_reader import LogMatch, LogWindow
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.runs.store.control import Order
    from tuner_tui.settings.distributed import AccelerateConfig
    from tuner_tui.settings.fields import FieldSpec
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Settings
    from tuner_tui.settings.origin import Resolved
    from tuner_tui.settings.presets.preset import Preset
    from tuner_tui.settings.rules.problem import Problem
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.ui.backend.estimates import QuickEstimate, RefinedEstimate
    from tuner_tui.ui.backend.runs import ComparisonReader


class BackendError(Exception):
    """What was asked for could not be done; the text is one sentence for the user."""


class NameTakenError(BackendError):
    """A preset of that name is there already."""


class HardwareSampler(Protocol):
    """Reads the hardware once a call."""

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        """The box now; below the pids `watched` processes are read too."""

    def close(self) -> None:
        """Let go of the driver."""


class RunFollower(Protocol):
    """Reads one run folder, from where it left off."""

    def poll(self) -> RunView:
        """The run as it is now."""


class Log(Protocol):
    """Windows on a log file of any size."""

    def tail(self, count: int) -> LogWindow:
        """The last `count` lines."""

    def window(self, anchor: int, count: int) -> LogWindow:
        """`count` lines from the one that holds byte `anchor` on."""

    def before(self, anchor: int, count: int) -> LogWindow:
        """`count` lines that end before byte `anchor`."""

    def search(self, text: str, start: int, *, backwards: bool = False) -> LogMatch:
        """The first line from byte `start` on, or backwards before it, that holds `text`."""


Diagnosis = Callable[["RunView", "Inventory | None"], "tuple[Finding, ...]"]
"""Finds what is wrong with one run; remembers what it found, so that findings do not flicker."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """A preset ready to train: resolved settings, the job, the name it is saved under.

    `as_it_ran`: the settings are those of a run, and nothing is recommended in their place. `base` is the preset as
    it was read, from which one saved keeps what it is for; `notes` are what a person should know of it;
    `memory_limit_bytes` is what the training may take at most.
    """

    resolved: Resolved
    job: Job
    preset: str | None
    as_it_ran: bool = False
    memory_limit_bytes: int | None = None
    base: Preset | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartOffer:
    """What restarting a run would do, in words, and the call that does it: it takes as long as the run takes to end."""

    question: str
    go: Callable[[], Path]


@dataclass(frozen=True, slots=True)
class RunListing:
    """One run in the list of runs; `trains` says what, in a few words."""

    id: str
    folder: Path
    status: str
    sentence: str = ""
    trains: str = ""


@dataclass(frozen=True, slots=True)
class PresetListing:
    """One preset in the list of presets; `problem` says why it cannot be loaded."""

    name: str
    about: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """The calls. Those that can fail raise `BackendError`.

    `accelerate` reads what files say of how accelerate starts a job. `python` is the one that trains it; `versions`
    asks it for its packages only, `interpreter` for everything, which takes longer.
    `recommended` fills in what nobody chose, `box_findings` says what is wrong before any run; like `problems` they
    only compute. `estimate` says at once what memory the settings would take, `refined_estimate` better and later, or
    None where it knows nothing better. `comparing` looks at two runs again and again. `adopt` gives a run whose
    supervisor died while its training lives a new one, and leaves any other run alone. `preview` says what `launch`
    would start, `restart` what a restart would do; neither does anything by itself.
    """

    fields: Callable[[], Sequence[FieldSpec]]
    problems: Callable[[Settings, Inventory | None, Interpreter | None, Job], tuple[Problem, ...]]
    recommended: Callable[[Resolved, Inventory, Interpreter, Job], Resolved]
    estimate: QuickEstimate
    refined_estimate: RefinedEstimate
    inventory: Callable[[], Inventory]
    accelerate: Callable[[Job], AccelerateConfig | None]
    python: Callable[[Job], Path]
    versions: Callable[[Path], Interpreter]
    interpreter: Callable[[Path], Interpreter]
    open_sampler: Callable[[], HardwareSampler]
    box_findings: Callable[[Inventory | None, Interpreter | None, Job | None], tuple[Finding, ...]]
    diagnosis: Callable[[Path], Diagnosis]
    presets: Callable[[], Sequence[PresetListing]]
    load_preset: Callable[[str], TrainingConfig]
    save_preset: Callable[[str, TrainingConfig, bool], None]
    preview: Callable[[TrainingConfig], Sequence[tuple[str, str]]]
    launch: Callable[[TrainingConfig], Path]
    restart: Callable[[Path, TrainingConfig | None], RestartOffer]
    runs: Callable[[], Sequence[RunListing]]
    comparing: Callable[[Path, Path], ComparisonReader]
    tuning: TuningBackend
    adopt: Callable[[Path], None]
    follow: Callable[[Path], RunFollower]
    open_log: Callable[[Path], Log]
    order: Callable[[Path, Order], None]


@dataclass(frozen=True, slots=True)
class TuningListing:
    """One tuning in the list of tunings."""

    id: str
    folder: Path
    status: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class TuningSnapshot:
    """A tuning at one moment, in seconds since the epoch; the moment is None once nothing moves any more."""

    view: TuningView
    now_s: float | None


class TuningFollower(Protocol):
    """Reads one tuning's folder."""

    def look(self) -> TuningSnapshot:
        """The tuning as it is now. Raises `OSError`."""


class RunningTuningWatcher(Protocol):
    """Looks whether a tuning is under way on this box, started here or elsewhere."""

    def look(self) -> TuningView | None:
        """The one that is under way; where none is any more, how the last one ended; None before the first."""


class TuningBackend(Protocol):
    """The calls; those that can fail raise `ServiceError`."""

    def plan(self, opened: TrainingConfig) -> Sequence[tuple[str, str]]:
        """What a tuning of `opened` would do: label and text."""

    def start(self, opened: TrainingConfig, minutes: float) -> Path:
        """Begin one that may take so long; it goes on without the screen. Gives its folder."""

    def all(self) -> Sequence[TuningListing]:
        """The tunings there are, newest first."""

    def under_way(self) -> RunningTuningWatcher:
        """Look for one again and again."""

    def follow(self, folder: Path) -> TuningFollower:
        """Read one again and again."""

    def tunes(self, folder: Path, opened: TrainingConfig) -> bool:
        """Whether it tunes the job that is `opened`."""

    def abort(self, folder: Path) -> None:
        """End it after the trial under way was ended; every figure is kept."""

    def resume(self, folder: Path, opened: TrainingConfig | None, minutes: float) -> None:
        """Go on with one that was ended early for so long; by the job of `opened` where it is the same."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """What goes wrong inside becomes a `BackendError`; a mistake of the program stays what it is."""
    from tuner_tui.runs.launch.command import LaunchError
    from tuner_tui.runs.store.record import RecordError
    from tuner_tui.settings.errors import PresetExistsError, SettingsError

    try:
        yield
    except PresetExistsError as error:
        raise NameTakenError(f"{error}.") from error
    except (SettingsError, LaunchError, RecordError) as error:
        raise BackendError(str(error)) from error
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise BackendError(f"{error.strerror or error}{place}.") from error

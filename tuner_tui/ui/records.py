"""Values that the backend takes and returns, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import isfunction
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

from tuner_tui.advice.estimate import MemoryOutlook
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.recommend.duration_estimate import EarlierRun
from tuner_tui.memory.trace import TraceError
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.read.status import InspectionError
from tuner_tui.runs.store.record import RecordError, redact_job
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.errors import PresetExistsError, SettingsError
from tuner_tui.settings.job import Job, same_training
from tuner_tui.settings.model import Resolved, Value
from tuner_tui.settings.preset_file import Preset
from tuner_tui.tuning.trial_log import TuningView
from tuner_tui.ui.feeds import BackendError
from tuner_tui.view.tuning_rows import LiveTrial

T = TypeVar("T")
DEMO = "demo"
"""The preset that is shown where nothing was asked for."""


class NameTakenError(BackendError):
    """A preset with this name exists; the text asks what to do. `shipped`: it comes with the program."""

    def __init__(self, question: str, shipped: bool = False) -> None:
        super().__init__(question)
        self.shipped = shipped


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors that the user can act on as `BackendError`; programming errors pass unchanged."""
    try:
        yield
    except PresetExistsError as error:
        raise NameTakenError(f"{error}. Replace it?") from error
    except (SettingsError, LaunchError, RecordError, TraceError, InspectionError) as error:
        raise BackendError(str(error)) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not error.filename:  # of `os.getcwd`
            raise BackendError("The folder in which tuner-tui was started no longer exists.") from error
        file_name = f" ({error.filename})" if error.filename else ""
        raise BackendError(f"{error.strerror or error}{file_name}.") from error


def translates_errors(cls: type[T]) -> type[T]:
    """Let every public method of the class raise `BackendError` for what the user can act on."""
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, translate_errors()(method))
    return cls


class TrainingConfig(Struct, frozen=True):
    """What would be trained: resolved settings, job, and the name of the preset.

    `as_it_ran`: the settings are those of a run, so no recommendation replaces them; `cwd` is its folder. `base` is the
    preset as it was read; saving keeps its other fields. `notes` are shown when it is loaded. `named`: a preset or a
    run was opened at the start; the demo else only stands in where none was. `visible_gpus`: see `LaunchRequest`.
    `lacking` is what keeps the file that it was read from from training here.
    """

    resolved: Resolved
    job: Job
    preset: str | None
    as_it_ran: bool = False
    cwd: Path | None = None
    memory_limit_bytes: int | None = None
    base: Preset | None = None
    notes: tuple[str, ...] = ()
    named: bool = False
    visible_gpus: str | None = None
    lacking: tuple[Finding, ...] = ()

    def trains(self, recorded: Job) -> bool:
        """Whether this is the training of a record, which hides the secrets of its job."""
        return same_training(redact_job(self.job), recorded)

    def launch_request(self) -> LaunchRequest:
        """Return what is asked of the launcher to train this."""
        return LaunchRequest(
            job=self.job,
            resolved=self.resolved,
            cwd=self.cwd or Path.cwd(),
            preset=self.preset,
            memory_limit_bytes=self.memory_limit_bytes,
            visible_gpus=self.visible_gpus,
        )


class JobFacts(NamedTuple):
    """The Python that trains a job, the file with which accelerate starts it, and the values that it names itself.

    `sources` are the names of the files in which these values are, `earlier` the speeds of its runs on this machine.
    """

    python: Path
    accelerate: AccelerateConfig | None
    given: Mapping[str, Value]
    sources: Mapping[str, str] = MappingProxyType({})
    earlier: tuple[EarlierRun, ...] = ()


class LaunchOffer(NamedTuple):
    """A prepared run: a sentence and labelled lines on what it will do, and the call that starts or queues it.

    The call returns its folder, that of a restart once the old run has ended. It can be asked for again with one of
    `most_gpus`; `job` is then that with a process for each, and `change` keeps the effective batch. `heading` replaces
    that of the dialog.
    """

    sentence: str
    lines: Sequence[tuple[str, str]]
    start: Callable[[], Path]
    most_gpus: int = 1
    job: Job | None = None
    heading: str = ""
    change: Mapping[str, Value] = MappingProxyType({})


TrialPlacement = Literal["sequential", "gpus", "ray"]
"""Where trials run: one after another here, on each free GPU of this machine at once, or on a Ray cluster."""


class PresetOutlook(NamedTuple):
    """What the machine or its Python lacks for a preset, empty if nothing, and its memory and time there."""

    lacks: str
    memory: MemoryOutlook


class TuningPlan(NamedTuple):
    """Labelled lines on what a tuning would do, and the minutes that it needs at least.

    `placements` are the places that trials may have, with their descriptions; fewer than two are no choice.
    `gpus` are the UUIDs of those that each can run a trial.
    """

    lines: Sequence[tuple[str, str]]
    least_minutes: float | None = None
    placements: Mapping[TrialPlacement, str] = MappingProxyType({})
    gpus: tuple[str, ...] = ()


class TuningWish(NamedTuple):
    """How long a tuning may take, and where its trials run: on `gpus` side by side, if there are any."""

    minutes: float
    placement: TrialPlacement = "sequential"
    gpus: tuple[str, ...] = ()


class TuningSnapshot(NamedTuple):
    """A tuning at `now_s` (seconds since the epoch), which is None once the tuning has ended.

    `live` has what the runs of trials under way measure, by their names.
    """

    view: TuningView
    now_s: float | None
    live: Mapping[str, LiveTrial] = MappingProxyType({})

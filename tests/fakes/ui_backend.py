"""A backend without a machine: it answers from fixed data and records requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

from msgspec.structs import replace
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

import tuner_tui.ui
from tests.fakes import live_run
from tests.fakes.memory_outlooks import estimated, outlook_of, parts_of
from tests.fakes.run_pairs import two_runs
from tests.fakes.tuning_views import FakeTunings
from tuner_tui.advice.estimate import EstimateRequest, MemoryEstimator, MemoryOutlook, PeakMemory
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.hardware.sampler import Sampler
from tuner_tui.inspection.first_non_finite import Replay
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.queue.listing import QueueLine
from tuner_tui.runs.read.live_inspection import RunProfile
from tuner_tui.runs.read.log_reader import LogMatch, LogReader, LogWindow
from tuner_tui.runs.read.reader import RunReader, RunRow, RunView
from tuner_tui.runs.read.status import RunStatus
from tuner_tui.runs.store.folder import Order
from tuner_tui.runs.supervise.stall import Inspection
from tuner_tui.settings.file_update import FileUpdate
from tuner_tui.settings.job import BuiltinJob, Job
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings, Value
from tuner_tui.settings.preset_file import LoadedPreset, Preset
from tuner_tui.settings.presets import PresetEntry, shipped_folder
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.drafts import Draft
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.followed_run import FollowedRun
from tuner_tui.ui.records import JobFacts, LaunchOffer, NameTakenError, PresetOutlook, TrainingConfig
from tuner_tui.ui.terminal.cell_writer import PartialCompositor
from tuner_tui.view.comparison_rows import ComparisonScene
from tuner_tui.view.end_card import EndScene

INTERPRETER = Interpreter(
    "/opt/train/bin/python",
    "3.12.4",
    {"torch": "2.13.0+cu130", "transformers": "5.23.0", "accelerate": "1.15.0", "peft": "0.19.1"},
    torch_cuda="13.0",
)
DATA_WAIT = Finding(
    cause="data-wait",
    severity="warning",
    sentence="The GPU waits for data for 31 % of each step",
    evidence=("over 40 s", "1 of 8 workers is busy, the others are idle"),
    confidence="likely",
    remedies=(
        Remedy(
            "workers 8 → 4, persistent on",
            "one worker reads each shard of a streamed dataset: create at least as many shards as workers",
            {"dataloader_num_workers": 4, "dataloader_persistent_workers": True},
            effect="+22 … +31 % tokens/s",
            rests_on="limited by the measured wait",
            source="measured on this run",
        ),
        Remedy("store the data set in 8 shards", "Each worker then reads its own.", effect="all workers busy"),
    ),
)
OUT_OF_MEMORY = Finding(
    cause="gpu-oom",
    severity="failed",
    sentence="The GPU ran out of memory in the first step",
    evidence=("tried to allocate 2.31 GiB, 1.02 GiB free of 79.6 GiB",),
    confidence="certain",
    where="training",
    remedies=(
        Remedy(
            "micro batch 16 → 8, accumulation 4 → 8",
            "Activations grow with the micro batch; the effective batch stays 64.",
            {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 8},
            effect="activations halved",
            rests_on="linear in the micro batch",
        ),
        Remedy(
            "gradient checkpointing on",
            "activations are recomputed in the backward pass instead of stored",
            {"gradient_checkpointing": True},
            effect="about 40 % less activation memory, 20 % slower",
        ),
    ),
)
OUTPUT = tuple(
    f"{{'loss': '{live_run.LOSS + (59 - n) % 7 * 0.006:.4f}', "
    f"'learning_rate': '{2.65e-5 + (59 - n) * 5e-8:.3e}', 'epoch': '{1.41 - (59 - n) * 0.003:.2f}'}}"
    for n in range(60)
)


def opened(preset: str | None = "llama-1b-sft", **values: Any) -> TrainingConfig:
    """A preset with `values`, ready to train."""
    origins = {name: Origin(OriginKind.PRESET, preset or "") for name in values}
    return TrainingConfig(Resolved(Settings().changed(**values), origins), BuiltinJob(), preset)


def presetted() -> TrainingConfig:
    """The preset that most tests start from."""
    return opened(
        per_device_train_batch_size=16,
        gradient_accumulation_steps=4,
        precision="bf16",
        optim="adamw_torch_fused",
        dataloader_num_workers=8,
        dataloader_prefetch_factor=4,
    )


def running(state: RunState | None = None, samples: int = 60, busy_pct: int = 90) -> RunView:
    """A view of a run that trains."""
    recent = live_run.samples(samples, busy_pct=busy_pct)
    status = RunStatus("running", "Running as process 100.", pid=100, training_alive=True)
    state = state or live_run.running()
    step = state.step or 1
    return RunView(state, live_run.history(2 + step // 6, step), status, recent[-1], recent)


def ended(outcome: str, sentence: str) -> RunView:
    """A view of a run that ended."""
    status = RunStatus("ended", sentence, outcome=outcome, exit_code=1)
    return replace(running(live_run.finished(outcome, sentence)), status=status)


class FakeSampler(Sampler):
    """The same sample again and again."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        return self._sample

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


@dataclass
class FakeLog(LogReader):
    """A log of some lines; each takes ten bytes of the file."""

    lines: tuple[str, ...]

    def tail(self, count: int) -> LogWindow:
        return self.before(len(self.lines) * 10, count)

    def window(self, anchor: int, count: int) -> LogWindow:
        return self._cut(anchor // 10, anchor // 10 + count)

    def before(self, anchor: int, count: int) -> LogWindow:
        return self._cut(max(0, anchor // 10 - count), anchor // 10)

    def search(self, text: str, start: int, *, backwards: bool = False) -> LogMatch:
        numbers = range(start // 10 - 1, -1, -1) if backwards else range(start // 10, len(self.lines))
        position = next((n * 10 for n in numbers if text.lower() in self.lines[n].lower()), None)
        return LogMatch(position, True)

    def _cut(self, first: int, last: int) -> LogWindow:
        lines = self.lines[first:last]
        anchors = tuple((first + n) * 10 for n in range(len(lines)))
        end = (first + len(lines)) * 10
        total = len(self.lines) * 10
        return LogWindow(lines, anchors, first * 10, end, total, first == 0, end >= total)


@dataclass
class FakeRun(RunReader):
    """The followed run of a machine."""

    box: FakeBox

    def poll(self, with_samples: bool = True) -> RunView:
        self.box.view = self.box.view or running()
        return self.box.view


def listed(name: str, about: str, yours: bool = False, suits: bool = False, **settings: Value) -> PresetEntry:
    """A preset as the picker lists it."""
    folder = Path("/presets") if yours else shipped_folder()
    loaded = LoadedPreset(Preset(name=name, about=about, settings=settings))
    return PresetEntry(name, folder / f"{name}.yaml", loaded, suits=suits)


@dataclass
class FakeBox:
    """What the fake backend answers, and what was asked of it."""

    opened: TrainingConfig = field(default_factory=presetted)
    presets: list[PresetEntry] = field(
        default_factory=lambda: [
            PresetEntry("broken", Path("/broken.yaml"), problem="broken.yaml line 3: unknown key 'batch'"),
            listed("cpu", "Any machine without a GPU"),
            listed("demo", "A first training for any machine"),
        ]
    )
    runs: list[RunRow] = field(default_factory=list)
    view: RunView | None = None
    findings: tuple[Finding, ...] = ()
    output: tuple[str, ...] = OUTPUT
    given: Mapping[str, Value] = field(default_factory=dict)
    draft: Draft = field(default_factory=dict)
    lacking: tuple[Finding, ...] = ()
    inventory: Inventory = field(default_factory=live_run.inventory)
    interpreter: Interpreter = INTERPRETER
    sample: Sample = field(default_factory=live_run.sample)
    launch_error: str | None = None
    hung: Event = field(default_factory=Event)
    saved: dict[str, TrainingConfig] = field(default_factory=dict)
    file_update: FileUpdate | None = None
    written: list[FileUpdate] = field(default_factory=list)
    launched: list[TrainingConfig] = field(default_factory=list)
    orders: list[tuple[str, str]] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    retried: list[tuple[str, str, dict[str, Value]]] = field(default_factory=list)
    reports: list[tuple[str, str]] = field(default_factory=list)
    preview: tuple[tuple[str, str], ...] = (("Command", "python train.py --seed 7"), ("Not applied", "max_length"))
    tuner: FakeTunings = field(default_factory=FakeTunings)
    queue: tuple[QueueLine, ...] = ()
    inspection: Inspection | None = None
    profile: RunProfile | None = None
    replay: Replay | None = None
    queue_wakes: int = 0
    shortage: str = ""
    compared: ComparisonScene = field(default_factory=two_runs)
    compared_runs: list[tuple[str, str]] = field(default_factory=list)
    restarted: list[tuple[str, TrainingConfig | None]] = field(default_factory=list)

    def backend(self, **overrides: Any) -> FakeBackend:
        """The backend of this machine, with `overrides` in place of some of its methods."""
        return FakeBackend(self, **overrides)

    def app(self, backend: Backend | None = None, folder: Path | None = None, **options: Any) -> TunerApp:
        """The app over this machine; it follows a run where the machine has a view of one."""
        follow = folder or (None if self.view is None else Path("/runs/r007"))
        return PausedApp(lambda: backend or self.backend(), lambda _: (self.opened, follow), **options)


class PausedCompositor(PartialCompositor):
    """Renders what has changed only when it is asked to."""

    def render_update(self, full: bool = False, *args: Any, **options: Any) -> Any:
        return super().render_update(full, *args, **options) if full else None

    def render_frame(self, screens: list[Screen[Any]]) -> None:
        super().render_update(screen_stack=screens)


class PausedApp(TunerApp):
    """Renders a frame where a test has waited for something: nobody looks at the many before it."""

    CSS_PATH = str(Path(tuner_tui.ui.__file__).parent / TunerApp.CSS_PATH)

    def _register(self, parent: DOMNode, *widgets: Widget, **places: Any) -> list[Widget]:
        for screen in widgets:
            if isinstance(screen, Screen):
                screen._compositor = PausedCompositor(lambda: self)
        return super()._register(parent, *widgets, **places)

    def render_frame(self) -> None:
        compositor = self.screen._compositor
        assert isinstance(compositor, PausedCompositor)
        compositor.render_frame(self._background_screens)


class FakeEstimates(MemoryEstimator):
    """Estimates of a made-up model, with `overrides` in place of some of its methods."""

    def __init__(self, **overrides: Any) -> None:
        for name, call in overrides.items():
            assert hasattr(self, name), name
            setattr(self, name, call)

    def quick(self, request: EstimateRequest) -> MemoryOutlook:
        return outlook_of(request)

    def refined(self, request: EstimateRequest) -> MemoryOutlook:
        return self.quick(request)


class FakeBackend(Backend):
    """Answers from a `FakeBox` and records requests there."""

    def __init__(self, box: FakeBox, **overrides: Any) -> None:
        super().__init__(estimates=FakeEstimates(), tunings=box.tuner)
        self.box = box
        for name, call in overrides.items():
            assert hasattr(self, name), name
            setattr(self, name, call)

    def recommend(
        self,
        resolved: Resolved,
        inventory: Inventory,
        interpreter: Interpreter | None,
        job: Job,
        trace: object = None,
        earlier: object = (),
    ) -> Resolved:
        return resolved

    def memory_parts(self, request: EstimateRequest) -> PeakMemory:
        return parts_of(request)

    def list_presets(self, inventory: Inventory | None) -> Sequence[PresetEntry]:
        return self.box.presets

    def preset_outlooks(
        self, entries: Sequence[PresetEntry], inventory: Inventory, interpreter: Interpreter
    ) -> Mapping[str, PresetOutlook]:
        return {
            entry.name: PresetOutlook("8 GPUs" * (entry.name == "other-machine"), MemoryOutlook(estimated()))
            for entry in entries
        }

    def load_preset(self, name: str) -> TrainingConfig:
        return opened(name, per_device_train_batch_size=2)

    def save_preset(self, name: str, config: TrainingConfig, overwrite: bool) -> None:
        if name in self.box.saved and not overwrite:
            raise NameTakenError(f"There is a preset {name} already. Replace it?")
        self.box.saved[name] = config

    def update_of_file(self, config: TrainingConfig) -> FileUpdate | None:
        return self.box.file_update

    def write_file(self, update: FileUpdate) -> None:
        self.box.written.append(update)

    def export_settings(self, config: TrainingConfig) -> tuple[str, str]:
        return "the settings", f"micro batch {config.resolved.settings.per_device_train_batch_size}"

    def read_draft(self, config: TrainingConfig) -> Draft:
        return self.box.draft

    def keep_draft(self, config: TrainingConfig, draft: Draft) -> None:
        self.box.draft = draft

    def read_inventory(self) -> Inventory:
        return self.box.inventory

    def read_job(self, job: Job) -> JobFacts:
        python, given = Path(job.interpreter or INTERPRETER.path), self.box.given
        return JobFacts(python, None, given, dict.fromkeys(given, "train.py"))

    def probe_interpreter(self, python: Path, versions_only: bool) -> Interpreter:
        return replace(self.box.interpreter, path=str(python))

    def open_sampler(self) -> FakeSampler:
        return FakeSampler(self.box.sample)

    def environment_findings(
        self, inventory: Inventory | None, interpreter: Interpreter | None, job: Job | None
    ) -> tuple[Finding, ...]:
        return ()

    def file_findings(
        self, config: TrainingConfig, inventory: Inventory, interpreter: Interpreter
    ) -> tuple[Finding, ...]:
        return self.box.lacking

    def open_run(self, folder: Path, shown: TrainingConfig | None = None) -> TrainingConfig:
        return self.box.opened

    def offer_launch(self, config: TrainingConfig) -> LaunchOffer:
        def start() -> Path:
            if self.box.launch_error is not None:
                raise BackendError(self.box.launch_error)
            self.box.launched.append(config)
            self.box.view = self.box.view or running()
            return Path("/runs/r001")

        return LaunchOffer("", self.box.preview, start)

    def offer_restart(self, folder: Path, config: TrainingConfig | None) -> LaunchOffer:
        def restart() -> Path:
            self.box.restarted.append((folder.name, config))
            return Path("/runs/r008")

        return LaunchOffer(f"{folder.name} saves a checkpoint and stops; a new run continues from there.", (), restart)

    def offer_retry(self, folder: Path, remedy: Remedy, cause: str, config: TrainingConfig | None) -> LaunchOffer:
        def restart() -> Path:
            self.box.retried.append((folder.name, cause, dict(remedy.change)))
            return Path("/runs/r008")

        return LaunchOffer(f"{folder.name} has no checkpoint to resume from; a new run starts at step 0.", (), restart)

    def write_report(self, scene: EndScene, name: str) -> Path:
        self.box.reports.append((scene.name, name))
        return Path("/work", name)

    def list_runs(self) -> Sequence[RunRow]:
        return self.box.runs

    def watch_recent(self) -> Iterator[tuple[RunRow, ...]]:
        return (tuple(self.list_runs()) for _ in count())

    def compare_runs(self, first: Path, second: Path) -> Iterator[ComparisonScene]:
        self.box.compared_runs.append((first.name, second.name))
        return iter([self.box.compared._replace(names=(first.name, second.name))])

    def adopt_run(self, folder: Path) -> None:
        self.box.adopted.append(folder.name)

    def follow_run(self, folder: Path) -> FollowedRun:
        return FollowedRun(FakeRun(self.box), FakeLog(self.box.output), lambda view, inventory: self.box.findings)

    def send_order(self, folder: Path, order: Order) -> None:
        self.box.orders.append((folder.name, order))
        self.box.queue = tuple(line for line in self.box.queue if line.path != str(folder))

    def inspect_run(self, folder: Path) -> Inspection:
        if self.box.inspection is None:
            raise BackendError(f"{folder.name} answers no request for its stacks.")
        return self.box.inspection

    def profile_run(self, folder: Path) -> RunProfile:
        if self.box.profile is None:
            raise BackendError(f"{folder.name} is not running.")
        return self.box.profile

    def replay_run(self, folder: Path) -> Replay:
        if self.box.replay is None:
            raise BackendError(f"{folder.name} has no loss that is not finite.")
        return self.box.replay

    def list_queue(self) -> tuple[QueueLine, ...]:
        return self.box.queue

    def mark_opened(self) -> None:
        pass

    def tuning_to_open(self) -> Path | None:
        return None

    def wake_queue(self) -> None:
        self.box.queue_wakes += 1

    def shortage(
        self, config: TrainingConfig, inventory: Inventory, interpreter: Interpreter | None, sample: Sample | None
    ) -> str:
        return self.box.shortage

    def offer_queueing(
        self, config: TrainingConfig, inventory: Inventory | None, interpreter: Interpreter | None
    ) -> LaunchOffer:
        def start() -> Path:
            queued = QueueLine("r009", "/runs/r009", "waiting", "llama-1b-sft", "It was queued a moment ago.")
            self.box.queue = (*self.box.queue, queued)
            return Path(queued.path)

        return LaunchOffer("", [("Command", "python sft.py"), ("Waits for", "1 of 2 GPUs")], start)


def busy_box(**changes: Any) -> FakeBox:
    """A machine where a run trains and one thing could be better."""
    state = live_run.running(ranks=2, step=4230, epoch=1.41, data_wait=0.31, learning_rate=2.65e-5)
    view = running(state, busy_pct=64)
    return FakeBox(**{"view": view, "findings": (DATA_WAIT,), **changes})


def failed_box(**changes: Any) -> FakeBox:
    """A machine where the run ran out of memory."""
    view = ended("out-of-memory", "The GPU ran out of memory.")
    return FakeBox(view=view, findings=(OUT_OF_MEMORY,), **changes)

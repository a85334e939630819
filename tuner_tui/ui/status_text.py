"""Titles, status lines and questions derived from the state."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from tuner_tui.advice.estimate import MemoryOutlook
from tuner_tui.advice.recommend.duration_estimate import UNMEASURED, summarise_duration
from tuner_tui.core.units import format_short_duration
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.runs.store.folder import Order, RunFolder
from tuner_tui.settings.job import COMMAND_TO_NAME, CommandJob
from tuner_tui.settings.model import FIELDS, format_value
from tuner_tui.ui.keys import GLOSSARIES
from tuner_tui.ui.records import DEMO, TrainingConfig
from tuner_tui.ui.start_gpus import processes_text, startable_gpus
from tuner_tui.ui.state import UiState
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import READING, shorten
from tuner_tui.view.estimate_rows import GPU, HOST, OUT_OF_MEMORY, TOO_LARGE, VERDICTS, figures_of
from tuner_tui.view.finding_rows import UNEXPLAINED
from tuner_tui.view.settings_form import KNOBS, SettingsView
from tuner_tui.view.status_line import OPEN_IT, StatusScene
from tuner_tui.view.tuning_rows import tuning_sentence
from tuner_tui.view.watch_rows import run_description


def launch_rows(
    config: TrainingConfig, outlook: MemoryOutlook | None, batch_note: str = "", failure: str = ""
) -> tuple[str, list[tuple[str, str]]]:
    """Return how long a training is, `3 epochs of 12,400 samples`, and its time and peak as labels and texts.

    `batch_note` says how the effective batch was changed, `failure` how the last run with these settings failed.
    """
    outlook = outlook or MemoryOutlook(unknown="unknown until the estimate is ready")
    duration = outlook.duration
    time = UNMEASURED if duration is None or duration.range_s is None else summarise_duration(duration)
    label = GPU if outlook.on_gpu else HOST
    peak = estimated_peak(outlook).removeprefix(f"{label} ") or outlook.unknown
    peak = TOO_LARGE if outlook.estimate is None and failure == OUT_OF_MEMORY else peak
    changed = f", {batch_note} by the changed settings" if batch_note else ""
    return f"{_length(config, outlook)}{changed}", [("Time", time), (label.replace("peak", "Peak"), peak)]


def estimated_peak(outlook: MemoryOutlook) -> str:
    """Return `peak RAM 40 ± 3 of 31 GiB, too large`, without a verdict where it fits; empty without an estimate."""
    if (estimate := outlook.estimate) is None:
        return ""
    verdict = "" if estimate.verdict == "fits" else f", {VERDICTS[estimate.verdict][2]}"
    whose = f" {outlook.against}" if outlook.against else ""
    return f"{GPU if outlook.on_gpu else HOST} {figures_of(estimate)}{whose}{verdict}"


def _length(config: TrainingConfig, outlook: MemoryOutlook) -> str:
    """Return how long the training is, as far as it is known before the start."""
    settings, given = config.resolved.settings, config.resolved.chosen
    if settings.max_steps is not None:
        return f"{settings.max_steps:,} optimizer steps"
    if isinstance(config.job, CommandJob) and "num_train_epochs" not in given:
        return "Length set by the command"
    epochs = f"{settings.num_train_epochs:g} epoch{'s' if settings.num_train_epochs != 1 else ''}"
    duration = outlook.duration
    samples: float | None = None if outlook.data is None else outlook.data.lengths.total
    if samples is None and duration is not None and duration.counted and duration.samples is not None:
        samples = duration.samples / settings.num_train_epochs
    return f"{epochs} of {samples:,.0f} samples" if samples else f"{epochs}, samples not counted yet"


def next_stop_question(state: UiState) -> tuple[Order, str, str] | None:
    """Return the order of the gentlest step not tried yet, a heading and the question that confirms it.

    None if no run is live.
    """
    if state.view is None or state.folder is None:
        return None
    name = state.folder.name
    if state.view.status.kind == "waiting":
        return ("stop", "Remove", f"{name} leaves the queue and never starts. Remove it?")
    if not state.running:
        return None
    if state.view.status.kind == "broken":
        asked = f"The folder of {name} was deleted, but its processes continue. End them now (SIGTERM, then SIGKILL)?"
        return ("kill", "Stop", f"{asked} What they have not saved is lost.")
    if state.view.status.kind == "pending":
        return ("stop", "Cancel", f"Cancel {name}? Its job waits in Slurm.")
    # Each request is stronger than the one before: save and stop, SIGTERM, SIGKILL. What was asked before is read from
    # the run's own events, so a second screen or `tuner-tui stop` counts too.
    match state.view.state.stop_requested:
        case "stop":
            asked = f"{name} was asked to stop and has not ended yet. End it now (SIGTERM)?"
            return ("terminate", "Terminate", f"{asked} Steps since the last checkpoint may be lost.")
        case "terminate" | "kill":
            asked = f"{name} got SIGTERM and has not ended. Kill it (SIGKILL)? What it has not saved is lost."
            return ("kill", "Kill", asked)
        case _:
            return ("stop", "Stop", f"Stop {name}? {_stop_effect(state.view.state)}")


def _stop_effect(state: RunState) -> str:
    if state.accepts_orders:
        return "It saves a checkpoint after this step and ends."
    if state.step is None:
        return "No step has finished yet; SIGTERM ends the run now."
    return "This training cannot save on request: SIGTERM ends it now, and unsaved work is lost."


def launch_refusal(state: UiState, view: SettingsView | None, queued: bool = False) -> str:
    """Return why no training can be started now, or `queued`; empty if one can."""
    if view is None:
        return "There are no settings yet."
    folder = None if queued else state.folder
    if folder is not None and state.view is None:
        return f"{folder.name} is still being read."
    if folder is not None and state.running:
        return f"{folder.name} is already training; s stops it, Q queues another run."
    return next(settings_errors(view), "")


def settings_errors(view: SettingsView | None) -> Iterator[str]:
    """Return why no training can run with these settings; nothing if one can."""
    problems = () if view is None else view.problems
    return (problem.sentence for problem in problems if problem.severity == "error")


TITLE_WIDTH = 32


def status_scene(state: UiState) -> StatusScene:
    """Return what the status line shows but for the time: the run that is followed, or `idle_line` without one."""
    name, view = "" if state.folder is None else state.folder.name, state.view
    if view is None:
        return StatusScene(idle_line(state), name)
    status = view.status
    waits = {"waiting": f"{status.sentence.rstrip('.')} · Q: the queue", "pending": status.sentence}
    return StatusScene(
        name=name,
        trains="" if view.record is None else shorten(view.record.title, TITLE_WIDTH),
        state=view.state,
        lost="" if status.live and status.kind != "broken" else status.sentence,
        waits=waits.get(status.kind, ""),
        request=state.request,
        elsewhere=elsewhere(state),
        next=": ".join(_next_key(state.loaded)) if state.loaded is not None and state.trains_another else "",
    )


def idle_line(state: UiState) -> str:
    """Return what the status line shows while no run is followed."""
    if state.tuning is not None and state.tuning.status == "running":
        return tuning_sentence(state.tuning)
    if state.loaded is None:
        return READING
    live = live_elsewhere(state)
    is_new = not state.recent and not state.loaded.named
    first = "tuner-tui sets up, starts and watches training runs" if is_new else "No run open"
    first = first if live is None else f"{recent_text(live, LEAST_TITLE)}{OPEN_IT}"
    return f"{first} · {': '.join(_next_key(state.loaded))}"


def _next_key(loaded: TrainingConfig) -> tuple[str, str]:
    """Return the key for the next training, and what it does."""
    command = shlex.join(getattr(loaded.job, "command", ()))
    if command == COMMAND_TO_NAME:
        return "e", "name the command"
    trains = "the demo" if loaded.preset == DEMO else shorten(command, TITLE_WIDTH) or loaded.preset or "these settings"
    return "t", f"train {trains}"


def live_elsewhere(state: UiState) -> RunRow | None:
    """Return the newest run that trains here and is not shown."""
    return next((run for run in state.recent if run.pid is not None and Path(run.path) != state.folder), None)


def elsewhere(state: UiState) -> str:
    """Return which other run trains while the run shown does not: `r006 python train.py: training`."""
    live = None if state.running else live_elsewhere(state)
    if live is None:
        return ""
    return f"{live.run} {shorten(live.title, TITLE_WIDTH)}: {(live.phase or live.status).replace('-', ' ')}"


LEAST_TITLE = 22
"""Cells of a run's title where its key has to have room after it."""


def recent_text(run: RunRow, most: int = 40) -> str:
    """Return `r007 llama-1b-sft: training, 14 %, 41 min left`, or `r006 train.py: out of memory, 2.1 h ago`."""
    words = [(run.outcome or run.phase or run.status).replace("-", " ")]
    words += [f"{format_short_duration(run.ended_age_s)} ago"] if run.pid is None else run_description(run)[2:]
    return f"{run.run} {shorten(run.title, most)}: {', '.join(filter(None, words))}"


FIRST_KEYS, MORE_KEYS = (tuple(GLOSSARIES[name]) for name in ("first keys", "more keys"))
"""What stands below what would be trained, and below the runs, where there is room."""


def next_training(state: UiState) -> tuple[tuple[str, str], ...]:
    """Return what would be trained, as labels and texts; with a run of something else the key that trains it."""
    loaded, editing = state.loaded, state.editing
    if loaded is None or editing is None:
        return ()  # the status line says that it is read
    if state.folder is not None:
        another = (_next_key(loaded),) if state.trains_another else ()
        return (("run", READING),) if state.view is None else another
    job, settings = loaded.job, editing.current.settings
    about = None if loaded.base is None else loaded.base.about
    command = shlex.join(getattr(job, "command", ()))
    is_unnamed = command == COMMAND_TO_NAME
    most = getattr(job, "max_samples", None)
    epochs = settings.num_train_epochs
    length = f"{f.count(settings.max_steps)} steps" if settings.max_steps else f"{epochs:g} epoch{'s' * (epochs != 1)}"
    names = (name for name in KNOBS if name not in state.unknown_values and getattr(settings, name) is not None)
    values = (f"{FIELDS[name].label} {format_value(name, getattr(settings, name))}" for name in names)
    pairs = (
        ("preset", " · ".join(part for part in (loaded.preset or "none", about) if part)),
        ("command", "unknown" if is_unnamed else command),
        ("model", " · ".join(part for part in (job.model, job.task) if part)),
        ("data", " · ".join(part for part in (job.data, f"at most {f.count(most)} samples" if most else "") if part)),
        ("length", "" if command else length),
        ("settings", " · ".join(values)),
        # Only once it is known whether torch there uses them.
        ("GPUs", f"{processes_text(state)} · g changes it" if state.interpreter and startable_gpus(state) > 1 else ""),
    )
    shown = tuple((label, text) for label, text in pairs if text)
    recent = tuple(("" if at else "runs", recent_text(run)) for at, run in enumerate(state.recent))
    live = any(run.pid is not None for run in state.recent)
    edits = "edits this command and how it is started" if command else "trains your own command instead"
    edits = "names the command of this training" if is_unnamed else edits
    keys = (*FIRST_KEYS[is_unnamed:1], ("e", edits), *FIRST_KEYS[1:])
    parts = (shown, recent, keys, MORE_KEYS) if live else (shown, keys, recent, MORE_KEYS)
    return tuple(pair for part in parts if part for pair in (("", ""), *part))[1:]


def quiet_line(state: UiState) -> str:
    """Return the text of the troubleshooting panel without findings."""
    if state.tuning is not None and state.tuning.status == "running":
        return tuning_sentence(state.tuning)
    if state.is_reading:  # said once on the screen: before, in the status line or where the run will be
        return "" if state.loaded is None or (state.folder is not None and state.view is None) else READING
    if state.running:
        made_step = state.view is not None and state.view.state.step is not None
        return "No problems so far." if made_step else "No problems so far; no step has finished yet."
    status = None if state.view is None else state.view.status
    if status is not None and status.kind in ("ended", "lost") and status.outcome not in ("completed", "stopped"):
        return UNEXPLAINED
    return "No problems found."


def exit_message(state: UiState) -> str | None:
    lines = []
    if state.running and state.folder is not None:
        lines.append(f"{state.folder.name} continues; `tuner-tui {RunFolder(state.folder).argument}` shows it again.")
    if state.tuning is not None and state.tuning.status == "running":
        lines.append(f"{state.tuning.id} continues tuning; `tuner-tui` and o show it again.")
    return "\n".join(lines) or None

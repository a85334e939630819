"""The situation of a run: the input of every diagnosis, and how it is built from a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.procfs import this_machine
from tuner_tui.hardware import capabilities
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.inspection.faithful_resume import ResumeCheck
from tuner_tui.inspection.first_non_finite import Replay
from tuner_tui.inspection.peak_memory import RecordedPeak
from tuner_tui.inspection.suspect_batches import NO_SUSPECTS, Suspects
from tuner_tui.memory.calibration import MeasuredRun
from tuner_tui.memory.device import ImportFootprint
from tuner_tui.memory.trace import import_footprint
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Finished
from tuner_tui.runs.log_parsing.lines import read_head_and_tail, read_tail
from tuner_tui.runs.read.measured_memory import measured_runs
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.read.recorded_batches import read_peaks, read_replay, read_resume_check, read_suspects
from tuner_tui.runs.read.run_context import read_core_wait_share, read_resume_point
from tuner_tui.runs.store.folder import RunFolder, runs_dir
from tuner_tui.runs.store.record import RunRecord, readable_record
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome, read_outcomes
from tuner_tui.settings.distributed import Sharding, state_sharding
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, named_model
from tuner_tui.settings.model import DTYPE_PRECISIONS, FIELDS, Precision, Resolved, Settings, check_value
from tuner_tui.settings.rules import overflows_fp16


def chosen_settings(resolved: Resolved, job: BuiltinJob | CommandJob | None) -> frozenset[str] | None:
    """The settings that a launch passes to the training: None for all of them, which the built-in job takes."""
    return resolved.chosen if isinstance(job, CommandJob) else None


def effective_settings(given: Settings, chosen: frozenset[str] | None, in_effect: Mapping[str, Any]) -> Settings:
    """`given`, with the observed values of the settings that are not in `chosen`.

    A command keeps its own value of a setting that it was not given, and the observer reports that value in
    `in_effect`. Values that the setting cannot have are ignored: a script may use a learning rate of 1e30. Returns
    `given` where `chosen` is None.
    """
    if chosen is None:
        return given
    observed = observed_values(in_effect)
    changes = {name: value for name, value in observed.items() if name not in chosen and _is_valid(name, value)}
    if changes.get("dataloader_num_workers") == 0:
        changes |= {"dataloader_prefetch_factor": None, "dataloader_persistent_workers": False}
    return given.changed(**changes)


def observed_values(in_effect: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values that the observer reported, by the name of the setting; unchecked."""
    values = {name: in_effect[name] for name in FIELDS if in_effect.get(name) is not None}
    precision = observed_precision(in_effect)
    return values if precision is None else {**values, "precision": precision}


def observed_precision(in_effect: Mapping[str, Any]) -> str | None:
    """The precision by the autocast dtype around the forward pass; without autocast by the dtype of the weights."""
    dtype = in_effect.get("autocast_dtype")
    if dtype == "none":
        dtype = in_effect.get("parameter_dtype", "float32")
    return None if dtype is None else DTYPE_PRECISIONS.get(str(dtype), str(dtype))


def _is_valid(name: str, value: object) -> bool:
    try:
        check_value(name, value)
    except FieldError:
        return False
    return True


FRAMEWORK_LINES = ("transformers/trainer.py", "trl/trainer/", "lightning/pytorch/", "pytorch_lightning/")
"""Parts of the traceback of a training that failed before its first step."""


class Situation(Struct, frozen=True):
    """One moment of a run, at `now_s` seconds since the epoch.

    Everything but the state may be unknown: the settings of a mere log file, the inventory of another machine.
    `samples` are ordered oldest first; `log` are the lines of the log window. `chosen` names the settings passed to a
    command, None if all were passed; `not_applied` those that its way of passing settings cannot carry. `resumed_from`
    is the checkpoint named at launch, `memory_limit_bytes` the limit set at launch. `measured` are the memory peaks of
    earlier runs of the job, newest first, and `import_footprint` that of the imports: read where memory ran out.
    `outcomes` are what remedies did on this machine, `run` is the name of this run there. `host` is the machine that
    `samples` are of; `nodes` are the other machines of the run. `backend` is torch's for the GPU, such as cuda or mps,
    where a message names it. `suspects` are steps with a suspicious loss, or that failed: read once the run has ended
    or its loss is not finite; `replay` says where such a loss came from. `resume` compares a run that goes on from a
    checkpoint with its parent. `peaks`: what held the GPU's memory, where that was recorded before it ran out.
    `sharding` is how the processes divide weights, gradients or optimizer states, if they do. `core_wait_share` is that
    of all the time of a run that has ended, None if not counted. `loads_checkpoint`: as far as is known the command can
    go on from the newest checkpoint.
    """

    state: RunState
    now_s: float
    settings: Settings | None = None
    inventory: Inventory | None = None
    interpreter: Interpreter | None = None
    job: Job | None = None
    samples: tuple[Sample, ...] = ()
    log: tuple[str, ...] = ()
    chosen: frozenset[str] | None = None
    resumed_from: str | None = None
    not_applied: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None
    shared_outputs: tuple[str, ...] = ()
    measured: tuple[MeasuredRun, ...] = ()
    import_footprint: ImportFootprint | None = None
    outcomes: tuple[RemedyOutcome, ...] = ()
    run: str | None = None
    host: str | None = None
    backend: str | None = None
    suspects: Suspects = NO_SUSPECTS
    replay: Replay | None = None
    resume: ResumeCheck | None = None
    peaks: tuple[RecordedPeak, ...] = ()
    sharding: Sharding | None = None
    core_wait_share: float | None = None
    loads_checkpoint: bool = True

    def is_known(self, name: str) -> bool:
        """Whether `settings` holds the training's own value: always, but for a command that was not given it."""
        return self.chosen is None or name in self.chosen or self.state.in_effect.get(name) is not None

    @property
    def is_alive(self) -> bool:
        """Whether the run was launched and has not ended, by its events."""
        return self.state.launched_t is not None and self.state.finished is None and self.state.exited is None

    @property
    def has_gpu(self) -> bool | None:
        """Whether this training uses a GPU: as observed in it, else by its torch and the GPUs it sees; None if unknown.

        A GPU in the machine is not enough: the training may have a torch without CUDA, or train on the CPU by choice.
        """
        device, gpus = self.state.in_effect.get("device"), self.state.in_effect.get("n_gpu")
        if isinstance(device, str) and device:
            return device != "cpu"
        has_cpu_torch = self.interpreter is not None and self.interpreter.packages.get("torch", "").endswith("+cpu")
        if gpus == 0 or has_cpu_torch:
            return False
        return None if self.inventory is None else bool(visible_gpus(self.inventory))

    @property
    def host_memory_limit_bytes(self) -> int | None:
        """The run's memory limit if it applies to host memory, which is so without a GPU; else None."""
        return self.memory_limit_bytes if self.has_gpu is False else None

    @property
    def has_own_loop(self) -> bool:
        """Whether the command trains in a loop of its own, with no Trainer; False while that is unknown."""
        if not isinstance(self.job, CommandJob) or self.state.accepts_orders or "n_gpu" in self.state.in_effect:
            return False  # `n_gpu` is a field of TrainingArguments
        if "optimizer" in self.state.in_effect:
            return True
        # A run that failed before its first step: a Trainer would be part of the traceback.
        traceback = self.state.outcome is not None and any(line.startswith("Traceback (most") for line in self.log)
        return traceback and not any(part in line for line in self.log for part in FRAMEWORK_LINES)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether memory, of a GPU or of the host, ran out."""
        return self.state.out_of_memory is not None or self.state.outcome == "out-of-memory"

    def has_package(self, name: str) -> bool | None:
        """Whether the training interpreter has the package; None if the interpreter is unknown."""
        return None if self.interpreter is None else name in self.interpreter.packages

    def supports(self, feature: str) -> bool | None:
        """Whether every visible GPU supports `feature` (bf16, tf32, flash, fp16, fused), by compute capability.

        torch is not asked, because it counts emulation as support. None if the inventory or a capability is unknown.
        """
        return None if self.inventory is None else capabilities.supports(visible_gpus(self.inventory), feature)

    def may_run(self, feature: str) -> bool:
        """Whether neither the training nor a visible GPU is known to be without `feature`."""
        gpus = () if self.inventory is None else visible_gpus(self.inventory)
        return self.has_gpu is not False and capabilities.gpu_below(gpus, feature) is None

    @property
    def best_precision(self) -> Precision:
        """The fastest precision known to run: bf16, else fp16 unless the model overflows in it, else fp32."""
        if self.supports("bf16"):
            return "bf16"
        gpus = () if self.inventory is None else visible_gpus(self.inventory)
        able = all(map(capabilities.has_tensor_cores, gpus))
        return "fp16" if gpus and able and not self.overflows_fp16 else "fp32"

    @property
    def overflows_fp16(self) -> bool:
        """Whether the model is known to overflow in fp16."""
        return self.job is not None and overflows_fp16(named_model(self.job))

    @property
    def usable_cores(self) -> int | None:
        """Whole cores the training may use, by affinity and cgroup quota; None if the inventory is unknown."""
        return None if self.inventory is None else self.inventory.cpu.usable_cores

    @property
    def processes(self) -> int:
        """Training processes, at least 1."""
        return max(1, len(self.state.ranks))

    @property
    def replicas(self) -> int:
        """Copies of the model that share a step, at least 1: processes × GPUs of each."""
        return self.state.replicas or self.processes


def situation_of_run(folder: RunFolder, view: RunView | None = None) -> Situation:
    """The situation of the run in `folder`, read from disk where `view` is None. Raises `OSError`.

    Queries the GPU driver, which may take seconds.
    """
    view = RunReader(folder).poll() if view is None else view
    inventory = read_inventory(folder.path) if _is_local(view.record) else None
    log = LogWindowReader(folder.output_log).read(view)
    return build_situation(view, now_s=time.time(), inventory=inventory, log=log, folder=folder)


def build_situation(
    view: RunView, *, now_s: float, inventory: Inventory | None, log: tuple[str, ...], folder: RunFolder | None = None
) -> Situation:
    """The situation of a run that was read already: used by the screen, `diagnose`, the tuner and the fallback.

    `now_s` of a run that has ended is its end. `inventory` is this machine's; it is dropped if the run is another
    machine's.
    """
    state = with_outcome(view).state
    ended = state.finished is not None  # its samples are judged as of its last event, not as of now
    situation = situation_of_state(state, view.record)
    if ended and situation.ran_out_of_memory and inventory is not None and _is_local(view.record):
        situation = _with_measured_memory(situation, view.record, inventory)
    return replace(
        situation,
        now_s=(state.last_event_t or now_s) if ended else now_s,
        inventory=inventory if _is_local(view.record) else None,
        samples=view.samples,
        log=log,
        outcomes=read_outcomes() if _is_local(view.record) else (),
        run=None if view.record is None else view.record.id,
        host=view.host,
        suspects=NO_SUSPECTS if folder is None or not (ended or state.loss_problem) else read_suspects(folder, state),
        replay=None if folder is None else read_replay(folder),
        resume=None if folder is None else read_resume_check(folder, state),
        peaks=() if folder is None or not (ended and situation.ran_out_of_memory) else read_peaks(folder, state),
        sharding=state_sharding(situation.job),
        core_wait_share=read_core_wait_share(folder.samples, state.training_since_t) if folder and ended else None,
        loads_checkpoint=not (folder and ended)
        or read_resume_point(folder, state.options, state.switches, state.last_event_t)[1],
    )


def _with_measured_memory(situation: Situation, record: RunRecord | None, inventory: Inventory) -> Situation:
    """Add what is measured on this machine: it says which smaller batch fits."""
    if record is None or situation.interpreter is None or situation.state.finished is None:
        return situation
    return replace(
        situation,
        measured=_earlier_runs(runs_dir(), record.id, situation.state.finished.t),
        import_footprint=import_footprint(situation.interpreter, inventory.cpu.usable_cores, cached_only=True),
    )


@lru_cache(maxsize=4)
def _earlier_runs(folder: Path, run: str, ended_t: float) -> tuple[MeasuredRun, ...]:
    """The measured runs of the job of `run`. Cached, as a screen asks each second about a run that has ended."""
    record = readable_record(RunFolder(folder / run))
    return () if record is None else measured_runs(record.job, folder)


class LogWindowReader:
    """Reads the window of a run's log that a diagnosis needs, and rereads it only when the log has grown.

    The window is the tail of a live run's log, whose rules need the last lines only, and head and tail after its end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: tuple[int, bool] | None = None
        self._lines: tuple[str, ...] = ()

    def read(self, view: RunView) -> tuple[str, ...]:
        """The lines of the window; empty where there is no log, or none that can be read."""
        try:
            key = (self._path.stat().st_size, with_outcome(view).state.finished is None)
            if key != self._key:
                self._lines = (read_tail if key[1] else read_head_and_tail)(self._path)
                self._key = key
        except OSError:
            return ()
        return self._lines


def with_outcome(view: RunView) -> RunView:
    """The run, with an outcome if it ended and its supervisor recorded none."""
    if view.state.finished is not None or view.status.live or view.status.kind in ("foreign", "waiting"):
        return view
    finished = Finished(t=view.state.last_event_t or 0.0, outcome=view.status.outcome or "lost")
    return replace(view, state=replace(view.state, finished=finished))


def _is_local(record: RunRecord | None) -> bool:
    return record is not None and record.host == this_machine().host


def situation_of_state(state: RunState, record: RunRecord | None) -> Situation:
    """The part of the situation that follows from state and record alone, enough to verify settings."""
    if record is None:
        return Situation(state, state.last_event_t or 0.0)
    chosen = chosen_settings(record.resolved, record.job)
    return Situation(
        state=state,
        now_s=state.last_event_t or 0.0,
        settings=effective_settings(record.resolved.settings, chosen, state.in_effect),
        interpreter=Interpreter(record.interpreter, packages=record.versions),
        job=record.job,
        chosen=chosen,
        resumed_from=record.resumed_from,
        not_applied=record.not_applied,
        memory_limit_bytes=record.memory_limit_bytes,
        shared_outputs=record.shared_outputs,
    )

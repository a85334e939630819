"""A tuning put together: the box is read, the search is set up, trials are run, the winner is saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator
from tuner_tui.advice.recommend.target import limit_gpu_memory, target_of
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.interpreter.probe import Interpreter, probe_interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.fit import PeakModel
from tuner_tui.runs.launch.prepare import LaunchRequest, preview
from tuner_tui.runs.read.measured_memory import measured_runs
from tuner_tui.runs.store.folder import RunFolder, runs_dir, state_dir
from tuner_tui.settings.distributed import read_accelerate_config
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.run_trial import TrialRunner, end_run
from tuner_tui.tuning.search import Search
from tuner_tui.tuning.space import SearchSpace
from tuner_tui.tuning.space_of import space_for, with_candidates
from tuner_tui.tuning.terms import Terms
from tuner_tui.tuning.trial import Tried
from tuner_tui.tuning.tuner import Known, SearchFrom, Tuner
from tuner_tui.tuning.tuner_process import TuningOrders
from tuner_tui.tuning.tuning_folder import TuningFolder
from tuner_tui.tuning.tuning_log import (
    Begun,
    Entry,
    TrialBegun,
    TrialDone,
    TuningEnded,
    TuningLog,
    read_entries,
    tried_in,
)
from tuner_tui.tuning.tuning_record import TuningRecord, read_tuning
from tuner_tui.tuning.untried import only_start
from tuner_tui.tuning.winner import name_for, save_winner, winning_preset
from tuner_tui.tuning.words import GIB

ROOM_MOVES = 0.02
"""Share of a card's room by which it may differ between trials without a word."""


def tune(folder: TuningFolder, orders: TuningOrders, log: TuningLog) -> TuningEnded:
    """Begin or go on with the tuning in `folder`. Returns how it ended, for the log; the winner is saved.

    Raises `LaunchError`, `SettingsError` and `RecordError`.
    """
    record = read_tuning(folder)
    entries = read_entries(folder)
    request = request_of(folder, record, orders)
    _clear_up(entries, request)
    inventory, interpreter = read_inventory(state_dir(orders.environ)), interpreter_of(request)
    prior = estimated(
        limit_gpu_memory(inventory, record.memory_limit_bytes), interpreter, orders, record.resolved.settings
    )
    setting = Setting(record, orders, inventory, interpreter, prior)
    known = Known.from_entries(record.resolved.settings, entries)
    deadline_t = time.time() + orders.minutes * 60
    space = setting.space(known)
    limit = None if space.limit_bytes is None else int(space.limit_bytes)
    log.add(Begun(t=time.time(), capacity_bytes=space.capacity_bytes, limit_bytes=limit, deadline_t=deadline_t))
    tuner = Tuner(folder, log, TrialRunner(request, Terms.within(orders.minutes)), setting.search_from(), deadline_t)
    ended = tuner.tune(known)
    moved = room_moved(tried_in(read_entries(folder)))
    ended = replace(ended, sentence=" ".join(filter(None, [ended.sentence, moved])))
    return _saved(ended, setting, folder, entries)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tuned, and where. `prior` is what its memory was estimated to be before any run."""

    record: TuningRecord
    orders: TuningOrders
    inventory: Inventory
    interpreter: Interpreter
    prior: PeakModel | None = None

    def space(self, known: Known) -> SearchSpace:
        """What may be tried, by what is known now. Raises `SettingsError`."""
        limit = self.record.memory_limit_bytes
        space = space_for(
            limit_gpu_memory(self.inventory, limit),
            self.interpreter,
            self.orders.job,
            known.start,
            memory_limit_bytes=min((size for size in (limit, known.room_bytes) if size is not None), default=None),
            dataset_size=known.dataset_samples,
            hold_effective_batch=not self.record.free_batch,
            prior=self.prior,
            accelerate=read_accelerate_config(self.orders.job, self.orders.environ, Path(self.record.cwd)),
        )
        unreachable = space.unreachable | known.unreachable
        return with_candidates(replace(space, unreachable=unreachable), known.start)

    def search_from(self) -> SearchFrom:
        """The search of this tuning."""
        return lambda known, closing: Search(known.start, self.space(known), known.tried, closing)


def request_of(folder: TuningFolder, record: TuningRecord, orders: TuningOrders) -> LaunchRequest:
    """The launch of the training as it was asked for."""
    return LaunchRequest(
        job=orders.job,
        resolved=record.resolved,
        interpreter=record.interpreter,
        cwd=Path(record.cwd),
        preset=record.preset,
        memory_limit_bytes=record.memory_limit_bytes,
        environ=orders.environ,
        tuning=folder.id,
    )


def interpreter_of(request: LaunchRequest) -> Interpreter:
    """The Python that trains. Raises `LaunchError`."""
    return probe_interpreter(Path(preview(request).interpreter.path))


def estimated(
    inventory: Inventory, interpreter: Interpreter, orders: TuningOrders, start: Settings
) -> PeakModel | None:
    """The peak of the built-in job on a card, without its context, which a trial does not count either.

    None elsewhere: what a limit counts on the host is no resident set, which is what the estimate is of.
    """
    target = target_of(inventory, interpreter, orders.job)
    if not target.on_gpu or not isinstance(orders.job, BuiltinJob):
        return None
    runs = measured_runs(orders.job, runs_dir(orders.environ))
    found = JobMemoryEstimator(orders.job, target.device, target.processes, interpreter, runs).at_once(start)
    if found is None:
        return None
    context, peak = found.overhead.context_bytes, found.peak
    return replace(peak, base_bytes=peak.base_bytes - context, floor_bytes=max(0.0, peak.floor_bytes - context))


def _clear_up(entries: list[Entry], request: LaunchRequest) -> None:
    """End the trial that a killed process left at work: what it measures nobody reads."""
    begun = [entry for entry in entries if isinstance(entry, TrialBegun | TrialDone)]
    if begun and isinstance(begun[-1], TrialBegun):
        end_run(RunFolder(runs_dir(request.environ) / begun[-1].run))


def room_moved(tried: Sequence[Tried]) -> str:
    """What is to be said where other programs took more or less of the card from trial to trial; else empty."""
    rooms = [one.measurement.room_bytes for one in tried if one.measurement.room_bytes is not None]
    if not rooms or max(rooms) - min(rooms) <= ROOM_MOVES * max(rooms):
        return ""
    moved, least = (max(rooms) - min(rooms)) / GIB, min(rooms) / GIB
    return f"What other programs held of the card moved by {moved:.1f} GiB; the least room was {least:.1f} GiB."


def _saved(ended: TuningEnded, setting: Setting, folder: TuningFolder, earlier: Sequence[Entry]) -> TuningEnded:
    """With the winner saved, where something was measured; once, where a tuning that was at its end is gone on with."""
    verdict, record = ended.verdict, setting.record
    if ended.status != "finished" or verdict is None or verdict.best is None or verdict.best.throughput is None:
        return ended
    if only_start(tried_in(read_entries(folder))):
        return replace(ended, sentence=f"No preset is saved. {ended.sentence}".rstrip())
    before = next((one for one in reversed(earlier) if isinstance(one, TuningEnded)), None)
    if before is not None and before.verdict == verdict and before.preset and Path(before.preset).exists():
        return replace(ended, preset=before.preset)
    name = record.save_as or name_for(record.preset, setting.orders.job)
    preset = winning_preset(name, verdict, record.resolved, setting.orders.job, setting.inventory, folder.id)
    try:
        return replace(ended, preset=str(save_winner(preset)))
    except PresetError as error:
        return replace(ended, sentence=f"The winner could not be saved: {error}")

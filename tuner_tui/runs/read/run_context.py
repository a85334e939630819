"""What the events of a run do not say: earlier runs of the same training, its checkpoint, and the energy it took."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from tuner_tui.core.line_files import LineTail
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import Series, mean_rates, startup_phases
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.checkpoints import SavedCheckpoint, lineage_checkpoint
from tuner_tui.runs.read.event_sampling import SPREAD, sampled_new_lines
from tuner_tui.runs.read.reader import RunReader, read_brief
from tuner_tui.runs.store.codec import decode_events, decode_sample
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record, recorded_runs
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome
from tuner_tui.settings.job import BuiltinJob, same_program

PRICE_VARIABLE = "TUNER_KWH_PRICE"
"""Environment variable with the price of a kilowatt hour, such as `0.30 €` or `$0.12`."""
PRICE = re.compile(r"(\D{0,4}?)\s*(\d+(?:[.,]\d+)?)\s*(\D{0,4})")
MAX_PAST = 8
HEAD_LINES = 128
"""The start of a run stands in so many lines of its events."""


class PastRun(Struct, frozen=True):
    """An earlier run of the same training: its mean speed, the seconds that its start took in all, and its last loss.

    `startup_s` is None where the run made no step, `samples_s` where nothing was counted.
    """

    id: str
    samples_s: float | None
    startup_s: float | None
    loss: float | None = None


class EarlierLoss(NamedTuple):
    """The course of the loss of an earlier run; or of all those that a run `continued`, by the id of the last one."""

    name: str
    loss: Series
    continued: bool = False


class RunContext(Struct, frozen=True):
    """`past` are earlier runs of the same training on this machine, newest first; `earlier_loss` is that of the one
    that ended lowest, or of those that the run resumed.

    `checkpoint` is where a new run would go on, `energy_kwh` what the GPUs of the training took, `cost` its price in
    words, and `core_wait_share` the share of its time in which its main process waited for a core as it trained, None
    if not counted. They are read once the run has ended. `remedy` is what came of the remedy that it was started with
    until now. `is_loadable`: the command has a known way to load the checkpoint.
    """

    past: tuple[PastRun, ...] = ()
    earlier_loss: EarlierLoss | None = None
    checkpoint: SavedCheckpoint | None = None
    energy_kwh: float | None = None
    cost: str = ""
    core_wait_share: float | None = None
    remedy: RemedyOutcome | None = None
    is_loadable: bool = True

    @property
    def fastest(self) -> PastRun | None:
        """The fastest of the earlier runs; None if none measured its speed."""
        return max((run for run in self.past if run.samples_s), key=lambda run: run.samples_s or 0.0, default=None)

    @property
    def usual_startup_s(self) -> float | None:
        """The median time of the earlier starts; None without any."""
        times = sorted(run.startup_s for run in self.past if run.startup_s is not None)
        return times[len(times) // 2] if times else None


def read_run_context(
    folder: RunFolder,
    record: RunRecord,
    state: RunState,
    training_gpus: Callable[[Sample], frozenset[int]],
    environ: Mapping[str, str] = os.environ,
) -> RunContext:
    """Read what surrounds a run. `training_gpus` are those of a sample that the training uses."""
    past = tuple(_past_runs(folder, record))
    earlier_loss = _resumed_loss(folder.path.parent, record) or _best_loss(folder.path.parent, past)
    if state.finished is None:
        return RunContext(past, earlier_loss)
    checkpoint, is_loadable = read_resume_point(folder, state.options, state.switches, state.last_event_t)
    energy_kwh = gpu_energy_kwh(_spread_samples(folder.samples), training_gpus)
    cost = cost_text(energy_kwh, environ.get(PRICE_VARIABLE, ""))
    waited = read_core_wait_share(folder.samples, state.training_since_t)
    return RunContext(past, earlier_loss, checkpoint, energy_kwh, cost, waited, is_loadable=is_loadable)


@lru_cache(maxsize=4)
def read_resume_point(
    folder: RunFolder, options: tuple[str, ...], switches: tuple[str, ...], ended_t: float | None
) -> tuple[SavedCheckpoint | None, bool]:
    """The checkpoint of a run that has ended, and whether its command, with these options, has a known way to load it.

    Cached, as a screen asks each second.
    """
    from tuner_tui.runs.launch.resume import find_own_resume, takes_checkpoint  # only once a run has ended

    try:
        record, checkpoint = read_record(folder), lineage_checkpoint(folder)
    except RecordError:
        return None, True
    if checkpoint is None or takes_checkpoint(record.job, checkpoint):
        return checkpoint, True
    seen = RunState(options=options, switches=switches)
    return checkpoint, find_own_resume(record.job, Path(record.cwd), seen, checkpoint.path) is not None


def _spread_samples(path: Path) -> Iterator[Sample]:
    lines = sampled_new_lines(LineTail(path), sampling=SPREAD)
    return (sample for line in lines if (sample := decode_sample(line)) is not None)


@lru_cache(maxsize=4)
def read_core_wait_share(path: Path, since_s: float | None) -> float | None:
    """`core_wait_share` of a run that has ended, by its file of samples. Cached, as a screen asks each second."""
    return core_wait_share(_spread_samples(path), since_s or math.inf)


def _past_runs(folder: RunFolder, record: RunRecord) -> Iterator[PastRun]:
    same = (earlier for earlier, before in recorded_runs(folder.path.parent) if _is_earlier(before, record))
    for earlier in islice(same, MAX_PAST):
        state = read_brief(earlier).state
        well = state.outcome in ("completed", "stopped")  # the speed of one that failed says little
        speed = mean_rates(state.ranks.values()).samples_s if well else None
        begun = fold_all(RunState(), decode_events(islice(LineTail(earlier.events).lines(), HEAD_LINES)))
        startup_s = None if begun.first_step_t is None else sum(seconds for _, seconds in startup_phases(begun, 0.0))
        yield PastRun(earlier.id, speed, startup_s, state.loss)


def _is_earlier(before: RunRecord, record: RunRecord) -> bool:
    """Whether the one is of an earlier run of the same training as the other, and of no trial."""
    # The same words in another folder, such as `python train.py`, are another program.
    same_place = before.host == record.host and (before.cwd == record.cwd or isinstance(record.job, BuiltinJob))
    is_run = before.created_t < record.created_t and before.tuning is None
    return is_run and same_place and same_program(before.job, record.job)


def _resumed_loss(root: Path, record: RunRecord) -> EarlierLoss | None:
    points: dict[float, float | None] = {}
    for name in record.lineage if record.resumed_from is not None else ():  # else it started at step 0 again
        loss = RunReader(RunFolder(root / name)).poll().history.loss
        before = {x: y for x, y in points.items() if x < min(loss.xs, default=math.inf)}
        points = before | dict(zip(loss.xs, loss.ys, strict=True))
    return (
        EarlierLoss(record.lineage[-1], Series("loss", "", (*points,), (*points.values(),)), True) if points else None
    )


def _best_loss(root: Path, past: Iterable[PastRun]) -> EarlierLoss | None:
    ended = [(run.loss, run.id) for run in past if run.loss is not None and math.isfinite(run.loss)]
    if not ended:
        return None
    name = min(ended)[1]
    loss = RunReader(RunFolder(root / name)).poll().history.loss
    return EarlierLoss(name, loss) if loss.xs else None


def gpu_energy_kwh(samples: Iterable[Sample], training_gpus: Callable[[Sample], frozenset[int]]) -> float | None:
    """The energy that the GPUs of the training took between the first and the last sample, in kWh.

    None without a GPU, or where the power of one of them is unknown.
    """
    joules, before, before_w = 0.0, None, 0.0
    used: frozenset[int] = frozenset()
    for sample in samples:
        used |= training_gpus(sample)
        watts = [gpu.power_w for gpu in sample.gpus if gpu.index in used]
        measured_w = [power for power in watts if power is not None]
        if len(measured_w) < len(watts):
            return None
        power_w = sum(measured_w)
        if before is not None:
            joules += (sample.time_s - before) * (power_w + before_w) / 2
        before, before_w = sample.time_s, power_w
    return joules / 3.6e6 if used and joules > 0 else None


def core_wait_share(samples: Iterable[Sample], since_s: float) -> float | None:
    """The mean share of all time in which a main process waited for a core from `since_s` on; None if not counted."""
    mains = ((sample.time_s, main) for sample in samples for main in sample.processes if main.role == "main")
    waits = [(time_s, main.cpu_queue_pct) for time_s, main in mains if main.cpu_queue_pct is not None]
    trained = [wait for time_s, wait in waits if time_s >= since_s]
    return sum(trained) / (100 * len(waits)) if trained else None


def cost_text(energy_kwh: float | None, price: str) -> str:
    """The cost of `energy_kwh` at a `price` such as `0.30 €`; empty if either is unknown."""
    match = PRICE.fullmatch(price.strip())
    if energy_kwh is None or match is None:
        return ""
    before, number, after = match.groups()
    amount = f"{energy_kwh * float(number.replace(',', '.')):.2f}"
    return " ".join(filter(None, (before.strip(), amount, after.strip())))

"""Builders of run views with defaults that keyword arguments replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.progress import History, Series
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Evaluated, Finished, Launched, Steps
from tuner_tui.runs.read.reader import RunView
from tuner_tui.runs.read.status import RunStatus
from tuner_tui.runs.store.codec import encode_event, encode_sample
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, create_folder, write_supervisor_state
from tuner_tui.runs.store.record import RunRecord, write_record
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings

JOB = BuiltinJob(model="bert-base-uncased", data="reviews.csv")


def record(settings: dict[str, Any] | None = None, **changes: Any) -> RunRecord:
    """A record with these settings."""
    values = settings or {}
    resolved = Resolved(Settings(**values), dict.fromkeys(values, Origin(OriginKind.FLAG, "--set")))
    fields: dict[str, Any] = {
        "id": "r001", "created_t": 1.0, "job": JOB, "resolved": resolved, "argv": ("python",), "cwd": "/w",
        "interpreter": "/p", "host": "box", "program_version": "0.1", "output_dir": "/o",
        "versions": {"torch": "2.13.0"}, "git_sha": "aaa", "git_dirty": False,
    }  # fmt: skip
    return RunRecord(**{**fields, **changes})


def counters(steps: int, batch: int, train_s: float, rank: int = 0, **changes: Any) -> Steps:
    """Counters after `steps` steps of `batch` samples."""
    fields: dict[str, Any] = {
        "t": 1.0, "rank": rank, "step": steps, "own_steps": steps, "samples": steps * batch,
        "tokens": steps * batch * 90, "padding_tokens": steps * batch * 10, "train_s": train_s,
        "data_wait_s": 0.1 * train_s,
    }  # fmt: skip
    return Steps(**{**fields, **changes})


def view(
    settings: dict[str, Any] | None = None,
    steps: int = 100,
    batch: int = 8,
    train_s: float = 50.0,
    loss: tuple[tuple[float, float | None], ...] = (),
    ranks: tuple[Steps, ...] = (),
    state: dict[str, Any] | None = None,
    **changes: Any,
) -> RunView:
    """A run of one rank unless `ranks` are given; `changes` apply to its record."""
    latest = ranks or (counters(steps, batch, train_s),)
    fields: dict[str, Any] = {
        "step": steps,
        "total_steps": steps,
        "ranks": {run.rank or 0: RankState(run.rank or 0, 1, run, (run,)) for run in latest},
        "evaluations": (Evaluated(t=1.0, step=steps, metrics={"eval_loss": 0.5, "eval_runtime": 3.0}),),
    }
    history = History(loss=Series("loss", "", tuple(x for x, _ in loss), tuple(y for _, y in loss)))
    return RunView(
        RunState(**{**fields, **(state or {})}),
        history,
        RunStatus("ended", "Completed."),
        record=record(settings, **changes),
    )


def whole_run(root: Path) -> RunFolder:
    """A run that completed."""
    folder = create_folder(root)
    write_record(folder, replace(record(), id=folder.id))
    gone = ProcessId(2**22 - 7, 1)
    ended = SupervisorState(
        this_machine(), gone, 1.0, gone, 9.0, exit_code=0, outcome="completed", sentence="Completed."
    )
    write_supervisor_state(folder.state, ended)
    events = Launched(t=2.0, pid=gone.pid), Finished(t=9.0, outcome="completed", sentence="Completed.")
    folder.events.write_bytes(b"".join(map(encode_event, events)))
    folder.samples.write_bytes(encode_sample(Sample(3.0)))
    folder.output_log.write_text("trained\n")
    return folder

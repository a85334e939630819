"""What earlier runs of a job say about the length of a trial, and the least time that makes sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.store.test_record import record
from tests.tuning.builders import SCRIPT, resolved
from tuner_tui.runs.events.types import Event, Finished, Launched, Steps
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.tuning.create import time_needed
from tuner_tui.tuning.time_budget import expected_trial_s


def write_run(root: Path, *events: Event, job: CommandJob = SCRIPT, tuning: str | None = None) -> None:
    folder = create_folder(root)
    write_record(folder, record(id=folder.id, job=job, tuning=tuning))
    folder.events.write_bytes(b"".join(map(encode_event, events)))


def write_trial(root: Path, seconds: float, job: CommandJob = SCRIPT) -> None:
    steps = Steps(t=seconds, step=9, own_steps=9)
    ended = Finished(t=seconds, outcome="completed", step=9)
    write_run(root, Launched(t=0.0, pid=1), steps, ended, job=job, tuning="t001")


def test_a_trial_takes_what_trials_took(tmp_path: Path) -> None:
    for seconds in (12.0, 40.0, 14.0):
        write_trial(tmp_path, seconds)
    write_trial(tmp_path, 300.0, CommandJob(command=("python", "other.py"), apply="inject"))
    assert expected_trial_s(SCRIPT, tmp_path) == 14.0


def test_whole_runs_do_not_hide_the_trials(tmp_path: Path) -> None:
    write_trial(tmp_path, 20.0)
    for _ in range(10):
        write_run(tmp_path, Launched(t=0.0, pid=1), Finished(t=80.0, outcome="completed", step=400))
    assert expected_trial_s(SCRIPT, tmp_path) == 20.0


def test_nothing_is_known_of_a_job_that_never_ran(tmp_path: Path) -> None:
    write_run(tmp_path, Launched(t=0.0, pid=1), Finished(t=2.0, outcome="failed"))
    assert expected_trial_s(SCRIPT, tmp_path) is None


def request(root: Path) -> LaunchRequest:
    return LaunchRequest(job=SCRIPT, resolved=resolved(), cwd=root, root=root)


def test_minutes_that_hold_no_comparison_are_refused_with_the_least_that_do(tmp_path: Path) -> None:
    """Trials of 40 s: the start, a change with its slack, two pairs and the check of the preset, and 10 %."""
    write_trial(tmp_path, 40.0)
    needed = time_needed(request(tmp_path))
    assert needed.minutes == 6
    needed.ensure(6.0)
    with pytest.raises(SettingsError, match=r"2 min are too short.*It needs at least 6 min.*about 40 s"):
        needed.ensure(2.0)


def test_before_any_run_only_what_no_trial_can_do_is_refused(tmp_path: Path) -> None:
    needed = time_needed(request(tmp_path))
    assert needed.minutes == 1
    needed.ensure(1.0)
    with pytest.raises(SettingsError, match="a trial takes at least 5 s"):
        needed.ensure(0.5)

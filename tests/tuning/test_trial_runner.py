"""One trial as a real run: measured, out of memory, failed, without a step, not applied, aborted."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import Sandbox, box, supervisor_state, wait_ended, wait_gone
from tests.tuning.builders import resolved
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import OriginKind, Settings
from tuner_tui.tuning.trial import Trial, TrialProtocol
from tuner_tui.tuning.trial_runner import (
    TrialCallbacks,
    TrialReport,
    TrialRunner,
    end_run,
    overdue_reason,
    with_tuned_origins,
)

__all__ = ["box"]

LOOP = Path(__file__).parent / "scripts" / "plain_loop.py"
HF_SCRIPT = LOOP.with_name("hf_script.py")
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}
QUICK = TrialProtocol(spread=0.2, least_s=0.1, most_s=1.0)
START: dict[str, Any] = {"per_device_train_batch_size": 8, "dataloader_num_workers": 0}


def command(*words: str, **changes: Any) -> CommandJob:
    """The plain loop, its batch and workers by placeholders."""
    argv = (sys.executable, str(LOOP), "{per_device_train_batch_size}", "{dataloader_num_workers}", *words)
    return CommandJob(command=argv, apply="placeholders", **changes)


class Trials:
    """Runs trials in a folder, and remembers their runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: list[RunFolder] = []

    def runner(self, job: CommandJob, terms: TrialProtocol = QUICK, **values: Any) -> TrialRunner:
        request = LaunchRequest(
            job=job, resolved=resolved(**START, **values), interpreter=sys.executable, cwd=self.root, environ=ENVIRON,
            root=self.root / "runs", tuning="t007",
        )  # fmt: skip
        return TrialRunner(request, terms)

    def run(self, runner: TrialRunner, callbacks: TrialCallbacks | None = None, **changes: Any) -> TrialReport:
        settings = runner.base.resolved.settings.changed(**changes)
        trial = Trial(number=1, purpose="knob", settings=settings, reason="", changed=tuple(changes))
        return runner.run(trial, replace(callbacks or TrialCallbacks(), launched=self.folders.append))

    def script(self, text: str) -> CommandJob:
        (self.root / "train.py").write_text(text)
        return CommandJob(command=(sys.executable, "train.py"), apply="inject")


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    made = Trials(tmp_path)
    yield made
    for folder in made.folders:
        end_run(folder)


@pytest.mark.train
def test_a_trial_is_a_run_like_any_other(trials: Trials) -> None:
    done = trials.run(trials.runner(command()), per_device_train_batch_size=16)
    measured = done.measurement
    assert measured.outcome == "measured", measured.sentence
    assert measured.samples_s is not None
    assert measured.samples_s > 0
    assert measured.tokens_s is None
    assert measured.dataset_samples == 640
    assert measured.peak_bytes is not None
    assert done.settings.per_device_train_batch_size == 16
    assert measured.overhead_s is not None
    assert 0.1 < measured.overhead_s < measured.seconds
    record = read_record(trials.folders[0])
    assert (record.id, record.tuning) == (measured.run_id, "t007")
    assert record.argv[2] == "16"
    assert record.resolved.origin("per_device_train_batch_size").kind is OriginKind.TUNED
    assert record.resolved.origin("dataloader_num_workers").kind is OriginKind.PRESET


@pytest.mark.full
@pytest.mark.train
@pytest.mark.parametrize(("max_steps", "steps"), [(None, 51), (7, 7)])
def test_a_trainer_would_take_its_own_number_of_steps(trials: Trials, max_steps: int | None, steps: int) -> None:
    """200 samples, 6 × 2 a step and 3 epochs: 17 steps an epoch. The trial itself sets another `max_steps`."""
    text = HF_SCRIPT.read_text()
    script_text = text if max_steps is None else text.replace("use_cpu=True", f"use_cpu=True, max_steps={max_steps}")
    (trials.root / "train.py").write_text(script_text)
    job = CommandJob(command=(sys.executable, "train.py", str(trials.root / "out")), apply="inject")
    request = LaunchRequest(
        job=job, resolved=resolved(), interpreter=sys.executable, cwd=trials.root, environ=ENVIRON,
        root=trials.root / "runs", tuning="t007",
    )  # fmt: skip
    measured = trials.run(TrialRunner(request, QUICK)).measurement
    assert measured.outcome == "measured", measured.sentence
    assert measured.job_steps == steps


@pytest.mark.train
def test_a_command_that_ignores_its_settings_is_found_out(trials: Trials) -> None:
    measured = trials.run(trials.runner(command("ignores")), per_device_train_batch_size=16).measurement
    assert measured.outcome == "not-applied"
    assert measured.not_applied == ("per_device_train_batch_size",)
    assert "16 was requested, but batches of 4 were observed" in measured.sentence


@pytest.mark.full
@pytest.mark.train
def test_ranks_are_added_up_and_all_of_them_ended(trials: Trials) -> None:
    job = command("ranks", launcher="torchrun", processes=2)
    measured = trials.run(trials.runner(job)).measurement
    assert measured.outcome == "measured", measured.sentence
    [folder] = trials.folders
    view = {path.name for path in folder.event_files()}
    assert {"events-rank0.jsonl", "events-rank1.jsonl"} <= view
    assert not read_status(folder).live


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [
        ("raise MemoryError('Unable to allocate 9.00 TiB')", "out-of-memory", "Unable to allocate 9.00 TiB"),
        ("import no_such_package", "failed", "no_such_package"),
        ("print('nothing to do')", "no-step", "was not observed"),
    ],
)
def test_a_trial_without_figures_says_what_happened(trials: Trials, script: str, outcome: str, words: str) -> None:
    measured = trials.run(trials.runner(trials.script(script))).measurement
    assert (measured.outcome, measured.throughput) == (outcome, None)
    assert words in measured.sentence


def test_a_command_that_never_takes_a_step_is_ended(trials: Trials) -> None:
    job = trials.script("import signal\nwhile True: signal.pause()")
    measured = trials.run(trials.runner(job, TrialProtocol(first_step_s=0.0))).measurement
    assert measured.outcome == "no-step"
    assert "took no optimizer step" in measured.sentence
    assert not read_status(trials.folders[0]).live


def test_an_abort_ends_the_trial_at_once(trials: Trials) -> None:
    job = trials.script("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()")
    measured = trials.run(trials.runner(job), TrialCallbacks(aborted=lambda: True)).measurement
    assert (measured.outcome, measured.sentence) == ("aborted", "Aborted.")
    assert not read_status(trials.folders[0]).live


def test_the_time_of_the_tuning_is_not_overrun(trials: Trials) -> None:
    job = trials.script("import signal\nwhile True: signal.pause()")
    measured = trials.run(trials.runner(job), TrialCallbacks(deadline_t=time.time())).measurement
    assert (measured.outcome, measured.sentence) == ("aborted", "The time limit of the tuning was reached.")


@pytest.mark.full
def test_a_trial_whose_supervisor_is_killed_is_ended_all_the_same(trials: Trials) -> None:
    job = trials.script("import signal\nwhile True: signal.pause()")

    def kill(folder: RunFolder) -> None:
        trials.folders.append(folder)
        supervisor = supervisor_state(folder).supervisor
        os.kill(supervisor.pid, signal.SIGKILL)
        wait_gone(supervisor)

    trial = Trial(number=1, purpose="start", settings=Settings(**START), reason="")
    measured = trials.runner(job).run(trial, TrialCallbacks(launched=kill)).measurement
    assert (measured.outcome, measured.sentence) == ("no-step", "Its supervisor was killed, so it was stopped.")
    assert not read_status(trials.folders[0]).training_alive


def test_a_trial_that_somebody_left_behind_is_ended(box: Sandbox) -> None:
    folder = box.launch("import signal\nwhile True: signal.pause()")
    end_run(folder)
    assert wait_ended(folder).outcome == "stopped"
    end_run(folder)


def test_only_what_differs_from_the_start_counts_as_tuned() -> None:
    start = resolved(per_device_train_batch_size=8, learning_rate=1e-3)
    after = with_tuned_origins(start, start.settings.changed(torch_compile=True))
    assert after.origin("torch_compile").kind is OriginKind.TUNED
    assert after.origin("learning_rate").kind is OriginKind.PRESET
    assert after.chosen == {"per_device_train_batch_size", "learning_rate", "torch_compile"}


def test_a_start_that_showed_itself_is_not_handed_over(tmp_path: Path) -> None:
    runner = Trials(tmp_path).runner(command()).with_start(Settings(**START, gradient_accumulation_steps=4))
    request = runner.request(Settings(**START, gradient_accumulation_steps=4, torch_compile=True))
    assert "gradient_accumulation_steps" not in request.resolved.chosen
    assert "torch_compile" in request.resolved.chosen


TERMS = TrialProtocol(first_step_s=300, compiling_s=1800, stalled_s=120)


@pytest.mark.parametrize(
    ("state", "now", "words"),
    [
        (RunState(), 1e6, ""),
        (RunState(launched_t=1000.0), 1299.0, ""),
        (RunState(launched_t=1000.0), 1301.0, "The observer did not report"),
        (RunState(launched_t=1000.0, ranks={0: RankState(0)}), 1301.0, "no optimizer step in 5 minutes."),
        (RunState(launched_t=1000.0, phase="compiling"), 1301.0, ""),
        (RunState(launched_t=1000.0, phase="compiling"), 2801.0, "no optimizer step in 30 minutes"),
        (RunState(launched_t=1000.0, last_step_t=2000.0), 2119.0, ""),
        (RunState(launched_t=1000.0, last_step_t=2000.0), 2121.0, "made no progress for 121 s"),
        (RunState(launched_t=1000.0, last_step_t=2000.0, phase="evaluating", phase_since_t=2100.0), 2219.0, ""),
    ],
)
def test_patience(state: RunState, now: float, words: str) -> None:
    why = overdue_reason(state, TERMS, now)
    assert words in why
    assert bool(why) == bool(words)


@pytest.mark.full
def test_a_trial_that_takes_several_times_its_prediction_is_given_up(trials: Trials) -> None:
    """It starts and trains no step, for which the protocol alone would wait five minutes."""
    job = trials.script("import signal, torch\nsignal.pause()")
    measured = trials.run(trials.runner(job), TrialCallbacks(expected_s=1.0, give_up_s=2.0)).measurement
    assert (measured.outcome, measured.passing) == ("no-step", False)
    assert measured.sentence.startswith("It should have taken 1 s and was stopped after ")


def test_who_gives_more_time_waits_longer_for_the_first_step() -> None:
    assert TrialProtocol.within(9.0).first_step_s == 300
    assert TrialProtocol.within(60.0).first_step_s == 1200


def test_the_built_in_fallback_is_off_in_a_trial(tmp_path: Path) -> None:
    runner = Trials(tmp_path).runner(command(fallback=3))
    assert runner.request(Settings()).job.fallback == 0

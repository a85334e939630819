"""`tuner-tui tune` as a person types it: real trainings, real processes, real signals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands.test_run import Shell, line_of, shell
from tests.fakes.nvml.scenario import GIB, FakeGpu, FakeProcess, Scenario, Wave
from tests.runs.sandbox import wait_ended
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import list_runs, runs_dir
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.presets import load_preset
from tuner_tui.tuning.store import TuningFolder, tunings_dir
from tuner_tui.tuning.trial_log import TrialCompleted, TuningReader

__all__ = ["shell"]

SCRIPTS = Path(__file__).parents[2] / "tuning" / "scripts"
LOOP = (sys.executable, str(SCRIPTS / "plain_loop.py"), "{per_device_train_batch_size}", "{dataloader_num_workers}")
TRAINER = (sys.executable, str(SCRIPTS / "hf_script.py"))
SLOW_LOOP = (sys.executable, str(SCRIPTS / "plain_loop.py"), "8", "{dataloader_num_workers}", "slow", "samples=9999")
"""It waits for its data, takes only the workers that load it, and no trial sees the end of an epoch."""
START = ("--set", "per_device_train_batch_size=8", "--set", "dataloader_num_workers=0")

NO_WORKERS = ("--set", "dataloader_num_workers=0")


@pytest.fixture
def tuner(shell: Shell) -> Shell:
    shell.environ |= {"OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(shell.home / "config")}
    return shell


def tuning(shell: Shell, name: str = "t001") -> TuningFolder:
    return TuningFolder(tunings_dir(shell.environ) / name)


def preset_of(shell: Shell) -> Any:
    view = TuningReader(tuning(shell)).poll()
    assert view.preset is not None, view
    return load_preset(Path(view.preset)).preset


@pytest.mark.train
@pytest.mark.full
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_a_plain_loop_that_waits_for_its_data_gets_workers(tuner: Shell) -> None:
    done = tuner("tune", "--most-minutes", "25", "--save-as", "mine", *NO_WORKERS, "--", *SLOW_LOOP)
    assert done.returncode == 0, done.stderr + done.stdout
    view = TuningReader(tuning(tuner)).poll()
    assert view.status == "finished"
    assert view.verdict is not None
    assert view.verdict.winner.dataloader_num_workers > 0, done.stdout
    assert view.verdict.ratio is not None
    assert view.verdict.ratio > 1.2
    preset = preset_of(tuner)
    assert preset.name == "mine"
    assert preset.settings["dataloader_num_workers"] == view.verdict.winner.dataloader_num_workers
    assert "samples/s" in preset.before
    assert "samples/s" in preset.after
    assert "faster: workers 0 → " in " ".join(done.stdout.split())
    for folder in list_runs(runs_dir(tuner.environ)):
        assert read_record(folder).tuning == "t001"
        assert not read_status(folder).live


def with_gpus(shell: Shell, library: Path, *gpus: FakeGpu) -> None:
    seen = Scenario(gpus).environment(library, shell.home)
    shell.environ |= {name: seen[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_SCENARIO")}


FREE = FakeGpu(memory_used=Wave(0), processes=())
TAKEN = FakeGpu(memory_used=Wave(60 * GIB), processes=(FakeProcess(None, 59 * GIB),))


@pytest.mark.parametrize(
    ("gpus", "words", "sentence"),
    [
        ((), (), "Parallel trials need GPUs"),
        ((FREE, FREE), ("--launcher", "torchrun", "--processes", "2"),
         "Parallel trials get one GPU each, but this training starts 2 processes."),
        ((TAKEN,), (), "No GPU is free for trials (GPU 0:"),
    ],
    ids=["no GPUs", "several processes", "GPUs in use"],
)  # fmt: skip
def test_trials_side_by_side_need_a_free_gpu_each(
    tuner: Shell, nvml_library: Path, gpus: tuple[FakeGpu, ...], words: tuple[str, ...], sentence: str
) -> None:
    with_gpus(tuner, nvml_library, *gpus)
    done = tuner("tune", "--parallel", *words, *START, "--", *LOOP)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert not tunings_dir(tuner.environ).exists()


def test_a_script_that_is_not_there_makes_no_folder(tuner: Shell) -> None:
    done = tuner("tune", *START, "--", sys.executable, "nosuch.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no script " in done.stderr
    assert not tunings_dir(tuner.environ).exists()


@pytest.mark.full
@pytest.mark.train
def test_an_interrupt_or_the_death_of_the_tuner_leaves_no_trial_on_any_gpu(tuner: Shell, nvml_library: Path) -> None:
    with_gpus(tuner, nvml_library, FREE, FREE)
    words = ("tune", "--parallel", "--json", "--most-minutes", "25", *NO_WORKERS, "--", *SLOW_LOOP)
    process = tuner.start(*words)
    entries = [json.loads(line_of(process.stdout)) for _ in range(5)]
    kinds = ["begun", "trial-begun", "trial-done", "trial-begun", "trial-begun"]
    assert [entry["kind"] for entry in entries] == kinds, "after the first trial both GPUs at once"
    assert len({entry["trial"]["gpu"] for entry in entries[3:]}) == 2
    killed = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if is_tuner_of(path, tuner)]
    assert len(killed) == 1
    os.kill(killed[0], signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == 1
    assert TuningReader(tuning(tuner)).poll().status == "killed"
    for orphan in list_runs(runs_dir(tuner.environ)):
        wait_ended(orphan)
    again = tuner.start("tune", "--resume", "t001", "--json", "--", *SLOW_LOOP)
    assert json.loads(line_of(again.stdout))["kind"] == "begun", "of the tuner that was killed"
    while json.loads(line_of(again.stdout))["kind"] != "begun":
        continue
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=300)
    assert again.returncode == 130
    assert not any(read_status(run).live for run in list_runs(runs_dir(tuner.environ)))


def is_tuner_of(cmdline: Path, shell: Shell) -> bool:
    """Whether a process is the tuner of this shell's first tuning."""
    try:
        words = cmdline.read_bytes().split(b"\0")
    except OSError:
        return False
    return b"tuner_tui.tuning.tuner" in words and str(tuning(shell).path).encode() in words


@pytest.fixture
def spinning() -> Iterator[None]:
    """Half of the cores are kept busy, by what gives way to other tests."""
    cores, code = len(os.sched_getaffinity(0)), "import os\nos.nice(19)\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(max(2, cores // 2))]
    yield
    for process in spinning:
        process.kill()
        process.wait()


@pytest.mark.full
@pytest.mark.train
def test_on_a_busy_machine_nothing_is_confirmed_or_saved(tuner: Shell, spinning: None) -> None:
    done = tuner("tune", "--most-minutes", "8", *NO_WORKERS, "--", *SLOW_LOOP)
    assert "busy    Other processes use" in done.stdout
    assert "python -c" in done.stdout or "cores" in done.stdout
    view = TuningReader(tuning(tuner)).poll()
    assert view.status == "finished", done.stdout + done.stderr
    assert view.busy
    assert any(entry.trial.settings.dataloader_num_workers for entry in view.tried), "measuring goes on"
    assert view.verdict is not None
    assert view.verdict.ratio is None, done.stdout
    assert view.preset is None


@pytest.mark.full
@pytest.mark.train
def test_the_winner_under_a_memory_limit_was_run_and_fits(tuner: Shell) -> None:
    words = ("--free-batch", "--memory-limit", "1500MiB", "--most-minutes", "8", "--set",
             "per_device_train_batch_size=8", "--", sys.executable, str(SCRIPTS / "memory_loop.py"))  # fmt: skip
    done = tuner("tune", *words, "{per_device_train_batch_size}")
    assert done.returncode == 0, done.stderr + done.stdout
    view = TuningReader(tuning(tuner)).poll()
    assert view.verdict is not None
    assert view.limit_bytes is not None
    assert view.limit_bytes < 1500 * 2**20
    runs = [entry for entry in view.tried if entry.trial.settings == view.verdict.winner]
    assert runs
    for run in runs:
        assert run.measurement.outcome == "measured"
        assert run.measurement.peak_bytes is not None
        assert run.measurement.peak_bytes <= view.limit_bytes
    outcomes = [entry.measurement.outcome for entry in view.tried]
    assert outcomes.count("out-of-memory") <= 1, done.stdout
    assert set(outcomes) <= {"measured", "out-of-memory"}, done.stdout


@pytest.mark.full
@pytest.mark.train
def test_out_of_memory_from_the_first_sample_on(tuner: Shell) -> None:
    script = tuner.script("raise MemoryError('Unable to allocate 9.00 TiB')")
    done = tuner("tune", "--set", "per_device_train_batch_size=2", "--apply", "inject", "--",
                 sys.executable, script)  # fmt: skip
    assert done.returncode == 3, done.stderr + done.stdout
    assert "out of memory" in done.stdout


def waiting(shell: Shell) -> tuple[str, ...]:
    """A tuning whose first trial says `up` into a file and then waits for ever."""
    text = "import signal, sys\nopen(sys.argv[1], 'w').write('up')\nwhile True: signal.pause()\n"
    return ("tune", "--apply", "inject", "--", sys.executable, shell.script(text), "{}")


def under_way(tuner: Shell) -> subprocess.Popen[str]:
    """Such a tuning, its first trial up."""
    up = tuner.home / "up"
    os.mkfifo(up)
    process = tuner.start(*(word.replace("{}", str(up)) for word in waiting(tuner)))
    with up.open() as opened:
        assert opened.read() == "up"
    return process


def test_one_tuning_at_a_time_which_ctrl_c_ends_and_keeps(tuner: Shell) -> None:
    process = under_way(tuner)
    second = tuner("tune", "--apply", "inject", "--", sys.executable, "-c", "print('other')")
    assert (second.returncode, "t001 is running" in second.stderr) == (4, True)
    process.send_signal(signal.SIGINT)
    assert "--resume t001" in process.communicate(timeout=300)[1]
    assert process.returncode == 130
    folder = tuning(tuner)
    assert TuningReader(folder).poll().status == "aborted"
    assert not folder.live
    assert not any(read_status(run).live for run in list_runs(runs_dir(tuner.environ)))


@pytest.mark.full
def test_a_killed_tuner_goes_on_from_its_folder(tuner: Shell) -> None:
    up = tuner.home / "up"
    os.mkfifo(up)
    words = [word.replace("{}", str(up)) for word in waiting(tuner)]
    done = tuner(words[0], "--detach", *words[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "t001"
    with up.open() as opened:
        assert opened.read() == "up"
    folder = tuning(tuner)
    [left] = list_runs(runs_dir(tuner.environ))
    kill_holder(folder.lock)
    assert TuningReader(folder).poll().status == "killed"
    assert read_status(left).live, "the trial was left behind"
    assert tuner("tune", "--resume", "1", "--set", "seed=1").returncode == 2
    process = tuner.start("tune", "--resume", "1")
    with up.open() as opened:
        assert opened.read() == "up"
    assert not read_status(left).live
    again = tuner("tune", "--resume", "1")
    assert again.returncode == 4
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 143
    assert not any(isinstance(entry, TrialCompleted) for entry in TuningReader(folder).entries())


def kill_holder(lock: Path) -> None:
    """SIGKILL to the process that holds the lock, as the kernel tells it; returns when it is gone."""
    inode = lock.stat().st_ino
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    [pid] = [int(fields[4]) for fields in held if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}")]
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([descriptor], [], [], 30.0)[0]
    os.close(descriptor)

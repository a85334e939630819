"""What is said of a run where nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fakes import live_run
from tests.fakes.inventories import python
from tests.fakes.memory_outlooks import estimated
from tests.fakes.situations import GB, box, make_gpu
from tests.fakes.ui_backend import INTERPRETER, FakeBox, ended, opened, running
from tests.ui.pilots import app_of, on_screen, screen_text, until
from tuner_tui.advice.estimate import DataOutlook, MemoryOutlook
from tuner_tui.advice.recommend.duration_estimate import UNMEASURED, DurationEstimate
from tuner_tui.advice.recommend.sample_lengths import SampleLengths
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.runs.read.status import RunStatus, StatusKind
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.ui.panels.troubleshooting import TroubleshootingPanel
from tuner_tui.ui.records import JobFacts, TrainingConfig
from tuner_tui.ui.screens.pickers import run_table
from tuner_tui.ui.start_gpus import APART, gpus_of_start
from tuner_tui.ui.state import UiState
from tuner_tui.ui.status_text import (
    FIRST_KEYS,
    MORE_KEYS,
    idle_line,
    launch_rows,
    next_stop_question,
    next_training,
    quiet_line,
    status_scene,
)
from tuner_tui.view.cells import GOOD, READING, plain_text
from tuner_tui.view.finding_rows import good_rows
from tuner_tui.view.hardware_rows import hardware_summary

FOLDER = Path("/runs/r007")


def test_a_run_that_goes_on_and_none_at_all() -> None:
    assert quiet_line(UiState(folder=FOLDER, view=running(), findings=())) == "No problems so far."
    facts = JobFacts(Path("python"), None, {})
    ready = UiState(inventory=live_run.inventory(), interpreter=INTERPRETER).with_config(opened())
    assert quiet_line(replace(ready, facts=facts)) == "No problems found."
    over = quiet_line(UiState(folder=FOLDER, view=ended("completed", "Completed."), findings=()))
    assert over == "No problems found."
    failed = quiet_line(UiState(folder=FOLDER, view=ended("failed", "It exited with code 1."), findings=()))
    assert "No problems" not in failed
    assert GOOD not in plain_text(good_rows(failed, 90)[0])


def test_nothing_is_said_of_what_was_not_read() -> None:
    read = UiState().with_config(opened())
    for state in (read, replace(read, inventory=live_run.inventory()), replace(read, folder=FOLDER, view=running())):
        assert quiet_line(state) == READING
    for state in (
        UiState(),
        UiState(folder=FOLDER),
        replace(read, folder=FOLDER),
        replace(read, folder=FOLDER, findings=()),
    ):
        assert quiet_line(state) == "", "the status line or the live panel says it"
    starting = running(RunState(launched_t=1.0))
    assert "no step has finished yet" in quiet_line(UiState(folder=FOLDER, view=starting, findings=()))
    assert idle_line(UiState(inventory=live_run.inventory())) == READING
    assert idle_line(UiState().with_config(opened())).startswith("tuner-tui sets up, starts and watches")
    named = UiState().with_config(replace(opened(), named=True))
    assert idle_line(named).startswith("No run open · t: train"), "who opens a preset has room for its name at 80 cells"
    assert next_training(UiState(folder=FOLDER).with_config(opened())) == (("run", READING),)


def test_what_would_be_trained_by_the_built_in_job_or_a_command() -> None:
    job = BuiltinJob(model="gpt2", task="causal-lm", data="train.jsonl", max_samples=8000)
    state = UiState().with_config(replace(opened(max_steps=400), job=job))
    assert next_training(state)[:5] == (
        ("preset", "llama-1b-sft"),
        ("model", "gpt2 · causal-lm"),
        ("data", "train.jsonl · at most 8,000 samples"),
        ("length", "400 steps"),
        ("settings", "micro batch 8 · accumulation 1 · precision fp32 · workers 0"),
    )
    command = CommandJob(command=("python", "sft.py", "--note", "two words"))
    state = UiState().with_config(replace(opened(None), job=command))
    assert next_training(state) == (
        ("preset", "none"), ("command", "python sft.py --note 'two words'"), ("", ""), FIRST_KEYS[0],
        ("e", "edits this command and how it is started"), *FIRST_KEYS[1:], ("", ""), *MORE_KEYS,
    )  # fmt: skip
    assert next_training(UiState()) == ()


TWELVE = DurationEstimate(37_200.0, 16.0, 16.6, 0.0, True, "measured here by r001")
ROWS = SampleLengths((10, 20), 12_400)


SCRIPT = CommandJob(command=("python", "t.py"))


@pytest.mark.parametrize(
    ("config", "outlook", "length", "time", "peak"),
    [
        (
            opened(num_train_epochs=3.0),
            MemoryOutlook(estimated(), duration=TWELVE, data=DataOutlook(ROWS, 0.0, 0.1)),
            "3 epochs of 12,400 samples",
            "37 to 39 min",
            "56 ± 2 of 80 GiB",
        ),
        (
            opened(num_train_epochs=1.0),
            None,
            "1 epoch, samples not counted yet",
            UNMEASURED,
            "unknown until the estimate is ready",
        ),
        (
            replace(opened(), job=CommandJob(command=("python", "t.py"))),
            MemoryOutlook(unknown=UNMEASURED),
            "Length set by the command",
            UNMEASURED,
            UNMEASURED,
        ),
        (
            opened(num_train_epochs=1.0),
            MemoryOutlook(estimated(), duration=replace(TWELVE, low_samples_s=1.0)),
            "1 epoch of 37,200 samples",
            "unknown: earlier runs differ too much",
            "56 ± 2 of 80 GiB",
        ),
        (
            opened(max_steps=1000),
            MemoryOutlook(estimated(23), against="free on GPU 0", duration=TWELVE),
            "1,000 optimizer steps",
            "37 to 39 min",
            "74 ± 3 of 80 GiB free on GPU 0, may not fit",
        ),
    ],
)
def test_a_start_says_how_long_it_takes_and_what_memory(
    config: TrainingConfig, outlook: MemoryOutlook | None, length: str, time: str, peak: str
) -> None:
    assert launch_rows(config, outlook) == (length, [("Time", time), ("Peak memory", peak)])


def test_a_start_with_the_settings_that_ran_out_of_memory_says_so() -> None:
    config = replace(opened(), job=CommandJob(command=("python", "t.py")))
    _, rows = launch_rows(config, MemoryOutlook(unknown=UNMEASURED), failure="ran out of memory")
    assert rows[1] == ("Peak memory", "too large: these settings ran out of memory")


@pytest.mark.parametrize(
    ("job", "count", "held_gb", "words", "visible", "launched"),
    [
        (
            CommandJob(command=("torchrun", "--nproc-per-node=2", "t.py")),
            None,
            (60, 0, 0),
            "1, 2 · in use: 0",
            "1,2",
            1,
        ),
        (CommandJob(command=("torchrun", "--nproc-per-node=2", "t.py")), None, (0, 0, 60), "0, 1", None, 1),
        (
            CommandJob(command=("torchrun", "--nproc-per-node=3", "t.py")),
            None,
            (0, 9, 60),
            "0–2 · in use: 1, 2",
            None,
            1,
        ),
        (SCRIPT, None, (60, 0, 0, 0), "1–3 · in use: 0", "1,2,3", 1),
        (SCRIPT, None, (0,), "", None, 1),
        (SCRIPT, None, (60,), "GPU 0 · in use: 0", None, 1),
        (SCRIPT, 1, (0, 0), "GPU 0", "0", 1),
        (SCRIPT, 2, (0, 0, 0), "0, 1", None, 2),
        (SCRIPT, 2, (60, 0, 0), "1, 2 · in use: 0", "1,2", 2),
        (SCRIPT, 2, (60, 9, 0), "1, 2 · in use: 0, 1", "1,2", 2),
        (replace(SCRIPT, env={"CUDA_VISIBLE_DEVICES": "0"}), None, (60, 0), "GPU 0 · in use: 0", None, 1),
    ],
)
def test_a_start_takes_free_gpus_and_names_those_that_others_use(
    job: CommandJob, count: int | None, held_gb: tuple[int, ...], words: str, visible: str | None, launched: int
) -> None:
    machine = box(*(make_gpu(index=index) for index in range(len(held_gb))))
    state = UiState(inventory=machine, interpreter=INTERPRETER).with_config(replace(opened(), job=job))
    gpus = tuple(GpuSample(index, "RTX 3090", memory_used_bytes=held * GB) for index, held in enumerate(held_gb))
    choice = gpus_of_start(state, Sample(0.0, gpus), count)
    assert choice.taken == words
    current = choice.state.current
    assert current is not None
    assert (current.job.processes, current.launch_request().visible_gpus) == (launched, visible)


def test_a_start_whose_torch_has_no_cuda_says_which_command_shows_it() -> None:
    machine = box(make_gpu(index=0), make_gpu(index=1))
    state = UiState(inventory=machine, interpreter=python("2.13.0+cpu", None)).with_config(opened())
    taken = gpus_of_start(state, None).taken
    assert taken.startswith("none: PyTorch here is CPU-only (2.13.0+cpu)")
    assert taken.endswith("the GPUs will not be used.")
    on_cpu = replace(SCRIPT, launcher="torchrun", processes=2)
    taken = gpus_of_start(state.with_config(replace(opened(), job=on_cpu)), None).taken
    assert taken.startswith("none, 2 processes on the CPU: PyTorch here is CPU-only (2.13.0+cpu)")
    assert taken.endswith("the GPUs will not be used." + APART)
    assert " (CPU-only torch) · " in hardware_summary(machine, state.interpreter)
    assert "not used" not in hardware_summary(machine, INTERPRETER)


def test_the_gpus_of_a_start_are_named_once_it_is_known_whether_torch_uses_them() -> None:
    machine = box(make_gpu(index=0), make_gpu(index=1))
    state = UiState(inventory=machine).with_config(opened())
    assert "GPUs" not in dict(next_training(state))
    on_cpu = replace(state, interpreter=python("2.13.0+cpu", None))
    assert dict(next_training(on_cpu))["GPUs"] == "1 process on the CPU · g changes it"


LARGE = BuiltinJob(task="causal-lm", model="meta-llama/Llama-3.2-1B")


@pytest.mark.parametrize(
    ("job", "values", "accumulation", "words"),
    [
        (LARGE, (16, 4), 2, "as before: accumulation 4 → 2"),
        (LARGE, (16, 1), 1, "before 16: the learning rate may need another value"),
        (replace(SCRIPT, apply="hf-args"), (16, None), 1, ""),  # a Trainer uses both GPUs in one process, too
        (replace(SCRIPT, apply="none"), (16, 4), 4, "before 64: the learning rate may need another value"),
        (SCRIPT, (None, None), 1, "2 × as large as before, unless the script divides it"),
        (replace(SCRIPT, launcher="torchrun", processes=2), (16, 4), 4, ""),
    ],
)
def test_on_two_gpus_the_effective_batch_is_kept_or_said_to_be_another(
    job: Job, values: tuple[int | None, int | None], accumulation: int, words: str
) -> None:
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    machine = box(make_gpu(index=0), make_gpu(index=1))
    state = UiState(inventory=machine, interpreter=INTERPRETER).with_config(replace(opened(None, **given), job=job))
    choice = gpus_of_start(state, None, 2).with_batch_of(state)
    assert choice.batch == words
    assert choice.change == ({names[1]: accumulation} if words.startswith("as before") else {})
    current = choice.state.current
    assert current is not None
    assert current.resolved.settings.gradient_accumulation_steps == accumulation


async def test_settings_that_cannot_train_are_not_recommended_for_it() -> None:
    async with on_screen(FakeBox(opened=opened(dataloader_prefetch_factor=4))) as pilot:
        await until(pilot, lambda: "● Prefetch needs" in screen_text(pilot.app))
        assert app_of(pilot).main.query_one(TroubleshootingPanel).has_class("-warning")


def test_the_list_of_runs_says_how_each_went_and_what_it_trained() -> None:
    runs = [
        RunRow(
            "r002",
            "completed",
            "Completed.",
            str(FOLDER),
            title="demo",
            age_s=8000.0,
            duration_s=750.0,
            steps_s=3.125,
            loss=0.41236,
        ),
        RunRow(
            "r001",
            "failed",
            "It raised.",
            str(FOLDER),
            title="/opt/venv/bin/python train.py --lr 1e-4 --epochs 3",
            age_s=200_000.0,
        ),
    ]
    columns, items = run_table(runs, 80)
    assert [columns[1], *(item.about for item in items)] == [
        "state      started    took    steps/s  loss  command",
        "completed  2.2 h ago  12 min  3.12     0.41  demo",
        "failed     2.3 d ago                         train.py …-epochs 3",
    ]
    assert run_table(runs, 120)[1][1].about[-36:] == "python train.py --lr 1e-4 --epochs 3"
    assert items[1].detail == "/opt/venv/bin/python train.py --lr 1e-4 --epochs 3\nIt raised."


@pytest.mark.parametrize(
    ("kind", "words"),
    [("waiting", "It waits for a GPU · Q: the queue"), ("pending", "It waits for a GPU."), ("running", "")],
)
def test_a_run_in_the_queue_names_the_key_that_lists_it(kind: StatusKind, words: str) -> None:
    view = replace(running(), status=RunStatus(kind, "It waits for a GPU."))
    assert status_scene(UiState(folder=Path("/runs/r007"), view=view)).waits == words


@pytest.mark.parametrize(
    ("status", "order", "asked"),
    [
        (RunStatus("pending", "It waits."), "stop", "Cancel r007? Its job waits in Slurm."),
        (RunStatus("waiting", "It waits."), "stop", "r007 leaves the queue and never starts. Remove it?"),
        (
            RunStatus("broken", "No folder.", pid=7, training_alive=True),
            "kill",
            "The folder of r007 was deleted, but its processes continue. End them now (SIGTERM, then SIGKILL)? "
            "What they have not saved is lost.",
        ),
    ],
)
def test_what_stop_does_to_a_run_that_waits_or_lost_its_folder(status: RunStatus, order: str, asked: str) -> None:
    question = next_stop_question(UiState(folder=FOLDER, view=replace(running(), status=status), findings=()))
    assert question is not None
    assert (question[0], question[2]) == (order, asked)


@pytest.mark.parametrize(
    ("asked", "heading", "order"),
    [
        (None, "Stop", "stop"),
        ("stop", "Terminate", "terminate"),
        ("terminate", "Kill", "kill"),
        ("kill", "Kill", "kill"),
    ],
)
def test_each_request_to_stop_is_stronger_than_the_one_before(asked: str | None, heading: str, order: str) -> None:
    question = next_stop_question(UiState(folder=FOLDER, view=running(live_run.running(stop_requested=asked))))
    assert question is not None
    assert question[:2] == (order, heading)

"""Memory of earlier runs is read from the ends of their files, for the same task and model only."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from tests.runs.store.test_record import record
from tuner_tui.core.procfs import this_machine
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Event, Finished, InEffect, OutOfMemory, Phase, Steps
from tuner_tui.runs.read.measured_memory import END_BYTES, MAX_RUNS, allocated_at_failure, lacks_gpu_peak, measured_runs
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.store.record import redact_job, write_record
from tuner_tui.settings.job import BuiltinJob, CommandJob

JOB = BuiltinJob(task="causal-lm", model="gpt2")
GPU = Steps(t=2.0, step=9, own_steps=9, allocated_peak_bytes=700, reserved_peak_bytes=800, rss_peak_bytes=5000)


def run(root: Path, *events: Event, job: BuiltinJob | CommandJob = JOB) -> RunFolder:
    folder = create_folder(root)
    write_record(folder, record(id=folder.id, job=job))
    folder.events.write_bytes(b"".join(map(encode_event, events)))
    return folder


def test_the_newest_counters_of_a_gpu(tmp_path: Path) -> None:
    run(tmp_path, Steps(t=1.0, step=2, own_steps=2, allocated_peak_bytes=500), GPU, Phase(t=3.0, phase="ending"))
    (measured,) = measured_runs(JOB, tmp_path)
    assert (measured.id, measured.tensor_bytes, measured.reserved_bytes, measured.resident_bytes) == (
        "r001",
        700,
        800,
        None,
    )
    assert measured.settings.learning_rate == 1e-4


def test_on_a_cpu_the_resident_set_is_all_there_is(tmp_path: Path) -> None:
    run(tmp_path, Steps(t=1.0, step=5, own_steps=5, rss_peak_bytes=4000))
    (measured,) = measured_runs(JOB, tmp_path)
    assert (measured.tensor_bytes, measured.resident_bytes) == (None, 4000)


@pytest.mark.parametrize(
    "different_job", [BuiltinJob(task="causal-lm", model="tiny"), BuiltinJob(model="gpt2"), CommandJob(command=("x",))]
)
def test_other_jobs_say_nothing(tmp_path: Path, different_job: BuiltinJob | CommandJob) -> None:
    run(tmp_path, GPU, job=different_job)
    assert measured_runs(JOB, tmp_path) == ()


def test_a_run_of_one_step_or_without_counters_says_nothing(tmp_path: Path) -> None:
    run(tmp_path, Steps(t=1.0, step=1, own_steps=1, rss_peak_bytes=4000))
    run(tmp_path, Phase(t=1.0, phase="starting"))
    run(tmp_path).record.write_text("{")
    run(tmp_path).events.unlink()
    assert measured_runs(JOB, tmp_path) == ()


def test_newest_first_and_not_too_many(tmp_path: Path) -> None:
    for _ in range(MAX_RUNS + 2):
        run(tmp_path, GPU)
    measured = measured_runs(JOB, tmp_path)
    assert len(measured) == MAX_RUNS
    assert measured[0].id == f"r{MAX_RUNS + 2:03d}"


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path) -> None:
    folder = run(tmp_path)
    early = encode_event(Steps(t=1.0, step=3, own_steps=3, allocated_peak_bytes=1))
    folder.events.write_bytes(early * (2 * END_BYTES // len(early)) + encode_event(GPU))
    assert measured_runs(JOB, tmp_path)[0].tensor_bytes == 700


def test_a_command_is_matched_by_its_argv_and_has_the_observed_batch(tmp_path: Path) -> None:
    seen = InEffect(t=1.0, values={"per_device_train_batch_size": 24})
    script = CommandJob(command=("python", "x.py", "--api-key", "abc"), apply="inject")
    run(tmp_path, seen, GPU, job=redact_job(structs.replace(script, apply="none")))
    run(tmp_path, seen, GPU, job=CommandJob(command=("python", "y.py")))
    run(tmp_path, GPU, job=redact_job(script))
    batches = {each.id: each.settings.per_device_train_batch_size for each in measured_runs(script, tmp_path)}
    assert batches == {"r003": 0, "r001": 24}  # 0: its own, which was not observed


def test_a_command_has_the_settings_that_it_names_itself(tmp_path: Path) -> None:
    seen = InEffect(t=1.0, values={"per_device_train_batch_size": 2})
    script = CommandJob(command=("python", "sft.py", "--max_length", "256", "--optim", "sgd"), apply="hf-args")
    run(tmp_path, seen, GPU, job=script)
    (measured,) = measured_runs(script, tmp_path)
    assert (measured.settings.max_length, measured.settings.optim) == (256, "sgd")


@pytest.mark.parametrize(
    ("message", "memory"),
    [
        ("CUDA out of memory. Tried to allocate 2.31 GiB.", "gpu"),
        ("CUDA out of memory. Process 4711 has 60.00 GiB memory in use.", None),
        ("DefaultCPUAllocator: can't allocate memory", "host"),
    ],
)
def test_a_run_that_ran_out_of_memory_in_its_first_step(tmp_path: Path, message: str, memory: str | None) -> None:
    ended = Finished(t=3.0, outcome="out-of-memory", sentence="Out of memory in step 1.")
    folder = run(tmp_path, OutOfMemory(t=2.0, message=message), ended)
    write_record(folder, record(id=folder.id, job=JOB, host=this_machine().host))
    assert [measured.ran_out for measured in measured_runs(JOB, tmp_path)] == ([] if memory is None else [memory])


@pytest.mark.parametrize(
    ("message", "limit", "there_was"),
    [
        ("CUDA out of memory. GPU 1 has a total capacity of 7.50 GiB of which 3 MiB is free.", None, 7.5),
        ("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB", None, 8),
        ("CUDA out of memory. GPU 1 has a total capacity of 7.50 GiB of which 3 MiB is free.", 6, 6),
        ("CUDA out of memory.", None, None),
    ],
)
def test_how_much_memory_there_was_for_a_run_that_ran_out(
    tmp_path: Path, message: str, limit: int | None, there_was: float | None
) -> None:
    ended = Finished(t=3.0, outcome="out-of-memory", sentence="Out of memory in step 1.")
    folder = run(tmp_path, OutOfMemory(t=2.0, message=message), ended)
    limited = record(
        id=folder.id, job=JOB, host=this_machine().host, memory_limit_bytes=None if limit is None else limit * 2**30
    )
    write_record(folder, limited)
    (measured,) = measured_runs(JOB, tmp_path)
    assert measured.limit_bytes == (None if there_was is None else there_was * 2**30)


def test_a_process_that_reached_its_own_limit_says_little_about_the_host(tmp_path: Path) -> None:
    message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1000 bytes. Error code 12"
    ended = Finished(t=3.0, outcome="out-of-memory", sentence="Out of memory in step 9.")
    folder = run(
        tmp_path, Steps(t=1.0, step=9, own_steps=9, rss_peak_bytes=5000), OutOfMemory(t=2.0, message=message), ended
    )
    write_record(folder, record(id=folder.id, job=JOB, host=this_machine().host, memory_limit_bytes=None))
    (measured,) = measured_runs(JOB, tmp_path)
    assert (measured.ran_out, measured.limit_bytes) == ("host", 12_000)


def test_what_ran_out_of_memory_on_another_machine_says_nothing_here(tmp_path: Path) -> None:
    run(tmp_path, Finished(t=3.0, outcome="out-of-memory", sentence="CUDA out of memory"))
    assert measured_runs(JOB, tmp_path) == ()


def test_a_run_that_ran_out_of_gpu_memory_says_nothing_by_the_memory_of_its_host(tmp_path: Path) -> None:
    counters = Steps(t=1.0, rank=0, step=7, own_steps=7, rss_peak_bytes=4000)
    sentence = "Out of memory while training at step 7: CUDA out of memory. Tried to allocate 3.00 GiB."
    ended = Finished(t=2.0, outcome="out-of-memory", sentence=sentence)
    run(tmp_path, counters, ended)
    (measured,) = measured_runs(JOB, tmp_path)
    assert (measured.tensor_bytes, measured.resident_bytes) == (None, None)
    assert lacks_gpu_peak(fold_all(RunState(), [counters, ended]))
    assert not lacks_gpu_peak(fold_all(RunState(), [GPU, ended]))
    assert not lacks_gpu_peak(fold_all(RunState(), [counters]))


@pytest.mark.parametrize(
    ("message", "gib"),
    [
        (
            "CUDA out of memory. Of the allocated memory 30.25 GiB is allocated by PyTorch, and 1.00 GiB is reserved",
            30.25,
        ),
        ("CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 9.00 GiB already allocated; 2.00 MiB free)", 9.0),
        ("CUDA error: out of memory", None),
    ],
)
def test_the_memory_at_a_failure_before_anything_was_measured(message: str, gib: float | None) -> None:
    ended = Finished(t=2.0, outcome="out-of-memory", sentence="Out of memory.")
    failed = fold_all(RunState(), [OutOfMemory(t=1.0, message=message), ended])
    assert allocated_at_failure(failed) == (None if gib is None else gib * 2**30)


def test_each_rank_of_a_run_has_counters_of_its_own(tmp_path: Path) -> None:
    folder = run(tmp_path)
    for rank, resident in enumerate((3000, 4000)):
        steps = Steps(t=1.0, step=5, own_steps=5, rss_peak_bytes=resident)
        (folder.path / f"events-rank{rank}.jsonl").write_bytes(encode_event(steps))
    assert (measured_runs(JOB, tmp_path)[0].resident_bytes, measured_runs(JOB, tmp_path)[0].processes) == (3500, 2)
    for rank, peak in enumerate((900, 700)):
        steps = structs.replace(GPU, allocated_peak_bytes=peak, reserved_peak_bytes=peak + 50)
        (folder.path / f"events-rank{rank}.jsonl").write_bytes(encode_event(steps))
    assert (measured_runs(JOB, tmp_path)[0].tensor_bytes, measured_runs(JOB, tmp_path)[0].reserved_bytes) == (900, 950)

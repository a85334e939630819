"""What squeue says of jobs, and a controller that is down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.slurm import FakeSlurm, row, submitted
from tuner_tui.core.file_locks import acquire_lock
from tuner_tui.runs.slurm import JobState, SlurmError, ask, parse_squeue, read_list, run_slurm


def test_a_controller_that_is_down_changes_nothing_but_the_problem(tmp_path: Path) -> None:
    job, slurm = submitted(tmp_path, 1), FakeSlurm([row(1, "RUNNING")])
    ask(tmp_path, slurm)
    slurm.down = True
    ask(tmp_path, slurm)
    listed = read_list(tmp_path, job)
    listed_state = listed.find(job)
    assert listed_state is not None
    assert (listed_state.state, listed.problem) == ("RUNNING", "The Slurm controller does not answer squeue.")
    assert not listed.knows_nothing_of(job)


def test_who_finds_another_asking_does_not_ask(tmp_path: Path) -> None:
    slurm, lock = FakeSlurm(), acquire_lock(tmp_path / "slurm-jobs.lock")
    ask(tmp_path, slurm)
    os.close(lock)
    assert slurm.calls == []


def program(folder: Path, name: str, script: str) -> dict[str, str]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_a_command_that_hangs_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"^The Slurm controller does not answer squeue\.$"):
        run_slurm(["squeue"], program(tmp_path, "squeue", "exec sleep 600"), timeout_s=0.2)


def test_an_error_is_one_clean_line(tmp_path: Path) -> None:
    script = (
        "printf 'sbatch: error: \\033[31minvalid partition\\nsbatch: error: Batch job submission failed\\n' >&2; exit 1"
    )
    with pytest.raises(SlurmError, match=r"^sbatch: Batch job submission failed\.$"):
        run_slurm(["sbatch"], program(tmp_path, "sbatch", script))


# What squeue prints

LINE = "\x1f".join(("12", "PENDING", "", "N/A", "Resources"))


def test_a_line_of_squeue() -> None:
    assert parse_squeue(LINE + "\n") == [JobState("12", "PENDING", reason="Resources")]


@pytest.mark.parametrize("line", ["", "12|PENDING", LINE.replace("12", "1_[0-9]", 1), LINE.replace("12", "9" * 20, 1)])
def test_other_lines_are_left_out(line: str) -> None:
    assert parse_squeue(f"{line}\n{LINE}") == parse_squeue(LINE)


def test_texts_are_short_and_have_no_control_characters() -> None:
    (job,) = parse_squeue(LINE.replace("Resources", "\x1b]0;owned\x07\u202e" + "x" * 1000))
    assert job.reason.startswith("]0;ownedx")
    assert len(job.reason) == 120


@pytest.mark.parametrize(
    ("reason", "start", "words"),
    [
        ("Resources", "", "waiting for resources"),
        ("Resources", "2026-11-22T21:00:00", "waiting for resources (expected start 2026-11-22 21:00:00)"),
        ("NewReasonOf2030", "", "NewReasonOf2030"),
        ("None", "", "not looked at yet"),
    ],
)  # fmt: skip
def test_reasons_in_words(reason: str, start: str, words: str) -> None:
    assert JobState("1", "PENDING", start=start, reason=reason).reason_words == words

"""Files that a built-in job names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.runs.local_paths import DATA_SUFFIXES, missing_path
from tuner_tui.settings.job import BuiltinJob


@pytest.mark.parametrize("data", ["nofile.csv", "./folder", "/no/such/train.jsonl", "~/no-such-file.parquet"])
def test_data_that_is_plainly_a_path(tmp_path: Path, data: str) -> None:
    said = missing_path(BuiltinJob(data=data), tmp_path)
    assert said == f"The data {data} is not there (looked in {tmp_path})."


def test_a_model_folder(tmp_path: Path) -> None:
    job = BuiltinJob(model="./model")
    assert missing_path(job, tmp_path) == f"The model ./model is not there (looked in {tmp_path})."
    (tmp_path / "model").mkdir()
    assert missing_path(job, tmp_path) is None


@pytest.mark.parametrize("data", ["stdlib", "org/dataset", "imdb"])
def test_what_may_be_on_the_hub_is_left_alone(tmp_path: Path, data: str) -> None:
    assert missing_path(BuiltinJob(data=data, model="org/model-1.5"), tmp_path) is None


def test_data_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text\n")
    assert missing_path(BuiltinJob(data="train.csv"), tmp_path) is None


def test_these_are_the_files_that_the_job_reads() -> None:
    source = (Path(__file__).parents[2] / "tuner_tui" / "trainer" / "sources.py").read_text("utf-8")
    [line] = [line for line in source.splitlines() if line.startswith("READERS = ")]
    assert {word.strip('" {}').partition('"')[0] for word in line.partition("= ")[2].split(",")} == DATA_SUFFIXES

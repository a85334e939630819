"""From files to rows that train: reading, splitting, labels, blocks."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.trainer.job_file import JobArguments, JobError

datasets, transformers = late_module("datasets"), late_module("transformers")
dataset = late_module("tuner_tui.trainer.dataset")
ROWS: list[tuple[Any, Any]] = [(f"this is text number {n}", ("good", "bad")[n % 2]) for n in range(40)]


def table(rows: Sequence[tuple[Any, Any]]) -> Any:
    return datasets.Dataset.from_dict({"text": [row[0] for row in rows], "label": [row[1] for row in rows]})


def write_csv(path: Path, rows: Sequence[tuple[Any, Any]], header: tuple[str, str] = ("text", "label")) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_jsonl(path: Path, rows: Sequence[tuple[Any, Any]]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return path


def write_parquet(path: Path, rows: Sequence[tuple[Any, Any]]) -> Path:
    table(rows).to_parquet(str(path))
    return path


@pytest.mark.parametrize(
    ("write", "name"), [(write_csv, "d.csv"), (write_jsonl, "d.jsonl"), (write_parquet, "d.parquet")]
)
def test_each_file_format_gives_the_same_rows(write: Any, name: str, tmp_path: Path) -> None:
    rows = dataset.open_split_data(JobArguments(data=str(write(tmp_path / name, ROWS))))
    assert rows.evaluation is not None
    assert (len(rows.train), len(rows.evaluation)) == (36, 4)
    assert sorted((row["text"], row["label"]) for part in (rows.train, rows.evaluation) for row in part) == sorted(ROWS)


def test_words_that_mean_nothing_to_pandas_are_labels_like_any_other(tmp_path: Path) -> None:
    write_csv(tmp_path / "eval.csv", ROWS)
    path = write_csv(tmp_path / "train.csv", [("first", "NA"), ("second", "None"), ("null", "yes")])
    train = dataset.open_split_data(JobArguments(data=str(path))).train
    assert sorted(train["text"]) == ["first", "null", "second"]
    assert sorted(train["label"]) == ["NA", "None", "yes"]


def test_columns_are_named_or_text_and_label(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "d.csv", ROWS, ("body", "mood"))
    rows = dataset.open_split_data(JobArguments(data=str(path), text_column="body", label_column="mood"))
    assert (rows.texts, rows.label) == (["body"], "mood")
    assert dataset.open_split_data(JobArguments(data=str(path), task="causal-lm", text_column="body")).label is None
    pair = dataset.open_split_data(
        JobArguments(data=str(path), text_column="body", text_pair_column="mood", label_column="mood")
    )
    assert pair.texts == ["body", "mood"]
    with pytest.raises(JobError, match=r"no column `label`; it has body, mood: set text_column and label_column"):
        dataset.open_split_data(JobArguments(data=str(path), text_column="body"))


@pytest.mark.parametrize("name", ["eval.csv", "valid.csv", "validation.csv", "dev.csv", "test.csv"])
def test_an_evaluation_file_beside_is_found(name: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", ROWS)
    write_csv(tmp_path / name, ROWS[:7])
    opened = dataset.open_split_data(JobArguments(data=str(tmp_path)))
    assert opened.evaluation is not None
    assert (len(opened.train), len(opened.evaluation)) == (40, 7)


def test_an_evaluation_file_without_labels_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "train.csv", ROWS)
    (tmp_path / "test.csv").write_text("text\nsome text\n")
    opened = dataset.open_split_data(JobArguments(data=str(tmp_path / "train.csv")))
    assert opened.evaluation is not None
    assert (len(opened.train), len(opened.evaluation)) == (36, 4)
    assert "the evaluation data lacks one of text, label" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.csv", None, "no such file"),
        ("notes.txt", "hello", "is not a .csv"),
        ("empty.csv", "", "cannot be read"),
        ("broken.jsonl", '{"text": "a", \n', "cannot be read"),
        ("fake.parquet", "not parquet", "cannot be read"),
        ("other.csv", "a,b\n1,2\n", "it has a, b"),
        ("rowless.csv", "text,label\n", "has no rows"),
    ],
)
def test_data_that_cannot_be_used_is_one_sentence(
    name: str, content: str | None, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(JobError, match=sentence):
        dataset.open_split_data(JobArguments(data=str(path)))


def test_the_split_is_the_same_every_time(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "d.csv", ROWS)
    first, second = (dataset.open_split_data(JobArguments(data=str(path))).evaluation for _ in range(2))
    assert first is not None
    assert second is not None
    assert list(first["text"]) == list(second["text"])


def test_one_row_has_no_evaluation(tmp_path: Path) -> None:
    rows = dataset.open_split_data(JobArguments(data=str(write_csv(tmp_path / "d.csv", ROWS[:1]))))
    assert (len(rows.train), rows.evaluation) == (1, None)


def test_rows_without_text_or_label_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*ROWS, ("", "good"), ("   ", "good"), (None, "bad"), ("text", None), ("text", "")]
    assert len(dataset.usable_rows(table(rows), "text", "label")) == 40
    assert "left out 5 rows" in capsys.readouterr().out


def test_max_samples_limits_training_and_evaluation(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "d.csv", [(f"text {n}", n % 3) for n in range(2000)])
    rows = dataset.open_split_data(JobArguments(data=str(path), max_samples=400))
    assert rows.evaluation is not None
    assert (len(rows.train), len(rows.evaluation)) == (400, 100)
    assert set(rows.train["label"]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        ([10, 9, 10], ["9", "10"], [1, 0, 1]),
        ([2.0, 1.0, 2.0], ["1", "2"], [1, 0, 1]),
        ([True, False, True], ["False", "True"], [1, 0, 1]),
    ],
)
def test_labels_of_any_sort_become_class_numbers(labels: list[Any], names: list[str], numbers: list[int]) -> None:
    rows = table([("text", label) for label in labels])
    assert dataset.class_names([rows], "label") == names
    assert dataset.class_numbers(rows, "label", names) == numbers


def test_a_label_that_only_evaluation_has_is_a_class_too() -> None:
    assert dataset.class_names([table([("x", "a"), ("y", "b")]), table([("z", "c")])], "label") == ["a", "b", "c"]


def test_names_of_a_hub_dataset_are_kept_and_its_unlabelled_rows_left_out() -> None:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    rows = {"text": [f"text {n}" for n in range(20)], "label": [0, 1] * 9 + [-1, -1]}
    data = datasets.Dataset.from_dict(rows, features=features)
    assert len(dataset.usable_rows(data, "text", "label")) == 18
    assert dataset.class_names([data], "label") == ["neg", "pos"]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [(["a", "a"], "contains 1 classes"), ([0.5, 1.0], "contains fractions"), ([[1], [2]], "contains lists")],
)
def test_labels_that_are_no_classes(labels: list[Any], sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        dataset.class_names([table([("text", label) for label in labels])], "label")


def test_documents_are_cut_into_blocks_across_their_borders() -> None:
    documents = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3], [4, 5], [6, 7]]}).with_format("arrow")[:]
    blocks = dataset.cut_blocks(documents, 3)
    assert [list(block) for block in blocks["input_ids"]] == [[1, 2, 3], [4, 5, 6]]
    assert [list(block) for block in blocks["labels"]] == [[1, 2, 3], [4, 5, 6]]

"""The lengths of samples: figures by hand, and the probe in a real Python on data made here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu, python
from tuner_tui.advice.recommend.recommendation import recommend
from tuner_tui.advice.recommend.sample_lengths import SampleLengths, is_here, measure_lengths, with_measured_length
from tuner_tui.memory.trace import TraceError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings


def _command(command: tuple[str, ...], **fields: Any) -> CommandJob:
    """A command that trains a language model."""
    return CommandJob(command=command, task="causal-lm", **fields)


def test_percentiles_and_what_is_cut() -> None:
    lengths = SampleLengths((5, 1, 4, 2, 3, 10, 9, 8, 7, 6), 10)
    assert [lengths.percentile(share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 5, 10, 10]
    assert lengths.cut_share(7) == 0.3
    assert lengths.longest == 10


def test_a_command_without_a_length_is_computed_with_the_longest_sample() -> None:
    lengths, job = SampleLengths((5, 900), 2), _command(("tune", "run", "x"))
    assert with_measured_length(Resolved(Settings()), job, lengths).settings.max_length == 900
    book = SampleLengths((1, 2_000_000), 2)
    assert with_measured_length(Resolved(Settings()), job, book).settings.max_length == 1_048_576
    assert with_measured_length(Resolved(Settings()), job, SampleLengths((1,), 1)).settings.max_length == 8
    given = Resolved(Settings(max_length=64), {"max_length": Origin(OriginKind.FLAG)})
    assert with_measured_length(given, job, lengths) == given
    assert with_measured_length(given, job, None) == given


def test_padding_of_two_lengths_by_hand() -> None:
    """Of two samples drawn from 2 and 4, the longest is 2 in one of four draws: 1 - 3 / (2/4 + 3 * 4/4) = 1/7."""
    lengths = SampleLengths((2, 4), 2)
    assert lengths.padding(2, 100).random == pytest.approx(1 / 7)
    assert lengths.padding(1, 100).random == pytest.approx(0.0)
    several = (SampleLengths(tuple(range(1, count)), count) for count in range(2, 100))
    assert all(lengths.padding(1, 100).random >= 0 for lengths in several)  # a sum of floats may be above the mean
    assert lengths.padding(2, 2).random == pytest.approx(0.0)  # cut to the same length


def test_grouped_padding_by_hand() -> None:
    """16 samples in batches of 2 are sorted 4 at a time; sorted as a whole, equal ones would share every batch."""
    equal = SampleLengths((10,) * 16, 16)
    assert equal.padding(2, 100).grouped == pytest.approx(0.0)
    spread = SampleLengths(tuple(range(1, 401)), 400)
    assert spread.padding(4, 1000).grouped < 0.1 < spread.padding(4, 1000).random
    assert spread.padding(4, 1000).random == pytest.approx(1 - 200.5 / 320.7, abs=0.002)  # E[max] is about 401 * 4/5


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    rows = [{"messages": [{"role": "user", "content": "a" * 40}, {"role": "assistant", "content": "b" * (39 + 40 * n)}]}
            for n in range(10)]  # fmt: skip
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset_info.json").write_text('{"mine": {"file_name": "mine.json"}}')
    (tmp_path / "data" / "mine.json").write_text(
        json.dumps([{"instruction": "i" * 8, "input": "", "output": "o" * 31}])
    )
    (tmp_path / "texts").mkdir()
    for name in ("a", "b"):
        (tmp_path / "texts" / f"{name}.txt").write_text("x" * 400)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "lengths", "total"),
    [
        ("chats.jsonl", [20 + 10 * n for n in range(10)], 10),  # 40 + 1 + 39 characters are 20 tokens
        ("mine", [10], 1),
        ("texts", [100, 100], 2),
        ("mine, texts", [10, 100, 100], 3),
    ],
)
def test_local_data_is_measured_where_it_trains(chats: Path, data: str, lengths: list[int], total: int) -> None:
    result = measure_lengths(_command(("train",), data=data, cwd=str(chats)), Path(sys.executable))
    assert result is not None
    assert (list(result.ordered), result.total) == (lengths, total)
    assert result.unit == "tokens, taken as 4 characters each"


def test_a_note_next_to_folders_of_data_is_no_sample(chats: Path) -> None:
    (chats / "texts" / "a").mkdir()
    with pytest.raises(TraceError, match="is not a"):
        measure_lengths(_command(("train",), data="texts", cwd=str(chats)), Path(sys.executable))


@pytest.mark.full
@pytest.mark.train
def test_a_table_is_read_by_datasets(tmp_path: Path) -> None:
    import datasets

    datasets.Dataset.from_dict({"input_ids": [[1] * n for n in (3, 5, 7)]}).to_parquet(str(tmp_path / "ids.parquet"))
    lengths = measure_lengths(_command(("train",), data="ids.parquet", cwd=str(tmp_path)), Path(sys.executable))
    assert lengths is not None
    assert (lengths.ordered, lengths.total) == ((3, 5, 7), 3)


def test_data_that_is_not_here_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert measure_lengths(_command(("train",), data="acme/chat", cwd=str(tmp_path)), tmp_path / "no-python") is None
    (tmp_path / "hf" / "hub" / "datasets--acme--chat").mkdir(parents=True)
    assert is_here("acme/chat", tmp_path)


def test_data_of_a_command_that_is_not_known_to_train_on_text_is_not_measured(chats: Path) -> None:
    job = CommandJob(command=("train",), data="chats.jsonl", cwd=str(chats))
    assert measure_lengths(job, Path(sys.executable)) is None
    assert measure_lengths(replace(job, model="acme/llama"), Path(sys.executable)) is not None


def test_data_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{no json\n")
    with pytest.raises(TraceError, match="cannot be read"):
        measure_lengths(_command(("train",), data="bad.jsonl", cwd=str(tmp_path)), Path(sys.executable))
    (tmp_path / "pairs.jsonl").write_text('{"query": "q", "pos": ["a", "b"], "neg": ["c"]}\n')
    (tmp_path / "dataset_info.json").write_text('{"frogs": {"file_name": "frogs.json"}}')
    with pytest.raises(TraceError, match=r"frogs\.json, which dataset_info\.json has for it, does not exist"):
        measure_lengths(_command(("train",), data="frogs", cwd=str(tmp_path)), Path(sys.executable))
    with pytest.raises(TraceError, match="several pairs"):
        measure_lengths(_command(("train",), data="pairs.jsonl", cwd=str(tmp_path)), Path(sys.executable))


def test_who_waits_is_told_before_anything_is_started(chats: Path) -> None:
    notes: list[str] = []
    job = BuiltinJob(model="gpt2", task="causal-lm", data=str(chats))
    with pytest.raises(TraceError):
        measure_lengths(job, Path("/no/python"), before=lambda: notes.append("measuring"))
    assert notes == ["measuring"]


def test_turns_by_names_of_their_own_have_their_texts(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps({"id": 1, "conversation": [{"human": "h" * 40, "bot": "b" * 39}]}))
    result = measure_lengths(_command(("train",), data="own.jsonl", cwd=str(tmp_path)), Path(sys.executable))
    assert result is not None
    assert list(result.lengths) == [20]


def test_lengths_lead_to_recommendations() -> None:
    job, given = _command(("train",)), {"max_length": 1024, "per_device_train_batch_size": 8}
    machine = box(make_gpu("A100", gib=80.0))
    spread = SampleLengths(tuple(range(1, 601)), 600)
    recommended = recommend(machine, python(), job, given, lengths=spread)
    assert recommended.values["train_sampling_strategy"] == "group_by_length"
    assert any("max_length 640 cuts none" in note for note in recommended.notes)
    even = SampleLengths((900,) * 50 + (2000,) * 50, 100)
    recommended = recommend(machine, python(), job, given, lengths=even)
    assert any(
        "50 % of the samples are cut at max_length 1,024; 2,048 would cut 1 %" in note for note in recommended.notes
    )
    assumed = recommend(machine, python(), job, {"per_device_train_batch_size": 8}, lengths=even)
    assert not any("cut" in note for note in assumed.notes)
    packed = SampleLengths(tuple(range(1, 601)), 600, packed=True)
    recommended = recommend(machine, python(), job, given, lengths=packed)
    assert "train_sampling_strategy" not in recommended.values
    assert not any("Packing" in note for note in recommended.notes)


@pytest.mark.parametrize(
    ("lengths", "padded", "sentence"),
    [
        # Lengths 1 to 600 have 300.5 tokens in the mean: padded to 1,024, 71 % is padding, and 3.4 fit into a row.
        (range(1, 601), True, "Packing would pay: 71 % of a batch is padding, because the tool pads every sample"),
        (range(1, 601), True, "3.4 samples fit into a row of 1,024"),
        ((500, 1000) * 50, True, "Packing would not pay: 27 % of a batch is padding"),
        ((500, 1000) * 50, True, "but only 1.4 samples fit into a row of 1,024"),
        ((800,) * 100, False, "Packing would not pay: 0 % of a batch is padding."),
        # Of 600 samples, 144 are sorted at a time: 18 batches, each 33 tokens longer than the one before; 17 / 317.
        (range(1, 601), False, "Packing would not pay: grouped by length, 6 % of a batch is padding."),
    ],
)
def test_whether_packing_would_pay(lengths: Iterable[int], padded: bool, sentence: str) -> None:
    job, given = _command(("train",)), {"max_length": 1024, "per_device_train_batch_size": 8}
    lengths_known = SampleLengths(tuple(lengths), 100, padded=padded)
    recommended = recommend(box(make_gpu("A100", gib=80.0)), python(), job, given, lengths=lengths_known)
    assert any(sentence in note for note in recommended.notes), recommended.notes
    classifier = BuiltinJob(task="classification")
    assert not any(
        "Packing" in note for note in recommend(box(), python(), classifier, given, lengths=lengths_known).notes
    )


def test_padding_follows_sampling_and_tool() -> None:
    lengths = SampleLengths((2, 4), 2)
    settings = Settings(per_device_train_batch_size=2, max_length=8)
    assert lengths.padding_share(settings) == pytest.approx(1 / 7)
    assert replace(lengths, padded=True).padding_share(settings) == pytest.approx(1 - 3 / 8)
    assert replace(lengths, packed=True, padded=True).padding_share(settings) == 0.0
    spread = SampleLengths(tuple(range(1, 401)), 400)
    grouped = Settings(per_device_train_batch_size=4, max_length=1000, train_sampling_strategy="group_by_length")
    assert spread.padding_share(grouped) == spread.padding(4, 1000).grouped


@pytest.mark.parametrize(
    ("line", "packed", "padded"),
    [
        ("packing: true", True, False),
        ("sample_packing: false\npad_to_sequence_len: true", False, True),
        ("", False, False),
    ],
)
def test_packing_is_read_from_the_commands_file(chats: Path, line: str, packed: bool, padded: bool) -> None:
    (chats / "c.yaml").write_text(f"learning_rate: 2.0e-5\n{line}\n")
    job = _command(("train", "c.yaml"), data="chats.jsonl", cwd=str(chats))
    lengths = measure_lengths(job, Path(sys.executable))
    assert lengths is not None
    assert (lengths.packed, lengths.padded) == (packed, padded)
    arguments = _command(("train", "--packing", "true"), data="chats.jsonl", cwd=str(chats))
    lengths = measure_lengths(arguments, Path(sys.executable), cached_only=True)
    assert lengths is not None
    assert lengths.packed


def test_lengths_are_kept_until_the_data_changes(chats: Path) -> None:
    job = _command(("train",), data="chats.jsonl", cwd=str(chats))
    assert measure_lengths(job, Path(sys.executable), cached_only=True) is None
    first = measure_lengths(job, Path(sys.executable))
    assert measure_lengths(job, Path(sys.executable), cached_only=True) == first
    os.utime(chats / "chats.jsonl", ns=(1, 1))
    assert measure_lengths(job, Path(sys.executable), cached_only=True) is None

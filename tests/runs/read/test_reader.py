"""Reading short and very long runs while they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.read.long_run import event_number, write_events
from tests.runs.store.test_codec import events
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.progress import MAX_SERIES_POINTS, DownsampledSeries, HistoryBuilder, Series
from tuner_tui.runs.events.types import (
    BACKWARD,
    Checkpoint,
    Evaluated,
    Event,
    Finished,
    Launched,
    Metrics,
    OutOfMemory,
    Plan,
    Steps,
)
from tuner_tui.runs.read.event_sampling import HISTORY, NEWEST
from tuner_tui.runs.read.reader import RECENT_SAMPLES, RunReader, read_brief
from tuner_tui.runs.store.codec import encode_event, encode_sample
from tuner_tui.runs.store.folder import RunFolder, create_folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_folder(tmp_path)


def append(path: Path, *events: Event) -> None:
    with path.open("ab") as file:
        for event in events:
            file.write(encode_event(event))


def test_events_are_read_as_they_come(folder: RunFolder) -> None:
    reader = RunReader(folder)
    assert reader.events() == []
    append(folder.events, Launched(t=1.0, pid=5))
    assert reader.events() == [Launched(t=1.0, pid=5)]
    assert reader.events() == []
    line = encode_event(Plan(t=2.0, rank=0, total_steps=9))
    with folder.events.open("ab") as file:
        file.write(line[:20])
        file.flush()
        assert reader.events() == []
        file.write(line[20:])
    assert reader.events() == [Plan(t=2.0, rank=0, total_steps=9)]
    assert reader.state.total_steps == 9


def test_ranks_are_merged_in_order_of_time(folder: RunFolder) -> None:
    append(folder.events, Launched(t=1.0, pid=5), Finished(t=9.0, outcome="completed"))
    append(folder.path / "events-rank1.jsonl", Steps(t=5.0, rank=1, step=3, own_steps=3))
    reader = RunReader(folder)
    assert [event.t for event in reader.events()] == [1.0, 5.0, 9.0]
    assert set(reader.state.ranks) == {1}


def test_a_file_that_was_cut_is_read_anew(folder: RunFolder) -> None:
    reader = RunReader(folder)
    append(folder.events, Launched(t=1.0, pid=5), Launched(t=2.0, pid=6))
    reader.events()
    folder.events.write_bytes(encode_event(Launched(t=3.0, pid=7)))
    assert reader.events() == [Launched(t=3.0, pid=7)]


class TestLong:
    """A run too long to be read whole."""

    COUNT = 30_000

    @pytest.fixture(scope="class")
    def written(self, tmp_path_factory: pytest.TempPathFactory) -> bytes:
        path = tmp_path_factory.mktemp("long") / "events.jsonl"
        write_events(path, self.COUNT)
        assert path.stat().st_size > 2 * HISTORY.whole_bytes
        return path.read_bytes()

    @pytest.fixture
    def long(self, folder: RunFolder, written: bytes) -> RunFolder:
        folder.events.write_bytes(written)
        return folder

    def test_its_end_is_read_in_full(self, long: RunFolder) -> None:
        reader = RunReader(long)
        reader.poll()
        last = [event for number in range(self.COUNT - 4) if isinstance(event := event_number(number), Steps)][-1]
        assert reader.state.ranks[0].latest == last
        assert reader.state.rates.steps_s == pytest.approx(3 / 0.98, rel=0.01)

    def test_its_story_is_read_whole(self, long: RunFolder) -> None:
        middle = OutOfMemory(t=9.0, rank=0, message="in the middle")
        lines = long.events.read_bytes().splitlines(keepends=True)
        lines.insert(len(lines) // 3, encode_event(middle))
        long.events.write_bytes(b"".join(lines))
        reader = RunReader(long)
        events_read = reader.events()
        assert len(events_read) < self.COUNT / 3, "little of it is parsed"
        assert middle in events_read
        assert isinstance(events_read[0], Launched)
        assert sum(isinstance(event, Checkpoint) for event in events_read) == sum(
            isinstance(event_number(number), Checkpoint) for number in range(self.COUNT - 4)
        )

    def test_its_line_in_a_list_has_the_same_state(self, long: RunFolder) -> None:
        brief, whole = read_brief(long).state, RunReader(long).poll().state
        for name in ("step", "total_steps", "loss", "phase", "evaluations", "checkpoint", "launched_t"):
            assert getattr(brief, name) == getattr(whole, name), name
        assert brief.ranks[0].latest == whole.ranks[0].latest
        assert brief.rates.steps_s == pytest.approx(whole.rates.steps_s, rel=0.01)

    def test_of_one_that_ended_the_list_has_the_steps_and_loss_that_it_ended_with(self, long: RunFolder) -> None:
        """The end of the file may hold only losses of `backward()`, where the script printed one before."""
        append(long.events, Metrics(t=1e6, step=10**6, loss=9.0, source=BACKWARD))
        append(long.events, Finished(t=1e6, outcome="completed", step=10**6, total_steps=10**6, loss=0.5))
        brief, whole = read_brief(long).state, RunReader(long).poll().state
        for state in (brief, whole):
            assert (state.step, state.outcome, state.loss) == (10**6, "completed", 0.5)

    def test_its_history_has_no_gap(self, long: RunFolder) -> None:
        loss = RunReader(long).poll().history.loss
        widest = max(b - a for a, b in zip(loss.xs, loss.xs[1:], strict=False))
        assert loss.xs[0] < 0.02 * loss.xs[-1]
        assert widest < 0.02 * loss.xs[-1]
        assert len(loss.xs) <= MAX_SERIES_POINTS + 1


@given(st.lists(events(), max_size=20))
def test_any_events_have_a_history(story: list[Event]) -> None:
    builder = HistoryBuilder()
    for event in story:
        builder.add(event)
    history = builder.history()
    several = {"results", "logged"}
    single = (getattr(history, name) for name in history.__struct_fields__ if name not in several)
    for series in (*single, *history.results, *history.logged):
        assert len(series.xs) == len(series.ys)
        assert list(series.xs) == sorted(set(series.xs))


def test_metrics_of_evaluations_are_series_but_not_their_speed() -> None:
    builder = HistoryBuilder()
    for step, accuracy in ((10, 0.5), (20, 0.75)):
        metrics = {"eval_loss": 1.0, "eval_accuracy": accuracy, "eval_runtime": 3.0, "eval_samples_per_second": 9.0}
        builder.add(Evaluated(t=step, rank=0, step=step, metrics={**metrics, "epoch": 1.0}))
    builder.add(Evaluated(t=21, rank=0, step=20, metrics={"eval_loss": 0.1, "eval_accuracy": 0.1}))  # of the best
    (accuracy_series,) = builder.history().results
    assert accuracy_series == Series("eval accuracy", "", (10, 20), (0.5, 0.75))


@given(st.integers(1, 5000))
def test_a_series_is_bounded_even_and_keeps_its_newest(count: int) -> None:
    series = DownsampledSeries(Series("x", ""))
    for n in range(count):
        series.add(float(n), float(n))
    result = series.series()
    assert len(result.xs) <= MAX_SERIES_POINTS + 1
    assert (result.xs[0], result.xs[-1]) == (0.0, count - 1.0)
    gaps = [b - a for a, b in zip(result.xs, result.xs[1:], strict=False)]
    assert not gaps or max(gaps) <= max(1, 3 * count / MAX_SERIES_POINTS)


def test_recent_samples_are_kept_and_bounded(folder: RunFolder) -> None:
    with folder.samples.open("wb") as file:
        for n in range(RECENT_SAMPLES * 3):
            file.write(encode_sample(Sample(float(n))))
        file.write(b'{"v":1,"time_s":')
    view = RunReader(folder).poll()
    assert view.sample == Sample(RECENT_SAMPLES * 3 - 1.0)
    assert len(view.samples) == RECENT_SAMPLES


def test_samples_are_read_where_they_are_asked_for(folder: RunFolder) -> None:
    folder.samples.write_bytes(encode_sample(Sample(time_s=1.0)))
    reader = RunReader(folder)
    assert not reader.poll(with_samples=False).samples
    assert [sample.time_s for sample in reader.poll().samples] == [1.0]


def test_many_ranks_are_read_as_quickly_as_one(folder: RunFolder) -> None:
    ranks, lines = 64, 3000
    counters = b"".join(
        encode_event(event) for number in range(lines) if isinstance(event := event_number(number), Steps)
    )
    for rank in range(ranks):
        path = folder.path / f"events-rank{rank}.jsonl"
        path.write_bytes(counters.replace(b'"rank":0', b'"rank":%d' % rank))
    brief = RunReader(folder, NEWEST)
    assert len(brief.events()) < 1_000
    assert len(brief.state.ranks) == ranks
    reader = RunReader(folder)
    assert len(reader.events()) < 10_000  # of 153,600: decoding all of them takes half a minute
    assert len(reader.state.ranks) == ranks
    last = max(event.step for number in range(lines) if isinstance(event := event_number(number), Steps))
    for state in (brief.state, reader.state):
        assert {rank.latest.step for rank in state.ranks.values() if rank.latest is not None} == {last}

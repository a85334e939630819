"""Histories of samples: the newest column at the right, and each sample added up once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.live_run import START_S
from tuner_tui.hardware.sample import HostSample, Sample
from tuner_tui.view.cells import plain_text
from tuner_tui.view.charts import Trace, history_rows
from tuner_tui.view.sample_history import BUCKET_S, SampleHistory, history_columns, samples_after, samples_within

WIDTH = 20


def sample(time_s: float, cpu_pct: float | None = 50.0) -> Sample:
    return Sample(time_s, (), HostSample(cpu_pct=cpu_pct))


def cpu(one: Sample) -> float | None:
    return one.host.cpu_pct


def columns_of(moments: list[tuple[float, int | None]], now_s: float, buckets: int) -> list[float | None]:
    """The columns by definition: the mean of the known values of each span of time, the last one up to now."""
    span_s = BUCKET_S * buckets
    newest = now_s // span_s
    known = [(time_s, value) for time_s, value in moments if value is not None]
    spans = [[value for time_s, value in known if time_s // span_s == newest - WIDTH + 1 + n] for n in range(WIDTH)]
    return [sum(values) / len(values) if values else None for values in spans]


@given(
    st.lists(st.tuples(st.floats(0.1, 30), st.none() | st.integers(0, 100)), min_size=1, max_size=80), st.integers(1, 3)
)
def test_complete_columns_are_those_of_all_samples(story: list[tuple[float, int | None]], buckets: int) -> None:
    recent, now_s, moments = SampleHistory(600), START_S, []
    for pause_s, value in story:
        now_s += pause_s
        recent.append(sample(now_s, value))
        moments.append((now_s, value))
        drawn = history_columns(recent, "cpu", cpu, now_s, WIDTH, buckets)
        assert list(drawn)[:-1] == columns_of(moments, now_s, buckets)[:-1]


def test_the_newest_column_is_drawn_when_a_bucket_begins() -> None:
    recent = SampleHistory(600)
    for second in range(8):
        recent.append(sample(START_S + second, float(second)))
        shown = history_columns(recent, "cpu", cpu, START_S + second, WIDTH)
    assert shown[-2:] == (2.0, 5.0)  # the mean of seconds 0 to 4, and the first of the next bucket


def test_the_newest_column_is_at_the_right_and_all_move_once_a_bucket() -> None:
    recent = [sample(START_S + second, float(second)) for second in range(60)]
    first = history_columns(recent, "cpu", cpu, START_S + 59, WIDTH)
    assert first[-1] == 57.0  # the mean of seconds 55 to 59
    later = history_columns([*recent, sample(START_S + 60, 9.0)], "cpu", cpu, START_S + 60, WIDTH)
    assert later[-1] == 9.0
    assert later[:-1] == first[1:]


def test_only_what_is_new_is_looked_at() -> None:
    recent, asked = SampleHistory(600), []

    def figure(one: Sample) -> float:
        asked.append(one.time_s)
        return 1.0

    for second in range(300):
        recent.append(sample(START_S + second))
        history_columns(recent, "x", figure, START_S + second, WIDTH)
    assert asked == [START_S + second for second in range(296)]  # the others when the next bucket begins


def test_it_holds_so_many() -> None:
    recent = SampleHistory(5)
    for second in range(40):
        recent.append(sample(START_S + second))
    assert [one.time_s - START_S for one in recent] == [35, 36, 37, 38, 39]
    assert recent[-1].time_s == START_S + 39
    assert [one.time_s - START_S for one in recent[1:3]] == [36, 37]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    recent = SampleHistory(5)
    for time_s in (START_S, START_S + 1, START_S - 100):
        recent.append(sample(time_s))
        history_columns(recent, "cpu", cpu, time_s, WIDTH)
    assert [one.time_s for one in recent] == [START_S - 100]
    assert sum(value is not None for value in history_columns(recent, "cpu", cpu, START_S - 100, WIDTH)) == 1


def test_samples_are_found_by_their_age() -> None:
    samples = [sample(START_S + second) for second in range(10)]
    assert samples_within(samples, START_S + 9, 2) == samples[7:]
    assert samples_after(samples, START_S + 7) == samples[8:]
    assert samples_after(samples, START_S + 9) == []


def test_a_short_history_is_drawn_wide_and_a_long_one_has_a_cell_for_each_column() -> None:
    trace = Trace("CPU busy", "cpu", cpu, 100, "100 %")
    recent = [sample(START_S + second, 40.0 + second) for second in range(0, 30, 5)]
    _, row = (plain_text(row.line) for row in history_rows(trace, recent, START_S + 25, 120, 2))
    assert row.endswith("last 80 s")
    assert row.partition("last")[0].strip() == "▆" * 12 + "█" * 24
    recent = [sample(START_S + second) for second in range(0, 600, 5)]
    assert plain_text(history_rows(trace, recent, START_S + 595, 80, 2)[1].line).count("█") == 57

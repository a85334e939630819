"""Histories of samples: the newest column at the right, and each sample added up once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.live_run import START_S
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
from tuner_tui.view.sample_history import (
    WINDOWS,
    SampleHistory,
    drawn_columns,
    history_columns,
    samples_after,
    shown_past,
)

WIDTH = 20


def sample(time_s: float, cpu_pct: float | None = 50.0) -> Sample:
    return Sample(time_s, (), HostSample(cpu_pct=cpu_pct))


def cpu(sample: Sample) -> float | None:
    return sample.host.cpu_pct


def columns_of(moments: list[tuple[float, int | None]], now_s: float, column_s: float) -> list[float | None]:
    """The columns by definition: the mean of each span of time, or for up to two seconds that of the one before."""
    last = int(max(moments[0][0], now_s // 4 * 4) // column_s)
    spread = max(1, int(2 / column_s) - 1)

    def mean(column: int) -> float | None:
        known = [(time_s, value) for time_s, value in moments if value is not None]
        values = [value for time_s, value in known if time_s // column_s == column]
        if known and (max(moments[0][0], known[0][0] - 3) - 1) // column_s < column < known[0][0] // column_s:
            return float(known[0][1])  # the first value stands for the seconds before it
        return sum(values) / len(values) if values else None

    known = {column: mean(column) for column in range(last - WIDTH - spread, last + 1)}
    shown = range(last - WIDTH + 1, last + 1)
    near = ([known[column - back] for back in range(spread + 1)] for column in shown)
    return [next((value for value in values if value is not None), None) for values in near]


@given(
    st.lists(st.tuples(st.floats(0.1, 30), st.none() | st.integers(0, 100)), min_size=1, max_size=80),
    st.sampled_from([0.3, 1.0, 5.0, 10.0]),
)
def test_complete_columns_are_those_of_all_samples(story: list[tuple[float, int | None]], column_s: float) -> None:
    recent, now_s, moments = SampleHistory(600), START_S, []
    for pause_s, value in story:
        now_s += pause_s
        recent.append(sample(now_s, value))
        moments.append((now_s, value))
        drawn = history_columns(recent, "cpu", cpu, now_s, WIDTH, WIDTH * column_s)
        assert list(drawn)[:-1] == columns_of(moments, now_s, column_s)[:-1]


def test_the_newest_column_is_at_the_right_and_histories_move_every_four_seconds() -> None:
    recent = SampleHistory(600)
    drawn = []
    for second in range(60):
        recent.append(sample(START_S + second, float(second)))
        drawn.append(history_columns(recent, "cpu", cpu, START_S + second, WIDTH, WIDTH))
    assert len({id(each) for each in drawn[54:60]}) == 2
    assert drawn[57][-3:] == (54.0, 55.0, 56.0)


def test_the_newest_drawn_column_is_the_figure_and_samples_are_no_stairs() -> None:
    recent = SampleHistory(600)
    for second in range(11):
        recent.append(sample(START_S + second, 98.0 if second == 10 else 9.0 * second))
    drawn = drawn_columns(recent, "cpu", cpu, recent[-1], 100, shown_past(recent, WINDOWS[0], START_S + 10))
    assert drawn[-1] == 98.0
    sampled = [value for value in drawn[:-1] if value is not None]
    assert 28 <= len(sampled) <= 40, "eleven of thirty seconds"
    assert max(abs(after - before) for before, after in pairwise(sampled)) < 4.5


def test_a_second_without_a_sample_leaves_no_gap_but_a_longer_pause_does() -> None:
    recent = SampleHistory(600)
    for second in (0, 1, 3, 4, 8, 9, 10, 11, 12):
        recent.append(sample(START_S + second, float(second)))
    drawn = history_columns(recent, "cpu", cpu, START_S + 12, WIDTH, WIDTH)
    assert drawn[-13:-2] == (0.0, 1.0, 1.0, 3.0, 4.0, 4.0, None, None, 8.0, 9.0, 10.0)


def test_only_what_is_new_is_looked_at() -> None:
    recent, asked = SampleHistory(600), []

    def figure(sample: Sample) -> float:
        asked.append(sample.time_s)
        return 1.0

    for second in range(301):
        recent.append(sample(START_S + second))
        history_columns(recent, "x", figure, START_S + second, WIDTH, WIDTH)
    assert asked == [START_S + second for second in range(301)]


def test_all_histories_show_one_past_which_is_short_while_little_is_known_and_may_be_that_of_a_whole_run() -> None:
    recent = SampleHistory(100)
    spans = []
    for second in range(2000):
        recent.append(sample(START_S + second, 100.0 * (second < 1000)))
        spans.append(shown_past(recent, WINDOWS[0], START_S + second))
    assert [spans[second] for second in (0, 10, 50)] == [30, 30, 45]
    now_s = START_S + 1999
    pasts = [shown_past(recent, window, now_s) for window in WINDOWS]
    assert pasts == [120, 600, 1800]
    drawn = history_columns(recent, "cpu", cpu, now_s, 40, pasts[2])
    assert (drawn[0], drawn[-1]) == (100.0, 0.0)


@given(st.integers(0, 200), st.floats(0, 4), st.sampled_from([1, 7, 40, 150]))
def test_histories_come_in_from_the_right_and_fill_their_width_later(seconds: int, start_s: float, width: int) -> None:
    recent = SampleHistory()
    for second in range(seconds + 1):
        recent.append(sample(START_S + start_s + second, float(second)))
    now_s = START_S + start_s + seconds
    drawn = history_columns(recent, "cpu", cpu, now_s, width, shown_past(recent, WINDOWS[0], now_s))
    shown = [value is not None for value in drawn]
    assert shown == sorted(shown), "nothing is missing at the right"
    assert abs(sum(shown) / width - min(1.0, (seconds + 1) / 30)) <= 1 / width + 3 / 30
    assert all(shown) or seconds < 33


def test_it_holds_so_many() -> None:
    recent = SampleHistory(5)
    for second in range(40):
        recent.append(sample(START_S + second))
    assert [run.time_s - START_S for run in recent] == [35, 36, 37, 38, 39]
    assert recent[-1].time_s == START_S + 39
    assert [run.time_s - START_S for run in recent[1:3]] == [36, 37]


def test_an_old_sample_keeps_what_is_charted_alone() -> None:
    recent = SampleHistory(100)
    for second in range(60):
        gpu = GpuSample(0, "A100", 50.0, 8, power_w=300.0)
        recent.append(Sample(START_S + second, (gpu,), HostSample(cpu_pct=50.0, per_core_pct=(40.0, 60.0))))
    assert [(measured.gpus[0].power_w, len(measured.host.per_core_pct)) for measured in (recent[0], recent[-1])] == [
        (None, 0),
        (300, 2),
    ]
    for figure in (cpu, lambda sample: sample.gpus[0].utilisation_pct):
        assert {*history_columns(recent, figure, figure, START_S + 59, 50, 50)} == {50.0}


def test_a_clock_that_was_set_back_begins_anew() -> None:
    recent = SampleHistory(5)
    for time_s in (START_S, START_S + 1, START_S - 100):
        recent.append(sample(time_s))
        history_columns(recent, "cpu", cpu, time_s, WIDTH, 5.0 * WIDTH)
    assert [run.time_s for run in recent] == [START_S - 100]
    assert (
        sum(value is not None for value in history_columns(recent, "cpu", cpu, START_S - 100, WIDTH, 5.0 * WIDTH)) == 1
    )


def test_samples_are_found_by_their_age() -> None:
    samples = [sample(START_S + second) for second in range(10)]
    assert samples_after(samples, START_S + 7) == samples[8:]
    assert samples_after(samples, START_S + 9) == []

"""The fold from events to state, and rates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.runs.store.test_codec import events
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.fold import MAX_EVALUATIONS, fold, fold_all
from tuner_tui.runs.events.progress import MAX_POINTS, WINDOW_S, HistoryBuilder, mean_rates, rates_of, startup_phases
from tuner_tui.runs.events.run_state import RankState, RunState


def steps(t: float, steps_of_rank: int, train_s: float, rank: int = 0, **more: Any) -> ev.Steps:
    plain = ev.Steps(
        t=t, rank=rank, step=steps_of_rank, own_steps=steps_of_rank, train_s=train_s, samples=steps_of_rank * 8
    )
    return replace(plain, **more)


@given(st.lists(events(), max_size=12))
def test_any_events_in_any_order_give_a_state(story: list[ev.Event]) -> None:
    state = fold_all(RunState(), story)
    assert all(len(rank.recent) <= MAX_POINTS for rank in state.ranks.values())
    assert state.rates.data_wait_share is None or 0 <= state.rates.data_wait_share <= 1
    assert state.rates.padding_share is None or 0 <= state.rates.padding_share <= 1
    assert state.rates.between_share is None or 0 <= state.rates.between_share <= 1


def test_time_between_steps_is_that_of_the_rank_with_most_and_unknown_without_a_loader() -> None:
    story = [
        steps(1.0, 2, 1.0, rank=0, between_s=0.1), steps(1.0, 2, 1.0, rank=1),
        steps(3.0, 6, 3.0, rank=0, between_s=0.9), steps(3.0, 6, 3.0, rank=1, between_s=0.2),
    ]  # fmt: skip
    assert fold_all(RunState(), story).rates.between_share == pytest.approx(0.4)
    assert fold_all(RunState(), story[1:2]).rates.between_share is None
    assert fold_all(RunState(), [steps(1.0, 2, 1.0), steps(3.0, 6, 3.0)]).rates.between_share is None


def test_a_run_from_launch_to_end() -> None:
    story = [
        ev.Launched(t=1.0, pid=10, argv=("python",)),
        ev.Started(t=2.0, rank=0, pid=11, torch="2.13.0"),
        ev.Plan(t=3.0, rank=0, total_steps=100, parameters=7),
        ev.Phase(t=4.0, rank=0, phase="training", step=0),
        steps(5.0, 2, 1.0),
        steps(6.0, 4, 2.0),
        ev.Metrics(t=6.0, rank=0, step=4, loss=2.5, learning_rate=1e-4),
    ]
    state = fold_all(RunState(), story)
    assert (state.phase, state.step, state.total_steps, state.pid) == ("training", 4, 100, 10)
    assert (state.loss, state.parameters, state.versions) == (2.5, 7, {"torch": "2.13.0"})
    assert state.rates.steps_s == pytest.approx(2.0)
    assert state.rates.samples_s == pytest.approx(16.0)
    assert (state.last_step_t, state.training_since_t, state.outcome) == (6.0, 4.0, None)
    done = fold_all(state, [ev.Ended(t=7.0, rank=0), ev.Finished(t=8.0, outcome="completed", step=4)])
    assert (done.phase, done.outcome, done.ranks[0].ended) == ("ended", "completed", True)


def test_counters_flushed_while_evaluating_do_not_end_the_evaluation() -> None:
    story = [steps(1.0, 1, 0.5), ev.Phase(t=2.0, rank=0, phase="evaluating"), steps(3.0, 2, 1.0), steps(4.0, 2, 1.0)]
    assert fold_all(RunState(), story).phase == "evaluating"


def test_samples_are_summed_over_ranks_and_steps_are_not() -> None:
    story: list[ev.Event] = [steps(float(t), t, t * 0.5, rank=rank) for t in (1, 2, 3) for rank in range(4)]
    rates = fold_all(RunState(), story).rates
    assert rates.steps_s == pytest.approx(2.0)
    assert rates.samples_s == pytest.approx(4 * 16.0)
    apart: list[ev.Event] = [steps(float(t), t, t * 0.5, rank=rank, alone=True) for t in (1, 2, 3) for rank in range(4)]
    assert fold_all(RunState(), apart).rates.samples_s == pytest.approx(16.0)


def test_a_slow_rank_sets_the_pace() -> None:
    story: list[ev.Event] = [steps(float(t), t, t * (0.5 + rank), rank=rank) for t in (1, 2) for rank in (0, 1)]
    assert fold_all(RunState(), story).rates.step_time_s == pytest.approx(1.5)


def test_counters_that_fall_are_a_new_process() -> None:
    story = [steps(float(t), t * 10, float(t), step=1000 + t * 10) for t in range(1, 6)]
    before = fold_all(RunState(), story)
    assert before.rates.steps_s == pytest.approx(10.0)
    after = fold(before, steps(9.0, 1, 0.2, step=500))
    assert (after.step, after.rates.steps_s) == (500, None)
    again = fold(after, steps(10.0, 3, 0.6, step=502))
    assert again.rates.steps_s == pytest.approx(5.0)


def test_rates_look_back_on_a_window_of_training_time() -> None:
    slow = [steps(float(t), t, float(t)) for t in range(1, 40)]
    fast = [steps(40.0 + t, 40 + t * 10, 40.0 + t) for t in range(int(WINDOW_S) + 2)]
    assert fold_all(RunState(), [*slow, *fast]).rates.steps_s == pytest.approx(10.0)


def test_shares_of_waiting_and_padding() -> None:
    first = steps(1.0, 1, 1.0, tokens=100, padding_tokens=10, data_wait_s=0.1)
    last = steps(2.0, 2, 2.0, tokens=190, padding_tokens=20, data_wait_s=0.4)
    rates = fold_all(RunState(), [first, last]).rates
    assert rates.data_wait_share == pytest.approx(0.3)
    assert rates.padding_share == pytest.approx(0.1)
    assert rates.tokens_s == pytest.approx(90.0)


def test_an_evaluation_whose_line_is_read_late_is_not_the_newest() -> None:
    """All within a second: the observer does not report the first one, before the training."""
    seen = [ev.Evaluated(t=1.0, rank=0, step=step, seconds=0.1) for step in (20, 40)]
    lines = [ev.Evaluated(t=1.5, source="log lines", step=step, metrics={"eval_loss": step}) for step in (0, 20, 40)]
    state = fold_all(RunState(), [*seen, *lines])
    assert [(event.step, event.metrics) for event in state.evaluations] == [
        (step, {"eval_loss": step}) for step in (0, 20, 40)
    ]
    again = ev.Evaluated(t=60.0, rank=0, step=10, seconds=0.1)
    assert fold_all(state, [again]).evaluations[-1] == again, "a second training in the same process"


def test_metrics_that_a_logger_gets_one_by_one_are_of_one_evaluation() -> None:
    values = {"eval_reward": 3.0, "eval_length": 9.0}
    story = [ev.Evaluated(t=1.0, step=0, source="tensorboard", metrics={name: value}) for name, value in values.items()]
    [evaluation] = fold_all(RunState(), story).evaluations
    assert evaluation.metrics == values


def test_evaluations_of_the_next_training_in_a_process_are_their_own() -> None:
    """As of the folds of a cross-validation, which count their steps anew."""
    story = [
        ev.Evaluated(t=60.0 * n, step=step, source="log lines", metrics={"eval_loss": 9.0 - n})
        for n, step in enumerate((10, 20, 10, 20))
    ]
    assert fold_all(RunState(), story).evaluations == tuple(story)


def test_another_evaluation_of_the_last_step_is_none_of_the_series() -> None:
    """As of the best weights, which were loaded again after the training."""
    losses = [(10, 3.0), (20, 2.0), (30, 2.5), (30, 2.0)]
    story = [ev.Evaluated(t=9.0 * n, rank=0, step=n, metrics={"eval_loss": loss}) for n, loss in losses]
    history = HistoryBuilder()
    for event in story:
        history.add(event)
    assert history.history().eval_loss.ys == (3.0, 2.0, 2.5)
    assert fold_all(RunState(), story).evaluations == tuple(story[:3])


def test_evaluations_are_thinned_but_the_newest_stays() -> None:
    story = [ev.Evaluated(t=float(n), rank=0, step=n, metrics={"eval_loss": 1.0}) for n in range(5000)]
    kept = fold_all(RunState(), story).evaluations
    assert len(kept) <= MAX_EVALUATIONS
    assert kept[-1].step == 4999
    assert [sample.step for sample in kept] == sorted({sample.step for sample in kept})


def test_a_checkpoint_asked_for_is_not_a_stop() -> None:
    state = fold(RunState(), ev.StopRequested(t=1.0, how="checkpoint"))
    assert state.stop_requested is None
    assert fold(state, ev.StopRequested(t=2.0, how="stop")).stop_requested == "stop"


def test_other_ranks_do_not_speak_for_the_run() -> None:
    story = [ev.Phase(t=1.0, rank=0, phase="training"), ev.Phase(t=2.0, rank=3, phase="saving")]
    state = fold_all(RunState(), [*story, ev.Metrics(t=3.0, rank=3, step=1, loss=9.0)])
    assert (state.phase, state.loss) == ("training", None)


def test_the_first_rank_to_raise_is_the_reason() -> None:
    first, later = (ev.Raised(t=t, rank=rank, type="E", message=str(rank)) for t, rank in ((1.0, 1), (2.0, 0)))
    assert fold_all(RunState(), [later, first]).raised == first
    assert fold_all(RunState(), [first, later]).raised == first
    assert fold_all(RunState(), [first, ev.Started(t=3.0, rank=1, pid=5)]).raised is None


def test_the_mean_is_over_the_whole_run_and_summed_over_ranks() -> None:
    counters = ev.Steps(t=9.0, step=100, own_steps=100, samples=800, train_s=50.0, data_wait_s=5.0)
    mean = mean_rates([RankState(0, latest=counters), RankState(1, latest=counters), RankState(2)])
    assert (mean.steps_s, mean.samples_s, mean.data_wait_share) == (2.0, 32.0, 0.1)
    assert mean.tokens_s is None


def test_without_a_loader_the_data_wait_is_unknown() -> None:
    def share(**last: Any) -> float | None:
        points = (steps(0.0, 0, 0.0), steps(10.0, 10, 10.0, **last))
        return rates_of([RankState(0, latest=points[1], recent=points)]).data_wait_share

    assert share(micro_steps=10) is None
    assert share(micro_steps=10, between_s=0.5) == 0.0
    assert share(micro_steps=10, data_wait_s=2.5) == 0.25


def test_what_is_held_between_steps_is_followed_and_forgotten_with_its_process() -> None:
    held = [steps(float(n), n, float(n), allocated_bytes=100 + n, anonymous_bytes=7) for n in range(1, 6)]
    rank = fold_all(RunState(), held).ranks[0]
    assert (rank.allocated_minima.values, rank.anonymous_minima.values[1:]) == (
        (None, 101, 102, 103, 104, 105),
        (7,) * 5,
    )
    again = fold(fold_all(RunState(), held), steps(9.0, 1, 1.0, allocated_bytes=50))
    assert again.ranks[0].allocated_minima.values == (None, 50)
    assert again.ranks[0].anonymous_minima.values == ()


def test_the_phases_of_a_start_end_with_the_first_step_and_come_in_any_order() -> None:
    story: list[ev.Event] = [
        ev.Launched(t=10.0, pid=1), ev.Started(t=16.0, rank=0, pid=2), ev.Phase(t=20.0, rank=0, phase="loading-model"),
        ev.Phase(t=32.0, rank=0, phase="starting"), ev.Phase(t=37.0, rank=0, phase="training"), steps(41.0, 1, 4.0),
    ]  # fmt: skip
    expected = (("importing", 6.0), ("setting up", 9.0), ("loading-model", 12.0), ("first step", 4.0))
    later: list[ev.Event] = [ev.Phase(t=50.0, rank=0, phase="evaluating"), ev.Phase(t=52.0, rank=0, phase="training")]
    for order in (story, [*story[2:5], *story[:2], story[5]], story * 2):
        state = fold_all(RunState(), [*order, *later])
        assert startup_phases(state, 99.0) == expected
    assert startup_phases(fold_all(RunState(), story[:3]), 50.0) == (
        ("importing", 6.0), ("setting up", 4.0), ("loading-model", 30.0)
    )  # fmt: skip


def test_a_part_of_the_loss_never_stands_for_the_loss() -> None:
    part = ev.Metrics(
        t=1.0, rank=0, step=1, source="tensorboard", loss=9.0, part=True, parts={"losses/value_loss": 9.0}
    )
    whole = ev.Metrics(t=1.0, rank=0, step=1, source=ev.BACKWARD, loss=0.5)
    for story in ([part, whole], [whole, part]):
        state = fold_all(RunState(), story)
        assert (state.loss, state.loss_parts) == (0.5, {"losses/value_loss": 9.0})
    assert fold_all(RunState(), [part]).loss == 9.0


def test_a_loss_that_proves_to_be_one_of_several_optimizers_is_a_part() -> None:
    whole = ev.Metrics(t=1.0, rank=0, step=1, source=ev.BACKWARD, loss=0.5)
    parts = ev.Metrics(t=2.0, rank=0, step=2, source=ev.BACKWARD, parts={"d_loss": 0.4, "g_loss": 0.9})
    state = fold_all(RunState(), [whole, parts])
    assert (state.loss, state.loss_trend.lowest, state.loss_parts) == (None, None, {"d_loss": 0.4, "g_loss": 0.9})
    logged = ev.Metrics(t=1.0, rank=0, step=1, source="wandb", loss=0.7)
    assert fold_all(RunState(), [logged, parts]).loss == 0.7
    printed = ev.Metrics(t=3.0, step=3, source="log lines", loss=0.4, part=True, parts={"d_loss": 0.4})
    assert fold_all(RunState(), [printed, parts, printed]).loss is None


def test_losses_that_are_printed_under_other_names_are_shown_once() -> None:
    called = ev.Metrics(t=2.0, rank=0, step=2, source=ev.BACKWARD, parts={"ld": 0.4, "lg": 0.9})
    printed = [
        ev.Metrics(t=3.0, step=2, source="log lines", loss=value, part=True, parts={name: value})
        for name, value in {"loss_d": 0.41, "loss_g": 0.88}.items()
    ]
    for story in ([called, *printed], [*printed, called]):
        history = HistoryBuilder()
        for event in story:
            history.add(event)
        assert fold_all(RunState(), story).loss_parts == {"loss_d": 0.41, "loss_g": 0.88}
        assert [series.name for series in history.history().logged] == ["loss d", "loss g"]
    assert fold_all(RunState(), [called, printed[0]]).loss_parts == {"ld": 0.4, "lg": 0.9}


def test_the_chart_of_the_loss_has_no_points_of_a_part() -> None:
    history = HistoryBuilder()
    for step in (1, 2):
        history.add(ev.Metrics(t=1.0, rank=0, step=step, source=ev.BACKWARD, loss=0.5))
    history.add(ev.Metrics(t=3.0, rank=0, step=3, source=ev.BACKWARD, parts={"d_loss": 0.4, "g_loss": 0.9}))
    assert history.history().loss.xs == ()


def test_a_second_trainer_in_a_process_begins_at_its_own_step() -> None:
    begin, loss = ev.Plan(t=0.0, rank=0, total_steps=20, obeys=True), ev.Metrics(t=1.0, rank=0, step=20, loss=0.01)
    again = ev.Plan(t=2.0, rank=0, total_steps=30, obeys=True)
    first = fold_all(RunState(), [begin, steps(1.0, 20, 1.0), loss, again])
    assert (first.step, first.total_steps, first.loss, first.loss_trend.lowest) == (0, 30, None, None)
    assert fold_all(first, [ev.Steps(t=3.0, rank=0, step=5, own_steps=25, train_s=2.0)]).step == 5


def test_a_guessed_length_that_is_taken_back_or_exceeded_is_not_guessed_anew_from_the_epochs() -> None:
    story = [ev.Plan(t=0.0, rank=0, total_steps=54, epochs=6, guessed=True), steps(1.0, 20, 1.0)]
    for event in (ev.Plan(t=2.0, rank=0, guessed=True), steps(2.0, 70, 2.0)):
        state = fold_all(RunState(), [*story, event])
        assert (state.total_steps, state.planned_epochs) == (None, None)


def test_a_guessed_length_is_corrected_when_the_training_completes() -> None:
    story = [ev.Plan(t=0.0, rank=0, total_steps=90, guessed=True), steps(1.0, 45, 1.0)]
    ended = fold_all(RunState(), [*story, ev.Finished(t=2.0, outcome="completed")])
    assert (ended.total_steps, ended.total_guessed) == (45, False)
    stopped = fold_all(RunState(), [*story, ev.Finished(t=2.0, outcome="stopped")])
    assert (stopped.total_steps, stopped.total_guessed) == (90, True)


@pytest.mark.parametrize("trace", [ev.Metrics(t=1.0, rank=0, step=0, loss=1.0), ev.Saved(t=1.0, rank=0, path="/m.pt")])
def test_a_gradient_or_a_file_is_a_sign_of_training(trace: ev.Event) -> None:
    story = [ev.Started(t=0.0, rank=0, pid=1, torch="2.13.0"), ev.Ended(t=2.0, rank=0)]
    assert fold_all(RunState(), story).ended_without_step
    nothing = [ev.Metrics(t=1.0, step=epoch, loss=0.0, source="log lines") for epoch in range(3)]
    assert fold_all(RunState(), [story[0], *nothing, story[1]]).ended_without_step
    assert not fold_all(RunState(), [story[0], trace, story[1]]).ended_without_step


def loss_of(t: float, step: int, loss: float) -> ev.Metrics:
    return ev.Metrics(t=t, rank=0, step=step, loss=loss, source=ev.BACKWARD)


def test_the_step_from_which_the_loss_is_nan_stays_the_same_until_it_is_a_number_again() -> None:
    story = [loss_of(1.0, 30, 0.7), ev.NotFinite(t=2.0, rank=0, step=33), loss_of(1.5, 32, 0.6)]
    late = [loss_of(3.0 + n, 35 + n, float("nan")) for n in range(3)]
    state = fold_all(RunState(), [*story, *late])
    assert (state.loss_problem, fold_all(RunState(), story).loss_problem) == ("loss nan since step 33", "")
    ended = fold(state, ev.Finished(t=9.0, outcome="completed", not_finite_since=33))
    assert ended.loss_problem == "loss nan since step 33"
    again = fold_all(state, [loss_of(7.0, 40, 0.5), ev.NotFinite(t=8.0, step=51), loss_of(9.0, 52, float("inf"))])
    assert again.loss_problem == "loss inf since step 51"


def test_without_an_observer_the_first_line_with_a_nan_says_the_step_only_if_a_number_stood_before_it() -> None:
    printed = [steps(1.0, 20, 1.0, source="log lines"), ev.Metrics(t=1.0, step=20, loss=0.5, source="log lines")]
    broken = ev.Metrics(t=2.0, step=21, loss=float("nan"), source="log lines")
    assert fold_all(RunState(), [*printed, broken]).loss_problem == "loss nan since step 21"
    assert fold_all(RunState(), [*printed[:1], broken]).loss_problem == "loss nan"


@pytest.mark.parametrize("gpus", ["two", None, [2], 0])
def test_a_number_of_gpus_that_is_none_shares_no_batch(gpus: object) -> None:
    assert RunState(in_effect={"optimizer": "AdamW", "n_gpu": gpus}).replicas == 1

"""Two runs side by side."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.runs.builders import counters, view
from tuner_tui.runs.read.comparison import Difference, LossAt, MeasuredFigure, OriginText, compare, format_ratio
from tuner_tui.runs.read.reader import RunView
from tuner_tui.settings.job import CommandJob


def figure(first: RunView, second: RunView, name: str) -> MeasuredFigure:
    return next(figure for figure in compare(first, second).figures if figure.name == name)


def test_settings_that_differ_have_their_origins() -> None:
    comparison = compare(view({"seed": 1, "precision": "bf16"}), view({"seed": 1, "max_length": 64}))
    assert [(outcome.name, outcome.first, outcome.second) for outcome in comparison.settings] == [
        ("precision", "bf16", "fp32"),
        ("max_length", 128, 64),
    ]
    assert comparison.settings[0].first_origin == OriginText("flag", "--set")
    assert comparison.settings[0].second_origin == OriginText("default", "")


COMMAND = CommandJob(command=("python", "train.py"), apply="inject")


def changed(first: RunView, second: RunView) -> list[tuple[str, object, object]]:
    labels = {"unknown": "?"}
    return [
        (row.name, labels.get(row.first_origin.kind, row.first), labels.get(row.second_origin.kind, row.second))
        for row in compare(first, second).settings
    ]


def command(settings: dict[str, Any] | None = None, seen: dict[str, Any] | None = None, **changes: Any) -> RunView:
    """A run of a command with these settings chosen, and these observed."""
    return view(settings, job=changes.pop("job", COMMAND), state={"in_effect": seen or {}}, **changes)


def test_what_a_command_has_of_its_own_is_not_that_of_the_form() -> None:
    observed = {"learning_rate": 0.001, "dataloader_pin_memory": False, "per_device_train_batch_size": 16}
    chosen = {"per_device_train_batch_size": 16}
    assert changed(command(), command(seen=observed)) == []
    assert changed(command(chosen), command(seen=observed)) == []
    assert changed(command(chosen, observed), command({**chosen, "seed": 7}, {**observed, "seed": 7})) == [
        ("seed", "?", 7)
    ]
    assert changed(command(seen=observed), command(seen={**observed, "learning_rate": 0.002})) == [
        ("learning_rate", 0.001, 0.002)
    ]
    assert changed(command({"weight_decay": 0.1}, not_applied=("weight_decay",)), command()) == []
    ignored = CommandJob(command=("python", "train.py"), apply="none")
    assert changed(command({"weight_decay": 0.1}, job=ignored), command()) == []


def test_what_was_observed_counts_and_not_what_was_asked_for() -> None:
    asked = {"dataloader_num_workers": 4}
    seen = command(asked, {"dataloader_num_workers": 0})
    assert changed(seen, command(asked, {"dataloader_num_workers": 4})) == [("dataloader_num_workers", 0, 4)]
    assert compare(seen, command(asked)).settings[0].first_origin == OriginText("observed", "in the run")
    assert changed(view(), view(state={"in_effect": {"attn_implementation": "sdpa", "tf32": False}})) == []


def test_what_a_person_chose_comes_first_and_the_unknown_last() -> None:
    first = command({"warmup_steps": 10.0}, {"per_device_train_batch_size": 8, "logging_steps": 5})
    second = command({"logging_steps": 6}, {"per_device_train_batch_size": 9, "logging_steps": 6})
    assert [name for name, *_ in changed(first, second)] == [
        "logging_steps", "per_device_train_batch_size", "warmup_steps",
    ]  # fmt: skip


def test_speed_and_waiting_are_over_the_whole_run() -> None:
    first, second = view(train_s=50.0), view(train_s=25.0)
    speed = figure(first, second, "throughput")
    assert (speed.first, speed.second, speed.ratio) == (16.0, 32.0, 2.0)
    assert figure(first, second, "data wait").first == pytest.approx(0.1)
    assert figure(first, second, "padding").first == pytest.approx(0.1)
    assert figure(first, second, "step time").second == pytest.approx(0.25)
    assert figure(first, second, "eval_loss").first == 0.5
    assert "eval_runtime" not in {figure.name for figure in compare(first, second).figures}


def test_ranks_add_up() -> None:
    two = view(ranks=(counters(10, 4, 10.0), counters(10, 4, 10.0, rank=1)))
    assert figure(two, two, "throughput").first == 8.0
    assert figure(two, two, "samples").first == 800.0  # 100 steps of 8 samples


def test_no_loader_was_seen_and_the_wait_is_unknown() -> None:
    unseen = view(ranks=(counters(10, 4, 10.0, data_wait_s=0.0),))
    assert figure(unseen, view(), "data wait").first is None


def test_losses_are_compared_after_as_many_samples() -> None:
    small = view(steps=100, batch=8, loss=((10, 2.0), (50, 1.0), (100, 0.5)))
    large = view(steps=50, batch=16, loss=((5, 2.0), (25, 1.0), (50, 0.5)))
    comparison = compare(small, large).loss
    assert [outcome.samples for outcome in comparison] == [200, 400, 600, 800]
    for outcome in comparison:
        assert outcome.first == pytest.approx(outcome.second)
    assert comparison[1] == LossAt(400, 1.0, 1.0)


def test_two_runs_of_one_seed_differ_nowhere_though_their_logs_end_at_other_steps() -> None:
    losses = tuple((step, 2.0 + (-1) ** step / step) for step in range(1, 41))
    whole, killed = view(steps=40, loss=losses), view(steps=37, loss=losses[::3])
    assert all(outcome.first == outcome.second for outcome in compare(whole, killed).loss)


def test_losses_beyond_the_shorter_run_are_left_out() -> None:
    long, short = view(loss=((10, 2.0), (100, 1.0))), view(loss=((10, 2.0), (40, 1.5)))
    assert compare(long, short).loss[-1].samples == 320
    early, late = view(loss=((1, 1.0), (2, 1.0))), view(loss=((50, 1.0), (60, 1.0)))
    assert compare(early, late).loss == ()
    assert compare(view(), view(loss=((1, 1.0),))).loss == ()


def test_versions_effects_and_commits_that_differ() -> None:
    first = view(state={"in_effect": {"tf32": False, "fused": True, "device": "cpu"}})
    second = view(
        versions={"torch": "2.12.0"}, git_sha="bbb", state={"in_effect": {"fused": True, "attention": "sdpa"}}
    )
    comparison = compare(first, second)
    assert comparison.in_effect == (Difference("attention", None, "sdpa"), Difference("device", "cpu", None))
    silent = compare(first, view())
    assert (silent.in_effect, silent.observed) == ((), (True, False))
    assert comparison.versions == (Difference("torch", "2.13.0", "2.12.0"),)
    assert comparison.code == (Difference("git_sha", "aaa", "bbb"),)


def test_a_run_whose_record_is_lost_has_no_settings() -> None:
    lost = replace(view(), record=None)
    assert compare(lost, lost).settings == ()


def test_a_run_that_did_nothing_has_no_figures() -> None:
    nothing = view(steps=0, train_s=0.0, state={"step": None, "evaluations": ()})
    for name in ("throughput", "step time", "data wait", "samples", "loss, last logged"):
        assert figure(nothing, view(), name).first is None
        assert figure(nothing, view(), name).ratio is None


@pytest.mark.parametrize(
    ("first", "second", "words"), [(4.0, 5.0, "×1.25"), (0.0, 5.0, ""), (4.0, 0.0, ""), (None, 5.0, "")]
)
def test_there_is_no_factor_to_or_from_nothing(first: float | None, second: float | None, words: str) -> None:
    assert format_ratio(MeasuredFigure("saving", "s", first, second)) == words

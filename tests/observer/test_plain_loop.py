"""Variants of training loops, each in a forked child that reports its own events."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.late_module import late_module
from tests.observer.observed_process import ObservedProcess, events_of, last_steps, settings_in_effect, split_by_process
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import (
    BACKWARD,
    Ended,
    Evaluated,
    Event,
    InEffect,
    Metrics,
    OutOfMemory,
    Phase,
    Plan,
    Saved,
    Started,
    Steps,
)

pytestmark = pytest.mark.train
script = late_module("tests.observer.scripts.loop_variants")
SWITCHES = {
    "tf32": True,
    "sdpa_backends": ["mem_efficient", "math", "cudnn"],
    "cpu_threads": 2,
    "fused": True,
    "dataloader_num_workers": 1,
    "dataloader_prefetch_factor": 3,
    "dataloader_persistent_workers": True,
    "dataloader_drop_last": True,
    "per_device_train_batch_size": 4,
}
"""What `own_switches` sets."""


def story(sections: ObservedProcess, name: str) -> list[Event]:
    """Return the events of the child process in that section; the first process is the parent."""
    at = [section.__name__ for section in script.SECTIONS].index(name)
    return split_by_process(sections.events)[at + 1]


def phases(events: list[Event]) -> list[str]:
    return [event.phase for event in events_of(events, Phase)]


def test_every_child_started_and_ended(sections: ObservedProcess) -> None:
    assert sections.exit_code == 0
    assert len(split_by_process(sections.events)) == len(script.SECTIONS) + 1
    for section in script.SECTIONS[:-2]:
        assert len(events_of(story(sections, section.__name__), Ended)) == 1, section


def test_step_that_the_scaler_left_out(sections: ObservedProcess) -> None:
    events = story(sections, "amp_with_a_skipped_step")
    assert last_steps(events).own_steps == 3
    assert settings_in_effect(events)["autocast_dtype"] == "bfloat16"


def test_saves_of_a_plain_loop_are_pauses(sections: ObservedProcess) -> None:
    events = story(sections, "own_saves")
    final = last_steps(events)
    assert (final.own_steps, final.samples) == (3, 12)
    assert 0 < final.save_s < final.train_s + final.save_s
    assert phases(events)[:3] == ["training", "saving", "training"], (
        "what is saved before the first step is no training's"
    )
    assert phases(events).count("saving") == 1, "one that is as short as the last one is not shown"
    assert [(event.step, Path(event.path).name) for event in events_of(events, Saved)][-1] == (3, "last.safetensors")


def test_batches_that_cannot_be_read_come_from_a_loader(sections: ObservedProcess) -> None:
    events = story(sections, "unreadable_batches")
    final = last_steps(events)
    assert (final.own_steps, final.epoch_batch, final.epoch_batches, final.samples) == (6, 6, 6, 0)
    assert settings_in_effect(events)["per_device_train_batch_size"] == 2
    [plan] = [event for event in events_of(events, Plan) if event.parameters]
    assert (plan.parameters, plan.trainable_parameters) == (5, 5), "the target network is a copy"


@pytest.mark.parametrize("name", ["configuration_of_locals", "configuration_of_vars"])
def test_variables_that_the_script_holds_are_left_alone(sections: ObservedProcess, name: str) -> None:
    events = story(sections, name)
    assert last_steps(events).own_steps == 3
    assert {event.learning_rate for event in events_of(events, Metrics)} == {0.05}


@pytest.mark.parametrize(
    ("name", "steps", "total", "epochs"),
    [
        ("resumed_with_adam", (20, 35), 35, 7),
        ("resumed_with_sgd", (20, 35), 35, 7),
        ("resumed_within_an_epoch", (22, 35), 35, 7),
        ("begun_at_epoch_one", (0, 15), 15, 3),
    ],
)
def test_the_steps_of_a_resumed_loop_continue_those_of_its_checkpoint(
    sections: ObservedProcess, name: str, steps: tuple[int, int], total: int, epochs: int
) -> None:
    events = story(sections, name)
    state = fold_all(RunState(), events)
    assert (state.first_step, state.step) == steps
    assert min(event.step for event in events_of(events, Metrics)) == steps[0] + 1
    assert (state.total_steps, state.planned_epochs) == (total, epochs)


def test_child_that_raises_says_why(sections: ObservedProcess) -> None:
    events = story(sections, "raising")
    [error] = events_of(events, OutOfMemory)
    assert (error.message, error.where, error.step) == ("CUDA error: out of memory", "training", 1)
    assert events.index(error) > events.index(events_of(events, Steps)[-1])


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("two_optimizers", (5, 5, 20)),  # that take turns make one step
        ("accumulation", (2, 6, 24)),
        ("iterable", (5, 5, 10)),
        ("no_loader", (4, 4, 0)),
        ("frozen_teacher", (10, 10, 40)),
        ("kept_optimizer", (6, 6, 24)),  # a second optimizer with batches of its own makes steps of its own
        ("nested_batches", (4, 4, 14)),
        ("closure_of_the_optimizer", (3, 3, 12)),
        ("evaluation_after_each_step", (6, 6, 24)),
        ("accelerated", (6, 12, 48)),
        ("larger_validation_batches", (10, 10, 40)),
        ("replaced_optimizer", (10, 10, 20)),
        ("leaving_at_once", (7, 7, 0)),
        ("folds", (15, 15, 60)),
        ("modes_in_the_body", (15, 15, 60)),
        ("unlogged_loss", (6, 18, 36)),
        ("two_losses", (300, 300, 0)),
        ("estimated_loss", (13, 39, 0)),
    ],
)
def test_steps_micro_batches_and_samples(sections: ObservedProcess, name: str, counts: tuple[int, int, int]) -> None:
    final = last_steps(story(sections, name))
    assert (final.own_steps, final.micro_steps, final.samples) == counts
    if name in ("evaluation_after_each_step", "accelerated"):
        assert final.eval_s > 0


@pytest.mark.parametrize(
    ("name", "tokens", "padding", "shape"),
    [
        ("accumulation", 120, 24, (4, 6)),
        ("iterable", 80, None, (2, 8)),
        ("nested_batches", 40, 8, (3,)),
        ("no_loader", None, None, None),
    ],
)
def test_tokens_and_padding(
    sections: ObservedProcess, name: str, tokens: int | None, padding: int | None, shape: tuple[int, ...] | None
) -> None:
    final = last_steps(story(sections, name))
    assert (final.tokens, final.padding_tokens, final.batch_shape) == (tokens, padding, shape)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accelerated", {"autocast_dtype": "bfloat16", "per_device_train_batch_size": 4}),
        ("larger_validation_batches", {"per_device_train_batch_size": 4}),
        ("replaced_optimizer", {"optimizer": "AdamW", "fused": True}),
        ("compiled", {"torch_compile": True}),
        ("own_switches", SWITCHES),
    ],
)
def test_settings_made_by_the_script_are_in_effect(
    sections: ObservedProcess, name: str, expected: dict[str, object]
) -> None:
    seen = settings_in_effect(story(sections, name))
    assert {setting: seen[setting] for setting in expected} == expected


def test_the_second_optimizers_part_is_none_of_the_loops_own_time(sections: ObservedProcess) -> None:
    final = last_steps(story(sections, "two_optimizers"))
    assert final.between_s is not None
    assert final.between_s < 0.3 * final.train_s


def test_phases_of_a_compiled_and_of_an_accelerated_training(sections: ObservedProcess) -> None:
    assert "compiling" in phases(story(sections, "compiled"))
    assert phases(story(sections, "accelerated")).count("evaluating") == 1
    assert [event.step for event in events_of(story(sections, "accelerated"), Evaluated)] == [3, 6]
    assert not events_of(story(sections, "leaving_at_once"), Ended)


def test_loss_position_and_length_of_a_loop_that_says_nothing(sections: ObservedProcess) -> None:
    """The weight is 0 at first, so that the loss (w - 1)² is 1, however it is divided among micro batches."""
    events = story(sections, "unlogged_loss")
    losses, final = events_of(events, Metrics), last_steps(events)
    assert losses[0].loss == pytest.approx(1.0)
    assert (losses[0].source, losses[-1].step) == (BACKWARD, 6)
    assert (final.epoch_batch, final.epoch_batches) == (9, 9)
    assert [(plan.total_steps, plan.guessed) for plan in events_of(events, Plan) if plan.total_steps] == [(6, True)]
    state = fold_all(RunState(), events)
    assert (state.total_steps, state.total_guessed, state.position) == (6, True, (9, 9))


def test_the_losses_of_several_optimizers_are_parts(sections: ObservedProcess) -> None:
    state = fold_all(RunState(), story(sections, "two_losses"))
    steps = float(script.STEPS)
    assert state.loss is None
    assert state.loss_parts == {"(discriminator + step).sum()": steps, "(generator - step).sum()": -steps}


def test_the_length_grows_by_that_of_another_training(sections: ObservedProcess) -> None:
    events = story(sections, "two_trainings")
    totals = [script.BATCHES * epochs for epochs in (script.EPOCHS[0], sum(script.EPOCHS))]
    assert [plan.total_steps for plan in events_of(events, Plan) if plan.total_steps] == totals == [15, 40]
    assert last_steps(events).own_steps == totals[-1]


def test_a_guessed_length_that_proves_wrong_is_dropped() -> None:
    guess = Plan(t=0.0, rank=0, total_steps=10, guessed=True)
    steps = [Steps(t=float(step), rank=0, step=step, own_steps=step) for step in (5, 11, 12)]
    assert fold_all(RunState(), [guess, steps[0]]).total_steps == 10
    assert fold_all(RunState(), [guess, *steps[:2]]).total_steps == 11  # it counts from 0 to 10
    assert fold_all(RunState(), [guess, steps[0], Steps(t=9.0, rank=0, step=20, own_steps=20)]).total_steps is None
    planned = Plan(t=0.0, rank=0, total_steps=30)
    assert fold_all(RunState(), [planned, guess]).total_steps == 30


def test_batches_fetched_before_the_mode_changes_are_counted_where_they_belong(sections: ObservedProcess) -> None:
    events = story(sections, "modes_in_the_body")
    final = last_steps(events)
    assert (final.epoch_batch, final.epoch_batches) == (5, 5)
    assert [event.step for event in events_of(events, Evaluated)] == [5, 10, 15]


@pytest.mark.full
def test_an_estimate_without_gradients_is_evaluation_while_it_lasts(sections: ObservedProcess) -> None:
    events = story(sections, "estimated_loss")
    eval_s, evaluations = last_steps(events).eval_s, events_of(events, Evaluated)
    [spent_s] = [float(line.split()[1]) for line in sections.output.splitlines() if line.startswith("estimated_loss")]
    assert eval_s == pytest.approx(spent_s, rel=0.4)  # a busy machine holds up either clock
    assert [event.step for event in evaluations] == [4, 8, 12]
    assert sum(event.seconds or 0.0 for event in evaluations) == pytest.approx(eval_s, abs=1e-5)
    seen = [(event.phase, event.step) for event in events_of(events, Phase)]
    assert seen[:3] == [("training", 1), ("evaluating", 4), ("training", 4)]


def test_steps_of_an_optimizer_that_is_not_torchs(sections: ObservedProcess) -> None:
    events = story(sections, "own_optimizer")
    final, seen = last_steps(events), settings_in_effect(events)
    assert (final.own_steps, final.micro_steps, final.samples) == (9, 18, 72)
    assert [event.step for event in events_of(events, Evaluated)] == [3, 6, 9]
    planned = fold_all(RunState(), events_of(events, Plan))
    assert (planned.total_steps, planned.parameters) == (9, 5)
    names = ("optimizer", "learning_rate", "gradient_accumulation_steps", "per_device_train_batch_size", "device")
    assert [seen[name] for name in names] == ["OwnOptimizer", 0.05, 2, 4, "cpu"]


def test_long_steps_of_an_optimizer_that_is_not_torchs_have_a_batch_each(sections: ObservedProcess) -> None:
    events = story(sections, "own_optimizer_of_long_steps")
    counted = [(event.own_steps, event.micro_steps) for event in events_of(events, Steps)]
    assert all(steps == batches for steps, batches in counted), counted


def test_evaluations_of_an_optimizer_that_is_not_torchs(sections: ObservedProcess) -> None:
    events = story(sections, "own_optimizer_without_modes")
    assert [event.step for event in events_of(events, Evaluated)] == [4, 8, 12]
    assert last_steps(events).own_steps == 12


def test_batch_and_workers_of_a_loader_that_iterates_in_its_own_way(sections: ObservedProcess) -> None:
    events = story(sections, "own_iteration")
    seen = settings_in_effect(events)
    assert (seen["per_device_train_batch_size"], seen["dataloader_num_workers"]) == (4, 0)
    assert (last_steps(events).own_steps, last_steps(events).samples) == (5, 20)


def test_micro_batches_of_optimizers_that_step_unevenly(sections: ObservedProcess) -> None:
    events = story(sections, "uneven_optimizers")
    assert settings_in_effect(events)["gradient_accumulation_steps"] == 1
    assert last_steps(events).micro_steps == 20


def test_of_optimizers_that_step_together_that_of_most_parameters_is_the_trainings(sections: ObservedProcess) -> None:
    seen = settings_in_effect(story(sections, "optimizer_of_the_loss"))
    assert [seen[name] for name in ("optimizers", "optimizer", "learning_rate")] == [2, "SGD", 0.5]


def test_an_optimizer_that_follows_another_does_not_step_with_it(sections: ObservedProcess) -> None:
    events = story(sections, "another_optimizer_to_end_with")
    seen = settings_in_effect(events)
    assert (seen["optimizer"], seen.get("optimizers", 1), last_steps(events).own_steps) == ("SGD", 1, 15)
    assert [event.total_steps for event in events_of(events, Plan) if event.total_steps][-1] == 15
    assert {event.parameters for event in events_of(events, Plan) if event.parameters} == {13}, "of both modules"


def test_the_gradients_of_a_closure_are_no_steps(sections: ObservedProcess) -> None:
    steps = [event.own_steps for event in events_of(story(sections, "closure_of_the_optimizer"), Steps)]
    assert steps == sorted(steps)


def test_gradients_before_the_first_step_are_no_steps(sections: ObservedProcess) -> None:
    assert last_steps(story(sections, "gradients_before_the_training")).own_steps == script.BATCHES


def test_the_rate_of_the_constructor_is_the_setting(sections: ObservedProcess) -> None:
    events = story(sections, "warm_up_by_hand")
    assert settings_in_effect(events)["learning_rate"] == pytest.approx(0.4)
    assert events_of(events, Metrics)[0].learning_rate == pytest.approx(0.1)


def test_accumulation_of_a_plain_loop_is_counted(sections: ObservedProcess) -> None:
    assert settings_in_effect(story(sections, "unlogged_loss"))["gradient_accumulation_steps"] == script.ACCUMULATION
    assert settings_in_effect(story(sections, "no_loader"))["gradient_accumulation_steps"] == 1


def test_an_evaluation_in_the_body_ends_before_the_step(sections: ObservedProcess) -> None:
    final = last_steps(story(sections, "evaluation_in_the_body"))
    assert final.own_steps == 4
    assert final.train_s > script.SLOW_S > final.eval_s > 0


def test_same_seed_same_losses_with_and_without(plain: ObservedProcess, plain_unwatched: str) -> None:
    assert plain.exit_code == 0
    assert plain.output == plain_unwatched
    assert len(plain.output.splitlines()) == 13


def test_loader_workers_write_nothing(plain: ObservedProcess) -> None:
    assert list(plain.files) == ["events.jsonl"]
    [started] = plain.of(Started)
    assert started.pid != os.getpid()
    assert started.torch is not None
    assert started.world_size == 1


def test_evaluation_is_no_training(plain: ObservedProcess) -> None:
    final = last_steps(plain.events)
    assert (final.own_steps, final.micro_steps, final.samples) == (12, 12, 96)
    assert final.batch_shape == (8, 8)
    assert final.tokens is None
    spawning_a_worker_s = 0.3
    assert final.eval_s > max(spawning_a_worker_s, final.train_s - final.data_wait_s)


def test_waiting_for_data_is_part_of_the_step_time(plain: ObservedProcess) -> None:
    final = last_steps(plain.events)
    assert 0 < final.data_wait_s < final.train_s


def test_counters_only_grow(plain: ObservedProcess) -> None:
    lines = plain.of(Steps)
    for before, after in pairwise(lines):
        for name in ("own_steps", "samples", "train_s", "data_wait_s", "eval_s", "rss_peak_bytes"):
            assert getattr(after, name) >= getattr(before, name), name


def test_phases_of_the_plain_loop(plain: ObservedProcess) -> None:
    assert phases(plain.events) == ["starting", "training", "evaluating", "training", "evaluating", "ending"]
    evaluating = next(event for event in plain.of(Phase) if event.phase == "evaluating")
    assert evaluating.step == 6


def test_ends_with_its_last_step(plain: ObservedProcess) -> None:
    assert isinstance(plain.events[-1], Ended)
    assert plain.events[-1].step == 12


def test_what_is_in_effect_in_the_plain_loop(plain: ObservedProcess) -> None:
    [seen] = plain.of(InEffect)
    expected = {
        "dataloader_num_workers": 2,
        "dataloader_prefetch_factor": 2,
        "dataloader_pin_memory": False,
        "dataloader_persistent_workers": False,
        "optimizer": "AdamW",
        "parameter_dtype": "float32",
        "device": "cpu",
        "autocast_dtype": "none",
        "torch_compile": False,
    }
    assert {name: seen.values[name] for name in expected} == expected


def test_model_is_counted_without_a_trainer(plain: ObservedProcess) -> None:
    [length, plan] = plain.of(Plan)
    assert plan.parameters == plan.trainable_parameters == 8 * 16 + 16 + 16 + 1
    assert plan.total_steps is None
    assert (length.total_steps, length.guessed) == (12, True)

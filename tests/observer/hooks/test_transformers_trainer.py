"""Hugging Face Trainer: the plan, logs, evaluations, checkpoints, resuming, injection, and the control file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.observer.observed_process import (
    SCRIPTS,
    SITE,
    ObservedProcess,
    last_steps,
    observe,
    printed_losses,
    run_python,
)
from tuner_tui.runs.events.types import Checkpoint, Ended, Evaluated, InEffect, Injected, Metrics, Phase, Plan

pytestmark = pytest.mark.train


def test_same_seed_same_losses_with_and_without(trainer: ObservedProcess, trainer_unwatched: str) -> None:
    assert trainer.exit_code == 0, trainer.errors
    assert len(printed_losses(trainer.output)) == 10
    assert printed_losses(trainer.output) == printed_losses(trainer_unwatched)


def test_plan(trainer: ObservedProcess) -> None:
    [plan] = trainer.of(Plan)
    assert (plan.total_steps, plan.first_step, plan.epochs) == (10, 0, 2.0)
    assert plan.parameters == plan.trainable_parameters
    assert plan.parameters is not None


def test_counters_are_exact_although_accelerate_fetches_ahead(trainer: ObservedProcess) -> None:
    final = last_steps(trainer.events)
    assert (final.step, final.own_steps, final.micro_steps, final.samples) == (10, 10, 20, 80)
    assert (final.tokens, final.padding_tokens) == (800, 160)


def test_metrics_are_numbers(trainer: ObservedProcess) -> None:
    last = trainer.of(Metrics)[-1]
    assert (last.step, last.epoch) == (10, 2.0)
    assert last.loss is not None
    assert last.grad_norm is not None
    assert last.learning_rate == pytest.approx(5e-6)


def test_evaluations_and_checkpoints(trainer: ObservedProcess, trainer_output: Path) -> None:
    assert [event.step for event in trainer.of(Evaluated)] == [5, 10]
    for evaluated in trainer.of(Evaluated):
        assert evaluated.metrics["eval_loss"] > 0
        assert evaluated.seconds is not None
    checkpoints = trainer.of(Checkpoint)
    assert [event.step for event in checkpoints] == [5, 10]
    assert checkpoints[0].path == str(trainer_output / "checkpoint-5")
    final = last_steps(trainer.events)
    assert final.eval_s > 0
    assert final.save_s == pytest.approx(sum(event.seconds or 0 for event in checkpoints), abs=1e-5)


def test_phases(trainer: ObservedProcess) -> None:
    phases = [event.phase for event in trainer.of(Phase)]
    assert phases[:4] == ["starting", "training", "evaluating", "training"]
    assert "saving" in phases
    assert phases[-1] == "ending"


def test_what_is_in_effect(trainer: ObservedProcess) -> None:
    arguments, seen = trainer.of(InEffect)
    assert arguments.values["gradient_accumulation_steps"] == 2
    assert (arguments.values["eval_strategy"], arguments.values["save_steps"]) == ("steps", 5)
    assert (shape := last_steps(trainer.events).batch_shape) is not None
    assert arguments.values["per_device_train_batch_size"] == shape[0]
    expected = {"attn_implementation": "sdpa", "gradient_checkpointing": False, "fused": True, "torch_compile": False}
    assert {name: seen.values[name] for name in expected} == expected
    schedule = {"optim": "adamw_torch_fused", "lr_scheduler_type": "linear", "warmup_steps": 0, "num_train_epochs": 2}
    assert {name: arguments.values[name] for name in schedule} == schedule
    assert {"transformers", "loss_ignores_accumulation"} <= seen.values.keys()


def test_resumes_where_it_was(trainer_resumed: ObservedProcess) -> None:
    assert trainer_resumed.exit_code == 0, trainer_resumed.errors
    [plan] = trainer_resumed.of(Plan)
    assert (plan.first_step, plan.total_steps) == (5, 10)
    final = last_steps(trainer_resumed.events)
    assert (final.step, final.own_steps, final.micro_steps) == (6, 1, 2)
    phases = [event.phase for event in trainer_resumed.of(Phase)]
    assert phases[:3] == ["starting", "skipping", "training"]


def test_stop_saves_and_ends(trainer_resumed: ObservedProcess, trainer_output: Path) -> None:
    assert [event.step for event in trainer_resumed.of(Checkpoint)] == [6]
    assert (trainer_output / "checkpoint-6" / "trainer_state.json").is_file()
    assert isinstance(trainer_resumed.events[-1], Ended)


def test_injected_before_a_subclass_looks(trainer_resumed: ObservedProcess) -> None:
    assert "weight decay 0.25 0.25" in trainer_resumed.output
    [injected] = trainer_resumed.of(Injected)
    assert injected.values == {"weight_decay": 0.25}
    assert injected.not_found == ("no_such_field",)


@pytest.mark.full
def test_a_script_that_asks_for_no_checkpoint_is_given_one(
    tmp_path: Path, trainer: ObservedProcess, trainer_output: Path
) -> None:
    checkpoint = str(trainer_output / "checkpoint-5")
    given = observe(tmp_path, str(SCRIPTS / "hf_trainer.py"), str(tmp_path), settings={"TUNER_RESUME": checkpoint})
    assert given.exit_code == 0, given.errors
    assert [event.first_step for event in given.of(Plan)] == [5]
    assert [dict(event.values) for event in given.of(Injected)] == [{"resume_from_checkpoint": checkpoint}]
    assert printed_losses(given.output) == printed_losses(trainer.output)  # five are the checkpoint's


@pytest.mark.full
def test_reported_loss_scale_equals_that_of_the_gradient() -> None:
    done = run_python(str(SCRIPTS / "loss_scale.py"), str(SITE))
    document = json.loads(done.stdout.splitlines()[-1])
    assert len(document) == 7
    for name, (reported, ratio) in document.items():
        assert reported is (ratio > 1.5), (name, reported, ratio)
        assert ratio == pytest.approx(4.0 if reported else 1.0, rel=0.01), name

"""Lightning: what Trainer gets, without a callback in the user's list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, ObservedProcess, last_steps, observe, settings_in_effect
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Checkpoint, Ended, Evaluated, Injected, Metrics, Phase, Plan, Saved

pytestmark = pytest.mark.train


def test_same_seed_same_losses_with_and_without(lightning: ObservedProcess, lightning_unwatched: str) -> None:
    assert lightning.exit_code == 0, lightning.errors
    assert len(lightning.output.splitlines()) == 21
    assert lightning.output == lightning_unwatched


def test_plan_and_counters(lightning: ObservedProcess) -> None:
    [plan] = lightning.of(Plan)
    assert (plan.total_steps, plan.first_step, plan.epochs) == (10, 0, 2)
    assert settings_in_effect(lightning.events)["gradient_accumulation_steps"] == 2
    assert plan.parameters == plan.trainable_parameters == 8 * 16 + 16 + 16 + 1
    final = last_steps(lightning.events)
    assert (final.step, final.own_steps, final.micro_steps, final.samples) == (10, 10, 20, 80)
    assert 0 < final.data_wait_s < final.train_s
    assert isinstance(lightning.events[-1], Ended)


def test_metrics_are_those_of_the_logger(lightning: ObservedProcess) -> None:
    last = lightning.of(Metrics)[-1]
    assert (last.step, last.epoch, last.learning_rate) == (10, 1.0, 0.01)
    printed = [float.fromhex(line.split()[1]) for line in lightning.output.splitlines() if line.startswith("loss")]
    assert last.loss == printed[-1]


def test_evaluations_and_checkpoints(lightning: ObservedProcess, lightning_output: Path) -> None:
    *evaluations, test = lightning.of(Evaluated)
    assert (test.step, list(test.metrics)) == (10, ["test_loss"])
    [*_, last] = fold_all(RunState(), lightning.events).evaluations
    assert set(last.metrics) == {"eval_loss", "test_loss"}, "of the same weights"
    assert [event.step for event in evaluations] == [5, 10], "the check before the training is no evaluation"
    assert all(event.metrics["eval_loss"] > 0 and event.seconds for event in evaluations)
    assert {name for event in evaluations for name in event.metrics} == {"eval_loss"}, "the mean over the batches"
    checkpoints = lightning.of(Checkpoint)
    assert [event.step for event in checkpoints] == [5, 5, 10, 10]
    assert str(lightning_output / "last.ckpt") in [event.path for event in checkpoints]
    final = last_steps(lightning.events)
    assert final.eval_s > sum(event.seconds or 0 for event in evaluations) * 0.9
    assert final.save_s == pytest.approx(sum(event.seconds or 0 for event in checkpoints), abs=1e-5)
    phases = [event.phase for event in lightning.of(Phase)]
    assert phases[:4] == ["starting", "evaluating", "starting", "training"]
    assert phases[-1] == "ending"


def test_what_is_in_effect(lightning: ObservedProcess) -> None:
    seen = settings_in_effect(lightning.events)
    expected = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "optimizer": "AdamW"}
    assert {name: seen[name] for name in expected} == expected
    assert "lightning" in seen


@pytest.mark.full
def test_resumes_from_a_checkpoint_on_a_stream_and_stops(
    lightning_resumed: ObservedProcess, lightning_output: Path
) -> None:
    assert lightning_resumed.exit_code == 0, lightning_resumed.errors
    [plan] = lightning_resumed.of(Plan)
    assert (plan.total_steps, plan.first_step) == (None, 10), "a stream has no length"
    final = last_steps(lightning_resumed.events)
    assert (final.step, final.own_steps, final.micro_steps) == (11, 1, 2)
    assert (lightning_output / "checkpoint-11.ckpt").is_file()


@pytest.mark.full
def test_loaders_that_lightning_reads_take_what_is_injected(lightning_resumed: ObservedProcess) -> None:
    loader, left = lightning_resumed.of(Injected)
    assert (loader.values, loader.not_found) == ({"per_device_train_batch_size": 3}, ())
    assert (left.values, left.not_found) == ({}, ("learning_rate",))
    assert last_steps(lightning_resumed.events).batch_shape == (3, 8)
    assert settings_in_effect(lightning_resumed.events)["per_device_train_batch_size"] == 3


@pytest.mark.full
def test_its_trainer_takes_what_is_injected_and_the_checkpoint(
    tmp_path: Path, lightning: ObservedProcess, lightning_output: Path
) -> None:
    """A training has left `last.ckpt` at step 10 or, where it went on, 11; the script itself asks for none."""
    wanted = {
        "max_steps": 13,
        "gradient_accumulation_steps": 1,
        "bf16": True,
        "fp16": False,
        "max_grad_norm": 0.5,
        "warmup_steps": 3,
    }
    checkpoint = str(lightning_output / "last.ckpt")
    given = observe(
        tmp_path,
        *(str(SCRIPTS / "lightning_fit.py"), str(tmp_path)),
        settings={"TUNER_INJECT": json.dumps(wanted), "TUNER_RESUME": checkpoint},
    )
    assert given.exit_code == 0, given.errors
    [plan] = given.of(Plan)
    assert (plan.total_steps, plan.obeys) == (13, True)
    assert settings_in_effect(given.events)["gradient_accumulation_steps"] == 1
    assert plan.first_step in (10, 11)
    injected = {name: value for event in given.of(Injected) for name, value in event.values.items()}
    assert injected == {
        **{name: wanted[name] for name in wanted if name != "warmup_steps"},
        "resume_from_checkpoint": checkpoint,
    }
    assert given.of(Injected)[-1].not_found == ("warmup_steps",)
    final = last_steps(given.events)
    steps_left = 13 - plan.first_step
    assert (final.step, final.own_steps, final.micro_steps) == (13, steps_left, steps_left)
    assert settings_in_effect(given.events)["autocast_dtype"] == "bfloat16"


@pytest.mark.full
def test_a_stop_in_mid_epoch_is_resumed_without_skipping_batches(tmp_path: Path) -> None:
    """After the stop, the callback saves a cut epoch as a complete one: 1 of its 5 steps would be all that is made."""
    out, script = tmp_path / "out", str(SCRIPTS / "lightning_fit.py")
    stopped = observe(tmp_path / "a", script, str(out), "order=stop")
    assert stopped.exit_code == 0, stopped.errors
    step = last_steps(stopped.events).step
    assert step < 5
    assert [event.path for event in stopped.of(Checkpoint)] == [str(out / f"checkpoint-{step}.ckpt")]
    assert {Path(event.path).name for event in stopped.of(Saved)} == {f"epoch=0-step={step}.ckpt", "last.ckpt"}
    resumed = observe(tmp_path / "b", script, str(out), settings={"TUNER_RESUME": str(out / f"checkpoint-{step}.ckpt")})
    assert resumed.exit_code == 0, resumed.errors
    assert last_steps(resumed.events).step == 10, "two epochs of five steps"

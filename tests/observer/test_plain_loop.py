"""A plain PyTorch loop, watched from outside its code."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from tests.observer.observed_process import ObservedProcess, last_steps
from tuner_tui.runs.events.types import Ended, InEffect, Phase, Plan, Started, Steps

pytestmark = pytest.mark.train


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
    assert final.eval_s > spawning_a_worker_s > final.train_s - final.data_wait_s


def test_waiting_for_data_is_part_of_the_step_time(plain: ObservedProcess) -> None:
    final = last_steps(plain.events)
    assert 0 < final.data_wait_s < final.train_s


def test_counters_only_grow(plain: ObservedProcess) -> None:
    lines = plain.of(Steps)
    for before, after in pairwise(lines):
        for name in ("own_steps", "samples", "train_s", "data_wait_s", "eval_s", "rss_peak_bytes"):
            assert getattr(after, name) >= getattr(before, name), name


def test_phases(plain: ObservedProcess) -> None:
    phases = [event.phase for event in plain.of(Phase)]
    assert phases == ["starting", "training", "evaluating", "training", "evaluating", "ending"]
    evaluating = next(event for event in plain.of(Phase) if event.phase == "evaluating")
    assert evaluating.step == 6


def test_ends_with_its_last_step(plain: ObservedProcess) -> None:
    assert isinstance(plain.events[-1], Ended)
    assert plain.events[-1].step == 12


def test_what_is_in_effect(plain: ObservedProcess) -> None:
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

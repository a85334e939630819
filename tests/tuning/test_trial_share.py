"""What one of several trials gets of the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.inventories import box, card
from tests.tuning.builders import SCRIPT, resolved
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.queue.turns import Card
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.tuning.trial_cards import bind, choose_cards, free_cards, inventory_of_trial


def cards(*names: str) -> tuple[str, ...]:
    return tuple(f"GPU-{name}" for name in names)


def machine(*names: str, cores: int = 16) -> Inventory:
    gpus = [replace(card("RTX 3090"), index=index, uuid=uuid) for index, uuid in enumerate(cards(*names))]
    found = box(*gpus)
    return replace(found, cpu=replace(found.cpu, affinity_cores=cores, quota_cores=None))


def test_each_trial_has_one_card_and_the_same_part_of_the_cores() -> None:
    seen = inventory_of_trial(machine("a", "b", "c", "d"), cards("b", "c", "d"))
    assert [gpu.uuid for gpu in seen.gpus] == ["GPU-b"]
    assert seen.cpu.usable_cores == 5  # a third of 16


def test_the_card_and_the_threads_win_over_the_jobs_own_environment() -> None:
    job = CommandJob(command=("python", str(SCRIPT)), env={"CUDA_VISIBLE_DEVICES": "0,1", "MODE": "x"})
    request = LaunchRequest(job=job, resolved=resolved(), interpreter=None, cwd=Path("/"), environ={"HOME": "/h"})
    bound = bind(request, "GPU-b", 5)
    assert bound.environ == {"HOME": "/h", "CUDA_VISIBLE_DEVICES": "GPU-b", "OMP_NUM_THREADS": "5"}
    assert isinstance(bound.job, CommandJob)
    assert bound.job.env == {"CUDA_VISIBLE_DEVICES": "GPU-b", "MODE": "x"}


def test_the_free_cards_of_the_best_kind_are_chosen() -> None:
    seen = [Card(uuid, uuid) for uuid in cards("a", "b", "c")]
    seen[1] = replace(seen[1], holder="alice: python train.py")
    assert choose_cards(machine("a", "b", "c"), seen) == cards("a", "c")
    small = machine("a", "b", "c")
    small = replace(small, gpus=(replace(card("T4"), index=0, uuid="GPU-a"), *small.gpus[1:]))
    assert choose_cards(small, seen) == cards("c")


def test_without_a_free_card_it_says_who_has_them() -> None:
    taken = Card("GPU-a", "GPU 0", "alice: python train.py")
    with pytest.raises(SettingsError, match=r"GPU 0: alice: python train\.py"):
        choose_cards(machine("a"), [taken])
    with pytest.raises(SettingsError, match="need GPUs"):
        free_cards(BuiltinJob(), box(), {})

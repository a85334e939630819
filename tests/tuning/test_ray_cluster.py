"""Which Ray cluster is used, without Ray. Tunings on a real one: tests/cli/commands/test_tune_on_ray.py."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu
from tests.tuning.builders import tuning_record
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.record import write_record
from tuner_tui.tuning.ray_cluster import TrialWorker, WorkerDescription, choose_workers, connect
from tuner_tui.tuning.store import TuningFolder


@dataclass
class Init:
    """Stands for `ray.init`: `fails` when it is asked to join a cluster."""

    fails: Exception | None = None
    calls: list[tuple[str, bool]] = field(default_factory=list)

    def __call__(self, address: str, **options: Any) -> None:
        self.calls.append((address, threading.current_thread() is threading.main_thread()))
        if self.fails is not None and address == "auto":
            raise self.fails


def test_a_cluster_that_is_there_is_joined() -> None:
    init = Init()
    connect(init)
    assert [address for address, _ in init.calls] == ["auto"]


def test_without_one_a_cluster_is_started_by_a_thread_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks the kernel to end its processes with the thread that started them."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    init = Init(ConnectionError("Could not find any running Ray instance."))
    connect(init)
    assert init.calls[-1] == ("local", True)


def test_an_address_that_was_given_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    init = Init(ConnectionError("Traceback:\n  File x\nNo cluster at head:6379."))
    with pytest.raises(LaunchError, match=r"cannot be used: No cluster at head:6379\.$"):
        connect(init)
    assert len(init.calls) == 1


def test_a_cluster_of_another_version_and_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError, match="Version mismatch"):
        connect(Init(RuntimeError("Version mismatch: The cluster was started with Ray 2.9.")))
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    over = threading.Event()
    with pytest.raises(LaunchError, match="head:6379 did not answer"):
        connect(lambda address, **options: over.wait(60), connect_s=0.01)
    over.set()


def worker(
    host: str, name: str | None = None, kind: str = "RTX 3090", problem: str = ""
) -> tuple[WorkerDescription, str]:
    gpus = () if name is None else (replace(make_gpu(kind), uuid=f"GPU-{name}"),)
    return WorkerDescription(host, None if name is None else f"GPU-{name}", box(*gpus), problem), f"{host}-{name}"


def test_workers_of_the_best_kind_are_taken() -> None:
    workers = [worker("n2", "b"), worker("n1", "s", "T4"), worker("n1", "a")]
    assert [actor for _, actor in choose_workers(workers, None).values()] == ["n1-a", "n2-b"]
    assert list(choose_workers([worker("n", name) for name in "abc"], 2)) == ["GPU-a", "GPU-b"]


def test_nodes_without_gpus_are_named_by_their_host() -> None:
    assert list(choose_workers([worker("n1"), worker("n2"), worker("n1")], None)) == ["n1", "n1/2", "n2"]


def test_without_a_worker_that_can_run_trials_it_says_why() -> None:
    with pytest.raises(LaunchError, match="On n7: /nowhere is not there"):
        choose_workers([worker("n1"), worker("n7", "a", problem="/nowhere is not there")], None)
    with pytest.raises(LaunchError, match="No worker of the cluster could be started"):
        choose_workers([], None)


def test_a_worker_sees_the_folder_of_its_own_tuning_only(tmp_path: Path) -> None:
    trial_worker, record, folder = (
        TrialWorker(on_gpu=False, cores=2),
        tuning_record(cwd=str(tmp_path)),
        TuningFolder(tmp_path),
    )
    assert "all nodes must share the state folder" in trial_worker.describe(folder, record).problem
    write_record(folder, record)
    description = trial_worker.describe(folder, record)
    assert (description.problem, description.gpu, description.inventory.cpu.usable_cores <= 2) == ("", None, True)
    another = structs.replace(record, created_t=2.0)  # a folder of the same name on a disk of the node's own
    assert "all nodes must share" in trial_worker.describe(folder, another).problem
    write_record(folder, moved := tuning_record(cwd=str(tmp_path / "gone")))
    assert "The folder of the training" in trial_worker.describe(folder, moved).problem

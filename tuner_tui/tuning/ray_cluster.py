"""Trials on the workers of a Ray cluster. Only this module imports Ray, and only when a tuning runs there.

A worker is an actor that holds one GPU for the whole tuning; in a cluster without GPUs, all cores of a node, since
trials that share them slow each other down. Ray places the actors. All runs are in a folder that the nodes share.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.core.procfs import identify_process, this_machine
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import VISIBLE_DEVICES, visible_gpus
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.folder import RunFolder, state_dir
from tuner_tui.runs.store.record import RecordError
from tuner_tui.settings.distributed import best_kind
from tuner_tui.tuning.store import NO_RAY, TuningFolder, TuningRecord, read_tuning_record
from tuner_tui.tuning.trial import Trial
from tuner_tui.tuning.trial_gpus import GpuLostError, bind, machine_of_trial
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner

Actor = TypeVar("Actor")
POLL_S = 0.5
CALLS_AT_ONCE = 3
"""A trial, and the questions about it."""
CONNECT_S = 120.0
"""Maximum wait for the cluster. One that is started here takes about 10 s."""
START_S = 120.0
"""Maximum wait for the first worker, whose node has to import the program."""
MORE_S = 20.0
"""Maximum wait for the others after it. Those that do not come are in use by others."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Of a cluster that is started here: trials and measurements are small."""


class WorkerDescription(Struct, frozen=True):
    """The host and the GPU (None without one) of a worker, and what its trials see of the machine.

    `problem` says why no trial can run there; empty if one can.
    """

    host: str
    gpu: str | None
    inventory: Inventory
    problem: str = ""

    @property
    def memory_bytes(self) -> int:
        """The memory of the GPU, or of the node."""
        sizes = (gpu.memory_total_bytes or 0 for gpu in self.inventory.gpus)
        return next(sizes, self.inventory.memory.total_bytes or 0)


@dataclass
class TrialWorker:
    """Runs trials on the GPU that its process was given, if `on_gpu`, with `cores` cores; an actor of the cluster."""

    on_gpu: bool
    cores: int
    _run: str | None = None
    _stopped: bool = False

    def describe(self, folder: TuningFolder, record: TuningRecord) -> WorkerDescription:
        """Return the host, the GPU and what is missing here: the folder of the tuning, or that of the training."""
        inventory = read_inventory(state_dir(os.environ))
        gpu = next(iter(visible_gpus(inventory)), None) if self.on_gpu else None
        try:
            shared = read_tuning_record(folder) == record
        except RecordError:
            shared = False
        problem = ""
        if not shared:
            problem = f"{folder.path} is not there: all nodes must share the state folder (TUNER_STATE_DIR)."
        elif not Path(record.cwd).is_dir():
            problem = f"The folder of the training, {record.cwd}, is not there."
        uuid = None if gpu is None else gpu.uuid
        return WorkerDescription(this_machine().host, uuid, machine_of_trial(inventory, gpu, self.cores), problem)

    def run(self, runner: TrialRunner, trial: Trial, expected_s: float | None, give_up_s: float | None) -> TrialReport:
        """Run a trial to its end. Raises `LaunchError`."""
        self._run, self._stopped = None, False
        gpu = os.environ.get(VISIBLE_DEVICES) if self.on_gpu else None
        base = replace(bind(runner.base, gpu, self.cores), ends_with=identify_process(os.getpid()))
        callbacks = TrialCallbacks(lambda: self._stopped, self._launched, None, expected_s, give_up_s)
        return replace(runner, base=base).run(trial, callbacks)

    def _launched(self, run: RunFolder) -> None:
        self._run = run.id

    def launched(self) -> str | None:
        """Return the run of the trial that is under way; None before it is launched."""
        return self._run

    def stop(self) -> None:
        """End the trial that is under way."""
        self._stopped = True


class RayWorkers(Struct, frozen=True):
    """The workers of a cluster, by their names; see `TrialGpus`."""

    ray: Any
    actors: dict[str, Any]
    inventory: Inventory

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(self.actors)

    def run(self, gpu: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        actor, started = self.actors[gpu or ""], False
        answer = actor.run.remote(runner, trial, callbacks.expected_s, callbacks.give_up_s)
        try:
            while not self.ray.wait([answer], timeout=POLL_S)[0]:
                if not started and (run := self.ray.get(actor.launched.remote())) is not None:
                    callbacks.launched(RunFolder(runner.base.runs_root / run))
                    started = True
                # The deadline counts here: clocks of nodes differ.
                if callbacks.aborted() or time.time() >= (callbacks.deadline_t or math.inf):
                    actor.stop.remote()
            report: TrialReport = self.ray.get(answer)
        except self.ray.exceptions.RayActorError as error:
            raise GpuLostError(gpu) from error
        except self.ray.exceptions.RayTaskError as error:
            raise LaunchError(f"{gpu}: {error.cause}") from error
        if not started and report.measurement.run_id is not None:
            callbacks.launched(RunFolder(runner.base.runs_root / report.measurement.run_id))
        return report


@contextmanager
def open_ray_workers(record: TuningRecord, folder: TuningFolder) -> Iterator[RayWorkers]:
    """Return workers on the GPUs of the cluster, or on its nodes, as far as they are free. Raises `LaunchError`.

    At the end all of them end, and a cluster that was started here.
    """
    try:
        import ray
    except ImportError as error:
        raise LaunchError(NO_RAY) from error
    try:
        connect(ray.init)
        yield _take_workers(ray, record, folder)
    finally:
        ray.shutdown()


def connect(init: Callable[..., object], connect_s: float = CONNECT_S) -> None:
    """Connect as Ray does: to `RAY_ADDRESS`, else to the cluster of this machine; else start one here.

    `init` is `ray.init`. Raises `LaunchError`.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "configure_logging": False}
    address = os.environ.get("RAY_ADDRESS")
    try:
        try:
            # Ray asks an address that is dead for many minutes.
            daemon_call(lambda: init(address="auto", **quiet)).result(connect_s)
        except ConnectionError:
            if address:
                raise
            # Not in that thread: the kernel ends what Ray starts together with the thread that started it.
            init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
    except TimeoutError as error:
        sentence = f"The Ray cluster {address or 'of this machine'} did not answer within {connect_s:.0f} s."
        raise LaunchError(sentence) from error
    except (OSError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]  # the last: tracebacks come first
        raise LaunchError(f"The Ray cluster cannot be used: {lines[-1] if lines else type(error).__name__}") from error


def _start_actors(ray: Any) -> Iterator[Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    on_gpu = any(node["Resources"].get("GPU") for node in nodes)
    for node in nodes:
        cores, gpus = int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0))
        actor = ray.remote(TrialWorker).options(
            num_gpus=int(on_gpu),
            num_cpus=min(1, cores) if on_gpu else cores,
            max_concurrency=CALLS_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        for _ in range(gpus if on_gpu else min(1, cores)):
            yield actor.remote(on_gpu, max(1, cores // max(1, gpus)))


def _take_workers(ray: Any, record: TuningRecord, folder: TuningFolder) -> RayWorkers:
    # Ray has no call for "which of my actors will get a place": those that answer have one. After the first has come
    # the others get MORE_S, since waiting longer costs more than an additional worker gains. Ray ends the actors that
    # are not kept.
    questions = {actor.describe.remote(folder, record): actor for actor in _start_actors(ray)}
    answered, refs = [], list(questions)
    if refs and ray.wait(refs, timeout=START_S)[0]:
        for ref in ray.wait(refs, num_returns=len(refs), timeout=MORE_S)[0]:
            with suppress(ray.exceptions.RayActorError):
                answered.append((ray.get(ref), questions[ref]))
    workers = choose_workers(answered, record.most_gpus)
    least = min((worker for worker, _ in workers.values()), key=lambda worker: worker.memory_bytes)
    return RayWorkers(ray, {name: actor for name, (_, actor) in workers.items()}, least.inventory)


def choose_workers(
    answered: Sequence[tuple[WorkerDescription, Actor]], most: int | None
) -> dict[str, tuple[WorkerDescription, Actor]]:
    """Return at most `most` workers, those with the best kind of GPU, by the names of their GPUs or hosts.

    Raises `LaunchError` if there are none, or if one cannot run trials.
    """
    problem = next((f"On {worker.host}: {worker.problem}" for worker, _ in answered if worker.problem), "")
    if problem or not answered:
        nothing = f"No worker of the cluster could be started within {START_S:.0f} s: all are in use, or fail."
        raise LaunchError(problem or nothing)
    best = best_kind(tuple(gpu for worker, _ in answered for gpu in worker.inventory.gpus))
    usable = [pair for pair in answered if not best or set(pair[0].inventory.gpus) & set(best)]
    workers: dict[str, tuple[WorkerDescription, Actor]] = {}
    for pair in sorted(usable, key=lambda pair: (pair[0].host, pair[0].gpu or ""))[:most]:
        name = pair[0].gpu or pair[0].host
        names = (name, *(f"{name}/{number}" for number in range(2, len(usable) + 1)))
        workers[next(candidate for candidate in names if candidate not in workers)] = pair
    return workers

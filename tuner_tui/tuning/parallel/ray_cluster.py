"""The workers of a Ray cluster. Only this module imports Ray, and only when a tuning runs there.

A worker is an actor that holds one GPU for the whole tuning; in a cluster without GPUs, all cores of a node, since
trials that share them slow each other down. Ray places the actors, and starts one again that died.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.tuning.parallel.workers import TrialOrder, TrialWorker, WorkerLostError, WorkerPlace
from tuner_tui.tuning.store import NO_RAY, TuningRecord
from tuner_tui.tuning.trials.runner import TrialReport

RESTARTS = 3
"""Times that Ray starts a worker again."""
CALLS_AT_ONCE = 4
"""A trial, and the questions about it."""
CONNECT_S = 120.0
"""Maximum wait for the cluster. One that is started here takes about 10 s."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Of a cluster that is started here: orders and measurements are small."""


@dataclass(frozen=True, eq=False)
class RayWorker:
    """A `TrialWorker` as a Ray actor."""

    ray: Any
    actor: Any

    def place(self, folder: Path, record: TuningRecord, environ: Mapping[str, str]) -> Future[WorkerPlace]:
        """See `TrialWorker.place`."""
        return self._call("place", folder, record, dict(environ))

    def run(self, order: TrialOrder) -> Future[TrialReport | str]:
        """See `TrialWorker.run`."""
        return self._call("run", order)

    def launched(self, number: int) -> Future[str | None]:
        """See `TrialWorker.launched`."""
        return self._call("launched", number)

    def stop(self, number: int) -> Future[None]:
        """See `TrialWorker.stop`."""
        return self._call("stop", number)

    def release(self) -> None:
        """Give the GPU or the node back to the cluster."""
        self.ray.kill(self.actor, no_restart=True)

    def _call(self, method: str, *arguments: object) -> Future[Any]:
        answer: Future[Any] = Future()

        def done(reply: Future[Any]) -> None:
            error = reply.exception()
            if isinstance(error, self.ray.exceptions.RayActorError):
                error = WorkerLostError(_last_line(error))
            if error is None:
                answer.set_result(reply.result())
            else:
                answer.set_exception(error)

        getattr(self.actor, method).remote(*arguments).future().add_done_callback(done)
        return answer


@contextmanager
def open_ray_workers() -> Iterator[list[RayWorker]]:
    """Return actors for the GPUs of the cluster, or for its nodes; those that are in use are not placed yet.

    Raises `LaunchError`. At the end all actors end, and a cluster that was started here.
    """
    try:
        import ray
    except ImportError as error:
        raise LaunchError(NO_RAY) from error
    try:
        connect(ray.init)
        yield _start_workers(ray)
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
        raise LaunchError(f"The Ray cluster cannot be used: {_last_line(error)}") from error


def _start_workers(ray: Any) -> list[RayWorker]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    on_gpu = any(node["Resources"].get("GPU") for node in nodes)
    workers = []
    for node in nodes:
        cores, gpus = int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0))
        options = {
            "num_gpus": int(on_gpu),
            "num_cpus": min(1, cores) if on_gpu else cores,
            "max_restarts": RESTARTS,
            "max_concurrency": CALLS_AT_ONCE,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        }
        actor_class = ray.remote(TrialWorker).options(**options)
        share = max(1, cores // max(1, gpus))
        number = gpus if on_gpu else min(1, cores)
        workers += [RayWorker(ray, actor_class.remote(on_gpu, share)) for _ in range(number)]
    return workers


def _last_line(error: BaseException) -> str:
    """The last line that says something: Ray puts tracebacks before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

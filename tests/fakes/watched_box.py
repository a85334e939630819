"""A machine with eight GPUs and many processes, as `watch` sees it, without any of it being there."""

from __future__ import annotations

from threading import Event

from tuner_tui.hardware.driver import gpu_problem
from tuner_tui.hardware.inventory import GpuProblemKind
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
from tuner_tui.runs.read.machine_monitor import (
    LiveRun,
    MachineMonitor,
    MachineView,
    WatchedJob,
    WatchedProcess,
    with_totals,
)

GIB = 1024**3
NOW_S = 1_790_000_000.0


def make_gpu(index: int, busy: float, used_gib: float, throttle: tuple[str, ...] = (), lost: bool = False) -> GpuSample:
    if lost:
        return GpuSample(index, "NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB, lost=True, age_s=252.0)
    return GpuSample(
        index, "NVIDIA H100 80GB HBM3", busy, int(used_gib * GIB), 80 * GIB, 90 + 6 * busy, 700.0, 35 + busy / 3, None,
        1755, throttle,
    )  # fmt: skip


GPUS = (
    *(make_gpu(index, 97 - index, 61.2) for index in range(4)),
    make_gpu(4, 54, 38.5, ("power cap",)),
    make_gpu(5, 0, 1.1),
    make_gpu(6, 88, 72.0),
    make_gpu(7, 0, 0, lost=True),
)
HOST = HostSample(
    41, tuple(float(12 * (core % 8)) for core in range(64)), 212 * GIB, 504 * GIB, 0, 0, None, 3e8, 2e6, 900 * GIB,
    60 * GIB,
)  # fmt: skip


def rank(pid: int, gpu: int, workers: int, *command: str, user: str = "ann", share: float = 95) -> list[WatchedProcess]:
    """A trainer on a GPU with its loader workers."""
    words = ("/env/bin/python", *command)
    main = WatchedProcess(pid, "main", user, words, (gpu,), 60 * GIB, share, 101, 6 * GIB, NOW_S - 7500)
    each = [
        WatchedProcess(pid + 1 + n, "worker", user, words, cpu_pct=40 + n, rss_bytes=3 * GIB, started_s=NOW_S - 7400)
        for n in range(workers)
    ]
    return [main, *each]


def job(
    pid: int, user: str, command: tuple[str, ...], processes: list[WatchedProcess], run: LiveRun | None = None
) -> WatchedJob:
    return with_totals(WatchedJob(pid, user, command, processes[0].started_s, tuple(processes), run))


TRAIN = ("/env/bin/python", "-u", "train.py", "--model", "llama-3.2-1b", "--lr", "4e-5")
OURS = LiveRun("r007", "/state/runs/r007", 4000, 3999, "llama-1b-sft", "training", 1240, 9000, 2460.0, 1.84)
JOBS: tuple[WatchedJob, ...] = (
    job(3990, "ann", TRAIN, [
        WatchedProcess(3990, "other", "ann", ("/env/bin/python", "/env/bin/torchrun"), started_s=NOW_S - 7600),
        *(process for n in range(4) for process in rank(4000 + 20 * n, n, 8, "-u", "train.py")),
    ], OURS),
    job(5000, "bob", ("/opt/conda/bin/python", "/home/bob/finetune.py", "--config", "big.yaml"),
        rank(5000, 4, 16, "/home/bob/finetune.py", user="bob", share=54)),
    job(6000, "carol", ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"),
        rank(6000, 6, 0, "-m", "vllm.entrypoints.openai.api_server", user="carol", share=12)),
    job(7000, "dave", ("/usr/bin/python3", "-m", "ipykernel_launcher"),
        rank(7000, 5, 0, "-m", "ipykernel_launcher", user="dave", share=0)),
    with_totals(WatchedJob(8123, "1007", (), None, (WatchedProcess(8123, "other", "1007", (), (6,), 11 * GIB, 3.0),))),
    job(9000, "ann", ("/env/bin/python", "cpu_train.py"), [
        WatchedProcess(9000, "main", "ann", ("python", "cpu_train.py"), (), None, None, 390, 2 * GIB, NOW_S - 50),
    ]),
)  # fmt: skip


def view(
    jobs: tuple[WatchedJob, ...] = JOBS, gpus: tuple[GpuSample, ...] = GPUS, notes: tuple[str, ...] = ()
) -> MachineView:
    return MachineView(Sample(NOW_S, gpus, HOST), jobs, None, notes)


def gpuless_view() -> MachineView:
    return MachineView(Sample(NOW_S, (), HOST), JOBS[-1:], gpu_problem(GpuProblemKind.NO_LIBRARY))


class FakeWatch(MachineMonitor):
    """Gives the same view each time; `looked` is set once it was given."""

    def __init__(self, shown: MachineView) -> None:
        self.shown = shown
        self.looked = Event()
        self.asked_for: list[int | None] = []

    def look(self, pid: int | None = None) -> MachineView:
        self.asked_for.append(pid)
        self.looked.set()
        return self.shown

"""Two cards that exist as files: a fake training takes memory by a file named after its pid, as do strangers."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner_tui.core.units import GIB
from tuner_tui.hardware.inventory import Gpu, GpuProcess
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample

CARD_BYTES = 80 * GIB
TRAINING = """
import fcntl, os, pathlib, sys, time
folder, gib, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
(folder / "starts").open("a").write(f"{os.getpid()}\\n")
time.sleep(0.2)  # it loads its model on the processor
taken = []
for card in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
    with (folder / card / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        used = sum(float(one.read_text()) for one in (folder / card).glob("*.gib"))
        if used + gib > 80:
            sys.exit(f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {gib:.2f} GiB. GPU 0 has a total "
                     f"capacity of 80.00 GiB of which {80 - used:.2f} GiB is free. Process 4242 has {used:.2f} GiB "
                     "memory in use. Including non-PyTorch memory, this process has 0.50 GiB memory in use.")
        taken.append(folder / card / f"{os.getpid()}.gib")
        taken[-1].write_text(str(gib))
time.sleep(seconds)
for one in taken:
    one.unlink()
"""
"""A training that takes argv[2] GiB of each of its cards for argv[3] seconds, or runs out of memory."""


class FakeCards:
    """The cards of `folder`, as a sampler of places."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.folder = folder
        self.keys = [f"GPU-fake-{index}" for index in range(count)]
        for key in self.keys:
            (folder / key).mkdir(parents=True)

    def cards(self) -> tuple[Gpu, ...]:
        return tuple(
            Gpu(index, "Fake", uuid=key, memory_total_bytes=CARD_BYTES, capability=(8, 0))
            for index, key in enumerate(self.keys)
        )

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        gpus = []
        for index, key in enumerate(self.keys):
            processes = tuple(self._processes(key))
            used = sum(process.memory_bytes or 0 for process in processes)
            gpus.append(
                GpuSample(index, "Fake", memory_used_bytes=used, memory_total_bytes=CARD_BYTES, processes=processes)
            )
        return Sample(time.time(), tuple(gpus), HostSample(cpu_pct=0.0, ram_used_bytes=0, ram_total_bytes=CARD_BYTES))

    def _processes(self, key: str) -> Iterator[GpuProcess]:
        for path in (self.folder / key).glob("*.gib"):
            try:
                held = round(float(path.read_text() or 0) * GIB)
            except FileNotFoundError:
                continue
            stranger = path.stem.startswith("stranger")
            pid = -1 if stranger else int(path.stem)
            yield GpuProcess(pid, held, "python train.py", "alice" if stranger else None)

    def used_gib(self, key: str) -> float:
        return sum((process.memory_bytes or 0) / GIB for process in self._processes(key))

    def stranger(self, key: str, gib: float, name: str = "stranger", spare_gib: float = 0.0) -> bool:
        """Let a stranger take memory if there is room for it and `spare_gib` more; True if it did."""
        with self._locked(key):
            if self.used_gib(key) + spare_gib + gib > 76:
                return False
            (self.folder / key / f"{name}.gib").write_text(str(gib))
        return True

    def leave(self, key: str, name: str = "stranger") -> None:
        (self.folder / key / f"{name}.gib").unlink()

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with (self.folder / key / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def starts(self) -> list[str]:
        """The pids of all trainings that were started."""
        path = self.folder / "starts"
        return path.read_text().split() if path.exists() else []


def environment(state: Path) -> dict[str, str]:
    """The environment of a user whose state is in the folder `state`."""
    return {**os.environ, "TUNER_STATE_DIR": str(state)}

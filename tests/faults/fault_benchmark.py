"""Faults injected into real trainings on the CPU: the cause found first, and after how many steps.

Run: `python -m tests.faults.fault_benchmark [--harder] [FAULT…]` (about five minutes per kind). Each fault is
a small training under the observer and its supervisor, diagnosed once a second as on the screen. Budget: the right
first cause for nine in ten, within 30 steps, and none for the healthy one. If other programs use the CPU that is a
correct finding too: then the next cause counts, and the row says so. `--harder` has such faults as they occur
in other people's code, in forms that the rules were not written for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner_tui.advice.diagnose import FindingHysteresis, diagnose
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.core.file_locks import wait_unlocked
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder, send_order
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Resolved, Settings

BASIC_FAULTS = Path(__file__).with_name("basic_faults.py")
HARDER_FAULTS = Path(__file__).with_name("harder_faults.py")
SMALL_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=2m tmpfs /dev/shm && exec "$@"', "sh")
SMALL_DISK = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /mnt && exec "$@" /mnt', "sh")
BURN = ("sh", "-c", "while :; do :; done")
BUSY = "cpu-contended"
MEMORY_LIMIT_BYTES = 3_000_000_000
MOST_STEPS = 30
GIVE_UP_S = 120.0


@dataclass(frozen=True)
class Fault:
    """A fault, its correct causes, and how long a training without a finding is observed (seconds).

    `limited`: runs under a memory limit. `within`: command that starts it. `burners`: other programs use the CPU.
    """

    name: str
    causes: tuple[str, ...]
    watch_s: float = GIVE_UP_S
    script: Path = BASIC_FAULTS
    limited: bool = False
    within: tuple[str, ...] = ()
    burners: bool = False


FAULTS = (
    Fault("slow-dataset", ("data-wait",)),
    Fault("starved-loader", ("data-wait",)),
    Fault("too-many-workers", ("too-many-workers",)),
    Fault("slow-checkpoint", ("save-share",)),
    Fault("long-evaluation", ("evaluation-share",)),
    Fault("memory-limit", ("host-oom",), limited=True),
    Fault("shm-limit", ("shm",), within=SMALL_SHM),
    Fault("nan", ("nan",)),
    Fault("killed-worker", ("worker-crash", "host-oom")),
    Fault("killed-trainer", ("unknown", "host-oom")),
    Fault("missing-package", ("missing-package",)),
    Fault("none", (), 75.0),
)
"""A process killed from outside is correctly reported as killed; lack of memory may only be mentioned as possible."""


def harder(name: str, *causes: str, watch_s: float = GIVE_UP_S, **more: Any) -> Fault:
    """A fault of `harder_faults.py`."""
    return Fault(name, causes, watch_s, HARDER_FAULTS, **more)


HARDER = (
    harder("leak-in-step", "memory-grows", "host-oom", limited=True),
    harder("worker-memory", "host-oom", limited=True),
    harder("evaluation-of-lists", "evaluation-share", watch_s=60.0),
    harder("generation", "evaluation-share", watch_s=60.0),
    harder("validation-broken-off", "evaluation-share", watch_s=60.0),
    harder("validation-by-switch", "evaluation-share", watch_s=60.0),
    harder("metrics-each-step", "between-steps", watch_s=60.0),
    harder("slow-stream", "data-wait"),
    harder("shared-lock", "data-wait", watch_s=60.0),
    harder("nan-in-a-bar", "nan"),
    harder("worker-raises", "worker-crash"),
    harder("hanging-worker", "stalled", watch_s=60.0),
    harder("segmentation-fault", "unknown"),
    harder("full-disk", "disk-full", within=SMALL_DISK),
    harder("slow-save", "save-share", watch_s=60.0),
    harder("pickled-save", "between-steps", watch_s=60.0),
    harder("padded", "padding", watch_s=60.0),
    harder("stolen-cores", "cpu-contended", burners=True),
    harder("healthy-workers", watch_s=60.0),
)


@dataclass(frozen=True)
class Found:
    """First finding: cause, confidence, steps, and seconds since the first step.

    `behind`: the finding that other programs use the CPU, which was not injected, came first.
    """

    cause: str | None
    confidence: str = ""
    steps: int = 0
    seconds: float = 0.0
    behind: bool = False


def command_of(fault: Fault) -> tuple[str, ...]:
    """Command of a training with the fault."""
    return (*fault.within, sys.executable, str(fault.script), fault.name)


def start(fault: Fault, root: Path) -> RunFolder:
    """Launch it."""
    limit = MEMORY_LIMIT_BYTES if fault.limited else None
    request = LaunchRequest(
        job=CommandJob(command=command_of(fault)),
        resolved=Resolved(Settings()),
        interpreter=sys.executable,
        cwd=root,
        memory_limit_bytes=limit,
        environ={**os.environ, "OMP_NUM_THREADS": "1"},
        root=root / "runs",
    )
    return launch(prepare(request))


def first_finding(folder: RunFolder, watch_s: float, injected: tuple[str, ...] = ()) -> Found:
    """Diagnose once a second until there is a finding, the run has ended, or the time is up."""
    reader, steadiness, began, behind = RunReader(folder), FindingHysteresis(), time.monotonic(), False
    while True:
        view = reader.poll()
        situation = situation_of_run(folder, view)
        steadiness = steadiness.after(diagnose(situation), situation.now_s)
        ended = view.state.finished is not None
        for finding in steadiness.shown:
            if finding.cause == BUSY and BUSY not in injected:
                behind = True
                continue
            since = view.state.training_since_t or view.state.launched_t or situation.now_s
            seconds = situation.now_s - since
            return Found(finding.cause, finding.confidence, view.state.step or 0, seconds, behind)
        if ended or time.monotonic() - began > watch_s:
            return Found(None, steps=view.state.step or 0, seconds=time.monotonic() - began, behind=behind)
        time.sleep(1.0)


def judge(fault: Fault, outcome: Found) -> bool:
    """Whether the first finding is correct and in time. Lack of memory as the cause of a kill may only be suspected."""
    if not fault.causes:
        return outcome.cause is None
    guessed = outcome.cause == "host-oom" and fault.name.startswith("killed")
    return (
        outcome.cause in fault.causes
        and outcome.steps <= MOST_STEPS
        and not (guessed and outcome.confidence != "possible")
    )


def run_fault(fault: Fault) -> Found:
    """Run one fault from launch to result, and clean up."""
    with tempfile.TemporaryDirectory() as folder_name, ExitStack() as burning:
        for _ in range(2 * (os.cpu_count() or 1) if fault.burners else 0):
            burning.callback(subprocess.Popen(BURN).kill)
        folder = start(fault, Path(folder_name))
        try:
            return first_finding(folder, fault.watch_s, fault.causes)
        finally:
            if RunReader(folder).poll().status.live:
                send_order(folder, "kill")
            wait_unlocked(folder.lock)


def can_mount() -> bool:
    """Whether this user may mount a /dev/shm or a disk for one process."""
    try:
        return subprocess.run([*SMALL_SHM, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def main(names: Sequence[str]) -> None:
    """Run the faults and print the table."""
    kind = HARDER if "--harder" in names else FAULTS
    wanted = set(names) - {"--harder"}
    chosen = [fault for fault in kind if not wanted or fault.name in wanted]
    right = 0
    print(f"{'fault':<22}{'first cause':<20}{'sure':<10}{'steps':>6}{'seconds':>9}")
    for fault in chosen:
        if fault.within and not can_mount():
            print(f"{fault.name:<22}cannot be injected here: no right to mount")
            continue
        outcome = run_fault(fault)
        good = judge(fault, outcome)
        right += good
        print(
            f"{fault.name:<22}{outcome.cause or '–':<20}{outcome.confidence:<10}{outcome.steps:>6}"
            f"{outcome.seconds:>9.1f}  {'right' if good else 'WRONG'}"
            f"{', behind a busy machine' if outcome.behind else ''}",
            flush=True,
        )
    print(f"{right} of {len(chosen)} right")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Cost of supervising a run that writes events: share of a core and resident memory of the supervisor.

    python -m tests.benchmarks.supervisor_cost [SECONDS] [RANKS]

The training is a script with RANKS processes (default 1) that write counters once a second for SECONDS (default 60).
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
import time
from pathlib import Path

from tuner_tui.runs.launch.start import start_supervisor
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.training_process import LaunchSpec

RANKS = """
import os, sys, time
seconds, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rank = 0
for other in range(1, ranks):
    if os.fork() == 0:
        rank = other
        break
name = f"events-rank{rank}.jsonl" if ranks > 1 else "events.jsonl"
with open(os.path.join(folder, name), "ab", buffering=0) as file:
    for n in range(seconds):
        line = '{"kind":"steps","v":1,"t":%f,"rank":%d,"step":%d,"own_steps":%d,"samples":%d,"train_s":%d.0}\\n'
        file.write((line % (time.time(), rank, n, n, n * 8, n)).encode())
        time.sleep(1)
"""


def main(seconds: int, ranks: int) -> None:
    """Run it, and print the cost of its supervisor."""
    with tempfile.TemporaryDirectory() as root:
        folder = create_folder(Path(root))
        argv = (sys.executable, "-c", RANKS, str(seconds), str(ranks), str(folder.path))
        start_supervisor(folder, LaunchSpec(argv, root, dict(os.environ)))
        known = read_supervisor_state(folder.state)
        assert known is not None
        pid = known.supervisor.pid
        began, used = time.monotonic(), cpu_s(pid)
        time.sleep(seconds - 2)
        share = (cpu_s(pid) - used) / (time.monotonic() - began)
        print(f"{ranks} rank(s), {seconds} s: {share:.2%} of a core, {peak_mib(pid):.1f} MiB at most")
        select.select([os.pidfd_open(pid)], [], [])  # until it has ended


def cpu_s(pid: int) -> float:
    """CPU seconds of the process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """Peak resident memory of the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(*(int(word) for word in [*sys.argv[1:], *["60", "1"][len(sys.argv) - 1 :]]))

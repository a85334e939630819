"""Samples one of several nodes of a run: `python -m tuner_tui.runs.supervise.node_sampler DIR`, on each of them.

It ends with the run, and at once on the node of the supervisor, which samples that one.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from tuner_tui.core.files import LineAppender
from tuner_tui.core.procfs import this_machine
from tuner_tui.hardware.sampler import open_sampler
from tuner_tui.runs.store.codec import encode_sample
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot

TICK_S = 1.0


def main(argv: list[str]) -> None:
    """Append a sample of this machine once a second."""
    folder, host = RunFolder(Path(argv[0])), this_machine().host
    sampler = open_sampler(folder.path)
    file: LineAppender | None = None
    while folder.path.exists():
        # The state is there before this process starts, but a file system over the network may show it later.
        supervision = read_supervisor_state(folder.state)
        if supervision is not None and (supervision.outcome is not None or supervision.machine.host == host):
            return
        snapshot = ProcessSnapshot()
        pids = [each.pid for each in snapshot.processes if snapshot.names_run(each.pid, folder.path)]
        with suppress(OSError):  # a full disk: the next one may fit
            file = file or LineAppender(folder.node_samples(host))
            file.append(encode_sample(sampler.sample(pids)))
        time.sleep(TICK_S)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Time and memory that `tuner-tui ps` needs for large and for many runs.

    python -m tests.benchmarks.list_runs [CASE…]

Each case is a state directory of its own; the command is started as a user starts it, once to warm the page cache and
three times to be measured. Prints the median seconds, the processor seconds and the peak memory of each. The budget is
one second. `none` is a directory without a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks.open_run import event_number
from tests.runs.builders import record
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.types import Finished, Launched, Started, Steps
from tuner_tui.runs.store.codec import encode_event, encode_sample
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.store.record import write_record
from tuner_tui.runs.store.supervisor_state import SupervisorState, write_supervisor_state

RANKS, LINES = 64, 3000
RUNS = 500
LINE_BYTES = 20 << 20
REPEATS = 3
GONE = ProcessId(2**22 - 7, 1)


@dataclass(frozen=True)
class Cost:
    """Median wall seconds, processor seconds and peak memory of the command, and the lines it printed."""

    seconds: float
    cpu_s: float
    peak_mib: float
    lines: int


def main(names: list[str]) -> None:
    """Measure the chosen cases and print a line for each."""
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as state:
            CASES[name](Path(state) / "runs")
            cost = measure(Path(state))
            print(
                f"{name:<28} {cost.seconds:6.2f} s  {cost.cpu_s:6.2f} s of processor  {cost.peak_mib:5.0f} MiB  "
                f"{cost.lines} lines",
                flush=True,
            )


def measure(state: Path) -> Cost:
    """List the runs below `state`."""
    costs = [list_once(state) for _ in range(REPEATS + 1)][1:]
    return sorted(costs, key=lambda cost: cost.seconds)[REPEATS // 2]


def list_once(state: Path) -> Cost:
    """Run the command once."""
    began = time.perf_counter()
    command = subprocess.Popen(
        [sys.executable, "-m", "tuner_tui", "ps"],
        env={**os.environ, "TUNER_STATE_DIR": str(state)},
        stdout=subprocess.PIPE,
    )
    assert command.stdout is not None
    printed = command.stdout.read()
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0
    seconds = time.perf_counter() - began
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, len(printed.splitlines()))


def run_folder(root: Path, outcome: str | None = "completed") -> RunFolder:
    """A run that ended; without an outcome its supervisor and its training are gone."""
    folder = create_folder(root)
    write_record(folder, replace(record(), id=folder.id, host=this_machine().host))
    state = SupervisorState(this_machine(), GONE, 1.0, GONE)
    if outcome is not None:
        state = replace(state, ended_t=9.0, exit_code=0, outcome=outcome, sentence="Completed.")
    write_supervisor_state(folder.state, state)
    folder.events.write_bytes(
        b"".join(map(encode_event, (Launched(t=1.0, pid=GONE.pid), Started(t=2.0, rank=0, pid=9))))
    )
    folder.samples.write_bytes(encode_sample(Sample(3.0)))
    folder.output_log.write_text("trained\n")
    return folder


def many_ranks(root: Path) -> None:
    """A run of 64 ranks with 3,000 lines each."""
    folder = run_folder(root)
    events = (event_number(number) for number in range(LINES))
    counters = b"".join(encode_event(event) for event in events if isinstance(event, Steps))
    for rank in range(RANKS):
        path = folder.path / f"events-rank{rank}.jsonl"
        path.write_bytes(counters.replace(b'"rank":0', b'"rank":%d' % rank))


def many_runs(root: Path) -> None:
    """500 runs that ended after 300 events each."""
    events = b"".join(encode_event(event_number(number)) for number in range(300))
    for _ in range(RUNS):
        folder = run_folder(root)
        with folder.events.open("ab") as file:
            file.write(events + encode_event(Finished(t=400.0, outcome="completed", sentence="Completed.")))


def many_lost_runs(root: Path) -> None:
    """500 runs whose end nobody knows."""
    for _ in range(RUNS):
        run_folder(root, None)


def long_line(name: str, unit: bytes, *, ended: bool) -> Callable[[Path], None]:
    """A run with 20 MB of `unit` in one line of the file `name`, which ends with a newline or is torn."""

    def make(root: Path) -> None:
        folder = run_folder(root, None if name != "state.json" else "completed")
        with (folder.path / name).open("ab") as file:
            for _ in range(64):  # in pieces: a child starts with the memory of its parent
                file.write(unit * (LINE_BYTES // 64 // len(unit)))
            file.write(b"\n" * ended)

    return make


BAR = b"\r 47%|####      | 470/1000 [00:47<00:53, 10.0it/s]"
CASES: dict[str, Callable[[Path], None]] = {
    "none": lambda root: None,
    "64 ranks": many_ranks,
    "500 runs": many_runs,
    "500 lost runs": many_lost_runs,
    "events, whole": long_line("events.jsonl", b"x", ended=True),
    "events, torn": long_line("events.jsonl", b'{"story":1,', ended=False),
    "events, brackets": long_line("events.jsonl", b"[", ended=True),
    "log, one line": long_line("output.log", b"loss 0.5 step 3 ", ended=True),
    "log, spaces": long_line("output.log", b" ", ended=True),
    "log, digits": long_line("output.log", b"1", ended=False),
    "log, a bar": long_line("output.log", BAR, ended=False),
    "log, bars in one piece": long_line("output.log", BAR[1:], ended=False),
    "log, tracebacks": long_line("output.log", b"Traceback (most recent call last): ", ended=True),
    "samples": long_line("samples.jsonl", b'{"v":1,', ended=True),
    "state": long_line("state.json", b" ", ended=True),
    "record": long_line("run.json", b"[", ended=True),
}


if __name__ == "__main__":
    main(sys.argv[1:])

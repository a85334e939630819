"""Time and memory that the commands need for a live run that has printed a large log.

    python -m tests.benchmarks.large_log [MEBIBYTES]

The run writes MEBIBYTES MiB (default 1024) of losses and progress bars at once, then a line a second; nothing observes
it, so that all that is known of it comes from its log. `logs` prints all of it, which the other commands need not read.
What follows the run is timed until it shows the newest loss, or the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.screen.first_paint import seconds_until, text_of
from tests.benchmarks.screen.terminal import Terminal
from tuner_tui.runs.store.folder import RunFolder

SCRIPT = """
import os, sys, time
lines = b"".join(b"{'loss': '%.4f', 'learning_rate': '1e-05', 'epoch': '0.1'}\\n" % (n / 1e4) for n in range(8000))
bars = b"".join(b"\\r %3d%%|%s| %d/9999" % (n // 100, b"#" * (n // 400), n) for n in range(9999)) + b"\\n"
for _ in range((int(sys.argv[1]) << 20) // len(lines + bars) + 1):
    sys.stdout.buffer.write(lines + bars)
(open("written", "w")).close()
while True:
    print({"loss": "0.1234", "epoch": "0.2"}, flush=True)
    time.sleep(1.0)
"""
NEWEST = b"0.123"
OURS = [sys.executable, "-m", "tuner_tui"]


def main(mebibytes: int) -> None:
    """Start the run, measure each command and print a line for it."""
    with tempfile.TemporaryDirectory() as name, live_run(Path(name), mebibytes) as folder:
        environment = {**os.environ, "TUNER_STATE_DIR": name, "TERM": "xterm-256color"}
        log, run = str(folder.output_log), folder.id
        print(f"{folder.output_log.stat().st_size >> 20} MiB, load {os.getloadavg()[0]:.1f}", flush=True)
        for words, shown in ((["logs", "-f", run], NEWEST), ([run], NEWEST), (["watch"], run.encode())):
            print(f"{' '.join(words):<16}{open_once(words, environment, Path(name), shown)}", flush=True)
        print(f"{'supervisor':<16}{supervisor_cost(folder)}", flush=True)
        for words in (["ps"], ["diagnose", run], ["diagnose", log], ["logs", run]):
            print(f"{words[0]:<10}{'FILE' if words[-1] == log else '':<6}{run_once(words, environment)}", flush=True)


@contextmanager
def live_run(state: Path, mebibytes: int) -> Iterator[RunFolder]:
    """A run below `state` that has written its large log and goes on."""
    (state / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "TUNER_STATE_DIR": str(state)}
    start = [*OURS, "run", "--detach", "--", sys.executable, "-S", "train.py", str(mebibytes)]
    started = subprocess.run(start, env=environment, cwd=state, check=True, capture_output=True, text=True)
    try:
        while not (state / "written").exists():
            time.sleep(0.1)
        yield RunFolder(state / "runs" / started.stdout.strip())
    finally:
        subprocess.run([*OURS, "stop", "--now", started.stdout.strip()], env=environment, capture_output=True)


def run_once(words: list[str], environment: dict[str, str]) -> str:
    """Run a command to its end, with its output discarded."""
    began = time.perf_counter()
    command = subprocess.Popen([*OURS, *words], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0, words
    seconds = time.perf_counter() - began
    return f"{seconds:6.2f} s {used.ru_utime + used.ru_stime:6.2f} s of processor {used.ru_maxrss >> 10:5} MiB"


def open_once(words: list[str], environment: dict[str, str], folder: Path, shown: bytes) -> str:
    """Open something that follows the run, until `shown` is on the terminal."""
    with Terminal([*OURS, *words], environment, folder) as terminal:
        written = bytearray()

        def shows(more: bytes) -> bool:
            written.extend(more)
            return shown in text_of(bytes(written[-100_000:]))

        seconds = seconds_until(terminal, shows)
        return f"{seconds:6.2f} s {terminal.cpu_s():6.2f} s of processor {terminal.rss_bytes() >> 20:5} MiB"


def supervisor_cost(folder: RunFolder) -> str:
    """Processor seconds and memory of the supervisor so far."""
    from tuner_tui.runs.store.supervisor_state import read_supervisor_state

    known = read_supervisor_state(folder.state)
    assert known is not None
    fields = Path(f"/proc/{known.supervisor.pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    peak = Path(f"/proc/{known.supervisor.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    return f"{'':10}{used:6.2f} s of processor {int(peak) >> 10:5} MiB"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)

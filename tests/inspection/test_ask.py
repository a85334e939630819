"""Real processes that hang, asked where they are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.observer.observed_process import SITE
from tuner_tui.core.procfs import all_processes, descendants_in, read_stat
from tuner_tui.inspection.ask import ask_processes
from tuner_tui.inspection.hang import find_activity
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.stall import Inspection, inspect_run

HANGS = Path(__file__).parent / "scripts" / "hangs.py"
QUIET_S, TIMEOUT_S = 2.0, 300.0


class Processes:
    """Processes under the observer, ended at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, *command: str, stdin: int = subprocess.DEVNULL, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start Python with `command`; the process is ready when it has printed a line."""
        variables = {"TUNER_RUN_DIR": str(self.folder), "PYTHONPATH": str(SITE), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **variables, **(environment or {})},
            stdout=subprocess.PIPE,
            stdin=stdin,
            text=True,
        )
        self.started.append(process)
        return process

    def say(self, code: str) -> subprocess.Popen[str]:
        """Run `code`, which prints a line and then hangs."""
        process = self.start("-c", code)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def end(self) -> None:
        pids = [process.pid for process in self.started]
        for stat in descendants_in(list(all_processes()), pids):
            os.kill(stat.pid, signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


COMPUTES = """
def outer(n): return [inner(k) for k in range(n)]
def inner(k): return sum(map(lambda value: value * k, range(5)))
print(flush=True)
while True: outer(30)
"""


COMPUTES_BESIDE = """
import ctypes, os, threading
def outer(n): return [inner(k) for k in range(n)]
def inner(k): return sum(map(lambda value: value * k, range(5)))
def compute():
    while True: outer(30)
threading.Thread(target=compute, daemon=True).start()
readable, _ = os.pipe()
print(flush=True)
ctypes.CDLL(None).read(readable, ctypes.create_string_buffer(1), 1)
"""


def test_a_thread_that_computes_while_the_main_thread_is_in_c_survives(processes: Processes) -> None:
    process = read_stat(processes.say(COMPUTES_BESIDE).pid)
    assert process is not None
    for _ in range(15):
        [dump] = ask_processes([process], {}, cpu_window_s=0.0)
        assert [frame.function for frame in dump.main.frames] == ["<module>"], dump.silence


def test_a_process_that_computes_survives_being_asked(processes: Processes) -> None:
    # `faulthandler` in its signal handler, asked as often, reads frames that are freed meanwhile.
    process = read_stat(processes.say(COMPUTES).pid)
    assert process is not None
    for _ in range(60):
        [dump] = ask_processes([process], {}, cpu_window_s=0.0)
        assert dump.threads, dump.silence


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def inspect_hang(processes: Processes, kind: str, world: int) -> Inspection:
    """Start `world` ranks of the script and look into them once they have made no step for a while."""
    port = str(free_port())
    for rank in range(world):
        rank_environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        processes.start(str(HANGS), kind, environment=rank_environment if world > 1 else None)
    reader, deadline = RunReader(RunFolder(processes.folder)), time.monotonic() + TIMEOUT_S
    while True:
        state = reader.poll().state
        if state.last_step_t is not None and time.time() - state.last_step_t > QUIET_S:
            break
        assert time.monotonic() < deadline, "the script made no step"
        select_for(0.2)
    running = [each for each in descendants_in(list(all_processes()), [os.getpid()]) if each.is_running]
    return inspect_run(running, state, socket.gethostname(), time.time())


def select_for(seconds: float) -> None:
    """Give other processes time to run."""
    signal.sigtimedwait([], seconds)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(HANGS.read_text("utf-8").splitlines(), 1) if text in line)


KINDS: Sequence[tuple[str, int, str, str]] = [
    ("stuck-worker", 1, "data-stuck", "time.sleep(FOREVER_S)  # a remote file"),
    ("debugger", 1, "debugger", 'if KIND == "evaluates-alone"'),
    ("lock", 1, "lock", "with lock:"),
    ("spin", 1, "computing", "n += 1"),
    ("slow-data", 2, "data-stuck", "time.sleep(FOREVER_S)  # a remote file"),
    ("saves-alone", 2, "rank-alone", "torch.save("),
    ("reduces-alone", 2, "other-collective", "dist.broadcast(total, 0)"),
    ("uneven", 2, "uneven-batches", "model(batch).mean().backward()"),
]


@pytest.mark.parametrize(
    ("kind", "world", "answer", "line"),
    [KINDS[0], KINDS[6], *(pytest.param(*each, marks=pytest.mark.full) for each in (*KINDS[1:6], *KINDS[7:]))],
)
def test_hangs(processes: Processes, kind: str, world: int, answer: str, line: str) -> None:
    inspection = inspect_hang(processes, kind, world)
    assert inspection.hang.kind == answer
    text = " ".join((inspection.hang.sentence, *inspection.hang.evidence))
    assert f"hangs.py:{line_of(line)}" in text or kind == "spin"


def ask(process: subprocess.Popen[str]) -> tuple[str, ...]:
    """The functions on the stack of the main thread; why there are none."""
    stat = read_stat(process.pid)
    assert stat is not None
    [dump] = ask_processes([stat], {})
    return tuple(frame.function for frame in dump.main.frames) or (dump.silence or "",)


def test_a_process_that_holds_the_interpreter_lock_in_c(processes: Processes) -> None:
    code = "import re\ndef hold():\n  print('ready', flush=True)\n  re.match('(a*)*b', 'a' * 40)\nhold()"
    assert "hold" in ask(processes.say(code))


def test_asked_twice(processes: Processes) -> None:
    process = processes.say("import time\ndef wait():\n  print('ready', flush=True)\n  time.sleep(600)\nwait()")
    assert ask(process) == ask(process) == ("wait", "<module>")


def test_a_program_that_owns_the_signal_is_not_signalled(processes: Processes) -> None:
    code = (
        "import signal, time\n"
        "for number in range(signal.SIGRTMIN, signal.SIGRTMAX): signal.signal(number, lambda *_: exit(3))\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    process = processes.say(code)
    assert "uses the signal itself" in ask(process)[0]
    assert process.poll() is None


def test_a_forked_child_answers_for_itself(processes: Processes) -> None:
    code = (
        "import os, time\ndef child():\n  print(os.getpid(), flush=True)\n  time.sleep(600)\n"
        "if os.fork() == 0: child()\ntime.sleep(600)"
    )
    process = processes.start("-c", code)
    assert process.stdout is not None
    stat = read_stat(int(process.stdout.readline()))
    assert stat is not None
    [dump] = ask_processes([stat], {})
    assert [frame.function for frame in dump.main.frames] == ["child", "<module>"]
    assert ask(process) == ("<module>",)


def test_a_program_that_closed_all_files_is_not_signalled(processes: Processes) -> None:
    process = processes.say("import os, time\nprint('ready', flush=True)\nos.closerange(3, 4096)\ntime.sleep(600)")
    select_for(0.2)
    assert "it has no observer" in ask(process)[0]
    assert process.poll() is None


def test_a_stopped_process_is_said_to_be(processes: Processes) -> None:
    process = processes.say("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    assert "is stopped" in ask(process)[0]


def test_a_process_that_waits_for_a_core_computes(processes: Processes) -> None:
    """Two processes share one core, of which the second gets a fiftieth."""
    core = min(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint('ready', flush=True)\nos.nice(%d)\nwhile True: pass"
    stats = [read_stat(processes.say(code % nice).pid) for nice in (0, 19)]
    dumps = ask_processes([stat for stat in stats if stat is not None], {})
    assert [find_activity(dump).name for dump in dumps] == ["computing"] * 2

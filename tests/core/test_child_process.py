"""Helpers end in time, with bounded output, and take everything with them that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.sandbox import wait_gone
from tuner_tui.core.child_guard import COMM
from tuner_tui.core.child_process import ChildProcess, EndlessOutputError, run_command
from tuner_tui.core.procfs import ProcessId, all_processes, descendants_in, identify_process, is_alive

DEAF = "for number in set(signal.Signals) - {9, 19}: signal.signal(number, signal.SIG_IGN)\n"
REPORT = "print(os.getpid(), flush=True)\n"
WAIT = "while True: signal.pause()\n"
DAEMON = "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    print(os.getpid(), flush=True)\n"
"""Starts a process whose parent is gone, and whose session is its own."""
HOSTILE = {
    "never answers": "import os, signal\n" + REPORT + WAIT,
    "ignores signals": "import os, signal\n" + DEAF + REPORT + WAIT,
    "starts a daemon": "import os, signal\n" + DEAF + DAEMON + WAIT,
    "forks for ever": "import os\n" + REPORT + "while True:\n    if os.fork(): os._exit(0)\n    os.setsid()\n",
    "stops its guard": "import os, signal\n" + REPORT + "os.kill(os.getppid(), signal.SIGSTOP)\n" + WAIT,
    "kills its guard": "import os, signal\n" + REPORT + "os.kill(os.getppid(), signal.SIGKILL)\n" + WAIT,
}
ASKS = """
import sys, time
from tuner_tui.core.child_process import ChildProcess
child = ChildProcess([sys.executable, "-c", sys.argv[1]])
print(child.read(30.0).decode(), flush=True)
time.sleep(600)
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def first_process(output: bytes | None) -> ProcessId:
    """The process that has printed its pid; one that is gone already has no identity."""
    pid = int((output or b"0").split()[0])
    return identify_process(pid) or ProcessId(pid, 0)


def processes_with(mark: str) -> list[int]:
    """The pids of the processes in whose command line `mark` occurs."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if mark.encode() in _bytes(path) and path.parent.name != str(os.getpid())
    ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_helper_is_left(kind: str, tmp_path: Path) -> None:
    mark = f"# {tmp_path}"
    child = ChildProcess(python(HOSTILE[kind] + mark))
    helper = first_process(child.read(30.0))
    child.close()
    wait_gone(helper)
    assert processes_with(mark) == []


@pytest.mark.parametrize("kind", ["never answers", "starts a daemon", "ignores signals"])
def test_a_helper_ends_with_the_process_that_asked(kind: str, tmp_path: Path) -> None:
    script = HOSTILE[kind] + f"# {tmp_path}"
    asking = subprocess.Popen([sys.executable, "-c", ASKS, script], stdout=subprocess.PIPE)
    try:
        assert asking.stdout is not None
        helper = first_process(asking.stdout.readline())
        assert is_alive(helper)
    finally:
        asking.kill()
        asking.communicate()
    wait_gone(helper)


@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_helper_ends_with_the_process_that_asked_after_one_of_its_guards(
    generation: int, number: signal.Signals, tmp_path: Path
) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-c", ASKS, HOSTILE["starts a daemon"] + f"# {tmp_path}"], stdout=subprocess.PIPE
    )
    try:
        assert asking.stdout is not None
        helper = first_process(asking.stdout.readline())
        guards = [each for each in descendants_in(all_processes(), [asking.pid]) if each.comm == COMM]
        os.kill(guards[generation].pid, number)
    finally:
        asking.kill()
        asking.communicate()
    wait_gone(helper)


def test_output_errors_input_and_exit_code_of_a_command() -> None:
    script = "import sys; print(sys.stdin.read()); print('no', file=sys.stderr); sys.exit(3)"
    done = run_command(python(script), 30.0, stdin=b"in")
    assert (done.output, done.errors, done.exit_code) == (b"in\n", b"no\n", 3)


def test_what_a_command_leaves_running_does_not_delay_its_answer_and_is_ended(tmp_path: Path) -> None:
    mark = f"# {tmp_path}"
    script = "import os\nprint('answer', flush=True)\nif os.fork(): os._exit(0)\nos.setsid()\nwhile True: pass\n" + mark
    done = run_command(python(script), 30.0)
    assert (done.output, done.exit_code) == (b"answer\n", 0)
    assert processes_with(mark) == []


def test_the_signal_that_ended_a_command() -> None:
    assert run_command(python("import os; os.kill(os.getpid(), 11)"), 30.0).exit_code == -signal.SIGSEGV


def test_a_command_that_takes_too_long_gives_what_it_has_printed() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run_command(python("import time; print('so far', flush=True); time.sleep(600)"), 1.0)
    assert caught.value.output == b"so far\n"


def test_a_command_that_prints_without_end() -> None:
    with pytest.raises(EndlessOutputError, match="wrote more than 1 MiB"):
        run_command(["yes"], 60.0, max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("content", "error"), [(None, FileNotFoundError), ("", PermissionError), ("#!/nowhere\n", FileNotFoundError)]
)
def test_a_command_that_cannot_be_started(tmp_path: Path, content: str | None, error: type[OSError]) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(0o755 if content else 0o644)
    with pytest.raises(error):
        run_command([str(program)], 30.0)

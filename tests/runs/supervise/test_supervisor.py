"""Real supervisors of real processes: the folder is right whatever the training does."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.sandbox import QUICK_STOP, Fifo, Sandbox, supervisor_state, wait_ended, wait_gone
from tuner_tui.core.file_locks import is_locked
from tuner_tui.core.procfs import identify_process, is_alive
from tuner_tui.runs.events.types import Exited, Finished, Launched
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.start import adopt, start_supervisor
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import create_folder, send_order
from tuner_tui.runs.supervise.supervisor import next_tick
from tuner_tui.runs.supervise.training_process import LaunchSpec

SAY = "import os, sys\ndef say(word):\n    with open(sys.argv[1], 'w') as f: f.write(word + '\\n')\n"
WAIT_FOR_EVER = "import signal\nwhile True: signal.pause()\n"


def test_a_training_that_ends(box: Sandbox) -> None:
    folder = box.launch("print('trained')")
    last = wait_ended(folder)
    assert (last.outcome, last.exit_code, last.signal, last.problems) == ("completed", 0, None, ())
    assert folder.output_log.read_text() == "trained\n"
    status = read_status(folder)
    assert (status.kind, status.outcome, status.live) == ("ended", "completed", False)
    assert [type(event) for event in RunReader(folder).events()] == [Launched, Exited, Finished]
    assert folder.supervisor_log.read_text() == ""


def test_a_run_is_private_and_supervised_from_its_first_moment(box: Sandbox, fifo: Fifo) -> None:
    folder = box.launch(SAY + "say('up')\n" + WAIT_FOR_EVER, str(fifo.path))
    assert fifo.word() == "up"
    status = read_status(folder)
    assert status.kind == "running"
    assert status.training_alive
    assert is_locked(folder.lock)
    assert folder.path.stat().st_mode & 0o077 == 0
    supervision = supervisor_state(folder)
    assert supervision.training is not None
    assert os.getsid(supervision.training.pid) == supervision.training.pid
    assert os.getsid(supervision.supervisor.pid) not in (os.getsid(0), supervision.training.pid)
    with pytest.raises(LaunchError, match="already has a supervisor"):
        adopt(folder)
    send_order(folder, "terminate")
    assert wait_ended(folder).outcome == "stopped"


def test_a_training_deaf_to_sigterm_is_killed_only_when_that_is_ordered(box: Sandbox, fifo: Fifo) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: say('deaf'))\nsay('up')\n"
    folder = box.launch(SAY + deaf + "while True: signal.pause()\n", str(fifo.path))
    assert fifo.word() == "up"
    send_order(folder, "terminate")
    assert fifo.word() == "deaf"
    assert read_status(folder).kind == "running"
    send_order(folder, "kill")
    last = wait_ended(folder)
    assert (last.outcome, last.signal) == ("stopped", signal.SIGKILL)


def test_terminating_the_supervisor_terminates_the_training(box: Sandbox, fifo: Fifo) -> None:
    folder = box.launch(SAY + "say('up')\n" + WAIT_FOR_EVER, str(fifo.path))
    fifo.word()
    os.kill(supervisor_state(folder).supervisor.pid, signal.SIGTERM)
    assert wait_ended(folder).outcome == "stopped"


def test_a_hang_up_means_nothing(box: Sandbox, fifo: Fifo) -> None:
    folder = box.launch(SAY + "say('up')\nsys.exit(0 if input is not None else 1)\n", str(fifo.path))
    os.kill(supervisor_state(folder).supervisor.pid, signal.SIGHUP)
    assert fifo.word() == "up"
    assert wait_ended(folder).outcome == "completed"


def test_what_a_returning_command_leaves_working_is_still_the_run(box: Sandbox, fifo: Fifo) -> None:
    script = "if os.fork(): os._exit(0)\nsay('child')\n" + "sys.stdout.write('child done')\n"
    folder = box.launch(SAY + script, str(fifo.path))
    assert fifo.word() == "child"
    assert wait_ended(folder).outcome == "completed"
    assert folder.output_log.read_text() == "child done"


def test_what_a_failed_training_leaves_is_ended(box: Sandbox, fifo: Fifo) -> None:
    script = "if os.fork():\n    os.read(r, 1)\n    sys.exit(3)\nsay(str(os.getpid()))\nos.write(w, b'x')\n"
    folder = box.launch(SAY + "r, w = os.pipe()\n" + script + WAIT_FOR_EVER, str(fifo.path))
    child = identify_process(int(fifo.word()))
    last = wait_ended(folder)
    assert (last.outcome, last.exit_code) == ("failed", 3)
    assert "left" not in last.sentence
    assert child is None or not is_alive(child)


def test_a_shell_and_its_training_are_terminated_once_each(box: Sandbox, fifo: Fifo) -> None:
    # The signal is blocked until it is waited for: a handler that runs just before `pause` would leave it waiting.
    script = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nos.fork()\nsay('up')\n"
    script += "signal.sigwait([signal.SIGTERM])\nsay(str(os.getpid()))\n"
    folder = box.launch(SAY + script, str(fifo.path))
    words = fifo.word().split()
    while words.count("up") < 2:
        words += fifo.word().split()
    send_order(folder, "terminate")
    assert wait_ended(folder).outcome == "stopped"
    while len(words) < 4:
        words += fifo.word().split()
    assert len(set(words[2:])) == len(words[2:]) == 2


def test_a_daemon_is_named_and_left_alone_and_no_secret_is_written(box: Sandbox, fifo: Fifo) -> None:
    # The secret is put together by the script, whose text is recorded as its command.
    parent = "there, here = os.pipe()\nsecret = '7kQz'[::-1] + 'Wm3xLp8v'\nif os.fork():\n    os.read(there, 1)\n"
    parent += "    raise RuntimeError('401 for https://host/?sig=' + secret + ': invalid token: ' + secret)\n"
    child = "if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    child += "say(str(os.getpid()))\nos.write(here, b'.')\n"
    child += f"os.execv({sys.executable!r}, ['python', '-c', {WAIT_FOR_EVER!r}, '--api_key', secret])\n"
    folder = box.launch(SAY + parent + child, str(fifo.path))
    pid = int(fifo.word())
    daemon = identify_process(pid)
    try:
        last = wait_ended(folder)
        assert daemon is not None
        assert is_alive(daemon)
        assert last.outcome == "failed"
        assert "RuntimeError: 401 for https://host/?sig=[hidden]" in last.sentence
        assert str(pid) in last.sentence
        written = {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()}
        assert b"zQk7Wm3xLp8v" in written.pop("output.log")
        assert [name for name, content in written.items() if b"zQk7Wm3xLp8v" in content] == []
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_memory_limit_makes_out_of_memory_real(box: Sandbox) -> None:
    folder = box.launch("x = bytearray(800_000_000)", memory_limit_bytes=300_000_000)
    last = wait_ended(folder)
    assert last.outcome == "out-of-memory"
    assert "MemoryError" in last.sentence


def test_the_training_outlives_a_killed_supervisor_and_can_be_adopted(box: Sandbox, fifo: Fifo) -> None:
    folder = box.launch(SAY + "say('up')\n" + WAIT_FOR_EVER, str(fifo.path))
    fifo.word()
    first = supervisor_state(folder)
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_gone(first.supervisor)
    status = read_status(folder)
    assert (status.kind, status.training_alive, status.live) == ("lost", True, True)
    adopt(folder)
    assert read_status(folder).kind == "running"
    assert supervisor_state(folder).supervisor != first.supervisor
    send_order(folder, "terminate")
    last = wait_ended(folder)
    assert last.outcome == "stopped"
    assert first.training is not None
    assert not is_alive(first.training)


@pytest.mark.parametrize(
    ("planned_s", "now_s", "expected_s"),
    [(10.0, 10.0, 11.0), (10.0, 10.25, 11.0), (10.0, 10.875, 11.375), (0.0, 5000.0, 5000.5)],
    ids=["in time", "a little late", "late", "the first"],
)
def test_two_samples_are_half_a_tick_apart_at_least(planned_s: float, now_s: float, expected_s: float) -> None:
    assert next_tick(planned_s, now_s) == expected_s


def test_a_full_disk_is_recorded_as_a_problem(box: Sandbox, tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    box.folders.append(folder)
    largest, limits = 1 << 14, resource.getrlimit(resource.RLIMIT_FSIZE)
    for path in (folder.events, folder.samples):
        path.write_bytes(b"\n" * largest)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, limits[1]))  # the supervisor inherits it
    try:
        start_supervisor(
            folder, LaunchSpec((sys.executable, "-c", "print('trained')"), str(tmp_path), {}, stop_timeouts=QUICK_STOP)
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    last = wait_ended(folder)
    assert (last.outcome, last.exit_code) == ("completed", 0)
    assert any("File too large" in problem for problem in last.problems)
    assert last.sentence == "Completed. The disk of the state folder was full."
    assert read_status(folder).problems == last.problems


def test_a_command_that_vanished_meanwhile(box: Sandbox, tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    with pytest.raises(LaunchError, match="No such file"):
        start_supervisor(folder, LaunchSpec(("/no/program",), str(tmp_path), {}))
    status = read_status(folder)
    assert (status.kind, status.outcome) == ("ended", "failed")
    assert "could not be started" in status.sentence


def test_a_training_ends_with_the_process_that_started_it(box: Sandbox, tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    box.folders.append(folder)
    argv = (sys.executable, "-c", WAIT_FOR_EVER)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as starter:
        start_supervisor(folder, LaunchSpec(argv, str(tmp_path), {}, None, QUICK_STOP, identify_process(starter.pid)))
        assert read_status(folder).kind == "running"
        starter.kill()
    assert wait_ended(folder).outcome == "stopped"


def test_the_supervisor_is_small(box: Sandbox, fifo: Fifo) -> None:
    code = "import sys, tuner_tui.runs.supervise.supervisor; print(*sys.modules)"
    modules = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not {"pydantic", "typer", "textual", "rich", "torch", "yaml"} & modules
    folder = box.launch(SAY + "say('up')\n" + WAIT_FOR_EVER, str(fifo.path))
    fifo.word()
    lines = Path(f"/proc/{supervisor_state(folder).supervisor.pid}/status").read_text().splitlines()
    rss_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    assert rss_kib < 35 * 1024
    send_order(folder, "terminate")
    wait_ended(folder)

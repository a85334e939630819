"""The commands around a run, as a person types them: real processes, real signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pytest

from tests.cli.invoke import invoke
from tests.observer.observed_process import SCRIPTS
from tests.runs.sandbox import Fifo, fifo, supervisor_state, wait_ended
from tuner_tui.cli.main import main
from tuner_tui.runs.store.folder import RunFolder, read_supervisor_state, runs_dir

__all__ = ["fifo"]

WAIT = "import signal, sys\nopen(sys.argv[1], 'w').write('up')\nwhile True: signal.pause()\n"
PATIENCE_S = 300.0
MAIN = "from tuner_tui.cli.main import main; main()"


class Shell:
    """Runs `tuner-tui` in a folder and with a state directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {**os.environ, "TUNER_STATE_DIR": str(home / "state")}
        self.timers: list[threading.Timer] = []

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", MAIN, *words]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call the command in this process; in one of its own where it is to find a fake driver."""
        if "LD_LIBRARY_PATH" in self.environ:
            return subprocess.run(
                self.command(*words), cwd=self.home, env=self.environ, capture_output=True, text=True, timeout=1700
            )
        streams = {name: TextIOWrapper(BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
        interrupt = signal.getsignal(signal.SIGINT)
        with pytest.MonkeyPatch.context() as patch, open(os.devnull) as nothing:  # noqa: PTH123
            patch.chdir(self.home)
            for name in os.environ.keys() - self.environ.keys():
                patch.delenv(name)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", nothing)
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            code = 0
            try:
                main(list(words))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            sys.stdout.flush()
            sys.stderr.flush()
        signal.signal(signal.SIGINT, interrupt)
        out, err = (stream.buffer.getvalue().decode() for stream in streams.values())
        return subprocess.CompletedProcess(words, code, out, err)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that is killed after `PATIENCE_S`, so that reading its output cannot block forever."""
        command = subprocess.Popen(
            self.command(*words), cwd=self.home, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, bufsize=1,
        )  # fmt: skip
        end = threading.Timer(PATIENCE_S, command.kill)
        end.daemon = True
        end.start()
        self.timers.append(end)
        return command

    def script(self, text: str) -> str:
        path = self.home / "train.py"
        path.write_text(text)
        return str(path)

    def folder(self, name: str = "r001") -> RunFolder:
        return RunFolder(runs_dir(self.environ) / name)

    def close(self) -> None:
        for timer in self.timers:
            timer.cancel()
        for state in runs_dir(self.environ).glob("*/state.json"):
            supervision = read_supervisor_state(state)
            if supervision is not None and supervision.outcome is None and supervision.training is not None:
                with suppress(ProcessLookupError):
                    os.kill(supervision.training.pid, signal.SIGKILL)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def line_of(stream: IO[str] | None) -> str:
    """The next line of a command, or nothing where it has ended."""
    assert stream is not None
    return stream.readline()


def test_run_follows_to_the_end(shell: Shell) -> None:
    done = shell("run", "--", sys.executable, shell.script("print('hello')"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "finished    Completed."
    assert "r001" in done.stderr


def test_a_flag_that_does_not_choose_what_starts_the_command_says_so(shell: Shell) -> None:
    link = shell.home / "python3"
    link.symlink_to(sys.executable)
    done = shell("run", "--interpreter", str(link), "--", sys.executable, "-c", "pass")
    refused = shell("run", "--interpreter", sys.executable, "--", sys.executable, "-c", "pass")
    assert done.returncode == refused.returncode == 0
    assert ("only used to look up packages" in done.stderr, "only used" in refused.stderr) == (True, False)


def test_run_json_is_json_lines_and_ends_with_finished(shell: Shell) -> None:
    done = shell("run", "--json", "--", sys.executable, shell.script("import sys; sys.exit(3)"))
    assert done.returncode == 1
    events = json_lines(done.stdout)
    assert [event["kind"] for event in events] == ["launched", "exited", "finished"]
    assert events[-1]["outcome"] == "failed"


def test_run_out_of_memory_exits_3(shell: Shell) -> None:
    script = shell.script("x = bytearray(900_000_000)")
    done = shell("run", "--memory-limit", "300MB", "--", sys.executable, script)
    assert done.returncode == 3
    assert "Out of memory" in done.stdout
    assert done.stderr.count("`tuner-tui diagnose r001` says more.") == 1
    assert "limit of 0.279 GiB (the host's memory) is exhausted." in done.stderr


def test_detach_ps_stop(shell: Shell, fifo: Fifo) -> None:
    started = shell("run", "--detach", "--", sys.executable, shell.script(WAIT), str(fifo.path))
    assert (started.returncode, started.stdout) == (0, "r001\n")
    fifo.word()
    (row,) = json.loads(shell("ps", "--json").stdout)
    assert (row["run"], row["status"], row["outcome"]) == ("r001", "running", None)
    assert "r001" in shell("ps").stdout
    stopped = shell("stop", "--json")
    assert stopped.returncode == 0
    assert json.loads(stopped.stdout)["outcome"] == "stopped"
    (row,) = json.loads(shell("ps", "--json").stdout)
    assert (row["status"], row["outcome"]) == ("ended", "stopped")


@pytest.mark.train
def test_a_resume_is_tried_before_it_is_trusted(shell: Shell) -> None:
    train = ("--apply", "none", "--", sys.executable, str(SCRIPTS / "resumed_loop.py"), str(shell.home))
    assert shell("run", *train).returncode == 0
    saved = (shell.home / "checkpoint.pt").read_bytes()
    for missing, code, sentence in (
        ("none", 0, "It resumed faithfully from step 20 of r001: "),
        ("optimizer", 1, "It did not resume faithfully from step 20 of r001: optimizer moments are empty."),
    ):
        tried = shell("run", "--resume", "r001", "--prove", "--steps", "4", *train, missing, "{checkpoint}")
        assert tried.returncode == code, tried.stderr
        assert tried.stdout.startswith(sentence)
        assert (shell.home / "checkpoint.pt").read_bytes() == saved


def test_ctrl_c_stops_the_training(shell: Shell, fifo: Fifo) -> None:
    with shell.start("run", "--json", "--", sys.executable, shell.script(WAIT), str(fifo.path)) as running:
        fifo.word()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=300)
    assert running.returncode == 130
    assert json_lines(out)[-1]["outcome"] == "stopped"
    assert "Ctrl-C again" in err


@pytest.mark.full
def test_a_second_ctrl_c_presses_harder(shell: Shell, fifo: Fifo) -> None:
    deaf = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1], 'w').write('deaf'))\n"
    with shell.start("run", "--json", "--", sys.executable, shell.script(deaf + WAIT), str(fifo.path)) as running:
        assert fifo.word() == "up"
        running.send_signal(signal.SIGINT)
        assert fifo.word() == "deaf"
        running.send_signal(signal.SIGINT)
        announced = list(iter(lambda: line_of(running.stderr).split()[:2], ["Run", "r001,"]))
        assert announced[0][0] == "Command"
        assert line_of(running.stderr).startswith("Stopping after")
        assert line_of(running.stderr).startswith("Terminating")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=300)
    assert running.returncode == 130
    assert supervisor_state(shell.folder()).signal == signal.SIGKILL


def test_terminated_the_run_command_terminates_the_training(shell: Shell, fifo: Fifo) -> None:
    with shell.start("run", "--", sys.executable, shell.script(WAIT), str(fifo.path)) as running:
        fifo.word()
        running.terminate()
        running.communicate(timeout=300)
    assert running.returncode == 143
    assert supervisor_state(shell.folder()).outcome == "stopped"


def test_the_training_outlives_the_command_that_started_it(shell: Shell, fifo: Fifo) -> None:
    with shell.start("run", "--", sys.executable, shell.script(WAIT), str(fifo.path)) as running:
        fifo.word()
        while not (line := line_of(running.stderr)).startswith("Run r001"):  # until then it may be "starting"
            assert line
        running.kill()
        running.communicate(timeout=300)
    (row,) = json.loads(shell("ps", "--json").stdout)
    assert row["status"] == "running"
    with shell.start("logs", "-f", "--events", "--json", "r001") as attached:
        assert json.loads(line_of(attached.stdout))["kind"] == "launched"
        attached.send_signal(signal.SIGINT)
        _, err = attached.communicate(timeout=300)
    assert attached.returncode == 130
    assert "continues" in err
    assert json.loads(shell("ps", "--json").stdout)[0]["status"] == "running"
    shell("stop", "--now", "r001")
    assert wait_ended(shell.folder()).outcome == "stopped"


def test_attach_brings_a_supervisor_back(shell: Shell, fifo: Fifo) -> None:
    shell("run", "--detach", "--", sys.executable, shell.script(WAIT), str(fifo.path))
    fifo.word()
    os.kill(supervisor_state(shell.folder()).supervisor.pid, signal.SIGKILL)
    with shell.start("logs", "-f", "--events", "--json", "r001") as attached:
        assert json.loads(line_of(attached.stdout))["kind"] == "launched"
        assert json.loads(shell("ps", "--json").stdout)[0]["status"] == "running"
        shell("stop", "--now", "r001")
        out, err = attached.communicate(timeout=300)
    assert attached.returncode == 143
    assert "supervisor is gone" in err
    assert json_lines(out)[-1]["kind"] == "finished"


def test_an_ended_run_tells_its_story_and_its_code(shell: Shell) -> None:
    shell("run", "--", sys.executable, shell.script("import sys; sys.exit(3)"))
    done = shell("logs", "-f", "--events", "r001")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith("launched")
    output = shell("logs", "--events", "r001")
    assert (output.returncode, output.stdout) == (0, done.stdout)
    assert shell("stop", "r001").stdout.startswith("The training ended with exit code 3")


def test_logs(shell: Shell) -> None:
    shell("run", "--", sys.executable, shell.script(r"print('\x1b[31mred'); print('10%\r90%'); print('open', end='')"))
    assert shell("logs", "r001").stdout == "red\n90%\nopen\n"
    lines = json_lines(shell("logs", "--json", "r001").stdout)
    assert [line["text"] for line in lines] == ["red", "90%", "open"]
    assert lines[0]["anchor"] == 0
    assert shell("logs", "-f", "r001").stdout == "red\n90%\nopen\n"


def test_logs_follow_until_the_end(shell: Shell, fifo: Fifo) -> None:
    script = "import sys\nprint('first', flush=True)\nopen(sys.argv[1]).readline()\nprint('last', flush=True)\n"
    shell("run", "--detach", "--", sys.executable, shell.script(script), str(fifo.path))
    with shell.start("logs", "-f", "r001") as following:
        assert line_of(following.stdout) == "first\n"
        fifo.path.write_text("go\n")
        out, _ = following.communicate(timeout=300)
    assert (following.returncode, out) == (0, "last\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_logs_are_left_by_a_signal(shell: Shell, fifo: Fifo, number: signal.Signals, code: int) -> None:
    script = "import sys\nprint('first', flush=True)\nopen(sys.argv[1]).readline()\n"
    shell("run", "--detach", "--", sys.executable, shell.script(script), str(fifo.path))
    with shell.start("logs", "-f", "r001") as following:
        assert line_of(following.stdout) == "first\n"
        following.send_signal(number)
        out, err = following.communicate(timeout=300)
    assert (following.returncode, out, err) == (code, "", "")
    fifo.path.write_text("go\n")


def test_a_script_as_an_argument_is_one_line_of_the_list(shell: Shell) -> None:
    shell("run", "--", sys.executable, "-c", "import sys\n\n# \x1b[31mred\nsys.exit(0)\n")
    lines = shell("ps").stdout.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in lines[1]


def test_no_runs_yet(shell: Shell) -> None:
    assert shell("ps").stdout == "No runs yet. `tuner-tui run -- COMMAND` starts one.\n"
    assert json.loads(shell("ps", "--json").stdout) == []


def test_settings_reach_the_command_and_the_record(shell: Shell) -> None:
    script = shell.script("import sys; print(sys.argv[1:])")
    bare = Path(sys.base_exec_prefix) / "bin" / "python3"  # no transformers to ask
    words = ("--interpreter", str(bare), "--set", "learning_rate=1e-4", "--", sys.executable, script)
    shell("run", *words, "lr={learning_rate}")
    assert shell("logs", "r001").stdout == "['lr=0.0001']\n"
    record = json.loads(shell.folder().record.read_text())
    assert record["origins"]["learning_rate"] == ["flag", "--set learning_rate"]
    assert record["job"]["apply"] == "placeholders"


def test_an_interpreter_that_is_no_python_is_asked_once(shell: Shell, tmp_path: Path) -> None:
    strange, asked = tmp_path / "python", tmp_path / "asked"
    strange.write_text(f"#!/bin/sh\necho asked >> {asked}\n")
    strange.chmod(0o755)
    done = shell("run", "--interpreter", str(strange), "--preset", "demo")
    assert (done.returncode, asked.read_text().split()) == (2, ["asked"]), done.stderr


def test_a_folder_that_cannot_hold_runs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "file" / "state"))
    said = invoke("ps").stdout
    assert "runs cannot be written to. Set TUNER_STATE_DIR to another folder." in " ".join(said.split())

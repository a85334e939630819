"""Notifications when a run ends: by a command, by the terminal, and targets that cannot work."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import TIMEOUT_S, Sandbox
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.core.text import terminal_notification
from tuner_tui.runs.launch.prepare import prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, write_supervisor_state
from tuner_tui.runs.supervise import notify


def ended(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "r007")
    folder.path.mkdir()
    done = SupervisorState(
        this_machine(), ProcessId(1, 1), 1.0, outcome="completed", sentence="All 3 steps; it's done."
    )
    write_supervisor_state(folder.state, done)
    return folder


def recording_command(tmp_path: Path) -> tuple[Path, Path]:
    """Return a notification command and the file that it records its arguments and environment in."""
    script, report = tmp_path / "notify me", tmp_path / "report"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump([sys.argv[1:], os.environ['TUNER_RUN'], os.environ['TUNER_OUTCOME']], open({str(report)!r}, 'w'))\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script, report


def test_a_command_gets_the_sentence_as_one_word_and_no_shell_sees_it(tmp_path: Path) -> None:
    script, report = recording_command(tmp_path)
    environ = {**os.environ, notify.NOTIFY_VARIABLE: f"'{script}' --loud $(false)"}
    assert notify.main(ended(tmp_path), environ) == 0
    words, run, outcome = json.loads(report.read_text())
    assert words == ["--loud", "$(false)", "r007 completed: All 3 steps; it's done."]
    assert (run, outcome) == ("r007", "completed")


def test_a_command_that_fails_is_a_sentence_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notify.main(ended(tmp_path), {notify.NOTIFY_VARIABLE: str(tmp_path / "missing")}) == 1
    assert "Notification failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "words"),
    [("no-such-command-here x", "no-such-command-here"), ("'open", "is not valid"), ("  ", "does not exist")],
)
def test_targets_that_cannot_work_are_refused_before_the_training_starts(target: str, words: str) -> None:
    sentence = notify.target_problem(target)
    assert sentence is not None
    assert words in sentence


def test_a_command_that_is_there_is_fine() -> None:
    assert notify.target_problem(f"{sys.executable} -c pass") is None


def test_the_supervisor_notifies_without_a_screen(box: Sandbox, tmp_path: Path) -> None:
    script, report = recording_command(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script.write_text(script.read_text().replace(str(report), str(fifo)))
    request = box.request("print('hello')")
    folder = launch(prepare(replace(request, environ={**request.environ, notify.NOTIFY_VARIABLE: f"'{script}'"})))
    heard = subprocess.run(["cat", str(fifo)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    assert json.loads(heard)[1] == folder.id


@pytest.mark.parametrize(
    ("environ", "written"),
    [
        ({"TERM": "xterm-256color"}, "\x1b]9;r007: done\a\a"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, "\x1bPtmux;\x1b\x1b]9;r007: done\a\x1b\\\a"),
        ({"TERM": "screen", "STY": "1.x"}, "\x1bP\x1b]9;r007: done\a\x1b\\\a"),
        ({"TERM": "vt100"}, "\a"),
        ({}, "\a"),
    ],
)
def test_escape_sequences_by_terminal(environ: dict[str, str], written: str) -> None:
    assert terminal_notification("r007: \x1b\ndone", environ) == written

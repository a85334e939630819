"""No text of others reaches the terminal with characters that control it, on a real terminal and in plain output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.screen.terminal import Terminal
from tests.cli.commands.test_run import Shell, shell
from tuner_tui.runs.events.types import Raised
from tuner_tui.runs.store.codec import encode_event

__all__ = ["shell"]

PROGRAM = [sys.executable, "-m", "tuner_tui"]
HOSTILE = "\x1b]0;owned\x07 \x9b31m \u202egnp.exe\u2066 \x1b[31m a\u200bb\u200dc\ufeff"
FORBIDDEN = (
    b"\x1b]0;",
    "\x9b".encode(),
    "\u202e".encode(),
    "\u2066".encode(),
    b"\x07",
    *map(str.encode, ("\u200b", "\u200d", "\ufeff")),
)
SLEEP = f"'{HOSTILE}'; import time; time.sleep(600)"


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TERM": "xterm-256color",
        "TUNER_STATE_DIR": str(folder / "s"),
        "XDG_CONFIG_HOME": str(folder),
    }


def forbidden_sequences(output: bytes) -> list[bytes]:
    return [sequence for sequence in FORBIDDEN if sequence in output]


def hostile_preset(folder: Path) -> None:
    presets = folder / "tuner-tui" / "presets"
    presets.mkdir(parents=True, mode=0o700)
    (presets / "p.yaml").write_text(
        'version: 1\nname: p\ndescription: "\\e]0;owned\\a \\u202egnp"\n'
        'job:\n  kind: command\n  command: [sh, "\\u202ex"]\n'
    )


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "--hardware", "--interpreter", f"/usr/bin/{HOSTILE}"),
        ("doctor", "--interpreter", HOSTILE),
        ("estimate", "--interpreter", HOSTILE, "demo"),
        ("run", "--preset", HOSTILE),
        ("run", "--set", f"{HOSTILE}=1", "--", "true"),
        ("run", "--apply", "none", "--", sys.executable, "-c", f"raise SystemExit({HOSTILE!r})", HOSTILE),
        ("stop", HOSTILE),
        ("logs", HOSTILE),
        ("diagnose", HOSTILE),
        ("diff", HOSTILE, "r001"),
        ("presets", "show", "p"),
        ("presets", "list"),
        ("presets", "export", "p", "--to", HOSTILE),
        (HOSTILE,),
        ("ps",),
    ],
)
def test_plain_output(shell: Shell, words: tuple[str, ...]) -> None:
    hostile_preset(shell.home)
    shell.environ["XDG_CONFIG_HOME"] = str(shell.home)
    done = shell(*words)
    assert forbidden_sequences((done.stdout + done.stderr).encode()) == []
    assert "Traceback" not in done.stderr


def test_what_a_failed_run_raised_is_shown_as_text(shell: Shell) -> None:
    raised = encode_event(Raised(t=1.0, type="ValueError", message=HOSTILE))
    script = shell.script(
        f"import os\nopen(os.environ['TUNER_RUN_DIR'] + '/events.jsonl', 'ab').write({raised!r})\n"
        f"raise SystemExit('error: ' + {HOSTILE!r})\n"
    )
    shell.environ["TUNER_STATE_DIR"] = "state"  # relative: as seen from the folder of the command
    output = shell("run", "--apply", "none", "--", sys.executable, script, HOSTILE)
    text = output.stdout + output.stderr
    for words in (["logs", "--events"], ["stop"], ["diff", "r001"], ["diagnose"], ["logs"]):
        done = shell(*words, "r001")
        text += done.stdout + done.stderr
    assert text.count("owned") > 3
    assert forbidden_sequences(text.encode()) == []


def test_the_watched_command_line_on_a_terminal(tmp_path: Path) -> None:
    watched = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        with Terminal([*PROGRAM, "watch", str(watched.pid)], environment(tmp_path), tmp_path) as terminal:
            output = b""
            deadline = time.monotonic() + 30
            while b"gnp.exe" not in output and time.monotonic() < deadline:
                output += terminal.read(0.2)
        assert b"gnp.exe" in output
        # The shape of the pointer is Textual's own.
        assert forbidden_sequences(output.replace(b"\x1b]22;default\x07", b"")) == []
    finally:
        watched.kill()
        watched.wait()


def test_the_notification_at_the_end_controls_the_terminal_and_is_no_text(tmp_path: Path) -> None:
    words = ["run", "--apply", "none", "--", sys.executable, "-c", f"raise SystemExit({HOSTILE!r})"]
    output = b""
    with Terminal([*PROGRAM, *words], environment(tmp_path), tmp_path) as terminal:
        while not terminal.ended:
            output += terminal.read(0.2)
    notifications = output.split(b"\x1b]9;r001: ")
    assert len(notifications) == 2
    assert b"]9;" not in notifications[0] + notifications[1]
    assert forbidden_sequences(notifications[0]) == []

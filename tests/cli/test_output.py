"""What a command says, whatever it was told by others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner_tui.cli.output import visible
from tuner_tui.runs.events.types import Raised
from tuner_tui.runs.store.codec import encode_event

PROGRAM = [sys.executable, "-m", "tuner_tui"]
TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain · é 日本 👩‍👧\n\ttab", "plain · é 日本 👩‍👧\n\ttab"),
        (TITLE, "\\x1b]0;owned\\x07"),
        ("a\rb\x9bc\x7f", "a\\rb\\x9bc\\x7f"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
    ],
)
def test_what_would_steer_the_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_neither_a_command_nor_its_exception_steers_the_terminal(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    raised = encode_event(Raised(t=1.0, type="ValueError", message=TITLE))
    script.write_text(
        f"import os\nopen(os.environ['TUNER_RUN_DIR'] + '/events.jsonl', 'ab').write({raised!r})\n"
        f"raise SystemExit('error: ' + {TITLE!r})\n"
    )
    environ = {**os.environ, "TUNER_STATE_DIR": "state"}  # relative: seen from where it was said

    def run(*words: str) -> str:
        done = subprocess.run([*PROGRAM, *words], cwd=tmp_path, env=environ, capture_output=True, text=True)
        return done.stdout + done.stderr

    said = run("run", "--apply", "none", "--", sys.executable, str(script), TITLE)
    assert said.count("\\x1b]0;owned\\x07") == 3  # in the command, the exception, and the end
    everything = said + run("attach", "r001") + run("stop", "r001") + run("ps") + run("diff", "r001", "r001")
    everything += run("diagnose", "r001") + run("logs", "r001")
    assert "Traceback" not in everything
    assert not any(char in everything for char in "\x1b\x07")

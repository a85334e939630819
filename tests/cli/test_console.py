"""What a command prints: control characters, other encodings, closed and full streams."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from tuner_tui.cli.console import wrapped
from tuner_tui.core.text import escape_control

TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain · é 日本 👩‍👧\n\ttab", "plain · é 日本 👩‍👧\n\ttab"),
        (TITLE, "\\x1b]0;owned\\x07"),
        ("a\rb\x9bc\x7f", "a\\rb\\x9bc\\x7f"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("ad\u200bmin\ufeff \xad\u2060", "ad\\u200bmin\\ufeff \\xad\\u2060"),
        ("a\u200db\u200c c\ufe0f \u3164", "a\\u200db\\u200c c\\ufe0f \\u3164"),
        ("\u034f\u17b4\u180e", "\\u034f\\u17b4\\u180e"),
        ("میخواهم नमस्ते ❤️‍🔥 👩🏽‍💻 é", "میخواهم नमस्ते ❤️‍🔥 👩🏽‍💻 é"),
        ("half \udc80", "half \\udc80"),
    ],
)
def test_what_would_steer_the_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert escape_control(text) == shown


COMMAND = [sys.executable, "-m", "tuner_tui"]
FULL = Path("/dev/full")


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TUNER_STATE_DIR": str(folder / "state"), "XDG_CONFIG_HOME": str(folder), **more}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("words", [["presets", "list"], ["watch", "--once"]])
def test_another_encoding_shows_what_it_can(words: list[str], encoding: str, tmp_path: Path) -> None:
    environ = environment(tmp_path, PYTHONIOENCODING=encoding)
    result = subprocess.run([*COMMAND, *words], env=environ, capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout


@pytest.mark.parametrize("words", [["presets", "list"], ["ps", "--json"], ["watch", "--once"]])
def test_a_reader_that_left_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [*COMMAND, *words], env=environment(tmp_path), stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [["presets", "list"], ["ps", "--json"], ["watch", "--once"]])
def test_a_full_disk_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    with FULL.open("w") as full:
        result = subprocess.run(
            [*COMMAND, *words], env=environment(tmp_path), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert result.stderr == "Standard output cannot be written: No space left on device.\n"


@pytest.mark.parametrize("words", [["ps"], ["logs", "r001"], ["recommend", "--json"], ["run", "--", "true"]])
def test_a_state_folder_that_cannot_be_looked_into_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    unreachable = tmp_path / ("n" * 300)  # no file system takes such a name; root may look into everything else
    environ = environment(tmp_path, TUNER_STATE_DIR=str(unreachable))
    result = subprocess.run([*COMMAND, *words], env=environ, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"{unreachable / 'runs'}: File name too long."
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere(closed: str, tmp_path: Path) -> None:
    words = ["run", "--apply", "none", "--detach", "--", "echo", "hello"]
    shell = ["sh", "-c", f'exec "$0" "$@" {closed}', *COMMAND, *words]
    result = subprocess.run(shell, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "r001\n")
    assert "Traceback" not in result.stderr
    assert (tmp_path / "state" / "runs" / "r001").is_dir()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_lines_end_between_words_and_paths_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    text = "in effect   learning_rate 0.0097\nsaved  /home/user/a/long/path/model.pt"
    assert wrapped(text, Terminal()).splitlines() == [
        "in effect",
        "learning_rate 0.0097",
        "saved",
        "/home/user/a/long/path/model.pt",
    ]
    assert wrapped(text, StringIO()) == text

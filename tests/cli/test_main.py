"""The words of the command line: which module answers, and what stands in a command's place."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.screen.first_paint import seconds_until
from tests.benchmarks.screen.peers import OURS, commands, fake_box, open_terminal
from tests.fakes.nvml.scenario import two_gpus
from tuner_tui import __version__
from tuner_tui.cli.commands import COMMANDS
from tuner_tui.cli.main import main
from tuner_tui.runs.log_parsing.failures import is_log
from tuner_tui.runs.store.folder import create_folder, runs_dir


def run_main(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `tuner-tui WORDS`."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(capsys, "--version") == (0, f"{__version__}\n", "")


def test_the_version_imports_no_command() -> None:
    script = (
        "import sys; from tuner_tui.cli.main import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: print(*(name for name in sys.modules if name.startswith('tuner_tui.cli.commands.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == [__version__, ""]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.log", "ready"),
        ("slurm-812.out", "ready"),
        ("output", "{'loss': '1.1', 'grad_norm': '0.3', 'epoch': '1'}\n"),
        ("pasted.txt", 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nKeyError: 1\n'),
        ("console", "[2026-03-01 10:00:01,123][train][ERROR] - no such split\n"),
    ],
)
@pytest.mark.parametrize("before", [[], ["doctor"]])
def test_a_log_is_diagnosed(
    before: list[str], name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    code, out, _ = run_main(capsys, *before, str(tmp_path / name), "--json")
    assert code == int(bool(before and json.loads(out)["findings"]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.yaml", "lr: 1e-4\nloss: 3\n"),
        ("train", "#!/bin/bash\npython a.py  # loss: 3\n"),
        ("notes.txt", "lr 1e-4\n"),
        ("justfile", "tune:\n    for i in 1 2; do\n        python tune.py $i\n    done\n"),
    ],
)
def test_a_configuration_a_script_or_prose_is_no_log(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert not is_log(tmp_path / name)


def test_help_names_every_command_but_the_hidden_screen(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_main(capsys, "--help")
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS if name != "screen")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("atach", "logs --follow --events"), ("attach r001 --json", "logs"), ("exprt demo --to hf", "presets export"),
        ("prests list", "presets"), ("recomend --jsn", "recommend"), ("--theme light detec", "doctor --hardware"),
        ("help", "--help"), ("--versoin", "--version"), ("presets lst", "list"), ("ps --jsn", "--json"),
        ("slurm sbmit", "submit"), ("logs r001 --evnts", "--events"), ("trian", "`tuner-tui run`"),
        ("statsu", "`tuner-tui ps`"), ("compare", "`tuner-tui diff`"), ("optimzed", "'optimized'"),
    ],
)  # fmt: skip
def test_a_misspelt_command_or_option_gets_the_nearest_one(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_main(capsys, *words.split())
    assert code == 2
    assert meant in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tuner-tui ru", {"run"}),
        ("tuner-tui dem", {"demo"}),
        ("tuner-tui run --preset rtx30", {"rtx3070-8gb", "rtx3090-24gb"}),
        ("tuner-tui run --set prec", {"precision="}),
        ("tuner-tui run --set precision=bf", {"precision=bf16"}),
        ("tuner-tui logs r00", {"r001", "r002"}),
        ("tuner-tui r00", {"r001", "r002"}),
    ],
)
def test_the_shell_completes(
    words: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    for _ in range(2):
        create_folder(runs_dir())
    monkeypatch.setenv("_TUNER_TUI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    result = run_main(capsys)[1].split()
    assert offered <= set(result)
    assert len(result) <= len(offered) + 2


UNNEEDED = ("libssl", "libcrypto", "/_ssl.", "/_hashlib.", "/pydantic_core/")
WITHOUT = """
import sys
from tuner_tui.cli.main import skip_openssl
skip_openssl()
import asyncio, hashlib
print([name for name in ("ssl", "_ssl", "_hashlib") if name in sys.modules], hashlib.sha256(b"").hexdigest()[:8])
import ssl
print(ssl.create_default_context().__class__.__name__)
"""


def test_asyncio_and_hashlib_load_without_openssl_which_can_be_imported_later() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[] e3b0c442", "SSLContext"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fake driver")
@pytest.mark.parametrize(("words", "seen"), [((), b"demo"), (("watch",), b"GiB")])
def test_a_screen_in_use_has_no_openssl_and_no_pydantic(words: tuple[str, ...], seen: bytes) -> None:
    command = [*commands()[OURS], *words]
    with fake_box(two_gpus) as (environment, folder), open_terminal(command, environment, folder) as terminal:
        seconds_until(terminal, lambda written: seen in written)
        maps = Path(f"/proc/{terminal.pid}/maps").read_text()
    assert [name for name in UNNEEDED if name in maps] == []

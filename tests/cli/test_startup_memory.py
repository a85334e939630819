"""Modules that the screen never uses are not loaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.screen.first_paint import seconds_until
from tests.benchmarks.screen.peers import OURS, commands, fake_box, open_terminal
from tests.fakes.nvml.scenario import two_gpus

OPENSSL = ("libssl", "libcrypto", "/_ssl.", "/_hashlib.")
WITHOUT = """
import sys
from tuner_tui.cli.startup_memory import skip_openssl
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
def test_a_screen_in_use_has_no_openssl(words: tuple[str, ...], seen: bytes) -> None:
    command = [*commands()[OURS], *words]
    with fake_box(two_gpus) as (environment, folder), open_terminal(command, environment, folder) as terminal:
        seconds_until(terminal, lambda written: seen in written)
        maps = Path(f"/proc/{terminal.pid}/maps").read_text()
    assert [name for name in OPENSSL if name in maps] == []

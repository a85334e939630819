"""What the screen never uses is not in its memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.screen.first_paint import seconds_until
from tests.benchmarks.screen.peers import OURS, commands, fake_box, opened
from tests.fakes.nvml.scenario import two_gpus

OPENSSL = ("libssl", "libcrypto", "/_ssl.", "/_hashlib.")
WITHOUT = """
import sys
from tuner_tui.cli.startup_memory import leave_out_openssl
leave_out_openssl()
import asyncio, hashlib
print([name for name in ("ssl", "_ssl", "_hashlib") if name in sys.modules], hashlib.sha256(b"").hexdigest()[:8])
import ssl
print(ssl.create_default_context().__class__.__name__)
"""

PUT_OFF = """
import sys
from tuner_tui.cli.startup_memory import put_off
put_off()
import textual.app, textual.command
from textual.suggestions import get_suggestions
import difflib
print("textual.widgets._tree" in sys.modules, difflib.__spec__ is not None)
print(get_suggestions("tre", ["tree", "leaf"], 1))
import difflib
print(difflib.SequenceMatcher.__name__)
from textual.types import IgnoreReturnCallbackType, DirEntry
print("textual.widgets._tree" in sys.modules, DirEntry.__name__)
from textual.types import CallbackType
import textual.types
print(hasattr(textual.types, "__path__"), hasattr(textual.types, "no such thing"))
"""

WITHOUT_PACKERS = """
import sys
from tuner_tui.cli.startup_memory import leave_out_packers
leave_out_packers()
import shutil
print([name for name in ("bz2", "lzma", "_bz2", "_lzma") if name in sys.modules], len(shutil.get_archive_formats()) > 0)
import bz2
print(bz2.decompress(bz2.compress(b"kept")))
"""

WITHOUT_PLUGINS = """
import sys
from tuner_tui.cli.startup_memory import leave_out_pydantic_plugins
leave_out_pydantic_plugins()
from tuner_tui.settings.model import Settings
print(Settings(per_device_train_batch_size=8).per_device_train_batch_size, "importlib.metadata" in sys.modules)
"""


def test_models_are_built_without_looking_for_plugins() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PLUGINS], capture_output=True, text=True, check=True)
    assert done.stdout == "8 False\n"


def test_asyncio_and_hashlib_do_without_openssl_and_it_can_be_had_later() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[] e3b0c442", "SSLContext"]


def test_modules_that_are_put_off_come_when_more_is_asked_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", PUT_OFF], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n['tree']\nSequenceMatcher\nTrue DirEntry\nFalse False\n"


def test_shutil_does_without_packers_and_they_can_be_had_later() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKERS], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\nb'kept'\n"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fake driver")
@pytest.mark.parametrize(("words", "seen"), [((), b"demo"), (("watch",), b"GiB")])
def test_a_screen_in_use_has_no_openssl(words: tuple[str, ...], seen: bytes) -> None:
    command = [*commands()[OURS], *words]
    with fake_box(two_gpus) as (environment, folder), opened(command, environment, folder) as terminal:
        seconds_until(terminal, lambda written: seen in written)
        maps = Path(f"/proc/{terminal.pid}/maps").read_text()
    assert [name for name in OPENSSL if name in maps] == []

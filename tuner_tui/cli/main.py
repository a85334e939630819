"""Entry point of the command line: imports the module of the command; the name of a preset or run opens the screen.

Only the module of the command asked for is imported, so that `ps` does not pay for what `run` needs, and the screen
without options pays for none of them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from tuner_tui.cli.commands import COMMANDS
from tuner_tui.cli.console import ExitCode, fail, protect_streams, reopen_closed_streams, report_io_errors

GLOBAL_FLAGS = ("--help", "--version", "--install-completion", "--show-completion")


def main(argv: list[str] | None = None) -> None:
    """Run `tuner-tui`. Without a command, or with a preset or run in its place, open the screen."""
    reopen_closed_streams()
    protect_streams()
    try:
        with report_io_errors():
            dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None


def dispatch(words: list[str]) -> None:
    """Run the command in `words`, or open the screen."""
    if "_TUNER_TUI_COMPLETE" in os.environ:  # by the completion script of the shell, with its words
        from tuner_tui.cli.options import build_app

        build_app()([], prog_name="tuner-tui")
    for word in words:
        if any("\udc80" <= character <= "\udcff" for character in word):  # how Python shows bytes that are no text
            fail(f"{word!a} is not valid UTF-8; settings, run folders and JSON hold text only. Rename the file.")
    if words[:1] == ["--"] and words[1:]:  # a command, as `run` takes it
        words = ["run", *words]
    if _asks_about_log(words):
        words = ["diagnose", *words]
    if words in ([], ["demo"], ["watch"]) and sys.stdin.isatty() and sys.stdout.isatty():
        open_at_once(words)
    if opens_screen(words) or words[0] in ("screen", "watch"):
        reduce_startup_memory()  # before Textual is imported
    if opens_screen(words):
        from tuner_tui.cli.screen_opener import open_named

        open_named(words[0] if words else None)
    if words[:1] == ["watch"] and not any(word.startswith("-") for word in words):
        from tuner_tui.cli.machine_watcher import open_watch

        open_watch(words[1:])
    if words[0] not in (*COMMANDS, *GLOBAL_FLAGS) and not _is_misspelt_flag(words[0]):
        if not words[0].startswith("-"):
            from tuner_tui.cli.screen_opener import resolve_name

            resolve_name(words[0])  # otherwise the words behind a misspelt command would be the ones complained about
        words = ["screen", *words]
    from tuner_tui.cli.options import build_app

    build_app()(words, prog_name="tuner-tui")


def open_at_once(words: list[str]) -> None:
    """Open the main screen or `watch`; the first frame is there before the rest of the screen is imported."""
    from tuner_tui.ui.terminal.first_frame import first_frame, screen_panels, watch_panels

    if words == ["watch"]:
        with first_frame(watch_panels, "Jobs"):
            reduce_startup_memory()
            from tuner_tui.cli.watch_opener import open_machine_screen

            open_machine_screen()
    with first_frame(screen_panels, "1 Settings"):
        reduce_startup_memory()
        from tuner_tui.cli.screen_opener import open_named

        open_named(words[0] if words else None)


def _asks_about_log(words: list[str]) -> bool:
    """Whether `words` are the output of a training."""
    names = [word for word in words if not word.startswith("-")]
    if len(names) != 1 or names[0] in COMMANDS or not os.path.isfile(names[0]):  # noqa: PTH113  before the first frame
        return False
    from pathlib import Path

    from tuner_tui.runs.log_parsing.failures import is_log

    return is_log(Path(names[0]))


def _is_misspelt_flag(word: str) -> bool:
    from tuner_tui.settings.model import closest_match

    return word.startswith("-") and closest_match(word, GLOBAL_FLAGS, cutoff=0.8) is not None


def opens_screen(words: list[str]) -> bool:
    """True if `words` are empty or one name, or `demo` on a terminal: the screen opens without importing Typer."""
    if words == ["demo"]:
        return sys.stdin.isatty() and sys.stdout.isatty()
    return not words or (len(words) == 1 and words[0] not in COMMANDS and not words[0].startswith("-"))


OPENSSL = ("ssl", "_hashlib")
OPENSSL_USERS = ("asyncio", "hashlib", "hmac")
BUILTIN_HASHES = (("_md5",), ("_sha1",), ("_sha2", "_sha512"), ("_sha3",), ("_blake2",))
M_ARENA_MAX = -8
"""A parameter of glibc's mallopt(3)."""


def reduce_startup_memory() -> None:
    """Do without OpenSSL, and make all threads share one heap. Call it before Textual and asyncio are imported."""
    import ctypes

    skip_openssl()
    # By default each thread gets an arena whose memory is never returned. Python's lock makes contention unlikely.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc
        mallopt(M_ARENA_MAX, 1)


def skip_openssl() -> None:
    """Import asyncio and hashlib without OpenSSL, for which both have fallbacks. The screen opens no connections.

    Does nothing where OpenSSL is loaded already or Python lacks its own hashes. `import ssl` works again afterwards.
    """
    hashes_built_in = all(any(find_spec(name) for name in names) for names in BUILTIN_HASHES)
    if any(name in sys.modules for name in OPENSSL) or not hashes_built_in:
        return
    modules = cast("dict[str, Any]", sys.modules)
    modules.update(dict.fromkeys(OPENSSL))  # None makes an import fail
    try:
        for user in OPENSSL_USERS:
            import_module(user)
    finally:
        for name in OPENSSL:
            del modules[name]

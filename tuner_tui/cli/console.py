"""What a command prints and how it ends: results on standard output, messages on standard error, exit codes."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, NoReturn

DONE, FAILED, USAGE, OUT_OF_MEMORY, ALREADY_RUNNING, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def escape_control(text: str) -> str:
    r"""The text with control characters and changes of direction spelled out, as `\x1b`; line ends and tabs stay.

    Commands, presets and what a training raised may hold what would steer the terminal.
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def fail(sentence: str, code: int = USAGE) -> NoReturn:
    """Say what is wrong and end."""
    print_note(sentence)
    raise SystemExit(code)


def print_note(sentence: str) -> None:
    """Tell the person something that is not the result."""
    sys.stderr.write(escape_control(sentence) + "\n")


def print_text(text: str) -> None:
    """A result for a person."""
    print_line(escape_control(text))


def print_json(data: Any) -> None:
    """The one JSON document of a command."""
    print_line(json.dumps(data, indent=2))


def print_line(text: str) -> None:
    """One line of a stream, out at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


ASCII_FALLBACK = str.maketrans(
    {"·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "→": "->", "≥": ">=", "≤": "<="}
)
ERROR_HANDLER = "tuner_tui.plain"
WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def reopen_closed_streams() -> None:
    """Let a standard stream that was closed (`>&-`, a daemon's) lead nowhere.

    Python has none for it then, and the next file that is opened would get its number, and be written to by children.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def allow_any_encoding() -> None:
    """Let a stream of another encoding than UTF-8 show what it can; it would raise `UnicodeEncodeError`."""
    codecs.register_error(ERROR_HANDLER, _encode_fallback)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=ERROR_HANDLER)


@contextmanager
def report_io_errors() -> Iterator[None]:
    """End with one sentence where the system refuses: standard output on a full disk, a folder that is not ours."""
    try:
        yield
    except BrokenPipeError:
        _discard_stdout()
        raise SystemExit(FAILED) from None
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}.")
        if error.errno not in WRITE_ERRORS:
            raise
        _discard_stdout()
        sys.stderr.write(f"Standard output cannot be written: {error.strerror}.\n")
        raise SystemExit(FAILED) from None


def _discard_stdout() -> None:
    """What is still in the buffer goes nowhere; Python would complain of it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _encode_fallback(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(ASCII_FALLBACK)
    return text.encode("ascii", "replace").decode("ascii"), error.end

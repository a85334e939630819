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
    r"""Return the text with control characters and direction overrides escaped, as `\x1b`; line ends and tabs stay.

    Commands, presets and exceptions of a training may contain sequences that control the terminal.
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def fail(sentence: str, code: int = USAGE) -> NoReturn:
    """Print `sentence` to standard error and exit with `code`."""
    print_note(sentence)
    raise SystemExit(code)


def print_note(sentence: str) -> None:
    """Print a message to standard error."""
    sys.stderr.write(escape_control(sentence) + "\n")


def print_text(text: str) -> None:
    """Print a result as text, with control characters escaped."""
    print_line(escape_control(text))


def print_json(data: Any) -> None:
    """Print the JSON document of a command."""
    print_line(json.dumps(data, indent=2))


def print_line(text: str) -> None:
    """Print one line and flush it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


ASCII_FALLBACK = str.maketrans(
    {"·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "→": "->", "≥": ">=", "≤": "<="}
)
ERROR_HANDLER = "tuner_tui.plain"
WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def reopen_closed_streams() -> None:
    """Open standard streams that are closed (`>&-`, daemons) on the null device.

    Otherwise the next file opened would get their descriptor, and child processes would write into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def allow_any_encoding() -> None:
    """Replace characters that the encoding of a stream lacks, instead of raising `UnicodeEncodeError`."""
    codecs.register_error(ERROR_HANDLER, _encode_fallback)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=ERROR_HANDLER)


@contextmanager
def report_io_errors() -> Iterator[None]:
    """Exit with one sentence on a closed pipe, a full disk or a file without permission."""
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
    """Discard what is still buffered, which Python would otherwise fail to write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _encode_fallback(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(ASCII_FALLBACK)
    return text.encode("ascii", "replace").decode("ascii"), error.end

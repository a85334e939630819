"""Standard output and error as any terminal, pipe or file takes them; what the system refuses, in a sentence."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from tuner_tui.cli.output import FAILED, fail

PLAIN = str.maketrans({"·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "→": "->", "≥": ">=", "≤": "<="})
HANDLER = "tuner_tui.plain"
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def open_closed() -> None:
    """Let a standard stream that was closed (`>&-`, a daemon's) lead nowhere.

    Python has none for it then, and the next file that is opened would get its number, and be written to by children.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def take_any_text() -> None:
    """Let a stream of another encoding than UTF-8 show what it can; it would raise `UnicodeEncodeError`."""
    codecs.register_error(HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


@contextmanager
def said_when_refused() -> Iterator[None]:
    """End with one sentence where the system refuses: standard output on a full disk, a folder that is not ours."""
    try:
        yield
    except BrokenPipeError:
        _close_quietly()
        raise SystemExit(FAILED) from None
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}.")
        if error.errno not in NO_ROOM:
            raise
        _close_quietly()
        sys.stderr.write(f"Standard output cannot be written: {error.strerror}.\n")
        raise SystemExit(FAILED) from None


def _close_quietly() -> None:
    """What is still in the buffer goes nowhere; Python would complain of it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(PLAIN)
    return text.encode("ascii", "replace").decode("ascii"), error.end

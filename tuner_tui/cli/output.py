"""What every command says and how it ends: results on standard output, the rest on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

DONE, FAILED, USAGE, OUT_OF_MEMORY, ALREADY_RUNNING, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143


def fail(sentence: str, code: int = USAGE) -> NoReturn:
    """Say what is wrong and end."""
    note(sentence)
    raise SystemExit(code)


def note(sentence: str) -> None:
    """Tell the person something that is not the result."""
    sys.stderr.write(sentence + "\n")


def document(data: Any) -> None:
    """The one JSON document of a command."""
    line(json.dumps(data, indent=2))


def line(text: str) -> None:
    """One line of a stream, out at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

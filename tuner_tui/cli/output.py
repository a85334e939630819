"""What every command says and how it ends: results on standard output, the rest on standard error."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NoReturn

DONE, FAILED, USAGE, OUT_OF_MEMORY, ALREADY_RUNNING, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""The text with control characters and changes of direction spelled out, as `\x1b`; line ends and tabs stay.

    Commands, presets and what a training raised may hold what would steer the terminal.
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def fail(sentence: str, code: int = USAGE) -> NoReturn:
    """Say what is wrong and end."""
    note(sentence)
    raise SystemExit(code)


def note(sentence: str) -> None:
    """Tell the person something that is not the result."""
    sys.stderr.write(visible(sentence) + "\n")


def say(text: str) -> None:
    """A result for a person."""
    line(visible(text))


def document(data: Any) -> None:
    """The one JSON document of a command."""
    line(json.dumps(data, indent=2))


def line(text: str) -> None:
    """One line of a stream, out at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

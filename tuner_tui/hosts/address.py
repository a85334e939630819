"""Names of hosts, checked so that none can be an option of ssh or a command of a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner_tui.core.text import escape_control

# A name that begins with a dash would be an option of ssh; blanks, quotes and % would be expanded on the way.
_HOST = re.compile(r"((?:\w[\w.+-]{0,63}@)?\w[\w.-]{0,252})(?::(\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Host:
    """A host as ssh takes it: `destination` is `[user@]name`, or an alias of the ssh configuration."""

    destination: str
    port: int | None = None

    @property
    def name(self) -> str:
        return self.destination if self.port is None else f"{self.destination}:{self.port}"


def parse_host(word: str) -> Host:
    """Parse `[user@]name[:port]`. Raises `ValueError`."""
    match = _HOST.fullmatch(word)
    if match is None or not 0 < int(match[2] or 22) < 65_536:
        shown = escape_control(word[:80])
        raise ValueError(f"{shown!r} is not a host: use a name of your ssh configuration, or user@name:port.")
    return Host(match[1], None if match[2] is None else int(match[2]))

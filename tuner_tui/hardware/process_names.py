"""Command and user of a process that the driver names by its pid alone."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

from tuner_tui.hardware.host_meter import read_text
from tuner_tui.hardware.inventory import GpuProcess


def named(process: GpuProcess, proc: Path = Path("/proc")) -> GpuProcess:
    """The process with its command line and user, as far as this user may know them."""
    folder = proc / str(process.pid)
    words = read_text(folder / "cmdline").rstrip("\0").split("\0")
    command = " ".join(words) or read_text(folder / "comm").strip() or None
    return replace(process, command=command, user=user_of(folder))


def user_of(folder: Path) -> str | None:
    """The owner's name, or number where the box has no name for it."""
    try:
        owner = os.stat(folder).st_uid  # noqa: PTH116
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)
    except OSError:
        return None

"""Who holds the port that a launcher could not listen on, looked up when the training has failed."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from tuner_tui.core.redaction import redact_argv

TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
PORT = re.compile(r"port:? `?(\d{2,5})\b|\[?[\w.:]*\]?:(\d{4,5})\b")
LISTENING = "0A"
"""State of a listening socket in `/proc/net/tcp`."""
MAX_COMMAND_CHARS = 120


def taken_port_evidence(log_tail: str) -> tuple[str, ...]:
    """What a log that says that a port is taken does not: the process that holds it, and a port that is free."""
    port = next((found for line in log_tail.splitlines() if TAKEN.search(line) and (found := _port(line))), None)
    if port is None:
        return ()
    holder = next(_holders(port), None)
    held = f"port {port} is used by {holder}" if holder else f"no visible process uses port {port} now"
    free = _free_port()
    return (held, *(() if free is None else (f"port {free} is free",)))


def _port(line: str) -> int | None:
    found = PORT.search(line)
    return None if found is None else int(found[1] or found[2])


def _holders(port: int) -> Iterator[str]:
    """The processes that listen on `port`: pid, command and, if it belongs to one, the run."""
    inodes = {f"socket:[{inode}]" for name in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / name, port)}
    if not inodes:
        return
    for process in Path("/proc").glob("[0-9]*"):
        try:
            holds = any(str(each.readlink()) in inodes for each in (process / "fd").iterdir())
            command = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if holds:
            words = " ".join(" ".join(redact_argv(tuple(command))).split())
            run = _run_of(process)
            yield f"process {process.name}{f' of run {run}' if run else ''} ({words[:MAX_COMMAND_CHARS]})"


def _listening(table: Path, port: int) -> Iterator[str]:
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _run_of(process: Path) -> str | None:
    try:
        found = re.search(rb"(?:^|\0)TUNER_RUN_DIR=([^\0]+)", (process / "environ").read_bytes())
    except OSError:
        return None
    return None if found is None else Path(os.fsdecode(found[1])).name


def _free_port() -> int | None:
    try:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])
    except OSError:
        return None

"""Processes that outlive their training; found because the supervisor is their subreaper."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from dataclasses import dataclass

from tuner_tui.core.procfs import ProcessStat, descendants, read_command, session_members
from tuner_tui.core.redaction import redact_argv

PR_SET_CHILD_SUBREAPER = 36
MAX_COMMAND_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Orphans:
    """Processes left by a training: `own` belong to it (its session, or observed), `detached` started their own
    session."""

    own: tuple[ProcessStat, ...] = ()
    detached: tuple[ProcessStat, ...] = ()

    def names(self) -> str:
        """Pids and commands in one line; empty if there are none."""
        orphans = (*self.own, *self.detached)
        commands = {one.pid: " ".join(redact_argv(read_command(one.pid)))[:MAX_COMMAND_LENGTH] for one in orphans[:3]}
        named = ", ".join(f"{pid} ({command})" for pid, command in commands.items())
        return named + (f" and {len(orphans) - 3} more" if len(orphans) > 3 else "")


def become_subreaper() -> bool:
    """Make orphans of the training children of this process, not of init. False if the kernel refuses."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def find_orphans(session: int, observed: Collection[int]) -> Orphans:
    """The living processes left by a training of `session`: members of the session, and descendants of this process.

    The kernel does not reuse the id of a session while it has members.
    """
    below = {stat.pid: stat for stat in descendants(os.getpid())}
    own = {stat.pid: stat for stat in session_members(session)}
    own |= {pid: stat for pid, stat in below.items() if pid in observed}
    detached = tuple(stat for pid, stat in below.items() if pid not in own)
    return Orphans(tuple(own.values()), detached)

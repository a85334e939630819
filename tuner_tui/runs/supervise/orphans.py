"""Processes that outlive their training; found because the supervisor is their subreaper."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from dataclasses import dataclass

from tuner_tui.core.procfs import ProcessStat, descendants, read_command, session_members

PR_SET_CHILD_SUBREAPER = 36
MAX_COMMAND_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Orphans:
    """`own` belong to the training (its session, or observed in it); `apart` made themselves independent."""

    own: tuple[ProcessStat, ...] = ()
    apart: tuple[ProcessStat, ...] = ()

    def names(self) -> str:
        """Pid and command of each orphan; empty without any."""
        orphans = (*self.own, *self.apart)
        commands = {one.pid: " ".join(read_command(one.pid))[:MAX_COMMAND_LENGTH] for one in orphans[:3]}
        named = ", ".join(f"{pid} ({command})" for pid, command in commands.items())
        return named + (f" and {len(orphans) - 3} more" if len(orphans) > 3 else "")


def become_subreaper() -> bool:
    """Orphans of the training come to this process instead of to init. False where the kernel refuses."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def find_orphans(session: int, observed: Collection[int]) -> Orphans:
    """The living processes that a training of `session` leaves: those of its session, and those below this process.

    A session's number is not given to another while any process is in it.
    """
    below = {stat.pid: stat for stat in descendants(os.getpid())}
    own = {stat.pid: stat for stat in session_members(session)}
    own |= {pid: stat for pid, stat in below.items() if pid in observed}
    apart = tuple(stat for pid, stat in below.items() if pid not in own)
    return Orphans(tuple(own.values()), apart)

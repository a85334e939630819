"""Looking at a training that has just ended: how, and whether the kernel killed it for memory."""

from __future__ import annotations

import signal
from pathlib import Path

from tuner_tui.runs.events import Exited
from tuner_tui.runs.evidence import cgroup_kills, kernel_log_kill, log_says_killed
from tuner_tui.runs.training import ExitStatus

SHELL_KILLED = 128 + signal.SIGKILL
"""The exit code of a shell whose command was killed."""


class PostMortem:
    """Remembers what the cgroup had counted before, so that the difference is the training's."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._kills_before = cgroup_kills()

    def examine(self, pid: int, ended: ExitStatus, now: float) -> Exited:
        """The event of the end of process `pid`, with the evidence there is."""
        kills = cgroup_kills()
        counted = kills is not None and self._kills_before is not None and kills > self._kills_before
        line = kernel_log_kill(pid) if ended.signal == signal.SIGKILL else None
        evidence = (["the cgroup counted a kill for memory"] if counted else []) + ([line] if line else [])
        killed = line is not None or (counted and self._was_killed(ended))
        return Exited(
            t=now,
            exit_code=ended.exit_code,
            signal=ended.signal,
            oom_kill=killed if kills is not None or line is not None else None,
            evidence=tuple(evidence),
        )

    def _was_killed(self, ended: ExitStatus) -> bool:
        """Whether the training, or a process it needs, was killed: told by its exit, a shell's, or its own words."""
        if ended.signal == signal.SIGKILL or ended.exit_code == SHELL_KILLED:
            return True
        return ended.exit_code != 0 and log_says_killed(self._log)

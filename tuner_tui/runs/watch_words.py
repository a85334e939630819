"""The words for a watched job, the same on the screen and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.hardware.processes.process_roles import Role, program_name
from tuner_tui.runs.box_watch import WatchedJob

QUIET_FLAGS = frozenset({"-u", "-O", "-I", "-P", "-B", "-E", "-s"})
"""Switches of the interpreter that say nothing about the job."""


def brief_command(command: Sequence[str]) -> str:
    """A command line as a person says it: programs and scripts without their folders, switches of Python left out."""
    if not command:
        return ""
    words = [program_name(command[0]), *command[1:]]
    if words[0].startswith("python"):
        rest = [word for word in words[1:] if word not in QUIET_FLAGS]
        if rest and not rest[0].startswith("-"):
            script = program_name(rest[0])
            return " ".join([script, *rest[1:]] if not script.endswith(".py") else ["python", script, *rest[1:]])
        words = ["python", *rest]
    return " ".join(" ".join(words).split())


def card_list(gpus: Sequence[int]) -> str:
    """`0–7` for neighbours, else `0,2,5`; empty for none."""
    if len(gpus) > 1 and gpus[-1] - gpus[0] == len(gpus) - 1:
        return f"{gpus[0]}–{gpus[-1]}"
    return ",".join(map(str, gpus))


def crew(job: WatchedJob) -> str:
    """Who works for a job: `8 + 64 workers`, `1 + 4 workers + 2 others`, `1`."""
    count = {role: sum(process.role == role.value for process in job.processes) for role in Role}
    parts = [str(count[Role.MAIN])] if count[Role.MAIN] else []
    for role, word in ((Role.WORKER, "worker"), (Role.OTHER, "other")):
        if count[role]:
            parts.append(f"{count[role]} {word}{'s' if count[role] > 1 else ''}")
    return " + ".join(parts)

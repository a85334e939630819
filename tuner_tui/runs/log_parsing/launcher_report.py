"""Parses what torchrun, accelerate, DeepSpeed and `mp.spawn` report: the first failed rank and its exit."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.runs.log_parsing.lines import LogLine

ROOT_CAUSE = re.compile(r"^\s*Root Cause \(first observed failure\)")
RANK = re.compile(r"^\s*rank\s+: (?P<rank>\d+)")
EXIT = re.compile(r"^\s*exitcode\s+: (?P<code>-?\d+)")
FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
DEEPSPEED = re.compile(r"exits with return code = (?P<code>-?\d+)")
DIED = re.compile(r"died with <Signals\.(?P<signal>SIG[A-Z]+): \d+>")
SPAWNED = re.compile(r"process (?P<rank>\d+) terminated with signal (?P<signal>SIG[A-Z]+)")
LAUNCHER_TYPES = re.compile(
    r"(?:ChildFailedError|ProcessExitedException|ProcessRaisedException|SystemExit|RayTaskError\S*|ProcessFailure)$"
)
LAUNCHER_COMMAND = re.compile(
    r"CalledProcessError: Command '?\['[^']*(?:python[\d.]*|accelerate|torchrun|deepspeed)(?:\.exe)?'"
)


@dataclass(frozen=True, slots=True)
class LauncherReport:
    """The rank that failed first and its exit; `spoke`: whether any launcher reported a failure."""

    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    spoke: bool = False


def parse_launcher_report(lines: Sequence[LogLine]) -> LauncherReport:
    """The first failed process, as torchrun, accelerate, DeepSpeed or `mp.spawn` reports it."""
    rank, code, number = None, None, None
    in_root = False
    for line in lines:
        in_root = in_root or ROOT_CAUSE.match(line.text) is not None
        if in_root and (found := RANK.match(line.text)):
            rank = int(found["rank"])
        if in_root and (found := EXIT.match(line.text)):
            code = int(found["code"])
        if (found := FAILED.search(line.text)) and code is None:
            code, rank = int(found["code"]), rank if rank is not None else int(found["rank"])
        elif (found := DEEPSPEED.search(line.text)) and code is None:
            code = int(found["code"])
        elif (found := DIED.search(line.text) or SPAWNED.search(line.text)) and number is None:
            number = _signal_number(found["signal"])
    spoke = code is not None or number is not None or in_root
    return (
        LauncherReport(rank, None, -code, spoke)
        if code is not None and code < 0
        else LauncherReport(rank, code, number, spoke)
    )


def is_launcher_error(type_name: str | None, headline: str) -> bool:
    """Whether an exception only reports that a child process failed."""
    return bool(type_name and LAUNCHER_TYPES.search(type_name)) or bool(LAUNCHER_COMMAND.search(headline))


def _signal_number(name: str) -> int | None:
    try:
        return int(signal.Signals[name])
    except KeyError:
        return None

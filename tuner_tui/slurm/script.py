"""The options of a job and its sbatch script. The script names the run folder only: no command and no secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner_tui.core.redaction import redact_text
from tuner_tui.slurm.commands import SlurmError
from tuner_tui.slurm.jobs import LOG_FILE

LIMIT_SIGNAL = "USR2"
"""Sent before the time limit. Not TERM, which a job gets that is cancelled: that one must not be requeued."""
LEAD_S = 120
"""Seconds before the time limit at which the training is asked to save and stop."""
OWN_OPTIONS = ("output", "error", "open-mode", "signal")
"""Set by this program; what the user gives in their place is refused."""
UNSUPPORTED = ("array", "clusters", "input", "wrap", "wait", "parsable", "test-only", "export-file", "help", "version")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class SlurmOptionError(SlurmError):
    """An option of sbatch that cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """Options of sbatch by their long names; the value None stands for a flag such as `--exclusive`."""

    values: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """The number of nodes; of a range such as `2-4` the smaller."""
        first = (self.values.get("nodes") or "1").partition("-")[0]
        return max(1, int(first)) if first.isdecimal() else 1

    @property
    def requeues(self) -> bool:
        """Whether the job goes on after its time limit, from the checkpoint that it has saved there."""
        return "no-requeue" not in self.values


def parse_options(named: Mapping[str, str | None], others: Sequence[str]) -> SlurmOptions:
    """Options of the command line: those with a name of their own, and `KEY=VALUE` or `KEY`.

    Raises `SlurmOptionError`.
    """
    values: dict[str, str | None] = {name: value for name, value in named.items() if value is not None}
    for word in others:
        name, equals, text = word.removeprefix("--").partition("=")
        values[name] = text if equals else None
    for name, value in values.items():
        _check_option(name, value)
    return SlurmOptions(values)


def _check_option(name: str, value: str | None) -> None:
    if not _NAME.fullmatch(name):
        raise SlurmOptionError(f"{name!r} is not the long name of an option of sbatch, such as account=PROJECT.")
    if name in OWN_OPTIONS or name in UNSUPPORTED:
        raise SlurmOptionError(f"The option --{name} of sbatch cannot be set here.")
    if value is not None and (_CONTROL.search(value) or redact_text(f"{name}={value}") != f"{name}={value}"):
        raise SlurmOptionError(f"The value of --{name} contains a secret or a control character.")


def render_script(options: SlurmOptions, run: Path, argv: Sequence[str]) -> str:
    """The script of the job of the run in the folder `run`, which executes `argv`. Raises `SlurmOptionError`."""
    if _CONTROL.search(str(run)):
        raise SlurmOptionError(f"Slurm cannot write to the folder {str(run)!r}: its name has a control character.")
    values: dict[str, str | None] = {
        "job-name": run.name,
        "output": str(run / LOG_FILE).replace("%", "%%"),
        "open-mode": "append",
        "signal": f"B:{LIMIT_SIGNAL}@{LEAD_S}",
        **({"requeue": None} if options.requeues else {}),
        **({"ntasks-per-node": "1"} if options.nodes > 1 else {}),
        **options.values,
    }
    lines = [f"#SBATCH --{name}" + ("" if value is None else f"={_quoted(value)}") for name, value in values.items()]
    return "\n".join(["#!/bin/sh", *lines, f"exec {shlex.join(argv)}", ""])


def _quoted(value: str) -> str:
    """The value as sbatch reads it in a script: in quotes, in which a backslash makes the next character literal."""
    if re.fullmatch(r"[\w@%+=:,./-]+", value, re.ASCII):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

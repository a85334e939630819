"""Notifies the user that a run has ended: `python -m tuner_tui.runs.supervise.notify DIR`, started by the supervisor.

`TUNER_NOTIFY` is a command, which gets the sentence as its last argument and details in its environment. It runs in a
separate process, because networks are slow.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tuner_tui.core.child_process import run_command
from tuner_tui.core.redaction import redact_text
from tuner_tui.runs.store.folder import RunFolder, read_supervisor_state

NOTIFY_VARIABLE = "TUNER_NOTIFY"
NOTIFY_TIMEOUT_S = 120.0


def target_problem(target: str) -> str | None:
    """What is wrong with a command, in a sentence; None if it can be used."""
    try:
        words = shlex.split(target)
    except ValueError as error:
        return f"The notification command is not valid: {error}."
    if not words or shutil.which(words[0]) is None:
        return f"The notification command {target.strip() or target!r} does not exist."
    return None


def start_notifying(folder: RunFolder, environ: Mapping[str, str]) -> None:
    """Start the process that notifies, if a target is set; errors go to the supervisor's log."""
    target = environ.get(NOTIFY_VARIABLE)
    if not target:
        return
    command = [sys.executable, "-P", "-m", "tuner_tui.runs.supervise.notify", str(folder.path)]
    try:
        subprocess.Popen(
            command,
            env={**os.environ, NOTIFY_VARIABLE: target},
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    except OSError as error:
        sys.stderr.write(f"Notification failed: {error}\n")


def main(folder: RunFolder, environ: Mapping[str, str]) -> int:
    """Notify; return 0 on success."""
    supervision = read_supervisor_state(folder.state)
    target = environ.get(NOTIFY_VARIABLE, "")
    if supervision is None or not target:
        return 2
    sentence = f": {redact_text(supervision.sentence)}" if supervision.sentence else ""
    text = f"{folder.id} {supervision.outcome or 'ended'}{sentence}"
    details = {"TUNER_RUN": folder.id, "TUNER_RUN_FOLDER": str(folder.path), "TUNER_OUTCOME": supervision.outcome or ""}
    try:
        done = run_command([*shlex.split(target), text], NOTIFY_TIMEOUT_S, env={**environ, **details})
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"Notification failed: {error}\n")
        return 1
    sys.stderr.write((done.output + done.errors).decode("utf-8", "replace"))
    return done.exit_code


if __name__ == "__main__":
    sys.exit(main(RunFolder(Path(sys.argv[1])), os.environ))

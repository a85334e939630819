"""The commands of Slurm that this program runs: bounded in time and output, without a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

TIMEOUT_S = 15.0
"""Seconds to wait; with the controller down, Slurm's commands try for a minute."""
MAX_OUTPUT_BYTES = 4 << 20


class SlurmError(Exception):
    """Slurm did not do what it was asked; the message is one sentence."""


SlurmRunner = Callable[[Sequence[str]], str]
"""Runs a command of Slurm and returns its output. Raises `SlurmError`."""


def run_slurm(
    command: Sequence[str],
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Run an installed command in the folder `cwd` and with the environment `environ`; None: those of this process.

    Raises `SlurmError`.
    """
    env = dict(os.environ if environ is None else environ)
    program = shutil.which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise SlurmError(f"{command[0]} was not found: run this on a login node of the Slurm cluster.")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"The Slurm controller does not answer {command[0]}.") from None
    except OSError as error:
        raise SlurmError(f"{command[0]} cannot be started: {error.strerror}.") from error
    if done.returncode:
        raise SlurmError(_why(command[0], done.stderr, done.returncode))
    return done.stdout[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")


def _why(name: str, output: bytes, code: int) -> str:
    """The last line of the error output, without `sbatch: error:` and escape sequences."""
    if code < 0:
        return f"{name} was killed by signal {-code}."
    lines = output[:MAX_OUTPUT_BYTES].decode("utf-8", "replace").split("\n")
    words = [line for line in lines if line.strip()] or [f"exit code {code}"]
    chosen = next((line for line in words if "nable to contact" in line), words[-1])
    text = "".join(filter(str.isprintable, chosen)).removeprefix(f"{name}: ").removeprefix("error: ")
    return f"{name}: {text[:300].rstrip('.')}."

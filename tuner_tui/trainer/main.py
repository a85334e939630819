"""From a configuration file to an exit code. Heavy imports come after the file is read and found good."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import util

from .errors import JobError

USAGE = "usage: python …/tuner_tui/trainer CONFIG.yaml"
NEEDED = ("yaml", "torch", "transformers", "accelerate", "datasets", "tokenizers")


def main(argv: Sequence[str]) -> int:
    """Train as the file `argv[0]` says. Returns 0, 2 for bad input, 143 after a checkpoint that SIGTERM asked for.

    Everything unexpected (out of memory, a bug of a library) leaves as the exception it is, with its traceback.
    """
    if len(argv) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        return train_from(argv[0])
    except JobError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def train_from(path: str) -> int:
    """Read the configuration at `path` and train; see `main` for what it returns."""
    require_packages(NEEDED)
    from .config import read_config

    job, arguments = read_config(path)
    if job.peft_method != "none":
        require_packages(("peft",))
    from .job import run_job

    return run_job(job, arguments)


def require_packages(names: Sequence[str]) -> None:
    """Raise `JobError` naming the packages that this interpreter lacks."""
    missing = [name for name in names if util.find_spec(name) is None]
    if missing:
        raise JobError(
            f"{sys.executable} has no {', '.join(missing)}: install with `pip install {' '.join(missing)}`, "
            "or choose another interpreter"
        )

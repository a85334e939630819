"""From a configuration file to an exit code. Heavy imports come after the file is read and found good."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

from .errors import JobError
from .hub import SHAPES, STDLIB

USAGE = "usage: python …/tuner_tui/trainer CONFIG.yaml"
NEEDED = ("yaml", "torch", "transformers", "accelerate", "datasets", "tokenizers")


def main(argv: Sequence[str]) -> int:
    """Train as the file `argv[0]` says. Returns 0, 2 for bad input, 143 after a checkpoint that SIGTERM asked for.

    Everything unexpected (out of memory, a bug of a library) leaves as the exception it is, with its traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # in order with stderr, where both go to one file
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
    from .yaml_file import load_yaml

    values = load_yaml(path)
    if values.get("peft_method", "none") != "none":
        require_packages(("peft",))
    if needs_hub(values):
        from .hub import go_offline_if_unreachable

        go_offline_if_unreachable()
    from .job.config import parse_config
    from .job.sigterm_checkpoint import leave_process_groups
    from .job.training import run_job

    exit_code = run_job(*parse_config(values, path))
    leave_process_groups()
    return exit_code


def needs_hub(values: Mapping[str, Any]) -> bool:
    """Whether the model or the data may have to come from the Hub: neither built in nor a path here."""
    names = (str(values.get("model", "tiny")), str(values.get("data", STDLIB)))
    return any(name not in (*SHAPES, STDLIB) and not Path(name).exists() for name in names)


def require_packages(names: Sequence[str]) -> None:
    """Raise `JobError` naming the packages that this interpreter lacks."""
    missing = [name for name in names if util.find_spec(name) is None]
    if missing:
        raise JobError(
            f"{sys.executable} has no {', '.join(missing)}: install with `pip install {' '.join(missing)}`, "
            "or choose another interpreter"
        )

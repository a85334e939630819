"""Runs the job of a configuration file. torch and transformers are imported after the file has been checked."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import util
from pathlib import Path

from .errors import JobError
from .hub import go_offline_if_unreachable, needs_hub

NEEDED = ("yaml", "torch", "transformers", "accelerate", "datasets", "tokenizers")


def main(argv: Sequence[str]) -> int:
    """Run the job of the configuration file `argv[0]`. Returns 0, 2 for bad input, 143 after SIGTERM and a checkpoint.

    Unexpected errors, such as out of memory, propagate with their traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # keeps the order with stderr if both go to one file
    os.umask(os.umask(0o077) | 0o077)  # checkpoints and caches are private, as the run folder is
    if len(argv) != 1:
        print("usage: python …/tuner_tui/trainer CONFIG.yaml", file=sys.stderr)
        return 2
    try:
        return train_from(argv[0])
    except JobError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def train_from(path: str) -> int:
    """Read the configuration at `path` and train. Returns as `main`."""
    # The order matters: what can be said without torch is said first, as its import takes seconds, and the Hub's
    # offline mode is read when huggingface_hub is imported.
    require_packages(NEEDED)
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from error
    if values.get("peft_method", "none") != "none":
        require_packages(("peft",))
    if values.get("quantization", "none") != "none":
        require_packages(("bitsandbytes",))
    if needs_hub(values):
        go_offline_if_unreachable()
    from .config import parse_config
    from .sigterm_checkpoint import leave_process_groups
    from .training import run_job

    exit_code = run_job(*parse_config(values, path))
    leave_process_groups()
    return exit_code


def require_packages(names: Sequence[str]) -> None:
    """Raise `JobError` if this interpreter lacks any of the packages."""
    missing = [name for name in names if util.find_spec(name) is None]
    if missing:
        raise JobError(
            f"{sys.executable} has no {', '.join(missing)}: install with `pip install {' '.join(missing)}`, "
            "or choose another interpreter"
        )

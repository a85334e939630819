"""Runs the job of a file, or answers a question about one. torch and transformers are imported as late as possible.

A question (`PROBES`) is asked of the interpreter that trains. It is JSON on stdin; the answer is one line of JSON on
stdout after `MARK`, as libraries print there, too. The exit code is 2 for `{"problem": sentence}`, else 0.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module, util
from pathlib import Path
from typing import Any

from .job_file import JobError, go_offline_if_unreachable, needs_hub, parse_config

NEEDED = ("yaml", "torch", "transformers", "accelerate", "datasets", "tokenizers")
MARK = "tuner-tui-trace "
IMPORTED_MODULES = ("torch", "transformers.trainer", "datasets")
PROBES = {"trace-memory": ".memory_tracer", "measure-data": ".length_probe", "started-memory": None}
"""Questions by the argument that stands in place of a file, and the module that answers."""
STATUS_FILE = Path("/proc/self/status")


def main(argv: Sequence[str]) -> int:
    """Run the job of the configuration file `argv[0]`. Returns 0, 2 for bad input, 143 after SIGTERM and a checkpoint.

    Unexpected errors, such as out of memory, propagate with their traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # keeps the order with stderr if both go to one file
    os.umask(os.umask(0o077) | 0o077)  # checkpoints and caches are private, as the run folder is
    if len(argv) == 1 and argv[0] in PROBES:
        return answer_question(argv[0])
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


def answer_question(name: str) -> int:
    """Print the answer to the question `name`. Returns the exit code."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if module := PROBES[name]:
        answer = import_module(module, __package__).answer_request(json.load(sys.stdin))
    else:
        answer = measure_import_footprint()
    sys.stdout.write("\n" + MARK + json.dumps(answer) + "\n")
    return 2 if "problem" in answer else 0


def measure_import_footprint() -> dict[str, Any]:
    """The memory of a job's Python after what every job imports, before a model exists: resident and private bytes."""
    try:
        for name in IMPORTED_MODULES:
            import_module(name)
        status = STATUS_FILE.read_text("ascii", "replace")
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        sizes = {name: int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmData")}
    except (ImportError, OSError, KeyError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    return {"resident_bytes": sizes["VmRSS"], "private_bytes": sizes["VmData"]}

"""Notes the functions of the package that a launch passes, in each process: those that take or return one.

Python imports it at start-up where its folder is on PYTHONPATH. `FLOW_FILE` gets a line for each function, `file name`.
The process of the training ends as soon as its `main` is called: what comes after it is no launch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

LAUNCHES = {
    "RunOptions", "LaunchOptions", "LoadedPreset", "Training", "LaunchRequest", "PreparedLaunch", "LaunchSpec",
}  # fmt: skip
"""The types of a launch on its way."""
PACKAGE = "/tuner_tui/"
SEEN: set[tuple[str, str]] = set()


def note(frame: FrameType, event: str, returned: object) -> None:
    """Called by Python for each call and return of a function."""
    code = frame.f_code
    if event not in ("call", "return") or PACKAGE not in code.co_filename or "<" in code.co_name:
        return
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = [frame.f_locals[name] for name in names if name in frame.f_locals] if event == "call" else [returned]
    file = code.co_filename.rpartition(PACKAGE)[2]
    passes = any(type(value).__name__ in LAUNCHES for value in values) or code.co_name == "main"
    if passes and (file, code.co_name) not in SEEN:
        SEEN.add((file, code.co_name))
        with Path(os.environ["FLOW_FILE"]).open("a") as flow:
            flow.write(f"{file} {code.co_name}\n")
    if passes and file == "trainer/main.py":
        os._exit(0)


if "FLOW_FILE" in os.environ:
    sys.setprofile(note)

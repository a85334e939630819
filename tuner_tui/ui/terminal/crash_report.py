"""Writes the traceback of an unexpected error to a private file and returns one sentence for the user.

The traceback is written without the values of variables, which may hold the secrets of an environment.
"""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path

from tuner_tui.core.files import make_private


def write_crash_report(error: BaseException, folder: Path) -> str:
    """Write the traceback of `error` to a new file in `folder` (mode 0600) and return the sentence for the user."""
    cause = getattr(error, "error", error)  # a worker's failure wraps the error
    sentence = f"The screen failed: {type(cause).__name__}. This is a bug in tuner-tui; trainings continue."
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(_format(cause))
    except OSError as refused:
        return f"{sentence} The report could not be written to {path}: {refused.strerror or refused}."
    return f"{sentence} The report is in {path}"


def _format(error: BaseException) -> str:
    import platform
    from importlib.metadata import version

    from tuner_tui.core.redaction import redact_text

    where = f"tuner-tui {version('tuner-tui')}, textual {version('textual')}, Python {platform.python_version()}"
    return f"{where}\n\n{redact_text(''.join(traceback.format_exception(error)))}"

"""Replaces a file in one step, so that a reader sees the old or the new content, never a part of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replaces `path`, readable by this user alone. Raises `OSError` and then leaves the old file as it was.

    Not synced to the disk: it survives the end of the program, not the loss of power.
    """
    # In the same folder, as a rename works within one file system only. `tempfile` would cost the supervisor 1 MB.
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise

"""The cache folder of the job, with locks and atomic writes for trainings that share it."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """A folder below `$XDG_CACHE_HOME/tuner-tui` or `~/.cache/tuner-tui`, or a temporary one if that is read-only."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    folder = home.joinpath("tuner-tui", *parts)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    folder = _own_temporary_folder().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _own_temporary_folder() -> Path:
    """A folder below the temporary one that is this user's alone; a new one if another user took the name, or put a
    link there.
    """
    folder = Path(tempfile.gettempdir(), f"tuner-tui-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a file lock for `path`, so that one of several processes creates it and the others wait."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomic(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

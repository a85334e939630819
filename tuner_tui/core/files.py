"""Whole files: read where they are regular ones, and written at once or not at all; data files of this program.

Files of this program are readable by its user alone, whatever the umask. What is opened is a regular file: a named
pipe, a device or a link in its place is an error, not a wait.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

MAX_BYTES = 8 << 20


def open_regular(path: str | os.PathLike[str], *, follow_links: bool = False) -> int:
    """Return a descriptor for reading a regular file. Never blocks. Raises `OSError`, also for anything else.

    With `follow_links` the file may be a link, which is usual in folders of the user, not in those of this program.
    """
    return _opened(path, os.O_RDONLY if follow_links else os.O_RDONLY | os.O_NOFOLLOW)


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Close the descriptor, and so release a lock that it holds, after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def opened_regular(path: str | os.PathLike[str]) -> AbstractContextManager[int]:
    """A regular file that is open for reading inside the block. Raises `OSError` as `open_regular`."""
    return closing_descriptor(open_regular(path))


def open_to_append(path: str | os.PathLike[str]) -> int:
    """Return a descriptor for appending to a regular file, which is created with mode 0600. Never blocks.

    Raises `OSError`, also for anything else.
    """
    return _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)


def overwrite(path: Path, content: bytes) -> None:
    """Write `content` over the beginning of a regular file, which needs no disk space. Raises `OSError`."""
    with closing_descriptor(_opened(path, os.O_WRONLY | os.O_NOFOLLOW)) as descriptor:
        os.pwrite(descriptor, content, 0)


def _opened(path: str | os.PathLike[str], flags: int) -> int:
    try:
        # O_NONBLOCK: to open a named pipe would otherwise wait for its other end, and a device might do anything. What
        # was opened is judged by fstat of the descriptor, not by a stat of the name, which may have changed in between.
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket
            raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    os.set_blocking(descriptor, True)  # a child process may get it
    return descriptor


def read_regular(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES, *, follow_links: bool = False) -> bytes:
    """Read a whole regular file. Raises `OSError`, also if it is larger than `max_bytes`."""
    descriptor = open_regular(path, follow_links=follow_links)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    return content


def read_json(path: Path, *, follow_links: bool = False) -> dict[str, Any]:
    """The JSON object in a regular file; an empty one if it cannot be read or is damaged."""
    try:
        content = json.loads(read_regular(path, follow_links=follow_links))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def parse_data_file(path: Path) -> Any:
    """What a YAML file of this package says, for a caller that keeps what it makes of it and not the file."""
    import yaml  # the supervisor reads no such file

    # libyaml takes 10 ms for the largest, the reader written in Python a second. Its events are made into values at
    # once: the tree of nodes of `yaml.load` takes several times their memory, most of which stays with the process.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(path.read_bytes())
    anchors: dict[str, Any] = {}

    def values(end: type) -> Iterator[Any]:
        while not isinstance(event := loader.get_event(), end):
            yield value_of(event)

    def value_of(event: Any) -> Any:
        value: Any
        if isinstance(event, yaml.AliasEvent):
            return anchors[str(event.anchor)]
        if isinstance(event, yaml.ScalarEvent):
            value, tag = event.value, loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            if not tag.endswith((":str", ":merge")):
                value = loader.yaml_constructors[tag](loader, yaml.ScalarNode(tag, value))
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(values(yaml.SequenceEndEvent))
        else:
            parts = values(yaml.MappingEndEvent)
            value = {sys.intern(key) if isinstance(key, str) else key: next(parts) for key in parts}
            value = {**value.pop("<<", {}), **value}
        if event.anchor:
            anchors[event.anchor] = value
        return value

    loader.get_event(), loader.get_event()  # the starts of the stream and of the document
    return value_of(loader.get_event())


@cache
def read_data_file(path: Path) -> Any:
    """What a YAML file of this package says, read once. Callers share the value and must not change it."""
    return parse_data_file(path)


@cache
def compiled(form: str) -> re.Pattern[str]:
    """A regular expression of a data file, kept: `re` forgets all but 512, and the tables have more."""
    return re.compile(form)


def is_irregular(path: Path) -> bool:
    """Whether something other than a regular file has this name."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


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


def write_durable(path: Path, content: bytes, overwrite: bool) -> None:
    """Write a file of the user atomically and sync it to disk. A link stays, and the file that it names is written.

    What is replaced keeps its owner, group, permissions, access control list and other extended attributes. Raises
    `FileExistsError` unless `overwrite`, and `OSError` for a file that this user may not write, that cannot keep these,
    or that has other names; it is then unchanged.
    """
    import tempfile  # of no use to the supervisor, which stays small

    path = path.resolve() if overwrite else path
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-", suffix=".tmp")
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if overwrite and path.exists():
                _take_attributes(file.fileno(), path)
            os.fsync(file.fileno())
        # A rename within one folder is atomic: readers see the old file or the new one. It is durable once file and
        # folder are synced; without that a power failure may leave an empty file.
        if overwrite:
            fresh.replace(path)
        else:
            _link_new(fresh, path)
        with closing_descriptor(os.open(path.parent, os.O_RDONLY)) as folder:
            os.fsync(folder)
    finally:
        fresh.unlink(missing_ok=True)


def _take_attributes(fresh: int, path: Path) -> None:
    """Give the open file `fresh` what the file at `path` has besides its content. Raises `OSError` if it cannot."""
    with closing_descriptor(_opened(path, os.O_WRONLY | os.O_NOFOLLOW)) as old:
        status = os.fstat(old)
        if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):  # root could write it nevertheless
            raise OSError(errno.EACCES, "it is read-only", str(path))
        if status.st_nlink > 1:
            raise OSError(errno.EMLINK, "it has other names (hard links), which would keep the old content", str(path))
        try:
            os.fchown(fresh, status.st_uid, status.st_gid)
            os.fchmod(fresh, stat.S_IMODE(status.st_mode))
            for name in os.listxattr(old) if hasattr(os, "listxattr") else ():
                value = os.getxattr(old, name)
                if name not in os.listxattr(fresh) or os.getxattr(fresh, name) != value:
                    os.setxattr(fresh, name, value)
        except OSError as error:
            if error.errno == errno.ENOTSUP:  # a file system without extended attributes
                return
            reason = "its owner, group or extended attributes cannot be kept"
            raise OSError(error.errno, f"{reason} ({error.strerror}); edit it by hand", str(path)) from error


def _link_new(fresh: Path, path: Path) -> None:
    try:
        # A hard link fails if the name is taken, so of two writers only one succeeds.
        path.hardlink_to(fresh)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links.
        if path.exists():
            raise FileExistsError(path) from None
        fresh.replace(path)


def make_private(folder: Path) -> None:
    """Create `folder` with its missing parents, each with mode 0700 (`mkdir(parents=True)` leaves the parents to the
    umask). Raises `OSError`.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)

"""Files: atomic writes, JSON lines, locks that end with their process, and folders named r001, r002, …

Files of this program are readable by its user alone, whatever the umask. What is opened is a regular file: a named
pipe, a device or a link in its place is an error, not a wait.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.core.ownership import keep_others_out, require_unshared

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


class LineAppender:
    """Appends whole lines to a file that other processes append to as well. A torn last line is ended first."""

    def __init__(self, path: Path) -> None:
        """Open or create the file with mode 0600. Raises `OSError`."""
        self._descriptor = open_to_append(path)

    def append(self, line: bytes) -> None:
        """Write `line`, which ends with a newline. Raises `OSError` if the disk does not take all of it."""
        # A writer that was killed, or a full disk, may have left half a line. A newline in front keeps it from
        # swallowing this one; readers skip the torn line. One write call per line, so that lines of two processes do
        # not mix.
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) not in (b"\n", b""):
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.write(self._descriptor, line[written:])  # raises with the reason, such as a full disk

    def close(self) -> None:
        os.close(self._descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Append one line, as `LineAppender` does. Raises `OSError`."""
    with closing(LineAppender(path)) as appender:
        appender.append(line)


CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""A longer unfinished line is dropped."""


class LineTail:
    """Iterates over the complete lines of a growing file. A missing file is empty; a file that shrank is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._torn = b""

    def size(self) -> int:
        """The size of the file in bytes; 0 if it does not exist."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def skip_to(self, offset: int) -> None:
        self.offset, self._torn = offset, b""

    def lines(self) -> Iterator[bytes]:
        """The lines completed since the last call, without newlines. At most a chunk is in memory.

        Lines written after the call started are left for the next call, so that a fast writer cannot block a reader.
        """
        # What follows the last newline is kept in `_torn` and put in front of the next chunk. `offset` counts what was
        # read, torn or not, so that a file that is smaller than it was replaced or cut: it is then read from its
        # beginning.
        end = self.size()
        if end < self.offset:
            self.skip_to(0)
        while self.offset < end and (chunk := self._read(end - self.offset)):
            *whole, self._torn = (self._torn + chunk).split(b"\n")
            self.offset += len(chunk)
            if len(self._torn) > LONGEST_LINE_BYTES:
                self._torn = b""
            yield from whole

    def _read(self, most: int) -> bytes:
        try:
            with opened_regular(self.path) as descriptor:
                return os.pread(descriptor, min(CHUNK_BYTES, most), self.offset)
        except OSError:
            return b""


ACQUIRE_TIMEOUT_S = 0.5
"""`is_locked` holds the lock itself for microseconds; `acquire_lock` waits that out."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks, or whose server for locks is gone."""
WITHOUT_LOCKS = "its file system has no locks; set TUNER_STATE_DIR to a folder on another, or mount it with locks"


class LockedError(Exception):
    """Another process holds the lock."""


def acquire_lock(path: Path, timeout_s: float = ACQUIRE_TIMEOUT_S, *, needed: bool = True) -> int:
    """Return the descriptor that holds the lock as long as it is open. Raises `LockedError` and `OSError`.

    On a file system without locks, or with locks that exclude nobody, it raises `OSError`, unless the lock is not
    `needed`: then nothing is locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        # flock belongs to the open file: the kernel releases it when the holder ends, however it ends, and it says
        # nothing about file contents. A file with a pid would need a check whether that pid was reused.
        lock_descriptor(descriptor, path, timeout_s)
        if needed and not _excludes(descriptor):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    except OSError as error:
        if error.errno in NO_LOCKS and not needed:
            return descriptor
        os.close(descriptor)
        raise OSError(error.errno, WITHOUT_LOCKS if error.errno in NO_LOCKS else error.strerror, str(path)) from error
    except LockedError:
        os.close(descriptor)
        raise
    return descriptor


def lock_descriptor(descriptor: int, path: str | Path, timeout_s: float) -> None:
    """Lock the open file at `path`. Raises `LockedError`, and `OSError` where there are no locks."""
    deadline = time.monotonic() + timeout_s
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise LockedError(str(path))
        time.sleep(0.01)


def held_lock(path: Path, timeout_s: float = ACQUIRE_TIMEOUT_S, *, needed: bool = True) -> AbstractContextManager[int]:
    """A lock that is held inside the block. Raises as `acquire_lock`."""
    return closing_descriptor(acquire_lock(path, timeout_s, needed=needed))


def lacks_locks(folder: Path) -> bool:
    """Whether the file system has no locks, or locks that exclude nobody; tried in the folder or the parent that
    exists."""
    import tempfile  # of no use to the supervisor, which stays small

    try:
        with tempfile.TemporaryFile(dir=next(path for path in (folder, *folder.parents) if path.is_dir())) as file:
            return _try_lock(file.fileno(), fcntl.LOCK_EX) and not _excludes(file.fileno())
    except OSError as error:
        return error.errno in NO_LOCKS


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; False if the file system has none. Raises `OSError` if it cannot be read."""
    try:
        with opened_regular(path) as descriptor:
            # Shared locks do not exclude each other, so that two readers that ask at once do not see each other's.
            return not _try_lock(descriptor, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise


def wait_unlocked(path: Path) -> None:
    """Block until no process holds the lock; not at all on a file system without locks."""
    try:
        with opened_regular(path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _excludes(descriptor: int) -> bool:
    """Whether the exclusive lock of `descriptor` keeps a second one out.

    Some network file systems and containers answer every request for a lock with success. A lock belongs to the open
    file, not to the process, so that one process can try: its own second opening of the file must be refused.
    """
    with closing_descriptor(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)) as second:
        return not _try_lock(second, fcntl.LOCK_EX)


def _try_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FolderNotFoundError(LookupError):
    """No folder has this name; the message lists the newest ones."""


class NumberedFolders(Struct, frozen=True):
    """Folders named by a letter and a number, such as `r007`, one for each `noun`."""

    letter: str
    noun: str

    def create(self, root: Path) -> Path:
        """Create a folder in `root` with the next number, mode 0700. Raises `OSError`, also where others may change
        `root`.
        """
        make_private(root)
        for folder in (root.parent, root):
            keep_others_out(folder)
        require_unshared(root)
        number = self.number(self.next(root))
        while True:
            # mkdir fails if the name exists, so it is also the claim of the number: no lock is needed.
            path = root / f"{self.letter}{number:03d}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:  # another process created it at the same moment
                number += 1
                continue
            return path

    def next(self, root: Path) -> Path:
        """The path that `create` uses next, if no other program is quicker."""
        return root / f"{self.letter}{max(map(self.number, self._folders(root)), default=0) + 1:03d}"

    def newest_first(self, root: Path) -> list[Path]:
        """All folders in `root`, highest number first."""
        return sorted(self._folders(root), key=self.number, reverse=True)

    def find(self, name: str, root: Path) -> Path:
        """The folder called `name`: an id (`r007`), the id without zeros or letter (`r7`, `7`), or the path of a
        folder. Raises `FolderNotFoundError`."""
        if "/" in name and os.path.isdir(name):  # noqa: PTH112  Path.is_dir raises for what may not be looked at
            return Path(name).resolve()
        wanted = re.fullmatch(rf"{self.letter}?0*(\d{{1,9}})", name)
        number = None if wanted is None else int(wanted[1])
        for path in self._folders(root):
            if self.number(path) == number:
                return path
        unreadable = f"There is no {self.noun} folder {name}, or you have no permission to read it."
        newest = [path.name for path in self.newest_first(root)[:5]]
        there = f"The newest {'is' if len(newest) == 1 else 'are'} {', '.join(newest)}."
        others = there if newest else f"There are no {self.noun}s yet."
        raise FolderNotFoundError(f"{unreadable if '/' in name else f'There is no {self.noun} {name!r}.'} {others}")

    def number(self, path: Path) -> int:
        """The number in the name of `path`; 0 if it is not a numbered folder."""
        match = re.fullmatch(rf"{self.letter}(\d{{3,9}})", path.name)
        return int(match[1]) if match else 0

    def _folders(self, root: Path) -> Iterator[Path]:
        try:
            with os.scandir(root) as entries:
                names = [entry.name for entry in entries if _is_folder(entry)]
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from (root / name for name in names if self.number(root / name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False

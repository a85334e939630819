"""Whose files are obeyed: those from which a command can start must be this user's or root's, and no one else's to
change, as OpenSSH and git's `safe.directory` ask for.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from functools import lru_cache
from pathlib import Path

TRUSTED_VARIABLE = "TUNER_TRUSTED"
"""Files and folders, separated by colons, that are obeyed with all that is below them, whoever may change them; `*`:
everything."""
OVERFLOW_UID = 65534
"""The owner that a user namespace shows for users that it does not map, as root is in many containers without root."""


def require_unshared(path: Path) -> None:
    """Raise the `PermissionError` of `sharing_problem`, and `OSError` where that cannot be told."""
    if (problem := sharing_problem(path)) is not None:
        raise problem


def sharing_problem(path: Path) -> PermissionError | None:
    """Where another user may change `path`, or put something else in its place: which part, who, and how to allow it.

    Folders above it and what links lead to count too. What does not exist is nobody's. Raises `OSError`.
    """
    trusted = os.environ.get(TRUSTED_VARIABLE, "").split(":")
    named, real = Path(os.path.abspath(path)), Path(os.path.realpath(path))  # noqa: PTH100  Path.absolute keeps `..`
    for part in dict.fromkeys((named, real, *named.parents, *real.parents)):
        if not os.path.lexists(part):
            continue
        if "*" in trusted or any(part.is_relative_to(folder) for folder in trusted if folder):
            continue
        others = shared_with(part, is_above=part not in (named, real))
        if others is not None:
            owned = part.lstat().st_uid == os.getuid()
            remedy = f"run `chmod go-w {part}`, or " if owned else ""
            return PermissionError(
                errno.EPERM,
                f"It may be changed by {others}, who could have commands run as you; {remedy}set "
                f"{TRUSTED_VARIABLE}={part} to allow it",
                str(part),
            )
    return None


def keep_others_out(folder: Path) -> None:
    """Take the right to change `folder` from others if it is this user's. Raises `OSError`."""
    status = folder.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    if status.st_uid == os.getuid() and status.st_mode & others and not status.st_mode & stat.S_ISVTX:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~others)


def shared_with(path: Path, *, is_above: bool = False) -> str | None:
    """Who else may change `path`, such as "every user"; None if only this user and root may. Raises `OSError`.

    A group of which this user is the only member counts as this user: many systems create files writable by it. Of a
    folder that `is_above` others, only what replaces those counts: the sticky bit keeps others from it.
    """
    for status in (path.lstat(), path.stat()):
        unmapped_root = is_above and status.st_uid == OVERFLOW_UID and _is_user_namespace()
        if status.st_uid not in (0, os.getuid()) and not unmapped_root:
            return f"user {user_name(status.st_uid)}"
    if is_above and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        try:
            return f"group {grp.getgrgid(status.st_gid).gr_name}"
        except KeyError:
            return f"group {status.st_gid}"
    return None


def _is_user_namespace() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text().split()[:2] != ["0", "0"]
    except OSError:
        return False


def _is_own_group(gid: int) -> bool:
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The user's name, cached because looking it up may ask a server."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

"""Folders and files that only this user may read or change, whatever the umask."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def make_private(folder: Path) -> None:
    """Create `folder` with its missing parents, each with mode 0700 (`mkdir(parents=True)` leaves the parents to the
    umask). Raises `OSError`.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def shared_with(path: Path) -> str | None:
    """Who else may change `path`, such as "every user"; None if only this user and root may. Raises `OSError`.

    A group of which this user is the only member counts as this user: many systems create files writable by it.
    """
    found = path.stat()
    if found.st_uid not in (0, os.getuid()):
        return f"user {_user_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        return f"group {_group_name(found.st_gid)}"
    return None


def _is_own_group(gid: int) -> bool:
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

"""Whether processes started here are ended when the user logs out, and how to prevent that.

Sources: systemd's manuals. logind.conf(5): with KillUserProcesses=yes the scope of a session and all in it is ended at
logout, tmux and screen too, unless they were moved out of it. loginctl(1): without lingering, the user's own service
manager, and all below it, is stopped after the last logout.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from tuner_tui.core.procfs import read_text

CONFIG_FOLDERS = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
"""A file hides files of the same name in the folders after it."""
YES = frozenset({"1", "yes", "y", "true", "t", "on"})
MOVED = "systemd-run --user --scope"


def logout_warning(user: str | None = None, root: Path = Path("/")) -> str | None:
    """A sentence on what a logout would end and how to prevent that; None where it ends nothing."""
    user = pwd.getpwuid(os.getuid()).pw_name if user is None else user
    place = read_text(root / "proc/self/cgroup")
    lingers = (root / "var/lib/systemd/linger" / user).exists()
    linger = "" if lingers else f"`loginctl enable-linger {user}` once, and "
    if "/session-" in place and ".scope" in place and kills_at_logout(user, root):
        return (
            "logind ends all processes of this session at logout (KillUserProcesses=yes), tmux and detached "
            f"trainings too. To keep them: {linger}start tmux or tuner-tui with `{MOVED}`."
        )
    if "/user@" in place and not lingers:
        return (
            f"systemd ends what runs here after the last logout of {user}. To keep it: `loginctl enable-linger {user}`."
        )
    return None


def kills_at_logout(user: str, root: Path) -> bool:
    """True when logind is configured to end the processes of `user` at logout."""
    settings = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    settings |= dict(logind_settings(root))
    if settings["KillUserProcesses"].lower() not in YES or user in settings["KillExcludeUsers"].split():
        return False
    only = settings["KillOnlyUsers"].split()
    return not only or user in only


def logind_settings(root: Path) -> Iterator[tuple[str, str]]:
    """The settings of logind.conf and its drop-ins; later ones override earlier ones."""
    mains = (read_text(root / folder / "logind.conf").splitlines() for folder in CONFIG_FOLDERS)
    main = next((found for found in mains if found), [])
    drop_ins: dict[str, Path] = {}
    for folder in reversed(CONFIG_FOLDERS):
        drop_ins |= {path.name: path for path in (root / folder / "logind.conf.d").glob("*.conf")}
    for text in [*main, *(text for name in sorted(drop_ins) for text in read_text(drop_ins[name]).splitlines())]:
        name, equals, value = text.strip().partition("=")
        if equals and not name.startswith(("#", ";", "[")):
            yield name.strip(), value.strip()

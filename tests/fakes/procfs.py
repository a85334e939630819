"""Made-up /proc and /sys trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes files below `folder` by their relative paths, and gives `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def stat_line(
    pid: int, comm: str, ppid: int, ticks: int = 0, started: int = 1, pages: int = 10, state: str = "S"
) -> str:
    """A line of /proc/<pid>/stat."""
    middle = " ".join(["0"] * 9)
    return f"{pid} ({comm}) {state} {ppid} {middle} {ticks} 0 0 0 20 0 1 0 {started} 4096 {pages} 0 0\n"


def write_process(
    proc: Path,
    pid: int,
    command: Sequence[str],
    *,
    ppid: int = 1,
    comm: str = "python",
    environ: Mapping[str, str] | None = None,
    ticks: int = 0,
    started: int = 1,
    pages: int = 10,
) -> None:
    """One process."""
    files = {
        "stat": stat_line(pid, comm, ppid, ticks, started, pages),
        "cmdline": "\0".join(command) + "\0",
        "environ": "".join(f"{name}={value}\0" for name, value in (environ or {}).items()),
    }
    write_tree(proc / str(pid), files)

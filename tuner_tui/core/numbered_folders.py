"""Folders named r001, r002, …"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.files import make_private
from tuner_tui.core.ownership import keep_others_out, require_unshared


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

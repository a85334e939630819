"""Folders named by a letter and a number, such as `r007`: creates, lists and finds them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.files import keep_others_out, make_private


@dataclass(frozen=True, slots=True)
class NumberedFolders:
    """Folders named by a letter and a number, such as `r007`."""

    letter: str

    def create(self, root: Path) -> Path:
        """Create a folder in `root` with the next number, mode 0700. Raises `OSError`, also where others may replace
        the folders in `root`.
        """
        make_private(root)
        for place in (root.parent, root):
            keep_others_out(place)
        number = self.number(self.next(root))
        while True:
            path = root / f"{self.letter}{number:03d}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:  # another process created it at the same moment
                number += 1
                continue
            return path

    def next(self, root: Path) -> Path:
        """The path that `create` would use now."""
        return root / f"{self.letter}{max(map(self.number, self._folders(root)), default=0) + 1:03d}"

    def newest_first(self, root: Path) -> list[Path]:
        """All folders in `root`, highest number first."""
        return sorted(self._folders(root), key=self.number, reverse=True)

    def find(self, name: str, root: Path) -> Path | None:
        """The folder called `name`: an id (`r007`), the id without zeros or letter (`r7`, `7`), or the path of a
        folder."""
        if "/" in name and os.path.isdir(name):  # noqa: PTH112  Path.is_dir raises for what may not be looked at
            return Path(name).resolve()
        wanted = re.fullmatch(rf"{self.letter}?0*(\d{{1,9}})", name)
        number = None if wanted is None else int(wanted[1])
        return next((path for path in self._folders(root) if self.number(path) == number), None)

    def number(self, path: Path) -> int:
        """The number in the name of `path`; 0 if it is not a numbered folder."""
        found = re.fullmatch(rf"{self.letter}(\d{{3,9}})", path.name)
        return int(found[1]) if found else 0

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

"""Cached answers of slow questions to an interpreter: JSON files in the user's cache folder."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

FORMAT = 1


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The cache's entry for one interpreter.

    It holds as long as the modification times of the interpreter and of its site-packages folders stay the same;
    installing or removing a package changes the latter.
    """

    interpreter: Path
    file: Path

    def read(self) -> dict[str, Any] | None:
        """The answer; None where there is none, it is out of date, or the file is damaged."""
        try:
            entry = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("format") != FORMAT:
            return None
        stamps, answer = entry.get("stamps"), entry.get("answer")
        if not isinstance(stamps, dict) or not isinstance(answer, dict) or stamps != stamps_of(list(stamps)):
            return None
        return answer

    def write(self, answer: dict[str, Any]) -> None:
        """Keeps the answer; a cache that cannot be written only costs time, so that is no error."""
        stamps = stamps_of([str(self.interpreter), *answer.get("site_folders", [])])
        try:
            write_atomically(self.file, json.dumps({"format": FORMAT, "stamps": stamps, "answer": answer}))
        except OSError:
            return


def entry_of(interpreter: Path, folder: Path | None) -> CachedAnswer:
    """The entry of this interpreter in `folder`, or in the user's cache folder."""
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("tuner-tui") / "interpreters"
    return CachedAnswer(interpreter, folder / f"{sha256(str(interpreter).encode()).hexdigest()[:16]}.json")


def stamps_of(paths: list[str]) -> dict[str, int | None]:
    """Modification times in nanoseconds; None for what is not there."""
    return {path: stamp_of(path) for path in paths}


def stamp_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


def write_atomically(file: Path, text: str) -> None:
    """Writes beside the file and moves it into place, so that a reader sees the old or the new, never half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).replace(file)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise

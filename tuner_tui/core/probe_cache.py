"""Caches the answers of slow probes (an interpreter's packages, a memory trace) as JSON files, one per question."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuner_tui.core.files import make_private, write_atomic

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ProbeCacheEntry:
    """The cached answer to one question, valid while the files it was stamped with keep their modification times."""

    file: Path

    def read(self) -> dict[str, Any] | None:
        """The answer; None where there is none, it is out of date, or the file is damaged."""
        try:
            entry = json.loads(self.file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("format") != FORMAT:
            return None
        stamps, answer = entry.get("stamps"), entry.get("answer")
        if not isinstance(stamps, dict) or not isinstance(answer, dict) or stamps != _stamps(stamps):
            return None
        return answer

    def write(self, answer: dict[str, Any], stamped: Iterable[str] = ()) -> None:
        """Stores the answer with the modification times of the files and folders `stamped`.

        Does nothing where the cache cannot be written: that only costs time.
        """
        entry = {"format": FORMAT, "stamps": _stamps(stamped), "answer": answer}
        with suppress(OSError):
            make_private(self.file.parent)
            write_atomic(self.file, json.dumps(entry))


def probe_cache_entry(kind: str, question: object, folder: Path | None = None) -> ProbeCacheEntry:
    """The entry for `question`, any JSON value, in `folder` or in the folder `kind` of the user's cache."""
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("tuner-tui") / kind
    digest = sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    return ProbeCacheEntry(folder / f"{digest[:24]}.json")


def _stamps(paths: Iterable[str]) -> dict[str, int | None]:
    return {path: _modified_ns(path) for path in paths}


def _modified_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None

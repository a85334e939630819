"""A text corpus that every machine has: source files of Python's standard library, cut into labelled snippets."""

from __future__ import annotations

import hashlib
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import JobError

# The default job: which module does a snippet come from? Twenty classes of up to 500 samples of ten lines train in
# half a minute on two CPU cores, and the loss falls visibly.
LABEL_COUNT = 20
LINES_PER_SNIPPET = 10
SNIPPETS_PER_LABEL = 500
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "config"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Text of one file and the top-level module or package that it belongs to."""

    module: str
    text: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines of one file, labelled by their top-level module."""

    text: str
    module: str


def library_folder() -> Path:
    """The folder of the standard library of the running interpreter."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(folder: Path) -> list[SourceFile]:
    """All sources below `folder` in a fixed order, without tests and installed packages. Raises `JobError`."""
    files = []
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder)
        if not SKIPPED_FOLDERS.intersection(inner.parts):
            files.append(SourceFile(inner.parts[0].removesuffix(".py"), path.read_text("utf-8", errors="replace")))
    if not files:
        raise JobError(f"the standard library at {folder} has no source files; use a data file instead of `stdlib`")
    return files


def fingerprint(files: Iterable[SourceFile]) -> str:
    """A hash of the files' content, which identifies a library version."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.module}\0{file.text}\0".encode())
    return digest.hexdigest()[:16]


def snippets(files: Iterable[SourceFile]) -> list[Snippet]:
    """Distinct snippets of the `LABEL_COUNT` largest modules, at most `SNIPPETS_PER_LABEL` of each.

    Of a module with more, every n-th is taken, so that all of its files are represented.
    """
    by_module: dict[str, dict[str, None]] = defaultdict(dict)
    owner: dict[str, str] = {}
    for file in files:
        for text in cut_snippets(file.text):
            if owner.setdefault(text, file.module) == file.module:
                by_module[file.module][text] = None
    largest = sorted(by_module, key=lambda module: (-len(by_module[module]), module))[:LABEL_COUNT]
    return [Snippet(text, module) for module in sorted(largest) for text in sample_evenly(list(by_module[module]))]


def cut_snippets(text: str) -> Iterator[str]:
    """Pieces of `LINES_PER_SNIPPET` non-blank lines; a shorter remainder is dropped."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for start in range(0, len(lines) - LINES_PER_SNIPPET + 1, LINES_PER_SNIPPET):
        yield "\n".join(lines[start : start + LINES_PER_SNIPPET])


def sample_evenly(texts: list[str]) -> list[str]:
    """At most `SNIPPETS_PER_LABEL` of `texts`, evenly spaced."""
    count = min(len(texts), SNIPPETS_PER_LABEL)
    return [texts[index * len(texts) // count] for index in range(count)]

"""A text corpus that every machine has: source files of Python's standard library, cut into labelled snippets."""

from __future__ import annotations

import sysconfig
from collections import defaultdict
from functools import cache
from pathlib import Path

from ..errors import JobError

# The default job: which module does a snippet come from? Twenty classes of up to 500 samples of ten lines train in
# half a minute on two CPU cores, and the loss falls visibly.
LABEL_COUNT = 20
LINES_PER_SNIPPET = 10
SNIPPETS_PER_LABEL = 500
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "config"})


@cache  # the tokenizer and the data need the same files
def source_files() -> list[tuple[str, str]]:
    """The top-level module and the text of each source of the standard library, in a fixed order.

    Tests and installed packages are left out. Raises `JobError` without any source.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    files = []
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder)
        if not SKIPPED_FOLDERS.intersection(inner.parts):
            files.append((inner.parts[0].removesuffix(".py"), path.read_text("utf-8", errors="replace")))
    if not files:
        raise JobError(f"the standard library at {folder} has no source files; use a data file instead of `stdlib`")
    return files


@cache
def snippets() -> dict[str, str]:
    """Pieces of `LINES_PER_SNIPPET` non-blank lines with the module that each is from, the first of several.

    They are of the `LABEL_COUNT` largest modules, at most `SNIPPETS_PER_LABEL` of each, evenly spaced.
    """
    modules: dict[str, str] = {}
    for module, source in source_files():
        lines = [line.rstrip() for line in source.splitlines() if line.strip()]
        for start in range(0, len(lines) - LINES_PER_SNIPPET + 1, LINES_PER_SNIPPET):
            modules.setdefault("\n".join(lines[start : start + LINES_PER_SNIPPET]), module)
    texts: dict[str, list[str]] = defaultdict(list)
    for text, module in modules.items():
        texts[module].append(text)
    chosen: dict[str, str] = {}
    for module in sorted(sorted(texts, key=lambda module: (-len(texts[module]), module))[:LABEL_COUNT]):
        count = min(len(texts[module]), SNIPPETS_PER_LABEL)
        chosen |= {texts[module][index * len(texts[module]) // count]: module for index in range(count)}
    return chosen

"""Every text of the program on one page: `python -m tests.docs.texts > texts.txt`, to read the wording as a whole.

A text is a string literal of the package with at least two words, or a label of the screen with one. Docstrings,
regular expressions, embedded programs and lookup keys are left out. An f-string shows its expressions in braces.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.docs.reference import PAGES, ROOT

PACKAGE = ROOT / "tuner_tui"
LABELLED = ("ui/", "cli/render/", "cli/commands/")
"""Folders where a text may be a single word: a label, a title, a unit."""

PROSE = re.compile(r"[A-Za-z}'’)%,;:][ \n]+[A-Za-z{'(`\d]")
LABEL = re.compile(r"[A-Z][a-z]+\W*|[a-z]+ [a-z]+")
EXPRESSION = re.compile(r"\(\?[:P<=!i]|\\[dswbS.(\[]|\[\^|\)\?|\.\*|\[a-z")
CODE = re.compile(r"^(import |from \w+ import |def |class )|^\s*[A-Za-z-]+: ?[#$\w-]+;$|^\w+ > \w+$", re.MULTILINE)
SKIPPED_CALLS = {"compile", "search", "match", "fullmatch", "sub", "split", "findall", "finditer", "Words", "Pattern"}
SHOWN_FIELDS = {
    "help", "label", "say", "title", "why", "effect", "rests_on", "source", "sentence", "unable", "reason", "advice",
}  # fmt: skip
SKIPPED_NAMES = {"CSS", "DEFAULT_CSS", "COMPONENT_CLASSES", "__slots__"}


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal that people read, and where it is."""

    path: Path
    line: int
    words: str


def texts_of(path: Path) -> list[Text]:
    """The texts of one module of the package, in the order of their lines."""
    labelled = path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).as_posix().startswith(LABELLED)
    texts = [Text(path, line, words) for line, words in _literals(ast.parse(path.read_text("utf-8")))]
    return sorted((text for text in texts if _is_text(text.words, labelled)), key=lambda text: text.line)


def program_texts() -> list[Text]:
    """The texts of all modules and of their tables."""
    modules = [text for path in sorted(PACKAGE.rglob("*.py")) for text in texts_of(path)]
    keys = PACKAGE / "ui/keys.txt"
    columns = (re.split(r" {2,}", line.strip()) for line in keys.read_text("utf-8").splitlines())
    help_texts = [Text(keys, number, row[-1]) for number, row in enumerate(columns, start=1) if len(row) > 1]
    return modules + help_texts + [text for path in sorted(PACKAGE.rglob("*.yaml")) for text in table_texts(path)]


def table_texts(path: Path) -> list[Text]:
    """The texts of a table: the values of the fields that are shown."""
    return [
        Text(path, value.start_mark.line + 1, value.value)
        for key, value in _pairs(yaml.compose(path.read_text("utf-8"), yaml.CSafeLoader))
        if key in SHOWN_FIELDS and isinstance(value.value, str)
    ]


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """The fields of all mappings below a node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, value
            yield from _pairs(value)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _pairs(child)


def prose_pages() -> list[Path]:
    """The pages that people write: READMEs and the pages in `.github`. Generated pages repeat the program's texts."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob(".github/**/*.md")), *sorted(PACKAGE.rglob("*.md"))]
    return [page for page in pages if page.relative_to(ROOT).as_posix() not in PAGES]


def _literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and words of each string literal below `tree` that is not a docstring, an expression or a name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, _joined(node)
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    yield from _literals(part.value)
        elif not _is_skipped(node):
            yield from _literals(node)


def _joined(node: ast.JoinedStr) -> str:
    """An f-string with the source of its expressions in braces."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )


def _is_skipped(node: ast.AST) -> bool:
    """True for docstrings, arguments of regular expressions, and styles."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in SKIPPED_CALLS
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id in SKIPPED_NAMES for target in targets)


def _is_text(words: str, labelled: bool) -> bool:
    if EXPRESSION.search(words) or CODE.search(words):
        return False
    return bool(PROSE.search(words)) or (labelled and bool(LABEL.fullmatch(words)))


def render() -> str:
    """All texts, one section a module, then the pages."""
    lines: list[str] = []
    last: Path | None = None
    for text in program_texts():
        if text.path != last:
            lines.append(f"\n## {text.path.relative_to(ROOT)}\n")
            last = text.path
        lines.append(f"{text.line:4} {text.words}")
    lines += [f"\n## {page.relative_to(ROOT)}\n\n{page.read_text('utf-8')}" for page in prose_pages()]
    return "\n".join(lines).lstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())

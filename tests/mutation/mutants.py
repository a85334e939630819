"""Small changes of source code, each of which some test should notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*",
}  # fmt: skip
UNTESTED_CALLS = frozenset({"compile", "namedtuple", "TypeVar", "dataclass", "field", "print_note", "lru_cache"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: `text` in place of the source from `start` to `end` (offsets).

    The changed expression has the lines `line` to `last_line`. `runs_at_import` is true of code outside functions.
    """

    path: Path
    line: int
    last_line: int
    start: int
    end: int
    text: str
    original: str
    runs_at_import: bool

    def apply(self, source: str) -> str:
        """The source with the change."""
        return source[: self.start] + self.text + source[self.end :]

    @property
    def undone(self) -> Mutant:
        """No change at the same place."""
        return replace(self, text=self.original)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.original.strip()!r} -> {self.text.strip()!r}"


def mutants_of(path: Path, source: str) -> Iterator[Mutant]:
    """All mutants of a file, in its order."""
    yield from _Finder(path, source).find()


class _Finder:
    def __init__(self, path: Path, source: str) -> None:
        self.path = path
        self.source = source
        self.tree = ast.parse(source)
        lines = source.split("\n")
        self.offsets = [0]
        for line in lines:
            self.offsets.append(self.offsets[-1] + len(line) + 1)
        self.lines = lines

    def find(self) -> Iterator[Mutant]:
        yield from self._visit(self.tree, in_function=False)

    def _visit(self, node: ast.AST, *, in_function: bool) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                yield from self._visit(statement, in_function=True)
            return
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from self._visit(node.value, in_function=in_function)
            return
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Call) and _name(node.func) in UNTESTED_CALLS:
            return
        in_function = in_function or isinstance(node, ast.Lambda)
        if isinstance(node, ast.expr) and (in_function or not isinstance(node, ast.Constant)):
            yield from (replace(mutant, runs_at_import=not in_function) for mutant in self._mutants(node))
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, in_function=in_function)

    def _mutants(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            yield from self._between(node, node.left, node.comparators[0], COMPARISONS[type(node.ops[0])])
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
            yield from self._between(node, node.left, node.right, ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            word = "or" if isinstance(node.op, ast.And) else "and"
            yield from self._between(node, node.values[0], node.values[1], word)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from self._replace(node, node, f"({self._text(node.operand)})")
        elif isinstance(node, ast.IfExp):
            yield from self._replace(node, node.test, f"not ({self._text(node.test)})")
        elif isinstance(node, ast.Constant):
            changed = _other_constant(node.value)
            if changed is not None:
                yield from self._replace(node, node, changed)

    def _between(self, node: ast.expr, left: ast.expr, right: ast.expr, text: str) -> Iterator[Mutant]:
        """The operator between two operands, if nothing else but blanks is there."""
        start, end = self._end(left), self._start(right)
        before = self.source[start:end]
        if before.strip(" ()\n") and "(" not in before and ")" not in before and "#" not in before:
            yield self._mutant(node, start, end, f" {text} ", before)

    def _replace(self, node: ast.expr, part: ast.expr, text: str) -> Iterator[Mutant]:
        """`part` of `node`; without those in f-strings of several lines, whose places Python 3.11 does not know."""
        original = self._text(part)
        if _is_source_of(part, original):
            yield self._mutant(node, self._start(part), self._end(part), text, original)

    def _mutant(self, node: ast.expr, start: int, end: int, text: str, original: str) -> Mutant:
        last = node.end_lineno or node.lineno
        return Mutant(self.path, node.lineno, last, start, end, text, original, runs_at_import=False)

    def _text(self, node: ast.expr) -> str:
        return self.source[self._start(node) : self._end(node)]

    def _start(self, node: ast.expr) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """`column` counts bytes."""
        return self.offsets[line - 1] + len(self.lines[line - 1].encode()[:column].decode())


def _is_source_of(node: ast.expr, text: str) -> bool:
    try:
        return ast.dump(ast.parse(f"({text})", mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(operand, ast.JoinedStr) or (isinstance(operand, ast.Constant) and isinstance(operand.value, str))
        for operand in (node.left, node.right)
    )


def _other_constant(value: object) -> str | None:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int | float) and abs(value) < 1e6:
        return repr(value + 1)
    return None

"""The syntax trees of Python sources."""

from __future__ import annotations

import ast
from threading import Lock

_PARSING = Lock()
"""Two threads that convert trees at once can fail with SystemError before Python 3.12 (CPython issue 106905)."""


def parse_python(code: str) -> ast.Module:
    """The tree of `code`. Raises `SyntaxError`, also for what is nested too deeply for the parser."""
    try:
        with _PARSING:
            return ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "it is nested too deeply") from None


def parse_expression(code: str) -> ast.expr:
    """The tree of one expression. Raises `SyntaxError`, also for statements."""
    match parse_python(code.strip()).body:
        case [ast.Expr(value=value)]:
            return value
    raise SyntaxError("it is not an expression")

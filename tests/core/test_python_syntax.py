"""The syntax trees of Python sources, also on several threads."""

from __future__ import annotations

import ast

import pytest

from tuner_tui.core.python_syntax import parse_expression, parse_python


def test_a_source_and_an_expression_have_a_tree() -> None:
    assert ast.unparse(parse_python("x = 1\ny = 2")) == "x = 1\ny = 2"
    assert ast.unparse(parse_expression("  1 + 2 ")) == "1 + 2"


@pytest.mark.parametrize("code", ["x = 1", "1\n2", "", "1 +"])
def test_what_is_no_expression_is_refused(code: str) -> None:
    with pytest.raises(SyntaxError):
        parse_expression(code)


@pytest.mark.parametrize("code", ["x = \0", "(" * 5_000, "-" * 200_000 + "1"], ids=["a zero byte", "brackets", "signs"])
def test_what_the_parser_gives_up_on_is_a_syntax_error(code: str) -> None:
    with pytest.raises(SyntaxError):
        parse_python(code)

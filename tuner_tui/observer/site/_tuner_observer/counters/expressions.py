"""Evaluates expressions of a script's source, and says what its statements do, without running any of it.

Expressions are evaluated by hand from names, attributes, items and lengths: calling the script's functions might have
side effects.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from ..names import NAMES
from .script_variables import MAX_LENGTH, item_of, variables_of

ONE, NONE = ast.dump(ast.Constant(1)), ast.dump(ast.Constant(None))
OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip


def value_of(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression, None unless it is computed without side effects."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return variables_of(frame).get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, frame)
        # Settings may be attributes of their class; nothing is called, such as a property.
        value = getattr(owner, "__dict__", {}).get(node.attr, inspect.getattr_static(owner, node.attr, None))
        return item_of(owner, node.attr) if value is None else value
    if isinstance(node, ast.Subscript):
        return item_of(value_of(node.value, frame), value_of(node.slice, frame))
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        name, value = last_name(node.func), value_of(node.args[0], frame)
        if name == "int":
            return int(value) if isinstance(value, (int, float)) else None
        if name == "size" and value == 0 and isinstance(node.func, ast.Attribute):
            name, value = "len", value_of(node.func.value, frame)
        return length_in_memory(value) if name == "len" and value is not None else None
    if isinstance(node, ast.BinOp):
        left, right = value_of(node.left, frame), value_of(node.right, frame)
        compute = OPERATIONS.get(type(node.op))
        if compute is not None and type(left) in (int, float) and type(right) in (int, float):
            return compute(left, right) if right or compute not in (operator.floordiv, operator.truediv) else None
    return None


def length_in_memory(value: Any) -> int | None:
    """The length of data in memory or of a loader that the script defines, as a progress bar would ask for it.

    A DataLoader of torch is not asked: its batches are counted, and its length may depend on settings to inject. Nor is
    what says that it is one, as accelerate's loaders do.
    """
    if "tqdm" in type(value).__name__:
        return length_in_memory(value.__dict__.get("iterable"))
    if inspect.isgenerator(value):
        return None if value.gi_frame is None else _folds(variables_of(value.gi_frame).get("self"))
    if getattr(value, "shape", None) == () or _is_loader(value):
        return None
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - code of the script
        return None


def _is_loader(value: Any) -> bool:
    classes = (*type(value).__mro__, *getattr(value.__class__, "__mro__", ()))
    return any(each.__name__ == "DataLoader" for each in classes)


def _folds(splitter: Any) -> int | None:
    """The number of folds into which scikit-learn's `split` divides the data."""
    folds = getattr(splitter, "__dict__", {}).get("n_splits")
    return folds if type(folds) is int else None


def truth_of(node: ast.expr, frame: FrameType) -> bool | None:
    """Whether a condition is known to be true or false: a variable, `not …` of one, or a comparison with None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        truth = truth_of(node.operand, frame)
        return None if truth is None else not truth
    if isinstance(node, ast.Compare) and [ast.dump(each) for each in node.comparators] == [NONE]:
        is_none = value_of(node.left, frame) is None
        if not isinstance(node.ops[0], (ast.Is, ast.IsNot)) or (is_none and not _is_none(node.left, frame)):
            return None
        return isinstance(node.ops[0], ast.Is) == is_none
    value = value_of(node, frame)
    return value if isinstance(value, bool) else None


def _is_none(node: ast.expr, frame: FrameType) -> bool:
    """Whether a variable or an attribute of settings is set to None, rather than unknown."""
    if isinstance(node, ast.Name):
        return variables_of(frame).get(node.id, frame.f_globals.get(node.id, node)) is None
    owner = value_of(node.value, frame) if isinstance(node, ast.Attribute) else None
    return isinstance(node, ast.Attribute) and getattr(owner, "__dict__", {}).get(node.attr, node) is None


def comparisons(
    test: ast.expr, kinds: tuple[type, ...], frame: FrameType, runs: bool = False
) -> Iterator[tuple[ast.expr, int]]:
    """The variables that a test compares with a limit, and the first value beyond it, such as 10 for `i < 10`.

    Of `a or b` each is a limit, of `a and b` one if the other is known to be true, as it is of a loop that `runs`.
    """
    nodes = test.values if isinstance(test, ast.BoolOp) else [test]
    for node in nodes:
        if not isinstance(node, ast.Compare) or len(node.ops) > 1 or not isinstance(node.ops[0], kinds):
            continue
        if not isinstance(node.left, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        needs_others = not runs and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        if needs_others and not all(truth_of(each, frame) for each in nodes if each is not node):
            continue
        value, end = value_of(node.left, frame), value_of(node.comparators[0], frame)
        if type(value) is int and isinstance(end, (int, float)) and end == end // 1 and value <= end < MAX_LENGTH:
            yield node.left, int(end) + isinstance(node.ops[0], (ast.Gt, ast.LtE))


ENUMERATED = (0, 1, 0)


def count_iterations(node: ast.expr, frame: FrameType) -> tuple[int | None, tuple[int, int, int] | None]:
    """The iterations over `range(…)` or data in memory, also if it is passed through a function that shows progress.

    And first value and stride of a variable that counts them, and how many there were before `range(start_epoch, …)`.
    """
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "split" and isinstance(node.func, ast.Attribute):
            return _folds(value_of(node.func.value, frame)), None
        if name == "zip":
            counts = [count_iterations(each, frame)[0] for each in node.args]
            lengths = [each for each in counts if each is not None]
            return min(lengths, default=None) if len(lengths) == len(counts) else None, None
        if name not in ("range", "trange"):
            passes = name in NAMES["passing_on"] or "tqdm" in name
            count, bounds = count_iterations(node.args[0], frame) if passes and node.args else (None, None)
            return count, ENUMERATED if name == "enumerate" else bounds
        values = [value_of(each, frame) for each in node.args]
        whole = [int(each) for each in values if isinstance(each, (int, float)) and each == each // 1]
        if not 0 < len(whole) == len(values) or 0 in whole[2:]:
            return None, None
        iterated, end = range(*whole), node.args[-1] if len(whole) < 3 else node.args[1]
        from_one = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and ast.dump(end.right) == ONE
        begins = 0 if len(whole) < 2 or isinstance(node.args[0], ast.Constant) else iterated.start - from_one
        return len(iterated), (iterated.start, iterated.step, max(0, begins // iterated.step))
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts), None
    value = value_of(node, frame)
    iterated = value.__dict__.get("iterable") if "tqdm" in type(value).__name__ else value
    if isinstance(iterated, range):
        return len(iterated), (iterated.start, iterated.step, 0)
    return length_in_memory(value), None


def is_over_loader(node: ast.expr, frame: FrameType) -> bool:
    """Whether a loop is over a DataLoader itself, or what a function that shows progress makes of it."""
    while isinstance(node, ast.Call) and node.args:
        if last_name(node.func) not in NAMES["passing_on"] and "tqdm" not in last_name(node.func):
            return False
        node = node.args[0]
    value = value_of(node, frame)
    return _is_loader(value.__dict__.get("iterable") if "tqdm" in type(value).__name__ else value)


def addition_lines(statement: ast.stmt, counter: ast.expr) -> list[int]:
    """The lines of a statement that add to a variable."""
    nodes = [each for each in ast.walk(statement) if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add)]
    return [each.lineno for each in nodes if is_same(each.target, counter)]


def is_increment(node: ast.AST, counter: ast.expr) -> bool:
    """Whether a statement is `counter += 1`."""
    return isinstance(node, ast.AugAssign) and ast.dump(node.value) == ONE and is_same(node.target, counter)


def assigns(node: ast.AST, counter: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(is_same(target, counter) for target in node.targets)


def is_same(first: ast.AST, second: ast.AST) -> bool:
    return ast.dump(first).replace("Store()", "Load()") == ast.dump(second).replace("Store()", "Load()")


def is_call_of(statement: ast.stmt, called: ast.expr) -> bool:
    """Whether a statement is a call of this object or of one of its methods."""
    call = getattr(statement, "value", None)
    function = call.func if isinstance(call, ast.Call) else None
    return function is not None and is_same(function.value if isinstance(function, ast.Attribute) else function, called)


def includes_line(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)


def names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")

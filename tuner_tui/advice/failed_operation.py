"""What an error of Python's own means in a program that nobody knows: the operation that failed, and on what.

The exception names the key, attribute or index, the source line of the traceback the object that it was read from.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.advice.finding import Remedy
from tuner_tui.core.files import read_data_file
from tuner_tui.core.redaction import redact_text
from tuner_tui.runs.log_parsing.crash_table import CrashPattern
from tuner_tui.runs.log_parsing.failures import CodeFrame, Failure

FILE = Path(__file__).with_name("failed_operations.yaml")
PASSES_ON = re.compile(r"\b(?:enumerate|tqdm|zip|list|tuple|iter|next|track|reversed|log_every)$")
SETTING = re.compile(
    r"\b((?:\w+\.)?(?:\w+_)?(?:cfg|conf|configs?|args|opts?|options|settings|hparams?|hps?)\.[\w.]+)\b(?!\()"
)
BRACKETS = {"(": ")", "[": "]", "{": "}"}


MAX_CHARS = 400
"""Of a quoted part of a log."""


class Explanation(Struct, frozen=True):
    """What an error means. `is_specific`: the row is for the object that the operation failed on."""

    sentence: str
    cause: str
    remedies: tuple[Remedy, ...]
    is_specific: bool

    def replaces(self, pattern: CrashPattern) -> bool:
        """Whether it says more than a pattern that was found by words or by the part of a package."""
        yields = pattern.topic in read_data_file(FILE)["yields"]
        return self.is_specific and (pattern.confidence == "possible" or yields)

    def names_what(self, pattern: CrashPattern) -> bool:
        """Whether its sentence names what that of the pattern leaves open, whose remedies know more."""
        return self.is_specific and self.cause == pattern.cause and pattern.topic in read_data_file(FILE)["unnamed"]


def explain(failure: Failure, role: str | None, packages: tuple[str, ...]) -> Explanation | None:
    """The explanation by the first row that fits; None where none does, or a package refused what it was given.

    `packages` are those of the failing line, the innermost first; none if it is the program's own.
    """
    document = read_data_file(FILE)
    frames = _without_accessors(failure.calls)
    if not frames or (frames[-1].raises and packages):
        return None
    frame = frames[-1]
    message = failure.headline.partition(": ")[2]
    error = ": ".join(filter(None, ((failure.type or "").rpartition(".")[2], message)))
    values = {"message": message or frame.statement, "package": (*packages, "it")[0]}
    operation = next((row for row in document["operations"] if (match := re.search(row["form"], error))), None)
    if operation is not None and match is not None:
        values |= {name: text for name, text in match.groupdict().items() if text}
    reads = "" if operation is None else operation["reads"]
    # A setting that was passed on is named as its caller names it.
    given = {name.rpartition(".")[2]: name for each in frames[:-1] for name in SETTING.findall(each.statement)}
    values["object"] = "` or `".join(given.get(text, text) for text in _objects(frame, reads, values))
    kind = _kind_of(values, role, frame)
    values["of"] = document["objects"][kind]["say"] if kind else "the object"
    for row in document["rows"]:
        if row.get("of", [kind]).count(kind) and bool(packages) >= row.get("foreign", False):
            matches = re.search(row["error"], error), re.search(row.get("code", ""), frame.statement)
            if all(matches):
                for found in filter(None, matches):
                    values |= {name: text for name, text in found.groupdict().items() if text}
                return _fill(row, values, frame, kind)
    return None


def shorten(text: str, max_chars: int = MAX_CHARS) -> str:
    """A part of the log on one line, without secrets: the log itself is the training's own."""
    text = redact_text(re.sub(r"\s+", " ", text).strip())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _without_accessors(frames: tuple[CodeFrame, ...]) -> tuple[CodeFrame, ...]:
    """The frames down to the line that reads a key or attribute, without the package that looks it up."""
    is_accessor = re.compile(read_data_file(FILE)["accessors"])
    last = next((number for number in range(len(frames), 0, -1) if not is_accessor.search(frames[number - 1].name)), 0)
    return frames[:last]


def _fill(row: Mapping[str, Any], values: dict[str, str], frame: CodeFrame, kind: str | None) -> Explanation:
    statement = shorten(frame.statement or frame.function, 100)
    values = {name: shorten(text, 80) for name, text in values.items()} | {"message": shorten(values["message"], 160)}
    named, what = values.get("name", ""), values["object"]
    wanted, given, index, size = map(values.get, ("wanted", "given", "index", "size"))
    values |= {
        "function": values.get("function", frame.function),
        "line": f"`{statement}` in {frame.place}",
        "of_capital": values["of"][:1].upper() + values["of"][1:],
        "name_or_value": f"`{named or values.get('text') or values.get('number') or 'this key'}`",
        "from_object": f" in `{what}`" if what else "",
        "object_or_it": f"`{what}`" if what else "what the line reads",
        "object_or_value": f"`{what}`" if what else "what the line uses",
        "counts": f": {given}, not {wanted}" if given else f": not {wanted}" if wanted else "",
        "bound": f": index {index} of {size}" if size else f": index {index}" if index else "",
        "argument": f": `{named}`" if named else "",
        "detail": f": {values['message']}" if values["message"] != frame.statement else "",
        "type": values.get("type", what),
        "type_package": values.get("type", "").partition(".")[0],
    }
    texts = _Values(values)
    sentence, *fixes = (
        text.format_map(texts).replace("`it`", "it") for text in (row["say"], *itertools.chain(*row["fix"]))
    )
    remedies = tuple(
        Remedy(title=title, why=why, source="the traceback") for title, why in zip(fixes[::2], fixes[1::2], strict=True)
    )
    return Explanation(sentence, row.get("cause", "program-error"), remedies, "of" in row or "specific" in row)


class _Values(dict[str, str]):
    """Values of the texts; what is not known is called by a general word."""

    def __missing__(self, name: str) -> str:
        return "it"

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name) or self.__missing__(name) if name == "object" else super().__getitem__(name)


def _kind_of(values: Mapping[str, str], role: str | None, frame: CodeFrame) -> str | None:
    """The kind of the object that an operation failed on: by its expression, its class or what the code does.

    The last only where the line shows no object, or a key that is written there: what a variable names is data.
    """
    expression, kinds = values["object"], read_data_file(FILE)["objects"]
    is_written = not expression or re.search(rf"['\"]{re.escape(values.get('name', ''))}['\"]", frame.statement)
    # What a call is given says nothing about what it returns.
    words = frozenset(re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", re.sub(r"\(.*\)", "", expression)))
    lower = {form for word in map(str.lower, words) for form in (word, word.rstrip("0123456789")) if form}
    rows = kinds.items()
    return next(
        itertools.chain(
            (kind for kind, row in rows if expression and "code" in row and re.search(row["code"], expression)),
            (kind for kind, row in rows if not lower.isdisjoint(row.get("words", "").split("|"))),
            (kind for kind, row in rows if re.fullmatch(row.get("types", "(?!)"), values.get("type", ""))),
            (kind for kind, row in rows if re.search(row.get("files", "(?!)"), frame.file)),
            (kind for kind, row in rows if is_written and role in row.get("roles", "").split("|")),
        ),
        None,
    )


def _objects(frame: CodeFrame, reads: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """The expressions that the failing operation may work on; those of the marked part of the line if it is marked."""
    for text in filter(None, (frame.marked, frame.statement)):
        tree = _parse(text.replace("\\", "/"))  # an escape in a string may be none that Python knows
        if tree is not None and (found := dict.fromkeys(map(ast.unparse, _operands(tree, reads, values)))):
            return tuple(found)[:2]
    return ()


@cache
def _parse(statement: str) -> ast.AST | None:
    """The syntax tree of a line, which may be part of a statement; None if it cannot be read."""
    text = re.sub(r"^(?:async )?(?:el(?=if\b)|else\b.*|try\b.*)", "", statement.strip()).rstrip("/, ")
    opened: list[str] = []
    closers = ""
    for char in re.sub(r"(?s)(['\"]).*?\1", "", text.partition("  #")[0]):
        if char in BRACKETS:
            opened.append(BRACKETS[char])
        elif char in BRACKETS.values() and (not opened or opened.pop() != char):
            closers += char
    ends = "".join(reversed(opened))
    starts = "".join(next(left for left, right in BRACKETS.items() if right == char) for char in reversed(closers))
    whole = f"{starts}{text.partition('  #')[0]}{ends}"
    for form in (whole, f"{whole} pass", f"{whole}: pass", f"{{{whole}}}", f"f({whole})", f"[{whole}]", f"[0 {whole}]"):
        try:
            return ast.parse(form)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _operands(tree: ast.AST, reads: str, values: Mapping[str, str]) -> Iterator[ast.AST]:
    nodes = list(ast.walk(tree))
    name = values.get("name", "").rpartition(".")[2]
    subscripts = [node for node in nodes if isinstance(node, ast.Subscript)]
    read = [node for node in subscripts if isinstance(node.ctx, ast.Load)]
    if reads in ("attribute", "key"):
        yield from (node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == name)
        constants = [node for node in subscripts if isinstance(node.slice, ast.Constant) and node.slice.value == name]
        open_keys = [node for node in read if not isinstance(node.slice, ast.Constant | ast.Slice)]
        yield from (node.value for node in constants or open_keys * (len(open_keys) == 1))
    elif reads == "subscript":
        yield from (node.value for node in subscripts)
    elif reads == "index":
        keyed = (
            node
            for node in subscripts
            if not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str))
        )
        yield from (node.value for node in keyed)
    elif reads == "call":
        called = (node.func for node in nodes if isinstance(node, ast.Call))
        yield from (func for func in called if values.get("function", "") in ast.unparse(func))
    elif reads == "argument":
        yield from (node.args[0] for node in nodes if isinstance(node, ast.Call) and node.args)
    elif reads in ("left", "right"):
        yield from (getattr(node, reads) for node in nodes if isinstance(node, ast.BinOp))
    elif reads == "divisor":
        yield from (
            node.right
            for node in nodes
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod)
        )
    elif reads == "membership":
        compared = (node for node in nodes if isinstance(node, ast.Compare))
        yield from (node.comparators[0] for node in compared if isinstance(node.ops[0], ast.In | ast.NotIn))
    elif reads == "parts":
        yield from _iterables(nodes)


def _iterables(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What a statement unpacks into several names or goes through."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
            yield from _passed_on(node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            yield from _passed_on(node.iter)


def _passed_on(value: ast.expr) -> Iterator[ast.AST]:
    """What `enumerate`, bars and the like only pass on."""
    if isinstance(value, ast.Call) and value.args and PASSES_ON.search(ast.unparse(value.func)):
        is_zip = ast.unparse(value.func) == "zip"
        for argument in value.args if is_zip else value.args[:1]:
            yield from _passed_on(argument.value if isinstance(argument, ast.Starred) else argument)
    else:
        yield value

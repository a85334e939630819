"""What an error of Python's own means in a program that nobody knows: the operation that failed, and on what.

The exception names the key, attribute or index, the source line of the traceback the object that it was read from.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.advice.finding import Remedy
from tuner_tui.core.files import compiled, read_data_file
from tuner_tui.core.python_syntax import parse_python
from tuner_tui.core.redaction import redact_text
from tuner_tui.core.text import end_at_word
from tuner_tui.runs.log_parsing.crash_table import CrashPattern
from tuner_tui.runs.log_parsing.failures import CodeFrame, Failure

FILE = Path(__file__).with_name("failed_operations.yaml")
COUNTER = re.compile(r"(?:[ijkn]|(?:\w*_)?(?:idx|index))$")
PASSES_ON = re.compile(r"\b(?:enumerate|tqdm|zip|list|tuple|iter|next|track|reversed|log_every)$")
SETTING = re.compile(
    r"\b((?:\w+\.)?(?:\w+_)?(?:cfg|conf|configs?|args|opts?|options|settings|hparams?|hps?)\.[\w.]+)\b(?!\()"
)
MIRRORED = str.maketrans("([{)]}", ")]}([{")
MAX_CHARS = 400
"""Of a quoted part of a log."""


class Explanation(Struct, frozen=True):
    """What an error means. `is_specific`: the row is for the object that the operation failed on."""

    sentence: str
    cause: str
    remedies: tuple[Remedy, ...]
    is_specific: bool
    over: tuple[str, ...] = ()

    def replaces(self, pattern: CrashPattern) -> bool:
        """Whether it says more than a pattern that was found by words or by the part of a package."""
        yields = pattern.topic in (*read_data_file(FILE)["yields"], *self.over)
        return self.is_specific and (pattern.confidence == "possible" or yields)


def explain(failure: Failure, package: str) -> Explanation | None:
    """The explanation by the first row that fits; None where none does, or a package refused what it was given.

    `package` is that of the failing line; empty if it is the program's own.
    """
    document = read_data_file(FILE)
    frames = failure.calls
    # What looks a key or attribute up for the line that reads it is left out.
    while frames and re.search(document["accessors"], frames[-1].name):
        frames = frames[:-1]
    if frames == failure.calls and failure.refuses and package:
        return None
    frame = frames[-1] if frames else CodeFrame("", "")
    message = failure.headline.partition(": ")[2].strip()
    error = ": ".join(filter(None, ((failure.type or "").rpartition(".")[2], message)))
    values = {"message": message or frame.statement, "package": package or "it"}
    matches = ((row["reads"], compiled(row["form"]).search(error)) for row in document["operations"])
    reads, match = next((each for each in matches if each[1]), ("", None))
    values |= _groups_of(match)
    # A setting that was passed on is named as its caller names it.
    given = {name.rpartition(".")[2]: name for each in frames[:-1] for name in SETTING.findall(each.statement)}
    values["object"] = "` or `".join(given.get(text, text) for text in _objects(frame, reads, values))
    kinds = {_kind_of(values | {"object": text}, frame) for text in values["object"].split("` or `")}
    kind = (kinds - {"self"} or kinds).pop() if len(kinds - {"self"}) < 2 else None
    for row in document["rows"]:
        if row.get("of", [kind]).count(kind) and row.get("foreign", bool(package)) == bool(package):
            conditions = compiled(row["error"]).search(error), compiled(row.get("code", "")).search(frame.statement)
            if all(conditions):
                return _fill(row, values | _groups_of(conditions[0]) | _groups_of(conditions[1]), frame, kind)
    return None


def _groups_of(match: re.Match[str] | None) -> dict[str, str]:
    return {} if match is None else {name: text for name, text in match.groupdict().items() if text}


def quote_log(text: str, max_chars: int = MAX_CHARS) -> str:
    """A part of the log on one line, without secrets: the log itself is the training's own."""
    return end_at_word(redact_text(re.sub(r"\s+", " ", text).strip()), max_chars)


def _fill(row: Mapping[str, Any], values: dict[str, str], frame: CodeFrame, kind: str | None) -> Explanation:
    values = {name: quote_log(text, 160 if name == "message" else 80) for name, text in values.items()}
    name, operand, wanted, given, index, size = map(
        values.get, ("name", "object", "wanted", "given", "index", "size"), itertools.repeat("")
    )
    line = f"`{quote_log(frame.statement or frame.function, 100)}` in {frame.place}"
    texts = defaultdict(
        lambda: "it",
        {"function": frame.function, "type": operand or "it"}
        | values
        | {
            "line": line if frame.file else "the line that raised it",
            "name_or_value": f"`{name or values.get('text') or values.get('number') or 'this key'}`",
            "object": operand or "it",
            "from_object": f" in `{operand}`" if operand else "",
            "object_or_it": next((f"`{name}`" for name in (operand, values.get("type")) if name), "what the line uses"),
            "counts": f": {given}, not {wanted}" if given else f": not {wanted}" if wanted else "",
            "bound": f": index {index} of {size}" if size else f": index {index}" if index else "",
            "argument": f": `{name}`" if name else "",
            "detail": f": {values['message']}" if values["message"] != frame.statement else "",
        },
    )
    forms = ([row["say"]], *row["fix"])
    [sentence], *fixes = ([form.format_map(texts).replace("`it`", "it") for form in each] for each in forms)
    remedies = (Remedy(each[0], each[1], source="the traceback", edits_line=len(each) > 2) for each in fixes)
    is_specific = "of" in row or "specific" in row
    sentence = re.sub(r"\A[a-z](?=[\w-]*[ ,:])", lambda letter: letter[0].upper(), sentence)
    return Explanation(sentence, row.get("cause", "program-error"), tuple(remedies), is_specific, row.get("over", ()))


def _kind_of(values: Mapping[str, str], frame: CodeFrame) -> str | None:
    """The kind of the object that an operation failed on: by its expression, its class or what package it is of."""
    expression, rows = values["object"], read_data_file(FILE)["objects"].items()
    # What a call is given says nothing about what it returns.
    words = frozenset(re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", re.sub(r"\(.*\)", "", expression)))
    lower = {form for word in map(str.lower, words) for form in (word, word.rstrip("0123456789")) if form}
    return next(
        itertools.chain(
            (kind for kind, row in rows if expression and "code" in row and compiled(row["code"]).search(expression)),
            (kind for kind, row in rows if not lower.isdisjoint(row.get("words", "").split("|"))),
            (kind for kind, row in rows if compiled(row.get("types", "(?!)")).fullmatch(values.get("type", ""))),
            (kind for kind, row in rows if compiled(row.get("files", "(?!)")).search(frame.file)),
        ),
        None,
    )


def _objects(frame: CodeFrame, reads: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """The expressions that the failing operation may work on; those of the marked part of the line if it is marked."""
    for text in filter(None, (frame.marked, frame.statement)):
        tree = _parse(text.replace("\\", "/"))  # an escape in a string may be none that Python knows
        if tree is None:
            continue
        operands = list(_operands(tree, reads, values))
        if not operands and reads in ("attribute", "key"):
            operands = list(_operands(tree, "variable-key", values))
            operands *= len(operands) == 1  # of several, any may be meant
        if operands:
            return tuple(dict.fromkeys(map(ast.unparse, operands)))[:2]
    return ()


@cache
def _parse(statement: str) -> ast.AST | None:
    """The syntax tree of a line, which may be part of a statement; None if it cannot be read."""
    text = re.sub(r"^(?:async )?(?:el(?=if\b)|else\b.*|try\b.*)", "", statement.strip()).rstrip("/, ")
    text = re.sub(r"^([\w.]+): [\w.\[\], |]+ = ", r"\1 = ", text.partition("  #")[0])
    open_ones = re.sub(r"(?s)(['\"]).*?\1|[^]()[{}]", "", text)
    while (rest := re.sub(r"\(\)|\[\]|\{\}", "", open_ones)) != open_ones:
        open_ones = rest
    mirrored, opened = open_ones[::-1].translate(MIRRORED), sum(map(open_ones.count, "([{"))
    whole = f"{mirrored[opened:]}{text}{mirrored[:opened]}"
    for form in (whole, f"{whole} pass", f"{whole}: pass", f"{{{whole}}}", f"f({whole})", f"[{whole}]", f"[0 {whole}]"):
        try:
            return parse_python(form)
        except SyntaxError:
            continue
    return None


def _operands(tree: ast.AST, reads: str, values: Mapping[str, str]) -> Iterator[ast.AST]:
    """The operands of the nodes that do what `reads` says."""
    name, function = values.get("name", "").rpartition(".")[2], values.get("function", "")
    for node in ast.walk(tree):
        match reads, node:
            case "attribute" | "key", ast.Attribute(value=container, attr=attribute) if attribute == name:
                yield container
            case "attribute" | "key", ast.Subscript(value=container, slice=ast.Constant(value=key)) if key == name:
                yield container
            case ("variable-key", ast.Subscript(slice=ast.Constant() | ast.Slice())) | (
                "index",
                ast.Subscript(slice=ast.Constant(value=str())),
            ):
                continue
            case "key", ast.Call(ast.Attribute(container, "pop"), [ast.Constant(key)]) if key == name:
                yield container
            case "variable-key", ast.Subscript(container, key, ast.Load()):
                yield from () if name and COUNTER.match(ast.unparse(key)) else [container]
            case "subscript" | "index", ast.Subscript(value=container):
                yield container
            case "call", ast.Call(func=called) if function in ast.unparse(called):
                yield called
            case "argument", ast.Call(func=called, args=[first, *_]) if function in ast.unparse(called):
                yield first
            case ("left", ast.BinOp(operand, sign)) | ("right", ast.BinOp(op=sign, right=operand)):
                shown = ast.unparse(ast.BinOp(ast.Name("a"), sign, ast.Name("b")))
                yield from [operand] if shown == f"a {values.get('operator', shown[2:-2])} b" else ()
            case "divisor", ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=operand):
                yield operand
            case "membership", ast.Compare(ops=[ast.In() | ast.NotIn(), *_], comparators=[container, *_]):
                yield container
            case "parts", ast.Assign(targets=[ast.Tuple() | ast.List(), *_], value=parts):
                yield from _passed_on(parts)
            case "parts", ast.For(iter=parts) | ast.comprehension(iter=parts):
                yield from _passed_on(parts)


def _passed_on(value: ast.expr) -> Iterator[ast.AST]:
    """What `enumerate`, bars and the like only pass on."""
    if isinstance(value, ast.Call) and value.args and PASSES_ON.search(ast.unparse(value.func)):
        for argument in value.args if ast.unparse(value.func) == "zip" else value.args[:1]:
            yield from _passed_on(argument.value if isinstance(argument, ast.Starred) else argument)
    else:
        yield value

"""What the names of Python sources stand for, found without running them."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.python_syntax import parse_expression, parse_python
from tuner_tui.settings.dialects.script_search import TRAINING, WORD, pattern_of, words_of
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.model import shorten_text

ARGUMENTS = re.compile(r"\w*TrainingArguments|(SFT|DPO|GRPO|RLOO|KTO|Reward|ORPO|CPO|GKD|PPO|OnlineDPO|PRM|BCO)Config")
OWN_NAMES = "args"
"""Section of the names that a script without `TrainingArguments` binds."""
UNKNOWN = ast.Pass()
"""In the place of a value that only the run knows."""
MOST_PASSES = 4
"""How often names are put into one another."""
CLASS = "class"
CALLED = "()"
"""What follows the name of a section that the source has a call of."""


def _power(base: float, exponent: float) -> Any:
    if abs(exponent) > LARGEST_EXPONENT:
        raise OverflowError
    return base**exponent


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power,
}  # fmt: skip
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}  # fmt: skip
MOST_LINES = 10_000
"""Of all cells of a notebook together; each is read and parsed."""
LARGEST_OPERAND, LARGEST_EXPONENT, LONGEST_TEXT = 1e18, 64, 1_000
_MAGIC = re.compile(r"^(?P<indent>[ \t]*)(?P<magic>[%!].{3,})$", re.MULTILINE)
PLAIN_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.If, ast.Expr, ast.With, ast.Delete, ast.ClassDef,
)  # fmt: skip
"""Statements of a module that holds nothing but settings."""


def entry_value(key: object, node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an entry; the name of a class for its type, and source in `<>` for what is computed."""
    try:
        return evaluate_literal(node, names)
    except (ValueError, TypeError, ArithmeticError):
        if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Dict):
            return entry_value(key, node.args[0], names)  # `ConfigDict({...})`
        is_class = isinstance(node, ast.Name) and str(key).endswith("type")
        return unparsed(node) if is_class else f"<{shorten_text(unparsed(node))}>"


def unparsed(node: ast.AST) -> str:
    """The source of `node`; empty if it is nested too deeply."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


class PythonSource(Struct, frozen=True):
    """A script or a cell: what of it is Python, all nodes of its tree, and where its lines begin."""

    code: str
    nodes: list[ast.AST]
    offsets: list[int]

    def span(self, node: ast.expr) -> tuple[int, int]:
        """The indexes of the first character and of the one after the last."""
        end = self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return self.offset(node.lineno, node.col_offset), end

    def offset(self, line: int, column: int) -> int:
        """The index of a place that `ast` gives as line and UTF-8 byte."""
        text = self.code[self.offsets[line - 1] : self.offsets[line]]
        return self.offsets[line - 1] + len(text.encode()[:column].decode())


def parse_sources(codes: list[str], source: str) -> list[PythonSource]:
    """The parsed codes. Raises `PresetError`."""
    sources = []
    for code in codes:
        try:
            nodes = list(ast.walk(parse_python(code)))
        except SyntaxError as error:
            where = f"{source}:{error.lineno}" if error.lineno else source
            raise PresetError(f"{where}: is not valid Python: {shorten_text(error.msg, 120)}") from None
        offsets = [0]
        for line in code.split("\n"):  # where `ast` ends a line; str.splitlines also ends one at a form feed
            offsets.append(offsets[-1] + len(line) + 1)
        sources.append(PythonSource(code, nodes, offsets))
    return sources


def live_source(parsed: PythonSource, names: Mapping[str, Any]) -> PythonSource:
    """The source without the branches that its own constants and the defaults of its options rule out.

    Where they do not say whether a branch is taken, its calls without arguments are left out: they only switch on.
    """
    dead: set[ast.AST] = set()
    for node in (node for node in parsed.nodes if isinstance(node, ast.If)):
        try:
            without = node.orelse if evaluate_literal(node.test, names) else node.body
            dead |= {inner for part in without for inner in ast.walk(part)}
        except (ValueError, TypeError, ArithmeticError):
            calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
            switches = ("checkpointing_enable", "checkpointing")
            dead |= {call for call in calls if (section_of(call) or "").endswith(switches)}
    for *body, last in (node.body for node in parsed.nodes if isinstance(node, ast.FunctionDef)):
        guards = [part.body[-1] for part in body if isinstance(part, ast.If) and isinstance(last, ast.Return)]
        if any(unparsed(guard) in ("return", "return None") and guard not in dead for guard in guards):
            dead |= {*ast.walk(last)}  # a configuration or none
    return replace(parsed, nodes=[node for node in parsed.nodes if node not in dead])


def section_of(call: ast.Call) -> str | None:
    name = last_name(call.func)
    if name is None:
        return None
    if name == "from_pretrained" and isinstance(call.func, ast.Attribute):
        owner = last_name(call.func.value) or ""
        return name if pattern_of("model_classes").fullmatch(owner) else None
    if ARGUMENTS.fullmatch(name):
        return "" if call.keywords else None  # `TrainingArguments(".")` only prepares DeepSpeed
    if pattern_of("optimizers").fullmatch(name):
        return "optimizer"
    if name == "manual_seed" and ast.unparse(call.func) not in words_of("manual_seeds"):
        return None  # of a generator of its own
    if pattern_of("makes_loaders").fullmatch(name):
        return "make_loaders"
    return name if name in {**words_of("calls"), **words_of("calls_of_loops")} else None


def last_name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def bound_values(sources: list[PythonSource]) -> dict[str, list[Any]]:
    """What names are bound to, anywhere; a field of a class, an option or a member of these is `args.name`.

    A node that has no value stands for what only the run knows. Parameters of functions count where nothing else does.
    """
    bound: dict[str, list[Any]] = {}
    parameters: dict[str, list[Any]] = {}
    given: dict[str, list[Any]] = {}
    nodes = [node for parsed in sources for node in parsed.nodes]
    calls = [node for node in nodes if isinstance(node, ast.Call)]

    def bind(target: Any, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            parts = value.elts if isinstance(value, ast.Tuple) else [UNKNOWN] * len(target.elts)
            for inner, part in zip(target.elts, parts, strict=False):
                bind(inner, part)
        name = target.id if isinstance(target, ast.Name) else f"{OWN_NAMES}.{argument_name(target)}"
        if f"{OWN_NAMES}.{argument_name(value)}" != name:  # `config.lr = args.lr`
            bound.setdefault(name, []).append(default_value(value))
        if isinstance(value, ast.Call) and pattern_of("parsed").fullmatch(name) and section_of(value) is None:
            for word in (word for word in value.keywords if argument_name(word.value) != word.arg):
                given.setdefault(f"{OWN_NAMES}.{word.arg}", []).append(word.value)

    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                bind(target, value)
            case ast.AugAssign(target=target) | ast.For(target=target):
                bind(target, node)
            case ast.If(test=test) if "__name__" not in unparsed(test):  # `if c.debug: c.params.epoch = 1`
                for change in (inner for inner in ast.walk(node) if isinstance(inner, ast.Assign)):
                    if isinstance(change.targets[0], ast.Attribute) and isinstance(change.value, ast.Constant):
                        bind(change.targets[0], UNKNOWN)
            case ast.ClassDef(body=body):
                for field in body:
                    for target in getattr(field, "targets", [getattr(field, "target", None)]):
                        if isinstance(target, ast.Name):
                            member = ast.Attribute(ast.Name(OWN_NAMES), target.id)
                            bind(member, getattr(field, "value", None) or field)
            case ast.FunctionDef():
                for name, argument in _parameters(node, calls):
                    parameters.setdefault(name, []).append(argument)
    for config in [value for values in bound.values() for value in values if isinstance(value, ast.Dict)]:
        for key, value in zip(config.keys, config.values, strict=True):
            entry = f"{OWN_NAMES}.{getattr(key, 'value', None)}"
            if entry in bound:  # `config["epochs"] = 2` in some branch is not the only value
                bound[entry].append(value)
    made = re.findall(r"(\w+)\s*=\s*[\w.]+\.add_parser\(\s*[\"']([\w-]+)", "\n".join(parsed.code for parsed in sources))
    others = {variable for variable, name in made if not TRAINING.search(name)} if len(made) > 1 else set()
    for call, words in declared_options(nodes):
        if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", None) in others:
            continue  # of a subcommand that does other work
        option = next((word[2:].replace("-", "_") for word in words if word.startswith("--")), "")
        action = ast.unparse(keyword_value(call, "action") or call).strip("'")
        switch = {"store_true": ast.Constant(False), "store_false": ast.Constant(True)}.get(action, call)
        switch = ast.Constant(False) if any(word.arg == "is_flag" for word in call.keywords) else switch
        of_parser = last_name(call.func) == "add_argument"
        name, names = (f"{OWN_NAMES}.{option}", bound) if of_parser else (option, parameters)
        names.setdefault(name, []).extend({keyword_value(call, "default") or switch} - {call})  # else a class has it
    return parameters | bound | given


def _parameters(function: ast.FunctionDef, calls: list[ast.Call]) -> Iterator[tuple[str, Any]]:
    """The parameters of a function that have defaults, with these or what those of `calls` give that are its own."""
    spec = function.args
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
    defaults = {*zip(reversed(names), reversed(spec.defaults), strict=False)}
    defaults |= {(word.arg, value) for word, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    its_calls = [call for call in calls if last_name(call.func) == function.name]
    for name, default in defaults:
        for call in its_calls or [ast.Call(ast.Name(function.name), [], [])]:
            positional = dict(zip(names, call.args, strict=False)).get(name)
            yield name, keyword_value(call, name) or positional or default_value(default)


def default_value(node: Any) -> Any:
    """The value in a call such as `field(default=…)`, which stands for it; else the node."""
    if not (isinstance(node, ast.Call) and last_name(node.func) in words_of("holds_default")):
        return node
    return keyword_value(node, "default") or next(iter(node.args), node)


def names_in(
    sources: list[PythonSource],
    imported: Mapping[str, Any] = MappingProxyType({}),
    options: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, Any]:
    """The names that have one value, whatever is bound to them; the `imported` ones where nothing here binds them.

    An option of the script has the value that `options` gives it.
    """
    bound = bound_values(sources)
    given = ((f"{OWN_NAMES}.{key}", value) for key, value in options.items())
    names = {name: _literal(value) for name, value in given if name in bound or name in imported}
    variables = {key[1:]: _literal(value) for key, value in options.items() if key[0] == "$"}
    names |= {"__name__": "__main__", "environ": variables}
    getters = (getter for parsed in sources for getter, _ in pattern_of("getter_of_variables").findall(parsed.code))
    names |= {f"{getter}{CALLED}": True for getter in getters}
    # The default of a class does not count where a call gives another value.
    calls = [node for parsed in sources for node in parsed.nodes if isinstance(node, ast.Call)]
    configured = [call for call in calls if pattern_of("parsed").search(last_name(call.func) or "")]
    closed = {*filter(bound.get, bound)} | {f"{OWN_NAMES}.{word.arg}" for call in configured for word in call.keywords}
    names = {name: value for name, value in imported.items() if name not in closed} | names
    for _ in range(MOST_PASSES):
        for name in [name for name in bound if name not in names]:
            nodes = [n for n in bound[name] if name not in (getattr(n, "id", ""), f"{OWN_NAMES}.{argument_name(n)}")]
            try:
                first, *others = (evaluate_literal(node, names) for node in nodes)
            except (ValueError, TypeError, ArithmeticError):
                continue
            if all(other == first for other in others):
                names[name] = first
    return names


def module_constants(given: Mapping[str, str], script: str, options: Mapping[str, object]) -> dict[str, Any]:
    """The constants, and the fields of classes, that have the same value in all modules that bind them.

    A class that is named nowhere but where it begins is of another script than `script`; one that is made of a section
    which a function is given has its values there. A field that is a section of
    its own (`model: ModelConfig`) has none; what a module does when started or is given by its caller does not count.
    Of a module that `script` imports by its name, as `config` in `config.lr`, all names that it uses count.
    """
    modules = [*given.values()]
    init, number, other = map(pattern_of, ("init_of_no_configuration", "default_of_parameter", "class_of_other_work"))
    used = Counter(WORD.findall("\n".join((script, *modules))))
    class_of_code = re.compile(r"(?m)^class[ ]+(\w+)[^\n]*:\n(?:[ \t][^\n]*\n|\n)*")
    for text in modules:
        for name, word in re.findall(r"\b(\w+)\(\*\*(\w+)\)", text):
            used[name] *= re.search(rf"\bdef \w+\((?:[^()]|\([^()]*\))*?\b{word}\b", text) is None
    modules = [class_of_code.sub(lambda match: match[0] if used[match[1]] > 1 else "", text) for text in modules]
    bodies = (other.sub("", text.partition("\nif __name__")[0]) for text in modules)
    modules = [init.sub(lambda match: number.sub("=_", match[0]), text) for text in bodies]
    bound: list[tuple[str, Any]] = []
    classes = {name for text in modules for name in re.findall(r"(?m)^class[ ]+(\w+)", text)}
    fields = (field for text in modules for field in re.findall(r"(?m)^[ ]+(\w+)[ ]*:[ ]*(\w+)", text))
    sections = {f"{OWN_NAMES}.{name}" for name, kind in fields if kind in classes}
    for text in modules:
        with suppress(PresetError):
            bound += names_in(parse_sources([text], "source"), options=options).items()
    last = dict(bound)
    differing = sections | {name for name, value in bound if value != last[name]}
    constants = {name: last[name] for name in last if name not in differing and (name.isupper() or "." in name)}
    for stem, text in ((Path(name).stem, text) for name, text in given.items()):
        imports = (
            rf"(?m)^[ \t]*(?:from[ ][\w.]+[ ])?import[ ](?:[\w, ]+,[ ]*)?{re.escape(stem)}(?:[ ]as[ ](\w+))?\b(?!\.)"
        )
        imported = re.search(imports, script)
        if imported is not None and pattern_of("parsed").fullmatch(word := imported[1] or stem):
            with suppress(PresetError):
                names = names_in(parse_sources([text], "source"), options=options)
                read = names.keys() & {*re.findall(rf"\b{word}\.(\w+)", script)}
                constants |= {f"{OWN_NAMES}.{name}": names[name] for name in read}
    return constants


def _literal(value: object) -> Any:
    """The value of a word of a command line."""
    try:
        return ast.literal_eval(parse_expression(str(value)))
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(str(value), value)


def known_names(text: str) -> dict[str, Any]:
    """The names in the source with one known value; an option with a default is `args.name`. Raises `PresetError`."""
    return names_in(parse_sources([text], "source"))


def own_values(sources: list[PythonSource], names: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a whole script binds and uses; its options and the fields of its classes before others."""
    nodes = [node for parsed in sources for node in parsed.nodes]
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
    inner = [function for function in functions if not pattern_of("starts").fullmatch(function.name)]
    local = {node for function in inner for node in ast.walk(function)}
    written = {node.id for node in nodes if isinstance(node, ast.Name) and node not in local}
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    values = {
        f"{OWN_NAMES}.{name}": names[name]
        for name in names
        if name in written & used and (names[name] != 0 or pattern_of("may_be_0").search(name))
    }
    values |= {name: value for name, value in names.items() if name.startswith(f"{OWN_NAMES}.")}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}


def declared_options(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Call, list[str]]]:
    """The calls of argparse's `add_argument` and click's `option`, with the names of the option."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("add_argument", "option"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield node, [name for name in names if isinstance(name, str)]


def is_switch(call: ast.Call, names: Collection[str]) -> bool:
    """Whether an option takes no value: `--amp/--no-amp` of click as well."""
    given = (keyword_value(call, name) for name in ("action", "is_flag"))
    action, is_flag = ("" if value is None else unparsed(value).strip("'") for value in given)
    without_value = re.fullmatch(r"(?:store_|count|version|help).*|.*BooleanOptionalAction", action)
    return bool(without_value) or is_flag == "True" or any("/" in name for name in names)


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def argument_name(node: ast.expr) -> str | None:
    """The argument of the command line that `args.name` stands for, or the key `section.name` of a configuration."""
    path: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        if not isinstance(name, str):
            return None
        path.insert(0, name)
        node = node.value
    is_parsed = pattern_of("parsed").fullmatch
    if not path or not isinstance(node, ast.Name) or not is_parsed(node.id):
        return None
    inner = path[1:] if len(path) > 1 and is_parsed(path[0]) else path  # `self.args.lr`
    return None if node.id == "self" and len(inner) == len(path) > 1 else ".".join(inner)


def evaluate_literal(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a literal, a known name or arithmetic of them. Raises `ValueError` for anything else."""
    try:
        return _evaluated(node, names)
    except (RecursionError, LookupError):
        raise ValueError("nested too deeply, or not there") from None


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "bool": bool, "ceil": ceil}


def _evaluated(node: Any, names: Mapping[str, Any]) -> Any:
    def value(inner: ast.AST) -> Any:
        return _evaluated(inner, names)

    match node:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Attribute() | ast.Subscript() if f"args.{argument_name(node)}" in names:
            return names[f"args.{argument_name(node)}"]
        case (
            ast.Attribute(value=ast.Name(), attr=name)
            | ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(), ast.Constant(value=str(name)), *_])
        ) if name.isupper() and name in names:
            return names[name]  # of a module that is imported under a name of its own
        case ast.Attribute(value=owner, attr=name) if last_name(owner) == "torch":
            return name  # torch.bfloat16, which the libraries take as text, too
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in words_of("enumerations"):
            return name.lower()
        case ast.Attribute(attr="environ"):
            return names.get("environ", {})
        case ast.Call(func=getter, args=[key, word, *_]) if f"{last_name(getter)}{CALLED}" in ("getenv()", *names):
            return value(ast.Call(ast.Attribute(ast.Attribute(ast.Name("os"), "environ"), "get"), [key, word], []))
        case ast.Attribute(value=owner, attr=key) | ast.Subscript(value=owner, slice=ast.Constant(value=key)):
            return value(owner)[key]
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="torch"), word]):
            return value(word)
        case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[key, *default]):
            section = value(owner)
            return section[value(key)] if value(key) in section or not default else value(default[0])
        case ast.Call(func=function, args=[inner], keywords=[]) if last_name(function) in _FUNCTIONS:
            return _FUNCTIONS[str(last_name(function))](value(inner))
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words):
            return {word.arg: entry_value(word.arg, word.value, names) for word in words}
        case ast.Dict(keys=keys, values=values):
            pairs = [(value(key), inner) for key, inner in zip(keys, values, strict=True) if key is not None]
            return {name: entry_value(name, inner, names) for name, inner in pairs}
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            numbers = value(left), value(right)
            if all(isinstance(number, int | float) and abs(number) < LARGEST_OPERAND for number in numbers):
                return _OPERATORS[type(op)](*numbers)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -value(inner)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not value(inner)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return bool(_COMPARISONS[type(op)](value(left), value(right)))
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            return value(body if value(test) else otherwise)
        case ast.BoolOp(op=op, values=[first, *others]):
            for other in others:
                first = first if bool(value(first)) == isinstance(op, ast.Or) else other
            return value(first)
        case ast.JoinedStr(values=parts):
            text = "".join(str(value(part.value if isinstance(part, ast.FormattedValue) else part)) for part in parts)
            if len(text) < LONGEST_TEXT:
                return text
    return ast.literal_eval(node)


def without_magics(code: str) -> str:
    """A cell with `pass` for lines of IPython (`%time`, `!pip install`), each as long; empty if it is no Python."""
    plain = _MAGIC.sub(lambda match: match["indent"] + "pass".ljust(len(match["magic"])), code)
    try:
        parse_python(plain)
    except SyntaxError:
        return ""
    return plain


def check_length(codes: list[str], source: str) -> None:
    if sum(code.count("\n") + 1 for code in codes) > MOST_LINES:
        raise PresetError(f"{source}: has more than {MOST_LINES:,} lines of code, too many to look through")

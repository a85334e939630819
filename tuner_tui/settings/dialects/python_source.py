"""Keyword arguments of the calls in a Python script or notebook that configure a training: read, changed, written.

The calls are `TrainingArguments(...)` and its subclasses, whose arguments have their own names here, and those of
`SECTIONS`, whose arguments are called `LoraConfig.r`. Nothing is imported or run: a value counts if it is a literal,
arithmetic of literals, a name that the source binds once to such a value, or an argument of the script's own command
line with a default: `args.lr` of `add_argument("--lr", default=1e-4)`, or of a dataclass.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.model import shorten_text
from tuner_tui.settings.yaml_reader import MAX_NODES, ToolFile

ARGUMENTS = re.compile(r"\w*TrainingArguments|(SFT|DPO|GRPO|RLOO|KTO|Reward|ORPO|CPO|GKD|PPO|OnlineDPO|PRM|BCO)Config")
MODEL_CLASS = re.compile(r"(AutoModel|Fast)\w*|\w+(For[A-Z]\w+|Model)|SentenceTransformer|CrossEncoder")
SECTIONS = frozenset({"LoraConfig", "BitsAndBytesConfig", "get_peft_model", "DataLoader", "tokenizer", "load_dataset"})
FIRST_ARGUMENT = {"from_pretrained": "model_name", "load_dataset": "path"}
"""Name under which a section keeps its first positional argument."""
PARSED = re.compile(r"\w*(args?|arguments|opts?|options|params|flags|cfg|config)", re.IGNORECASE)
"""What scripts call the parsed arguments of their command line."""
CLASS = "class"
UNSLOTH = "unsloth"
"""Key of a source that imports Unsloth, whose calls have the same names as those of others."""
CALLED = "()"
"""What follows the name of a section that the source has a call of."""
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
MOST_LINES = 10_000
"""Of all cells of a notebook together; each is read and parsed."""
LARGEST_OPERAND = 1e18
_MAGIC = re.compile(r"^(?P<indent>[ \t]*)(?P<magic>[%!].{3,})$", re.MULTILINE)


MOST_BASES = 20
_PLAIN = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.If, ast.Expr, ast.With, ast.Delete)
"""Statements of a module that holds nothing but settings."""


def read_assignments(path: Path, text: str, read: set[Path] | None = None) -> dict[str, Any]:
    """The values that a module of settings binds at its top, over those of its `_base_` files, as OpenMMLab reads them.

    Empty for a module with functions or classes. `dict(...)` is a section; a value that is computed stays as source
    in `<>`.
    """
    try:
        body = parse_python(text).body
    except SyntaxError:
        return {}
    if not all(isinstance(node, _PLAIN) for node in body):
        return {}
    read = {path} if read is None else read
    own: dict[str, Any] = {}
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None:
            own |= {target.id: _section_value(value, own) for target in targets if isinstance(target, ast.Name)}
    merged: dict[str, Any] = {}
    bases = own.pop("_base_", [])
    for name in [bases] if isinstance(bases, str) else bases if isinstance(bases, list | tuple) else []:
        base = (path.parent / str(name)).resolve()
        if base.suffix == ".py" and base.is_file() and base not in read and len(read) < MOST_BASES:
            read.add(base)
            merged = overlaid(merged, read_assignments(base, base.read_text("utf-8", "replace"), read))
    return overlaid(merged, own)


def _section_value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return {
            word.arg: word.value.id
            if word.arg == "type" and isinstance(word.value, ast.Name)
            else _section_value(word.value, names)
            for word in node.keywords
            if word.arg is not None
        }
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): _section_value(value, names) for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), dict):
        return names[node.id]
    try:
        return evaluate_literal(node, names)
    except (ValueError, TypeError, ArithmeticError):
        return f"<{shorten_text(ast.unparse(node))}>"


TO_GIVE = "???"
"""What must be given on the command line of OmegaConf: a value, or the choice of a group."""


def overlaid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`under` with the values of `over`, section by section; `_delete_` replaces a section as a whole.

    `TO_GIVE` takes the place of no value.
    """
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and not value.get("_delete_"):
            merged[key] = overlaid(old, value)
        elif value != TO_GIVE or old is None:
            merged[key] = value
    return merged


def notebook_codes(text: str, source: str) -> list[str]:
    """The Python of the code cells of a notebook. Raises `PresetError`."""
    return [_without_magics(code) for code in _cells(text, source)]


def shell_lines(text: str, source: str) -> str:
    """The commands that the cells of a notebook give to a shell: `!torchrun …`, and cells of `%%bash`."""
    cells = []
    for code in _cells(text, source):
        if re.match(r"\s*%%(bash|sh)\b", code):
            cells.append(code.partition("\n")[2])
        else:
            cells += re.findall(r"^[ \t]*!((?:[^\n]*\\\n)*[^\n]*)", code, re.MULTILINE)
    return re.sub(r"(?<!\$)\{(\w+)\}", r"$\1", "\n".join(cells))  # IPython puts Python's variables in


def patch_python(text: str, changes: Mapping[tuple[str, ...], Any], source: str) -> str:
    """`text` with the keyword arguments changed. Raises `SettingsError` for one whose call the source does not have."""
    (patched,) = _patch([text], [text], changes, source)
    return patched


def patch_notebook(text: str, changes: Mapping[tuple[str, ...], Any], source: str) -> str:
    """`text` with the keyword arguments changed in its cells. Raises `SettingsError` as `patch_python` does."""
    notebook = json.loads(text)
    end = "\n" if text.endswith("\n") else ""
    layout = next(
        (
            (indent, ascii_only)
            for indent in (1, 2, 4, None)
            for ascii_only in (False, True)
            if json.dumps(notebook, indent=indent, ensure_ascii=ascii_only) + end == text
        ),
        None,
    )
    if layout is None:
        raise SettingsError(f"{source}: these values cannot be changed without changing others; edit it by hand")
    codes = [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    written = [_source_of(cell) for cell in codes]
    patched = _patch(written, [_without_magics(code) for code in written], changes, source)
    for cell, code in zip(codes, patched, strict=True):
        cell["source"] = code if isinstance(cell["source"], str) else code.splitlines(keepends=True)
    return json.dumps(notebook, indent=layout[0], ensure_ascii=layout[1]) + end


def parse_python(code: str) -> ast.Module:
    """The tree of `code`. Raises `SyntaxError`, also for what is nested too deeply for the parser."""
    try:
        return ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "it is nested too deeply") from None


def render_calls(values: Mapping[str, Any], calls: Mapping[str, str]) -> str:
    """`values` as calls: `calls` has the beginning of each section's, under the empty name that of the arguments'."""
    sections: dict[str, dict[str, Any]] = {"": {}}
    for key, value in values.items():
        section, _, name = key.removesuffix(CALLED).rpartition(".")
        if key.endswith(CALLED):
            sections.setdefault(name, {})
        else:
            sections.setdefault(section, {})[name] = value
    return "\n".join(
        "\n".join([calls[section], *(f"    {name}={value!r}," for name, value in arguments.items()), ")"])
        for section, arguments in sections.items()
        if section or arguments
    )


class _Source(Struct, frozen=True):
    """A script or a cell: what of it is Python, all nodes of its tree, and where its lines begin."""

    code: str
    nodes: list[ast.AST]
    offsets: list[int]

    def text(self, node: ast.expr) -> str:
        return self.code[slice(*self.span(node))]

    def span(self, node: ast.expr) -> tuple[int, int]:
        """The indexes of the first character and of the one after the last."""
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0),
        )

    def offset(self, line: int, column: int) -> int:
        """The index of a place that `ast` gives as line and UTF-8 byte."""
        text = self.code[self.offsets[line - 1] : self.offsets[line]]
        return self.offsets[line - 1] + len(text.encode()[:column].decode())


def _sources(codes: list[str], source: str) -> list[_Source]:
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
        sources.append(_Source(code, nodes, offsets))
    return sources


def read_python(codes: list[str], source: str) -> ToolFile:
    """The arguments of the calls in Python sources. Raises `PresetError` if one does not parse."""
    _check_length(codes, source)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    sources = _sources(codes, source)
    names = _known_names(sources)
    if any(UNSLOTH in _imported(parsed) for parsed in sources):
        values[UNSLOTH] = True
    count = 0
    for parsed in sources:
        for section, call in _calls(parsed):
            count += len(call.keywords)
            if count > MAX_NODES:
                raise PresetError(f"{source}: has more than {MAX_NODES:,} arguments, too many for a training script")
            keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
            first = FIRST_ARGUMENT.get(section)
            if first is not None and call.args:
                keywords = {first: call.args[0]} | keywords
            arguments = {name: _value(node, names, parsed) for name, node in keywords.items()}
            if section:
                arguments = {f"{section}.{name}": value for name, value in arguments.items()}
                arguments[f"{section}{CALLED}"] = True
                if section == "from_pretrained" and isinstance(call.func, ast.Attribute):
                    arguments[f"{section}.{CLASS}"] = last_name(call.func.value)
            # Of several calls the first counts: of two loaders that is the training's.
            for key, value in arguments.items():
                values.setdefault(key, value)
                lines.setdefault(key, call.lineno)
    return ToolFile(values, lines)


def _patch(codes: list[str], python: list[str], changes: Mapping[tuple[str, ...], Any], source: str) -> list[str]:
    """`codes` changed; `python` is what of them can be parsed, with every place where it is in `codes`."""
    sources = _sources(python, source)
    defaults = _defaults(sources)
    patched = list(codes)
    edits: list[tuple[int, int, int, str]] = []
    for (key,), value in changes.items():
        section, _, name = key.rpartition(".")
        places = [(index, call) for index, parsed in enumerate(sources) for of, call in _calls(parsed) if of == section]
        if not places or key.endswith(CALLED):
            raise SettingsError(f"{source}: has no call of {key.removesuffix(CALLED)} that could take {name}")
        edits.append(_edit(sources, places, defaults, name, value, source))
    # From the end to the beginning, so that the places of what is still to be edited stay valid.
    for index, start, end, text in sorted(edits, reverse=True):
        patched[index] = patched[index][:start] + text + patched[index][end:]
    return patched


def _edit(
    sources: list[_Source],
    places: list[tuple[int, ast.Call]],
    defaults: Mapping[str, tuple[int, ast.expr]],
    name: str,
    value: Any,
    source: str,
) -> tuple[int, int, int, str]:
    """Cell, start, end and new text of one changed argument; a value of None removes it."""
    for index, node in places:
        keyword = next((argument for argument in node.keywords if argument.arg == name), None)
        if keyword is None:
            continue
        default = defaults.get(_argument(keyword.value) or "")
        if default is not None and value is not None:
            where, constant = default
            return where, *sources[where].span(constant), repr(value)
        parsed = sources[index]
        start, end = parsed.span(keyword.value)
        literal = isinstance(keyword.value, ast.Constant | ast.UnaryOp | ast.Attribute)
        if not literal or _argument(keyword.value) is not None:
            raise SettingsError(f"{source}:{node.lineno}: {name} is computed in the script; change it by hand")
        if value is not None:
            return index, start, end, repr(value)
        rest = re.match(r"[ \t]*,[ \t]*(\n[ \t]*)?", parsed.code[end:])
        return index, parsed.offset(keyword.lineno, keyword.col_offset), end + (rest.end() if rest else 0), ""
    # No call has the argument: it is added to the first one, after its last argument, in the layout that this one has.
    # Not into a call with `**kwargs`, where it might be given a second time.
    index, node = places[0]
    if value is None:
        return index, 0, 0, ""
    if any(keyword.arg is None for keyword in node.keywords):
        raise SettingsError(f"{source}:{node.lineno}: {name} may be among the arguments that the call unpacks (**)")
    parsed = sources[index]
    arguments: list[tuple[ast.expr | ast.keyword, ast.expr]] = [(value, value) for value in node.args]
    arguments += [(keyword, keyword.value) for keyword in node.keywords]
    if not arguments:
        end = parsed.span(node)[1] - 1
        return index, end, end, f"{name}={value!r}"
    begin, last = max(arguments, key=lambda argument: (argument[1].end_lineno or 0, argument[1].end_col_offset or 0))
    end = parsed.span(last)[1]
    line_start = parsed.offsets[begin.lineno - 1]
    own_line = not parsed.code[line_start : parsed.offset(begin.lineno, begin.col_offset)].strip()
    indent = " " * begin.col_offset
    rest = re.match(r"[ \t]*,[ \t]*(#[^\n]*)?(?=\n)", parsed.code[end:])
    if own_line and rest is not None:  # the comment belongs to the line before
        return index, end + rest.end(), end + rest.end(), f"\n{indent}{name}={value!r},"
    return index, end, end, f",\n{indent}{name}={value!r}" if own_line else f", {name}={value!r}"


def _calls(parsed: _Source) -> Iterator[tuple[str, ast.Call]]:
    """The calls that configure a training, in the order of the source, each after the section of its arguments, empty
    for `TrainingArguments`.
    """
    # `ast.walk` goes breadth first: an inner call would come after an outer one that begins later in the source.
    calls = [node for node in parsed.nodes if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        section = _section(node)
        if section is not None:
            yield section, node


def _imported(parsed: _Source) -> set[str]:
    modules = {alias.name for node in parsed.nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in parsed.nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in modules}


def _section(call: ast.Call) -> str | None:
    name = last_name(call.func)
    if name is None:
        return None
    if name == "from_pretrained" and isinstance(call.func, ast.Attribute):
        owner = last_name(call.func.value) or ""
        return name if MODEL_CLASS.fullmatch(owner) else None
    if ARGUMENTS.fullmatch(name):
        return ""
    return name if name in SECTIONS else None


def last_name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _constants(sources: list[_Source]) -> dict[str, Any]:
    """Names that the sources bind once, to a value that is known."""
    bound: dict[str, list[ast.expr]] = {}
    for node in (node for parsed in sources for node in parsed.nodes):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                bound.setdefault(target.id, []).append(node.value)
    constants: dict[str, Any] = {}
    # A name that is bound twice may have either value, so it is unknown. Names are evaluated in the order in which
    # they are first bound: a constant may use those before it.
    for name, values in bound.items():
        try:
            if len(values) == 1:
                constants[name] = evaluate_literal(values[0], constants)
        except (ValueError, TypeError, ArithmeticError):
            continue
    return constants


def _known_names(sources: list[_Source]) -> dict[str, Any]:
    names = _constants(sources)
    return names | {f"args.{name}": evaluate_literal(node, names) for name, (_, node) in _defaults(sources).items()}


def known_names(text: str) -> dict[str, Any]:
    """The names in the source with one known value; an option with a default is `args.name`. Raises `PresetError`."""
    return _known_names(_sources([text], "source"))


def _defaults(sources: list[_Source]) -> dict[str, tuple[int, ast.expr]]:
    """The arguments of the script's command line that have one literal default, with the tree that it is in."""
    defaults: dict[str, list[tuple[int, ast.expr | None]]] = {}
    for index, parsed in enumerate(sources):
        for call, words in declared_options(parsed.nodes):
            options = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
            if last_name(call.func) == "add_argument":
                defaults.setdefault(options[0] if options else "", []).append((index, keyword_value(call, "default")))
        for node in parsed.nodes:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                default = node.value
                if isinstance(default, ast.Call) and last_name(default.func) == "field":
                    default = keyword_value(default, "default")
                defaults.setdefault(node.target.id, []).append((index, default))
    single = {name: places[0] for name, places in defaults.items() if len(places) == 1}
    return {
        name: (index, node) for name, (index, node) in single.items() if isinstance(node, ast.Constant | ast.UnaryOp)
    }


def declared_options(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Call, list[str]]]:
    """The calls of argparse's `add_argument` and click's `option`, with the names of the option."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("add_argument", "option"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield node, [name for name in names if isinstance(name, str)]


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _argument(node: ast.expr) -> str | None:
    """The argument of the command line that `args.name` stands for."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and PARSED.fullmatch(node.value.id)
    return node.attr if named and isinstance(node, ast.Attribute) else None


def _value(node: ast.expr, names: Mapping[str, Any], parsed: _Source) -> Any:
    """The value of an argument; source in `<>` for one that is only known when the script runs."""
    try:
        return evaluate_literal(node, names)
    except (ValueError, TypeError, ArithmeticError):
        return f"<{' '.join(parsed.text(node).split())}>"


def evaluate_literal(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a literal, a known name or arithmetic of them. Raises `ValueError` for anything else."""
    try:
        return _evaluated(node, names)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _evaluated(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if f"args.{_argument(node)}" in names:
        return names[f"args.{_argument(node)}"]
    if isinstance(node, ast.Attribute) and last_name(node.value) == "torch":
        return node.attr  # torch.bfloat16, which the libraries take as text, too
    if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node).startswith("getattr(torch, "):
        return _evaluated(node.args[1], names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluated(node.left, names), _evaluated(node.right, names)
        if all(isinstance(number, int | float) and abs(number) < LARGEST_OPERAND for number in (left, right)):
            return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluated(node.operand, names)
    return ast.literal_eval(node)


def _without_magics(code: str) -> str:
    """A cell with `pass` for lines of IPython (`%time`, `!pip install`), each as long; empty if it is no Python."""
    plain = _MAGIC.sub(lambda match: match["indent"] + "pass".ljust(len(match["magic"])), code)
    try:
        parse_python(plain)
    except SyntaxError:
        return ""
    return plain


def _cells(text: str, source: str) -> list[str]:
    try:
        notebook = json.loads(text)
        codes = [_source_of(cell) for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise PresetError(f"{source}: is not a notebook") from None
    _check_length(codes, source)
    return codes


def _check_length(codes: list[str], source: str) -> None:
    if sum(code.count("\n") + 1 for code in codes) > MOST_LINES:
        raise PresetError(f"{source}: has more than {MOST_LINES:,} lines of code, too many to look through")


def _source_of(cell: Mapping[str, Any]) -> str:
    written = cell["source"]
    return written if isinstance(written, str) else "".join(written)

"""Keyword arguments of the calls in a Python script or notebook that configure a training: read, changed, written."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner_tui.core.python_syntax import parse_python
from tuner_tui.settings.dialects.python_values import (
    ARGUMENTS,
    CALLED,
    CLASS,
    OWN_NAMES,
    PLAIN_STATEMENTS,
    PythonSource,
    argument_name,
    bound_values,
    check_length,
    declared_options,
    default_value,
    entry_value,
    is_switch,
    keyword_value,
    last_name,
    live_source,
    module_constants,
    names_in,
    own_values,
    parse_sources,
    section_of,
    unparsed,
    without_magics,
)
from tuner_tui.settings.dialects.script_search import (
    MODULE,
    TRAINING,
    WORD,
    own_modules,
    pattern_of,
    read_source,
    words_of,
)
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.yaml_reader import MAX_NODES, ToolFile

UNSLOTH = "unsloth"
"""Key of a source that imports Unsloth, whose calls have the same names as those of others."""


def is_started(script: Path) -> bool:
    """Whether a script does anything when it is started: a module of classes and functions does not."""
    try:
        body = parse_python(read_source(script)).body
    except SyntaxError:
        return True
    held = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign)
    runs = [node for node in body if not isinstance(getattr(node, "value", node), (*held, ast.Constant))]
    return bool(runs) or not any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in body)


def read_assignments(text: str) -> dict[str, Any]:
    """The values that a module of settings binds at its top.

    Empty for a module with functions that give no configuration. `dict(...)` and a class of fields are sections; a
    value that is computed stays as source in `<>`.
    """
    try:
        body = parse_python(text).body
    except SyntaxError:
        return {}
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    nodes = [node for part in (body, *(node.body for node in classes)) for node in part]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    gives = [node for node in functions if re.fullmatch(r"__\w+|\w*(config|cfg|hparams)", node.name)]
    others = (node for node in body if node not in functions)
    if len(gives) < len(functions) or not all(isinstance(node, PLAIN_STATEMENTS) for node in others):
        return {}
    bound: dict[str, Any] = {}
    parts = [("", body), *((f"{node.name}.", node.body) for node in classes), *(("", node.body) for node in gives)]
    for section, node in ((section, node) for section, part in parts for node in part):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = default_value(node.value) if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if value is not None and isinstance(target, ast.Name | ast.Attribute):
                bound[f"{section}{ast.unparse(target)}"] = entry_value(ast.unparse(target), value, bound)
    return bound


TO_GIVE = "???"
"""What must be given on the command line of OmegaConf: a value, or the choice of a group."""


def overlaid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`under` with the values of `over`, by sections; `_delete_` replaces one as a whole, `TO_GIVE` no value."""
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
    return [without_magics(code) for code in _cells(text, source)]


def shell_lines(text: str, source: str) -> str:
    """The commands that the cells of a notebook give to a shell: `!torchrun …`, and cells of `%%bash`."""
    cells, codes = [], _cells(text, source)
    constants: dict[str, set[str]] = {}
    for name, _, word, number in pattern_of("constant").findall("\n".join(codes)):
        constants.setdefault(name, set()).add(word or number)
    cells += [f"{name}={shlex.quote(*values)}" for name, values in constants.items() if len(values) == 1]
    for code in codes:
        if re.match(r"\s*%%(bash|sh)\b", code):
            cells.append(code.partition("\n")[2])
        else:
            code = re.sub(r"(?m)^([ \t]*!cd\b(?:[^\n]*\\\n)*[^\n]*)", r"\1\n!cd -", code)  # a shell of its own
            cells += re.findall(r"^[ \t]*!((?:[^\n]*\\\n)*[^\n]*)", code, re.MULTILINE)
    return re.sub(r"(?<!\$)\{(\w+)\}", r"$\1", "\n".join(cells))  # IPython puts Python's variables in


def patch_notebook(text: str, changes: Mapping[tuple[str, ...], Any], source: str) -> str:
    """`text` with the keyword arguments changed in its cells. Raises `SettingsError` as `patch_codes` does."""
    notebook = json.loads(text)
    end = "\n" if text.endswith("\n") else ""
    options = product((1, 2, 4, None), (False, True))
    layouts = (partial(json.dumps, notebook, indent=indent, ensure_ascii=is_ascii) for indent, is_ascii in options)
    layout = next((layout for layout in layouts if layout() + end == text), None)
    if layout is None:
        raise SettingsError(f"{source}: these values cannot be changed without changing others; edit it by hand")
    codes = [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    written = [_source_of(cell) for cell in codes]
    patched = patch_codes(written, [without_magics(code) for code in written], changes, source)
    for cell, code in zip(codes, patched, strict=True):
        cell["source"] = code if isinstance(cell["source"], str) else code.splitlines(keepends=True)
    return layout() + end


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


def read_python(
    codes: list[str],
    source: str,
    whole: bool = False,
    modules: Mapping[str, str] = MappingProxyType({}),
    options: Mapping[str, object] = MappingProxyType({}),
) -> ToolFile:
    """The arguments of the calls in Python sources. Raises `PresetError` if one does not parse.

    With `whole`, a training that has no `TrainingArguments` has the names that it binds and the calls of its own loop.
    `modules` are sources that it imports, by their files, `options` values that its command line gives to its own
    options.
    """
    check_length(codes, source)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    # Cells behind the training run what it has made: an inference, with a model and a quantization of its own.
    trains = [index for index, code in enumerate(codes) if re.search(rf"{words_of('trains')}|\.train\(", code)]
    codes = codes[: trains[-1] + 1] if trains else codes
    sources = parse_sources(codes, source)
    imported = module_constants(modules, "\n".join(codes), options)
    names = names_in(sources, imported, options)
    sources = [live_source(parsed, names) for parsed in sources]
    names = names_in(sources, imported, options)
    if any(re.search(rf"(?m)^[ \t]*(?:import|from)[ \t]+{UNSLOTH}\b", code) for code in codes):
        values[UNSLOTH] = True
    replaced = _replaced_data(sources)
    calls = [call for parsed in sources for call in _calls(parsed) if call[1] not in replaced]
    of_loop = all(section for section, _ in calls)
    if of_loop and not (
        UNSLOTH in values or any(re.search(words_of("trains"), code) for code in (*codes, *modules.values()))
    ):
        return ToolFile({})
    if (of_loop := of_loop and whole) and UNSLOTH not in values:
        values |= {f"{OWN_NAMES}{CALLED}": True, **own_values(sources, names)}
    without = {} if of_loop else words_of("calls_of_loops")
    calls = [(section, call) for section, call in calls if section not in without]
    if sum(len(call.keywords) for _, call in calls) > MAX_NODES:
        raise PresetError(f"{source}: has more than {MAX_NODES:,} arguments, too many for a training script")
    for section, call in calls:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        positional = {**words_of("calls"), **words_of("calls_of_loops")}.get(section, ())
        keywords = dict(zip(positional, call.args, strict=False)) | keywords
        arguments = {name: entry_value("", node, names) for name, node in keywords.items()}
        if not section and "" in lines:
            continue  # of another training
        lines.setdefault(section, call.lineno)
        if section:
            arguments = {f"{section}.{name}": value for name, value in arguments.items()}
            arguments[f"{section}{CALLED}"] = True
            if section == "from_pretrained" and isinstance(call.func, ast.Attribute):
                arguments[f"{section}.{CLASS}"] = last_name(call.func.value)
            if section == "optimizer":
                arguments[f"{section}.type"] = last_name(call.func)
            if section == "optimizer" and values.get(f"{section}.type", last_name(call.func)) != last_name(call.func):
                values[f"{section}.type"] = "<several>"
        # Of several calls the first counts: of two loaders that is the training's.
        for key, value in arguments.items():
            values.setdefault(key, value)
            lines.setdefault(key, call.lineno)
    return ToolFile(values, lines)


def patch_codes(codes: list[str], python: list[str], changes: Mapping[tuple[str, ...], Any], source: str) -> list[str]:
    """`codes` changed; `python` is what of them is Python, in the same place. Raises `SettingsError` without a call."""
    sources = parse_sources(python, source)
    bound = bound_values(sources)
    patched = list(codes)
    edits: list[tuple[int, int, int, str]] = []
    for (key,), value in changes.items():
        section, _, name = key.rpartition(".")
        calls = [(index, row) for index, parsed in enumerate(sources) for row in (*_calls(parsed), *_dicts(parsed))]
        places = [(index, call) for index, (of, call) in calls if of == section]
        if not places or key.endswith(CALLED):
            raise SettingsError(f"{source}: {key.removesuffix(CALLED)} is in no call of it: change it by hand")
        edits.append(_edit(sources, places, bound, name, value, source))
    # From the end to the beginning, so that the places of what is still to be edited stay valid.
    for index, start, end, text in sorted(edits, reverse=True):
        patched[index] = patched[index][:start] + text + patched[index][end:]
    return patched


def _edit(
    sources: list[PythonSource],
    places: list[tuple[int, ast.Call]],
    bound: Mapping[str, list[Any]],
    name: str,
    value: Any,
    source: str,
) -> tuple[int, int, int, str]:
    """Cell, start, end and new text of one changed argument; a value of None removes it."""
    for index, node in places:
        keyword = next((argument for argument in node.keywords if argument.arg == name), None)
        if keyword is None:
            continue
        nodes = bound.get(f"args.{argument_name(keyword.value)}", [])
        constant = nodes[0] if len(nodes) == 1 else None
        where = next((where for where, parsed in enumerate(sources) if constant in parsed.nodes), None)
        if where is not None and value is not None and isinstance(constant, ast.Constant | ast.UnaryOp):
            return where, *sources[where].span(constant), repr(value)
        parsed = sources[index]
        start, end = parsed.span(keyword.value)
        literal = isinstance(keyword.value, ast.Constant | ast.UnaryOp | ast.Attribute)
        if not literal or argument_name(keyword.value) is not None:
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


def _replaced_data(sources: list[PythonSource]) -> set[ast.expr]:
    """The calls that load data into a name that has other data before anything but a display uses it."""
    places = [(index, node) for index, parsed in enumerate(sources) for node in parsed.nodes]
    displays = (node for _, node in places if isinstance(node, ast.Expr) and not TRAINING.search(unparsed(node)))
    shown = {inner for node in displays for inner in ast.walk(node)}
    loaded: dict[str, list[tuple[int, int, ast.expr]]] = {}
    used: dict[str, list[tuple[int, int]]] = {}
    for index, node in places:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if node not in shown:
                used.setdefault(name, []).append((index, node.lineno))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func) as value, col_offset=0):
                if last_name(func) == "load_dataset":
                    loaded.setdefault(name, []).append((index, node.lineno, value))
    pairs = ((name, pair) for name, rows in loaded.items() for pair in pairwise(sorted(rows, key=lambda row: row[:2])))
    return {old[2] for name, (old, new) in pairs if not any(old[:2] < place <= new[:2] for place in used.get(name, ()))}


def _calls(parsed: PythonSource) -> Iterator[tuple[str, ast.Call]]:
    """Calls that configure a training in order, after the section of their arguments (empty: `TrainingArguments`)."""
    # `ast.walk` goes breadth first: an inner call would come after an outer one that begins later in the source.
    calls = [node for node in parsed.nodes if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        section = section_of(node)
        if section == "manual_seed" and ARGUMENTS.search(parsed.code):
            continue  # a Trainer sets all seeds by its own arguments
        if section is not None:
            yield section, node


def _dicts(parsed: PythonSource) -> Iterator[tuple[str, ast.Call]]:
    """The calls `dict(...)` that names are bound to, after the dotted key that a module of settings has for each."""
    bound = [node for node in parsed.nodes if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    entries: list[tuple[str, ast.expr]] = [(unparsed(node.targets[0]), node.value) for node in reversed(bound)]
    for section, node in entries:  # grows
        if isinstance(node, ast.Call) and last_name(node.func) == "dict":
            yield section, node
            entries += ((f"{section}.{word.arg}", word.value) for word in node.keywords)


def flag_values(words: Sequence[str], script: Path | None) -> dict[str, str]:
    """The values of short options by the long names that the parser of the script has for them: `-e 5`, `--epochs`."""
    start = next((n for n, word in enumerate(words[:-1], 1) if word in MODULE), 0)
    values, options = dict(pairwise(words[start:])), dict[str, str]()
    for _, source in () if script is None else own_modules(script):
        with suppress(SyntaxError):
            for call, names in declared_options(ast.walk(parse_python(source))):
                *_, name = ("", *sorted(names, key=len))
                short = [] if is_switch(call, names) or not name.startswith("--") else values.keys() & {*names}
                options |= {name[2:].replace("-", "_"): values[word] for word in short if not word.startswith("--")}
    return options


def required_options(script: Path, words: Collection[str]) -> Iterator[str]:
    """The options that the parser of the script must have and `words` lack; that of a module where it is named."""
    given, source = {word.partition("=")[0] for word in words}, read_source(script)
    named = {*WORD.findall(source)} - {*re.findall(r"(?m)^(?:def|class)[ ]+(\w+)", source)}
    for file, text in own_modules(script):
        with suppress(SyntaxError):
            body = () if "add_subparsers" in text else parse_python(text).body
            used = (n for top in body if file == script or getattr(top, "name", None) in named for n in ast.walk(top))
            for call, names in declared_options(used):
                required = keyword_value(call, "required")
                if names and given.isdisjoint(names) and getattr(required, "value", None) is True:
                    yield names[-1]
            # A function that Fire or Typer calls, or one that is called without arguments.
            started = re.findall(r"(?m)\b(?:typer\.run|Fire)\((\w+)\)|^[ \t]*(main)\(\)", text)
            takes_words = file == script and not re.search(rf"{script.stem}(\.py)? [^-]", " ".join(words))
            for node in body if takes_words else ():
                if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name in map("".join, started):
                    needed = (f"--{argument.arg}" for argument in node.args.args[: -len(node.args.defaults) or None])
                    yield from (name for name in needed if given.isdisjoint((name, name.replace("_", "-"))))


def _cells(text: str, source: str) -> list[str]:
    try:
        notebook = json.loads(text)
        codes = [_source_of(cell) for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise PresetError(f"{source}: is not a notebook") from None
    check_length(codes, source)
    return codes


def _source_of(cell: Mapping[str, Any]) -> str:
    written = cell["source"]
    return written if isinstance(written, str) else "".join(written)

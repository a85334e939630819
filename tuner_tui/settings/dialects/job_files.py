"""Training commands inside the files of other programs: cluster jobs, containers, editors, continuous integration."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects.dialect import flatten, says_training, unflatten, with_references
from tuner_tui.settings.dialects.python_source import evaluate_literal
from tuner_tui.settings.dialects.script_search import TRAINING, names_other_work
from tuner_tui.settings.dialects.shell_script import read_shell, script_of
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.model import shorten_text
from tuner_tui.settings.yaml_reader import ToolFile, parse_tool_text

LONGEST_NAMES = 200
KINDS = Path(__file__).with_name("job_files.yaml")
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
RELAXED = re.compile(rf"({QUOTED.pattern})|//[^\n]*|/\*.*?\*/", re.DOTALL)
"""A text in quotes, or a comment of JSON5 and Jsonnet."""
NOT_STRICT = re.compile(r"//|/\*|,\s*[}\]]")
"""What JSON does not allow outside a text: a comment, or a comma after the last value."""
LOCAL = re.compile(r"(?m)^\s*local\s+(\w+)\s*=\s*([^;{]+);")
GIN = re.compile(r"(?m)^([\w./]+)[ \t]*=[ \t]*((?:[^#\n]|\n(?=[ \t)\]}]))+)|^include[ \t]+['\"](.+)['\"]")
EXPRESSION = re.compile(r"\$\{\{\s*[\w.]*\.([\w-]+)\s*\}\}")
"""What GitHub fills in: an input, a variable or a secret."""
MAKEFILE = re.compile(r"(?:GNU)?[Mm]akefile|.*\.mk")
MAKE_VARIABLE = re.compile(r"(?m)^(?:export\s+)?(\w+)[ \t]*(?::{1,2}|\?)?=[ \t]*(.*?)[ \t]*(?:#.*)?$")
TARGET = re.compile(r"(?m)^([\w./-]+)[^:=\n]*:(?!=)[^\n]*\n((?:[ \t]*\n|\t.*\n?|#.*\n)*)")
"""A target of a Makefile, and its recipe."""
DEFAULT_GOAL = re.compile(r"(?m)^\.DEFAULT_GOAL\s*:?=\s*(\S+)")


def parse_config(text: str, source: str, suffix: str = ".yaml") -> ToolFile:
    """The values of a file of YAML, JSON or TOML, or the training command in it where it is one of `KINDS`.

    Raises `PresetError`, for a file of one of these kinds without a command that trains as well.
    """
    if MAKEFILE.fullmatch(Path(source).name):
        recipes = [*_recipes(text)]
        goal = DEFAULT_GOAL.search(text)
        command = _best_command([recipe for recipe in recipes if goal and recipe[0] == goal[1]], source)
        if command is None or not _names_training(command):
            command = _best_command(recipes, source)
        if command is None or not (command.incomplete or _names_training(command)):
            raise PresetError(f"{source}: is a Makefile in which no training is started: open the script that trains")
        return replace(command, kind="Makefile")
    if suffix == ".gin":
        return ToolFile(_read_gin(text))
    if suffix in (".jsonnet", ".json5", ".jsonc") or (suffix == ".json" and NOT_STRICT.search(QUOTED.sub("", text))):
        text, suffix = _as_yaml(text), ".yaml"  # of JSON5, trailing commas and all
    documents = re.split(r"(?m)^---(?:[ \t].*)?$", text) if suffix not in (".json", ".toml") else [text]
    kind, refused = "", None
    for document in documents if len(documents) > 1 or suffix == ".json" else [text]:
        try:
            file = parse_tool_text(document, source, suffix)
        except PresetError as error:
            refused = refused or error
            continue
        rows: list[dict[str, Any]] = read_data_file(KINDS)["kinds"]
        fitting = (row for row in rows if {*row["keys"]} <= file.values.keys())
        row = next((row for row in fitting if isinstance(file.values.get(row.get("section", ""), {}), dict)), {})
        row = row or ({"kind": "job of a container"} if _lists_words(file.values) else {})
        kind = kind or row.get("kind", "")
        command = _best_command(_started(file.values), source) if row else None
        if command is not None and (not row.get("strict") or command.incomplete or _names_training(command)):
            given = flatten(file.values.get(row.get("arguments", ""), {}))
            fixed = {key.removesuffix(".value"): value for key, value in given.items() if key.endswith(".value")}
            fixed |= flatten(with_references(file.values.get(row.get("file", ""), None) or {}))
            folder = "" if command.folder == row.get("folder") else command.folder
            return replace(command, kind=row["kind"], values={**command.values, **fixed}, folder=folder)
    if kind and row.get("keys"):
        raise PresetError(
            f"{source}: is a {kind} in which no training is started: open the configuration or the script that trains"
        )
    if refused is not None and "{{" in text:
        raise PresetError(f"{source}: is a template, filled in by Helm or Jinja: open what it becomes") from refused
    return parse_tool_text(text, source, suffix)


def _as_yaml(text: str) -> str:
    """Jsonnet or JSON with comments as YAML in brackets: names for the values that they stand for, no functions."""
    text = RELAXED.sub(lambda part: part[1] or " ", text).replace("\t", " ")
    names = dict(LOCAL.findall(text))
    text = LOCAL.sub("", text)
    text = re.sub(r"\bstd\.\w+\((?:[^()]|\([^()]*\))*\)", '"<computed>"', text)
    return re.sub(r"(?<=[:\s])([A-Za-z_]\w*)(?=\s*[,}\n])", lambda name: str(names.get(name[1], name[1])).strip(), text)


def _read_gin(text: str) -> dict[str, Any]:
    """The bindings of a gin file, `scope/function.parameter = value`; those of macros as references."""
    flat: dict[str, Any] = {}
    for key, value, included in GIN.findall(text):
        if included:
            flat.setdefault("include", []).append(included)
            continue
        literal = re.sub(r"@([\w./]+)(?:\(\))?", r"'\1'", re.sub(r"%([\w.]+)", r"'${\1}'", value))
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            flat[key.rpartition("/")[2]] = evaluate_literal(ast.parse(literal.strip(), mode="eval").body, {})
    return unflatten(flat)


def _lists_words(node: Any) -> bool:
    """Whether a section has a command as a list of words, and its container's image or a list of arguments."""
    if isinstance(node, list):
        return any(map(_lists_words, node))
    if not isinstance(node, Mapping):
        return False
    command, arguments = node.get("command"), node.get("args")
    lists = [isinstance(words, list) for words in (command, arguments)]
    names_image = isinstance(command or arguments, list) and any("image" in key.lower() for key in node)
    return all(lists) or names_image or any(map(_lists_words, node.values()))


def _recipes(text: str) -> Iterator[tuple[str, str]]:
    """Each target of a Makefile with its recipe as a script of a shell, which first sets the variables."""
    joined = re.sub(r"\$\((\w+)\)", r"${\1}", re.sub(r"\\[ \t]*\n[ \t]*", " ", text))
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in MAKE_VARIABLE.findall(joined))
    for target, body in TARGET.findall(joined):
        yield target, head + "\n".join(re.findall(r"(?m)^\t\s*[@+-]*(.*)$", body)).replace("$$", "$")


def _started(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names around each command that the file starts, and its text with the defaults of inputs."""
    defaults = {key: value for key, value in flatten({"on": values.get("on")}).items() if key.endswith(".default")}
    inputs = {key.split(".")[-2]: str(value) for key, value in defaults.items()}
    for name, text in _scripts(values, {}, ""):
        yield name, EXPRESSION.sub(lambda match: inputs.get(match[1], f"${match[1]}"), text)


def _best_command(texts: Iterable[tuple[str, str]], source: str) -> ToolFile | None:
    """The command that trains by its name, its script's or its options; None where one of several may be it.

    Of several that train none is taken: what is returned names them.
    """
    files: list[tuple[str, ToolFile]] = []
    for name, text in texts:
        with suppress(PresetError):
            file = read_shell(text, source)
            if not names_other_work(PurePath(name.replace(" ", "-"))):
                files.append((name, file))
    named = [(name, file) for name, file in files if TRAINING.search(name)]
    trains = named or [(name, file) for name, file in files if _names_training(file)]
    if len({file.words for _, file in files}) > 1 and not trains:
        return None
    by_words = {file.words: (name, file) for name, file in reversed(trains or files)}
    if len(by_words) < 2:
        return next((file for _, file in by_words.values()), None)
    names = ", ".join(dict.fromkeys(name.strip() for name, _ in reversed(by_words.values())))
    several = f"it starts {len(by_words)} trainings: {shorten_text(names, LONGEST_NAMES)}"
    return replace(trains[0][1], values={}, command=(), incomplete=(several,))


def _names_training(file: ToolFile) -> bool:
    """Whether the words of a command say that it trains."""
    names = (script_of(file.words).name, *(PurePath(word).name for word in file.words[:3]))
    return says_training(file.values) or any(map(TRAINING.search, names))


def _scripts(node: Any, environment: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """The names around each command in a document, and its text as a script that first sets the variables there."""
    if isinstance(node, list):
        for inner in node:
            yield from _scripts(inner, environment, name)
    if not isinstance(node, Mapping):
        return
    name = f"{name} {node['name']}" if isinstance(node.get("name"), str) else name
    table = read_data_file(KINDS)
    for key in table["variables"]:
        environment = {**environment, **_variables(node.get(key))}
    parts = [_text(node[key]) for key in table["words"] if node.get(key)]
    scripts = [node[key] for key in table["scripts"] if isinstance(node.get(key), str | list)]
    texts = [script if isinstance(script, str) else "\n".join(map(str, script)) for script in scripts]
    if isinstance(node.get("program") or node.get("module"), str):
        start = shlex.quote(node["program"]) if node.get("program") else f"-m {shlex.quote(node['module'])}"
        parts = [f"python {start}", *parts]
    for text in (" ".join(parts), *texts):
        if text.strip():
            exported = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())
            yield name, exported + text
    for key, inner in node.items():
        yield from _scripts(inner, environment, f"{name} {key}")


def _variables(entries: Any) -> dict[str, str]:
    """`{NAME: value}`, `[NAME=value]` or `[{name: NAME, value: value}]`."""
    if isinstance(entries, Mapping):
        return {str(name): str(value) for name, value in entries.items() if isinstance(value, str | int | float)}
    named: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str) and "=" in entry:
            named |= dict([entry.split("=", 1)])
        elif isinstance(entry, Mapping) and "name" in entry and isinstance(entry.get("value"), str | int | float):
            named[str(entry["name"])] = str(entry["value"])
    return {name: value for name, value in named.items() if name.isidentifier()}


def _text(words: Any) -> str:
    """The words of a command as a shell reads them; a text is a line of a shell already."""
    if isinstance(words, list):
        return " ".join(
            str(word) if re.fullmatch(r"\$\{?\w+\}?", str(word)) else shlex.quote(str(word)) for word in words
        )
    return str(words)

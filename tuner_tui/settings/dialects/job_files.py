"""Training commands inside the files of other programs: cluster jobs, containers, editors, continuous integration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects.dialect import flatten
from tuner_tui.settings.dialects.script_search import TRAINING
from tuner_tui.settings.dialects.shell_script import is_known_option, read_shell
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.yaml_reader import ToolFile, parse_tool_text

KINDS = Path(__file__).with_name("job_files.yaml")
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
EXPRESSION = re.compile(r"\$\{\{\s*[\w.]*\.([\w-]+)\s*\}\}")
"""What GitHub fills in: an input, a variable or a secret."""
MAKEFILE = re.compile(r"(?:GNU)?[Mm]akefile|.*\.mk")
MAKE_VARIABLE = re.compile(r"(?m)^(?:export\s+)?(\w+)[ \t]*(?::{1,2}|\?)?=[ \t]*(.*?)[ \t]*(?:#.*)?$")
TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def parse_config(text: str, source: str, suffix: str = ".yaml") -> ToolFile:
    """The values of a file of YAML, JSON or TOML, or the training command in it where it is one of `KINDS`.

    Raises `PresetError`, for a file of one of these kinds without a command that trains as well.
    """
    if MAKEFILE.fullmatch(Path(source).name):
        file = replace(read_shell(_recipes(text), source), kind="Makefile")
        if not (any(map(is_known_option, file.values)) or TRAINING.search(" ".join(file.words))):
            raise PresetError(f"{source}: is a Makefile in which no training is started: open the script that trains")
        return file
    documents = re.split(r"(?m)^---(?:[ \t].*)?$", text) if suffix not in (".json", ".toml") else [text]
    if suffix == ".json" and '"configurations"' in text:  # editors allow comments
        documents = [TRAILING_COMMA.sub("", COMMENT.sub("", text))]
    kind, refused = "", None
    for document in documents if len(documents) > 1 or suffix == ".json" else [text]:
        try:
            file = parse_tool_text(document, source, suffix)
        except PresetError as error:
            refused = refused or error
            continue
        rows: list[dict[str, Any]] = read_data_file(KINDS)["kinds"]
        row = next((row for row in rows if {*row["keys"]} <= file.values.keys()), {})
        kind = kind or row.get("kind", "")
        if row and (found := _best_command(file.values, source)) is not None:
            given = flatten(file.values.get(row.get("arguments", ""), {}))
            fixed = {key.removesuffix(".value"): value for key, value in given.items() if key.endswith(".value")}
            folder = "" if found.folder == row.get("folder") else found.folder
            return replace(found, kind=row["kind"], values={**found.values, **fixed}, folder=folder)
    if kind:
        raise PresetError(
            f"{source}: is a {kind} in which no training is started: open the configuration or the script that trains"
        )
    if refused is not None and "{{" in text:
        raise PresetError(f"{source}: is a template, filled in by Helm or Jinja: open what it becomes") from refused
    return parse_tool_text(text, source, suffix)


def _recipes(text: str) -> str:
    """The recipes of a Makefile as a script of a shell, which first sets the variables."""
    joined = re.sub(r"\\[ \t]*\n[ \t]*", " ", text)
    values = dict(MAKE_VARIABLE.findall(joined))
    lines = re.findall(r"(?m)^\t\s*[@+-]*(.*)$", joined)
    recipes = re.sub(r"\$\((\w+)\)", r"${\1}", "\n".join(lines)).replace("$$", "$")
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()) + recipes


def _best_command(values: Mapping[str, Any], source: str) -> ToolFile | None:
    """The command with most options of a training among all that the file starts."""
    defaults = {key: value for key, value in flatten(values.get("on", {})).items() if key.endswith(".default")}
    inputs = {key.split(".")[-2]: str(value) for key, value in defaults.items()}
    files = []
    for text in _scripts(values, {}):
        filled = EXPRESSION.sub(lambda match: inputs.get(match[1], f"${match[1]}"), text)
        with suppress(PresetError):
            files.append(read_shell(filled, source))
    return max(files, key=lambda file: len(file.values), default=None)


def _scripts(node: Any, environment: Mapping[str, str]) -> Iterator[str]:
    """Each command in a document as the text of a shell script, which first sets the variables of its place."""
    if isinstance(node, list):
        for inner in node:
            yield from _scripts(inner, environment)
    if not isinstance(node, Mapping):
        return
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
            yield "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()) + text
    for inner in node.values():
        yield from _scripts(inner, environment)


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

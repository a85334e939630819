"""Reads configuration files: YAML as text with line numbers, or the values that another tool reads.

In a preset, values stay text until the field they belong to is known: YAML 1.1 turns `no` into False, `010` into 8 and
leaves `1e-5` a string, and only the field knows what was meant.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import yaml
from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import open_regular
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.model import shorten_text

# A preset has some 40 values and a tool's file hardly more than 200. Files of unknown origin are opened before anybody
# looked at them, so size, depth and number of values are bounded before they are parsed.
MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_NODES = 5_000
MAX_BITS = 1_024  # what a float can hold
JSON_SUFFIXES = (".json", ".jsonc", ".json5", ".jsonnet")
INI = (".ini", ".cfg", ".conf", ".gin", ".properties")
CONFIGURATIONS = (".yaml", ".yml", ".toml", *JSON_SUFFIXES, *INI)
INI_SECTION = re.compile(r"\s*(?:[#;][^\n]*\n\s*)*\[[\w .:/-]+\]\s*\n")
"""The first line of a file of sections, whatever its suffix."""
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
RELAXED = re.compile(rf"({QUOTED.pattern})|//[^\n]*|/\*.*?\*/", re.DOTALL)
"""A text in quotes, or a comment of JSON5 and Jsonnet."""
NOT_STRICT = re.compile(r"//|/\*|,\s*[}\]]")
"""What JSON does not allow outside a text: a comment, or a comma after the last value."""
LOCAL = re.compile(r"(?m)^\s*local\s+(\w+)\s*=\s*([^;{]+);")


def read_text(path: Path, most_bytes: int = MAX_BYTES) -> str:
    """The text of a regular UTF-8 file of at most `most_bytes` bytes. Raises `PresetError`."""
    try:
        with os.fdopen(open_regular(path, follow_links=True), "rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise PresetError(f"{path} is not a file") from None
        raise PresetError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise PresetError(f"{shorten_text(str(path))}: is not a file name") from None
    if len(raw) > most_bytes:
        raise PresetError(f"{path}: is larger than {most_bytes // 1024} KiB, too large for a preset")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise PresetError(f"{path}:{line}: is not UTF-8 text") from None


def texts_of(file: ToolFile, source: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """The values of a preset as lists, dicts and text, None for a plain null, and the line of each key by its path.

    The path `()` has the first line. Raises `PresetError`: no tags, aliases and repeated keys are accepted.
    """
    assert file.node is not None
    lines: dict[tuple[str, ...], int] = {(): file.node.start_mark.line + 1}
    with _as_preset_errors(source):
        if file.refused is not None:
            raise file.refused
        values: dict[str, Any] = _texts(file.node, (), lines)
    return values, lines


def _texts(node: yaml.Node, path: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> Any:
    if isinstance(node, yaml.ScalarNode):
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise _RefusedError(node.start_mark.line + 1, "contains half of a surrogate pair, which is not text")
        return None if node.style is None and node.value.lower() in ("", "~", "null") else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_texts(child, (*path, str(index)), lines) for index, child in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key, child in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _RefusedError(line, "a key must be a word, not a list or mapping")
        _texts(key, path, lines)  # refuses what is no text
        inner = (*path, key.value)
        if inner in lines:
            raise _RefusedError(line, f"'{shorten_text(key.value)}' is given twice, first on line {lines[inner]}")
        lines[inner] = line
        values[key.value] = _texts(child, inner, lines)
    return values


@contextmanager
def _as_preset_errors(source: str, kind: str = "YAML") -> Iterator[None]:
    """Raise what the parsers of YAML, JSON and TOML raise as `PresetError`."""
    kind = "JSON" if source.endswith(".json") else kind  # which may be read as YAML
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark is not None else source
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        raise PresetError(f"{where}: is not valid {kind}: {shorten_text(str(problem), 120)}") from None
    except _RefusedError as error:
        raise PresetError(f"{source}:{error}") from None
    except RecursionError:
        raise PresetError(f"{source}: is nested too deeply") from None
    except PresetError:
        raise
    except (ValueError, OverflowError) as error:  # a date such as 2024-99-99, a number of thousands of digits
        raise PresetError(f"{source}: is not valid {kind}: {shorten_text(str(error), 120)}") from None


class ToolFile(Struct, frozen=True):
    """The values in a tool's configuration file, and the line of each key at its top, counted from 1.

    `words` are those of the training command of a shell script, `command` the same where it can be started without
    the script, `environment` its variables, `folder` where it changes to, `more` its other programs, and `incomplete`
    what the words lack. `kind` names a file of another program that holds the command. YAML has its `node`, and with
    `refused` what it has that no preset may have.
    """

    values: dict[str, Any]
    lines: dict[str, int] = {}
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    words: tuple[str, ...] = ()
    folder: str = ""
    incomplete: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    kind: str = ""
    node: yaml.MappingNode | None = None
    refused: _RefusedError | None = None


def read_tool_file(path: Path) -> ToolFile:
    """A tool's configuration file: YAML, or JSON or TOML by its suffix. Raises `PresetError`."""
    return parse_tool_text(read_text(path), str(path), path.suffix.lower())


def parse_tool_text(text: str, source: str, suffix: str = ".yaml") -> ToolFile:
    """Values as YAML, JSON, TOML or INI define them, with all that `texts_of` refuses. Raises `PresetError`."""
    if suffix in JSON_SUFFIXES and (suffix != ".json" or NOT_STRICT.search(QUOTED.sub("", text))):
        text, suffix = _as_yaml(text), ".yaml"  # of JSON5, trailing commas and all
    kind = {".json": "JSON", ".toml": "TOML", **dict.fromkeys(INI, "INI")}.get(suffix, "YAML")
    kind = "INI" if kind == "YAML" and INI_SECTION.match(text) else kind
    import tomllib  # most files are YAML

    with _as_preset_errors(source, kind):
        read: Any = {"JSON": json.loads, "TOML": tomllib.loads, "INI": _parse_ini}.get(kind)
        file = _parse_tool_yaml(text, source) if read is None else ToolFile(read(text))
        if isinstance(file.values, dict):  # `on:` is true in YAML 1.1
            on: Any = True
            words = {"on" if key is on else key: value for key, value in file.values.items()}
            if any(isinstance(key, str) for key in words):  # `2024: {…}` is a section like any other
                words = {str(key): value for key, value in words.items()}
            file = replace(file, values=words)
        _check_size(file.values, source)
    if not isinstance(file.values, dict) or not all(isinstance(key, str) for key in file.values):
        raise PresetError(f"{source}: must contain `key: value` lines with words as keys")
    return file


def _parse_ini(text: str) -> dict[str, Any]:
    """The sections of an INI file, or of lines `section.key = value` as Gin has; other keys are read as references."""
    import configparser  # such files are rare

    parser = configparser.RawConfigParser(strict=False, inline_comment_prefixes=("#", ";"), default_section="")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(f"[.]\n{text}")
    except configparser.Error as error:
        raise ValueError(error.message.partition("\n")[0]) from None
    values: dict[str, Any] = {}
    for section, (key, word) in ((name, pair) for name in parser.sections() for pair in parser.items(name)):
        *path, last = f"{section}.{key}".strip(".").split(".")
        inner = values
        for name in path:
            if not isinstance(inner.get(name), dict):  # `decay = l2` above `decay.rate = 0.1`
                inner[name] = {}
            inner = inner[name]
        value: Any = re.sub(r"%\((\w+)\)s", r"${.\1}", re.sub(r"^%([\w.]+)$", r"${\1}", word))
        with suppress(yaml.YAMLError):  # INI leaves it to the reader whether a word is a number, a list or a switch
            loaded = yaml.safe_load(value) if value[:1] not in "{@" else value
            value = loaded if isinstance(loaded, int | float | list) else value.strip("'\"")
        inner[last] = None if value == "None" else value
    return values


def _as_yaml(text: str) -> str:
    """Jsonnet or JSON with comments as YAML in brackets: names for the values that they stand for, no functions."""
    text = RELAXED.sub(lambda part: part[1] or " ", text).replace("\t", " ")
    names = dict(LOCAL.findall(text))
    text = LOCAL.sub("", text)
    text = re.sub(r"\bstd\.\w+\((?:[^()]|\([^()]*\))*\)", '"<computed>"', text)
    return re.sub(r"(?<=[:\s])([A-Za-z_]\w*)(?=\s*[,}\n])", lambda name: str(names.get(name[1], name[1])).strip(), text)


def _check_size(values: Any, source: str) -> None:
    """Raise `PresetError` for values beyond the bounds."""
    count, depth, level = 0, 0, [values]
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES:
            raise PresetError(f"{source}: has more than {MAX_NODES:,} values, too many for a preset")
        if depth > MAX_DEPTH:
            raise PresetError(f"{source}: is nested deeper than {MAX_DEPTH} levels")
        if any(isinstance(value, int) and value.bit_length() > MAX_BITS for value in level):
            raise PresetError(f"{source}: has a number of hundreds of digits")
        inner = (
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list)
        )
        level = [child for children in inner for child in children]


class _RefusedError(Exception):
    """YAML that is valid and not accepted; the text is line and reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"{line}: {reason}")


class _Loader(yaml.SafeLoader):
    """Composes nodes as PyYAML does, after a check of the event that each begins with; what no preset may have, aliases
    and tags, is `refused`.
    """

    depth = 0
    count = 0
    refused: _RefusedError | None = None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # Every node passes here before it is built, so the bounds hold however the document is nested.
        event = _peek(self)
        line = event.start_mark.line + 1
        self.count += 1
        if self.count > MAX_NODES:
            raise _RefusedError(line, f"has more than {MAX_NODES:,} values, too many for a preset")
        if isinstance(event, yaml.AliasEvent):
            alias = "YAML aliases (*name) are not used in presets; write the value out"
            self.refused = self.refused or _RefusedError(line, alias)
        elif (tag := getattr(event, "tag", None)) is not None:
            unsupported = _RefusedError(line, f"YAML tags ({shorten_text(str(tag), 40)}) are not supported")
            self.refused = self.refused or unsupported
        if self.depth > MAX_DEPTH:
            raise _RefusedError(line, f"is nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    """The plain value of a node with another program's tag; nothing that the tag names is called.

    HyperPyYAML's are read as OmegaConf's references and values to be given, and a class by `class_name`.
    """
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    kind, _, name = suffix.rpartition("/")[2].partition(":")
    if isinstance(node, yaml.MappingNode) or (kind in ("new", "name") and not node.value):
        keys = loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else {}
        return {**({"class_name": name} if name else {}), **keys}
    if kind == "ref":
        return re.sub(r"<([\w.]+)>", r"${\1}", node.value)
    if kind in ("new", "name", "apply", "module") and name:
        return name
    return "???" if kind == "PLACEHOLDER" else f"<{shorten_text(node.value or name)}>"


TUPLE = "tag:yaml.org,2002:python/tuple"
"""What PyYAML writes for a tuple; read as a list."""
_Loader.add_constructor(TUPLE, yaml.SafeLoader.construct_yaml_seq)  # type: ignore[type-var]
for _prefix in ("!", "tag:yaml.org,2002:python/", ""):
    _Loader.add_multi_constructor(_prefix, _tagged)


def compose_tool_yaml(text: str, source: str) -> yaml.MappingNode:
    """The mapping at the top of a tool's YAML or JSON text, with its places in the text. Raises `PresetError`."""
    with _as_preset_errors(source):
        return _compose_mapping(_Loader(text), source)


def _compose_mapping(loader: _Loader, source: str) -> yaml.MappingNode:
    if not loader.check_node():
        raise PresetError(f"{source}: is empty")
    node = cast(yaml.Node, loader.get_node())
    if loader.check_node():
        raise _RefusedError(_peek(loader).start_mark.line + 1, "contains a second YAML document; only one is allowed")
    if not isinstance(node, yaml.MappingNode):
        raise _RefusedError(node.start_mark.line + 1, "must contain `key: value` lines")
    if _expanded_size(node, {}) > MAX_NODES:  # merge keys copy what an alias shares
        raise PresetError(f"{source}: its aliases expand to more than {MAX_NODES:,} values")
    return node


def _parse_tool_yaml(text: str, source: str) -> ToolFile:
    loader = _Loader(text)
    node = _compose_mapping(loader, source)
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _RefusedError(key.start_mark.line + 1, "a key must be a word, not a list or mapping")
        lines[key.value] = key.start_mark.line + 1
    return ToolFile(loader.construct_document(node), lines, node=node, refused=loader.refused)


def _expanded_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The nodes under `node` with every alias written out; endless for a node that contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    # `a: [*b, *b]` on ten lines doubles ten times ("billion laughs"). PyYAML shares the nodes, so the tree is small;
    # only its expansion is not. Each shared node is counted once and its size used wherever an alias refers to it.
    if id(node) not in sizes:
        sizes[id(node)] = MAX_NODES + 1  # while it is counted: met again only inside itself
        pairs = node.value if isinstance(node, yaml.SequenceNode) else [child for pair in node.value for child in pair]
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes) for child in pairs)
    return sizes[id(node)]


def _peek(loader: yaml.SafeLoader) -> Any:
    return loader.peek_event()  # type: ignore[no-untyped-call]

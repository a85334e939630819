"""YAML files read safely: as a tree of text with line numbers, or as the values that another tool reads."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml import events as parsed

from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.fields import shorten_text

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16
MAX_EVENTS = 5_000


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value as it stands in the file; `plain` means without quotes, so `null` means nothing."""

    text: str
    line: int
    plain: bool

    @property
    def empty(self) -> bool:
        """Whether YAML reads it as null."""
        return self.plain and self.text.lower() in ("", "~", "null")


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A YAML sequence."""

    line: int
    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A YAML mapping: key to node, and the line of each key (1-based)."""

    line: int
    nodes: dict[str, Node] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


Node = ScalarNode | SequenceNode | MappingNode


def read_tree(path: Path) -> MappingNode:
    """The top-level mapping of the YAML file `path`. Raises `PresetError` with file and line."""
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a regular UTF-8 file of at most `MAX_BYTES` bytes; raises `PresetError`."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise PresetError(f"{path}: is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PresetError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise PresetError(f"{shorten_text(str(path))}: is not a file name") from None
    if len(raw) > MAX_BYTES:
        raise PresetError(f"{path}: is larger than {MAX_BYTES // 1024} KiB, too large for a preset")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise PresetError(f"{path}:{line}: is not UTF-8 text") from None


def parse_yaml(text: str, source: str) -> MappingNode:
    """The top-level mapping of YAML `text`; `source` names it in errors. Raises `PresetError`."""
    builder = _Builder(source)
    try:
        for count, event in enumerate(_events(text)):
            if count > MAX_EVENTS:
                raise PresetError(f"{source}: has more than {MAX_EVENTS:,} YAML tokens, too many for a preset")
            builder.take(event)
    except yaml.YAMLError as error:
        raise PresetError(_yaml_sentence(source, error)) from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, PresetError):
            raise
        raise PresetError(f"{source}: is not valid YAML: {shorten_text(str(error))}") from None
    if builder.root is None:
        raise PresetError(f"{source}: is empty")
    if not isinstance(builder.root, MappingNode):
        raise PresetError(f"{source}:{builder.root.line}: must hold `key: value` lines")
    return builder.root


def _events(text: str) -> Iterator[parsed.Event]:
    yield from yaml.parse(text, Loader=yaml.SafeLoader)


def _yaml_sentence(source: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}" if mark is not None else source
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
    return f"{where}: is not valid YAML: {shorten_text(str(problem), 120)}"


class _Builder:
    """Takes parser events one by one and keeps the tree; its own stack, so depth costs no recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.documents = 0
        self.stack: list[SequenceNode | MappingNode] = []
        self.keys: list[tuple[str, int] | None] = []

    def take(self, event: parsed.Event) -> None:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        match event:
            case parsed.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise self.error(line, "holds a second YAML document; a preset is one")
            case parsed.AliasEvent():
                raise self.error(line, "YAML aliases (*name) are not used in presets; write the value out")
            case parsed.MappingEndEvent() | parsed.SequenceEndEvent():
                self.stack.pop()
                self.keys.pop()
            case parsed.ScalarEvent() | parsed.MappingStartEvent() | parsed.SequenceStartEvent():
                self.check_tag(event, line)
                self.add(event, line)

    def check_tag(self, event: parsed.NodeEvent, line: int) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self.error(line, f"YAML tags ({shorten_text(str(tag), 40)}) are not allowed in presets")

    def add(self, event: parsed.NodeEvent, line: int) -> None:
        if isinstance(event, parsed.ScalarEvent):
            if any("\ud800" <= character <= "\udfff" for character in event.value):
                raise self.error(line, "holds half of a surrogate pair, which is no text")
            self.put(ScalarNode(event.value, line, event.style is None), line)
            return
        node: SequenceNode | MappingNode = (
            SequenceNode(line) if isinstance(event, parsed.SequenceStartEvent) else MappingNode(line)
        )
        self.put(node, line)
        if len(self.stack) >= MAX_DEPTH:
            raise self.error(line, f"is nested deeper than {MAX_DEPTH} levels")
        self.stack.append(node)
        self.keys.append(None)

    def put(self, node: Node, line: int) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if isinstance(parent, SequenceNode):
            parent.nodes.append(node)
            return
        key = self.keys[-1]
        if key is None:
            self.keys[-1] = self.new_key(parent, node, line)
        else:
            parent.nodes[key[0]] = node
            parent.lines[key[0]] = key[1]
            self.keys[-1] = None

    def new_key(self, parent: MappingNode, node: Node, line: int) -> tuple[str, int]:
        if not isinstance(node, ScalarNode):
            raise self.error(line, "a key must be a word, not a list or mapping")
        if node.text in parent.nodes:
            first = parent.lines[node.text]
            raise self.error(line, f"'{shorten_text(node.text)}' is given twice, first on line {first}")
        return node.text, line

    def error(self, line: int, sentence: str) -> PresetError:
        return PresetError(f"{self.source}:{line}: {sentence}")


def read_yaml_mapping(path: Path) -> dict[Any, Any]:
    """The mapping in the file. Raises `PresetError` with one sentence where there is none.

    That is also for a date such as 2024-99-99, a number of thousands of digits, and nesting without end.
    """
    try:
        values = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise PresetError(f"{path} is not valid YAML: {str(error).splitlines()[0]}.") from error
    except RecursionError:
        raise PresetError(f"{path} is nested too deeply.") from None
    except PresetError:
        raise
    except ValueError as error:
        raise PresetError(f"{path} holds a value that YAML cannot read: {shorten_text(str(error), 80)}.") from error
    if not isinstance(values, dict):
        raise PresetError(f"{path} must hold `key: value` lines.")
    return values

"""Parses presets from YAML; every error is one sentence with file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tuner_tui.settings.dialects.hf import PRESET_SPELLINGS, from_hf
from tuner_tui.settings.errors import FieldError, PresetError
from tuner_tui.settings.fields import Value, closest_match, parse_value, shorten_text
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.presets.preset import PRESET_VERSION, HardwareRequirements, Preset
from tuner_tui.settings.yaml_reader import MappingNode, Node, ScalarNode, SequenceNode, parse_yaml, read_text

TOP_LEVEL_KEYS = tuple(info.alias or name for name, info in Preset.model_fields.items())
PRESET_KEYS = frozenset({"version", "settings", "job"})


@dataclass(frozen=True, slots=True)
class LoadedPreset:
    """A preset, its file, and warnings for the user (keys ignored, names translated)."""

    preset: Preset
    path: Path | None = None
    notes: tuple[str, ...] = ()


def load_preset(path: Path) -> LoadedPreset:
    """Read a preset file, or a flat Hugging Face YAML file. Raises `PresetError` with file and line."""
    return parse_preset(read_text(path), str(path), path)


def parse_preset(text: str, source: str, path: Path | None = None) -> LoadedPreset:
    """Read a preset from YAML `text`; `source` names it in errors."""
    tree = parse_yaml(text, source)
    fallback_name = (path.stem if path else "")[:100] or "preset"
    if PRESET_KEYS & tree.nodes.keys():
        return LoadedPreset(_PresetParser(source).preset(tree, fallback_name), path)
    return _parse_hf_arguments(tree, source, fallback_name, path)


class _PresetParser:
    """Parses one tree; `source` names it in errors."""

    def __init__(self, source: str) -> None:
        self.source = source

    def preset(self, tree: MappingNode, fallback_name: str) -> Preset:
        self.check_version(tree)
        self.check_keys(tree, TOP_LEVEL_KEYS, "key")
        self.check_parts(tree)
        data = {key: to_plain(node) for key, node in tree.nodes.items() if key != "settings"}
        data = {key: value for key, value in data.items() if value is not None}
        data.setdefault("name", fallback_name)
        if "job" in data:
            data["job"].setdefault("kind", "builtin")
        try:
            return Preset.model_validate({**data, "settings": self.settings(tree.nodes.get("settings"))})
        except ValidationError as error:
            raise self.wrong(tree, error) from None

    def check_version(self, tree: MappingNode) -> None:
        node = tree.nodes.get("version")
        if node is None:
            return
        text = node.text.strip() if isinstance(node, ScalarNode) else ""
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
            raise self.error(node.line, "version must be a whole number")
        if int(text) > PRESET_VERSION:
            newer = f"is a preset of version {int(text)}, this program knows up to {PRESET_VERSION}"
            raise self.error(node.line, f"{newer}: upgrade tuner-tui")

    def check_keys(self, node: MappingNode, known: Sequence[str], what: str) -> None:
        for key, line in node.lines.items():
            if key not in known:
                raise self.error(line, f"unknown {what} '{shorten_text(key)}'{_suggestion(closest_match(key, known))}")

    def check_parts(self, tree: MappingNode) -> None:
        for key in ("for", "job"):
            node = tree.nodes.get(key)
            if node is None or (isinstance(node, ScalarNode) and node.empty):
                continue
            if not isinstance(node, MappingNode):
                raise self.error(node.line, f"'{key}' must hold `key: value` lines")
            model = self.job_model(node) if key == "job" else HardwareRequirements
            self.check_keys(node, tuple(model.model_fields), f"key of '{key}'")

    def job_model(self, job: MappingNode) -> type[BaseModel]:
        kind = job.nodes.get("kind")
        if kind is None:
            return BuiltinJob
        models: dict[str, type[BaseModel]] = {"builtin": BuiltinJob, "command": CommandJob}
        if not isinstance(kind, ScalarNode) or kind.text not in models:
            word = shorten_text(kind.text) if isinstance(kind, ScalarNode) else "…"
            raise self.error(kind.line, f"unknown kind of job '{word}'; it is builtin or command")
        return models[kind.text]

    def settings(self, node: Node | None) -> dict[str, Value]:
        if node is None or (isinstance(node, ScalarNode) and node.empty):
            return {}
        if not isinstance(node, MappingNode):
            raise self.error(node.line, "settings must hold `name: value` lines")
        return {name: self.setting(name, child, node.lines[name]) for name, child in node.nodes.items()}

    def setting(self, name: str, node: Node, line: int) -> Value:
        if name in PRESET_SPELLINGS:
            raise self.error(line, f"unknown setting '{name}'; in a preset it is written {PRESET_SPELLINGS[name]}")
        try:
            return parse_value(name, scalar_text(name, node))
        except FieldError as error:
            raise self.error(line, str(error)) from None

    def wrong(self, tree: MappingNode, error: ValidationError) -> PresetError:
        first = error.errors(include_url=False, include_input=False)[0]
        path = [str(part) for part in first["loc"]]
        if path[0] == "job":
            del path[1]  # pydantic puts the kind of job there
        where = shorten_text(".".join(path))
        message = {
            "missing": f"{where} is missing",
            "too_short": f"{where} must hold at least one word",
            "string_pattern_mismatch": f"{where} must look like 8.0",
        }.get(first["type"], f"{where}: {shorten_text(first['msg'].removeprefix('Value error, '), 160)}")
        return self.error(find_line(tree, path), message)

    def error(self, line: int, sentence: str) -> PresetError:
        return PresetError(f"{self.source}:{line}: {sentence}")


def scalar_text(name: str, node: Node) -> str:
    """The text of a scalar. Raises `FieldError` for a list or mapping."""
    if not isinstance(node, ScalarNode):
        raise FieldError(name, f"{name} must be a single value, not a list or mapping")
    return "" if node.empty else node.text


def to_plain(node: Node) -> Any:
    """The tree as lists, dicts and text, which pydantic converts; a plain null is None."""
    match node:
        case ScalarNode():
            return None if node.empty else node.text
        case SequenceNode(nodes=nodes):
            return [to_plain(child) for child in nodes]
        case MappingNode(nodes=nodes):
            return {key: to_plain(child) for key, child in nodes.items()}


def find_line(tree: MappingNode, path: Sequence[str]) -> int:
    """The line of the node at `path`, or of its closest existing ancestor."""
    line, node = tree.line, tree
    for part in path:
        if part not in node.nodes:
            continue
        line = node.lines[part]
        child = node.nodes[part]
        if not isinstance(child, MappingNode):
            break
        node = child
    return line


def _suggestion(near: str | None) -> str:
    return f"; did you mean '{near}'?" if near else ""


def _parse_hf_arguments(tree: MappingNode, source: str, name: str, path: Path | None) -> LoadedPreset:
    values = {key: to_plain(node) for key, node in tree.nodes.items()}
    try:
        imported = from_hf(values)
    except FieldError as error:
        raise PresetError(f"{source}:{tree.lines.get(error.field, tree.line)}: {error}") from None
    if not imported.settings:
        raise PresetError(
            f"{source}: is neither a preset (`settings:` with `name: value` lines) nor Hugging Face arguments"
        )
    return LoadedPreset(Preset(name=name, settings=dict(imported.settings)), path, imported.notes)

"""From a YAML tree to a preset. Every complaint is one sentence with file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tuner_tui.settings.dialects.hf_import import SPELLINGS, from_hf
from tuner_tui.settings.errors import FieldError, PresetError
from tuner_tui.settings.fields import nearest, parse_value, shorten
from tuner_tui.settings.fieldspec import Value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.preset_model import PRESET_VERSION, ForHardware, Preset
from tuner_tui.settings.yamltext import Entries, Items, Node, Scalar, parse_tree, read_text

OWN_KEYS = tuple(info.alias or name for name, info in Preset.model_fields.items())
MARKS_OF_A_PRESET = frozenset({"version", "settings", "job"})


@dataclass(frozen=True, slots=True)
class LoadedPreset:
    """A preset, its file, and what a person should know of it (keys left out, names translated)."""

    preset: Preset
    path: Path | None = None
    notes: tuple[str, ...] = ()


def load_preset(path: Path) -> LoadedPreset:
    """Read a preset file, or a flat Hugging Face YAML file. Raises `PresetError` with file and line."""
    return preset_from_text(read_text(path), str(path), path)


def preset_from_text(text: str, source: str, path: Path | None = None) -> LoadedPreset:
    """Read a preset from YAML `text`; `source` names it in errors."""
    tree = parse_tree(text, source)
    fallback_name = (path.stem if path else "")[:100] or "preset"
    if MARKS_OF_A_PRESET & tree.nodes.keys():
        return LoadedPreset(_Reader(source).preset(tree, fallback_name), path)
    return _flat(tree, source, fallback_name, path)


class _Reader:
    """Reads one tree; keeps the name of the source for errors."""

    def __init__(self, source: str) -> None:
        self.source = source

    def preset(self, tree: Entries, fallback_name: str) -> Preset:
        self.check_version(tree)
        self.check_keys(tree, OWN_KEYS, "key")
        self.check_parts(tree)
        data = {key: plain(node) for key, node in tree.nodes.items() if key != "settings"}
        data = {key: value for key, value in data.items() if value is not None}
        data.setdefault("name", fallback_name)
        if "job" in data:
            data["job"].setdefault("kind", "builtin")
        try:
            return Preset.model_validate({**data, "settings": self.settings(tree.nodes.get("settings"))})
        except ValidationError as error:
            raise self.wrong(tree, error) from None

    def check_version(self, tree: Entries) -> None:
        node = tree.nodes.get("version")
        if node is None:
            return
        text = node.text.strip() if isinstance(node, Scalar) else ""
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
            raise self.error(node.line, "version must be a whole number")
        if int(text) > PRESET_VERSION:
            newer = f"is a preset of version {int(text)}, this program knows up to {PRESET_VERSION}"
            raise self.error(node.line, f"{newer}: upgrade tuner-tui")

    def check_keys(self, node: Entries, known: Sequence[str], what: str) -> None:
        for key, line in node.lines.items():
            if key not in known:
                raise self.error(line, f"unknown {what} '{shorten(key)}'{_hint(nearest(key, known))}")

    def check_parts(self, tree: Entries) -> None:
        for key in ("for", "job"):
            node = tree.nodes.get(key)
            if node is None or (isinstance(node, Scalar) and node.empty):
                continue
            if not isinstance(node, Entries):
                raise self.error(node.line, f"'{key}' must hold `key: value` lines")
            model = self.job_model(node) if key == "job" else ForHardware
            self.check_keys(node, tuple(model.model_fields), f"key of '{key}'")

    def job_model(self, job: Entries) -> type[BaseModel]:
        kind = job.nodes.get("kind")
        if kind is None:
            return BuiltinJob
        models: dict[str, type[BaseModel]] = {"builtin": BuiltinJob, "command": CommandJob}
        if not isinstance(kind, Scalar) or kind.text not in models:
            word = shorten(kind.text) if isinstance(kind, Scalar) else "…"
            raise self.error(kind.line, f"unknown kind of job '{word}'; it is builtin or command")
        return models[kind.text]

    def settings(self, node: Node | None) -> dict[str, Value]:
        if node is None or (isinstance(node, Scalar) and node.empty):
            return {}
        if not isinstance(node, Entries):
            raise self.error(node.line, "settings must hold `name: value` lines")
        return {name: self.setting(name, child, node.lines[name]) for name, child in node.nodes.items()}

    def setting(self, name: str, node: Node, line: int) -> Value:
        if name in SPELLINGS:
            raise self.error(line, f"unknown setting '{name}'; in a preset it is written {SPELLINGS[name]}")
        try:
            return parse_value(name, scalar_text(name, node))
        except FieldError as error:
            raise self.error(line, str(error)) from None

    def wrong(self, tree: Entries, error: ValidationError) -> PresetError:
        first = error.errors(include_url=False, include_input=False)[0]
        path = [str(part) for part in first["loc"]]
        if path[0] == "job":
            del path[1]  # pydantic puts the kind of job there
        where = shorten(".".join(path))
        message = {
            "missing": f"{where} is missing",
            "too_short": f"{where} must hold at least one word",
            "string_pattern_mismatch": f"{where} must look like 8.0",
        }.get(first["type"], f"{where}: {shorten(first['msg'].removeprefix('Value error, '), 160)}")
        return self.error(line_of(tree, path), message)

    def error(self, line: int, sentence: str) -> PresetError:
        return PresetError(f"{self.source}:{line}: {sentence}")


def scalar_text(name: str, node: Node) -> str:
    """The text of a value that must be a single one; raises `FieldError` for a list or mapping."""
    if not isinstance(node, Scalar):
        raise FieldError(name, f"{name} must be a single value, not a list or mapping")
    return "" if node.empty else node.text


def plain(node: Node) -> Any:
    """The tree as lists, dicts and text (pydantic reads numbers from it); a plain null is None."""
    match node:
        case Scalar():
            return None if node.empty else node.text
        case Items(nodes=nodes):
            return [plain(child) for child in nodes]
        case Entries(nodes=nodes):
            return {key: plain(child) for key, child in nodes.items()}


def line_of(tree: Entries, path: Sequence[str]) -> int:
    """The line of the node that `path` leads to, or of the last one on the way that is there."""
    line, node = tree.line, tree
    for part in path:
        if part not in node.nodes:
            continue
        line = node.lines[part]
        child = node.nodes[part]
        if not isinstance(child, Entries):
            break
        node = child
    return line


def _hint(near: str | None) -> str:
    return f"; did you mean '{near}'?" if near else ""


def _flat(tree: Entries, source: str, name: str, path: Path | None) -> LoadedPreset:
    values = {key: plain(node) for key, node in tree.nodes.items()}
    try:
        imported = from_hf(values)
    except FieldError as error:
        raise PresetError(f"{source}:{tree.lines.get(error.field, tree.line)}: {error}") from None
    if not imported.settings:
        raise PresetError(
            f"{source}: is neither a preset (`settings:` with `name: value` lines) nor Hugging Face arguments"
        )
    return LoadedPreset(Preset(name=name, settings=dict(imported.settings)), path, imported.notes)

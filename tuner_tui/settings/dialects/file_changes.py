"""Which keys of a tool's file must change to give it other settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import Dialect, dialect_keys
from tuner_tui.settings.dialects.hf import SCRIPT_FIELDS, ExportedSettings
from tuner_tui.settings.dialects.key_places import keys_in_file
from tuner_tui.settings.dialects.nested_values import flatten
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.dialects.text_patch import KeyPath
from tuner_tui.settings.model import FIELDS, Settings

NOT_IN_FILE = " is not in the file"


def file_changes(
    dialect: Dialect,
    file_values: Mapping[str, Any],
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None = None,
) -> ExportedSettings:
    """The keys of the tool's file, `file_values`, by their path, that must change to give it the settings `names`.

    A key whose setting has the value already stays: it may say more, as `adapter: qlora` is LoRA on quantized weights.
    """
    return _FileChanges(dialect, file_values, settings, names, targets).compute()


class _FileChanges:
    """Settings without a place in the file are left out; then other values and old names go; then new ones are set."""

    def __init__(
        self,
        dialect: Dialect,
        file_values: Mapping[str, Any],
        settings: Settings,
        names: Collection[str],
        targets: Collection[str] | None,
    ) -> None:
        self._dialect = dialect
        self._file_values = file_values
        self._settings = settings
        self._given = read_settings(dialect, file_values).settings
        self._changed = [
            name
            for name in FIELDS
            if name in names and (name not in self._given or self._given[name] != getattr(settings, name))
        ]
        self._flat = flat = flatten(file_values) if dialect.nested else file_values
        self._targets = hf.arguments_of_file(flat.keys()) if targets is None and dialect.extends_hf else targets
        self._places = {**keys_in_file(dialect, flat), **self._old_names()}
        # The section that most arguments of Hugging Face's are in takes what the file lacks.
        arguments = self._places.items() if dialect.extends_hf else ()
        sections = Counter(path.removesuffix(key) for key, path in arguments if path.endswith(f".{key}"))
        self._section = next((name for name, _ in sections.most_common(1)), "")
        self._written = write_settings(dialect, settings, self._targets, self._changed, flat)

    def compute(self) -> ExportedSettings:
        unsupported, notes, without = self._without_place()
        values: dict[KeyPath, Any] = {}
        for name in (setting for setting in self._changed if setting not in unsupported):
            values |= self._removals(name)
        for key, value in self._written.values.items():
            path = self._place_of(key)
            if value is None or key in without or _is_default(path, value, self._flat):
                continue
            if path not in self._flat or self._flat[path] != value:
                values[_path(self._dialect, path)] = value
        return ExportedSettings(values, tuple(unsupported), tuple(notes))

    def _old_names(self) -> dict[str, str]:
        """Keys of the dialect with the other name, for the same values, under which the file has each."""
        dialect = self._dialect
        old_names = {old: new.key for old, new in dialect.renamed.items() if new.values is None}
        if dialect.extends_hf:
            targets = self._targets or ()
            renamed = {old: name for old, name in hf.RENAMED.items() if name in SCRIPT_FIELDS or old in targets}
            old_names |= {old: dialect.names.get(name, name) for old, name in renamed.items()}
        return {key: old for old, key in old_names.items() if old in self._flat and key not in self._flat}

    def _place_of(self, key: str) -> str:
        return self._places.get(key, key if key in self._flat else f"{self._section}{key}")

    def _without_place(self) -> tuple[list[str], list[str], set[str]]:
        """The settings that the file has no place for, why, and the keys that would say them."""
        unsupported, notes, without = list(self._written.unsupported), list(self._written.notes), set[str]()
        for name in (setting for setting in self._changed if setting not in self._written.unsupported):
            spelled = write_settings(self._dialect, self._settings, self._targets, [name], self._flat).values
            reasons = self._why_no_place(name, spelled)
            if reasons:  # a part of a setting may say another one
                unsupported.append(name)
                notes += reasons
                without |= spelled.keys()
        return unsupported, notes, without

    def _why_no_place(self, name: str, spelled: Mapping[str, Any]) -> list[str]:
        places = {key: self._place_of(key) for key in spelled}
        paths = [path for key, path in places.items() if not _is_default(path, spelled[key], self._flat)]
        value = self._flat.get(self._place_of(self._dialect.names.get(name, name)))
        if hf.is_other_library(name, value) and self._dialect.takes_more is not None:
            reasons = [f"{name} is {value} in the file, a name of another library"]
        else:
            absent = (path for path in paths if path not in self._flat)
            reasons = [why for path in absent if (why := _no_place(self._dialect, self._file_values, path))]
        if reasons and name in self._given:
            return [f"the file has another name for {name} than {' and '.join(paths)}: change it by hand"]
        return reasons

    def _removals(self, name: str) -> dict[KeyPath, Any]:
        """The keys of the file that say another value of the setting, each with None.

        A second name with the value that is replaced is given the new one: each has a reader.
        """
        written, flat = self._written.values, self._flat
        renamed = self._dialect.renamed.keys() | (hf.RENAMED.keys() if self._dialect.extends_hf else set())
        kept = {self._places.get(key, key) for key, value in written.items() if value is not None}
        sections = {path.rpartition(".")[0] for path in kept}
        values: dict[KeyPath, Any] = {}
        for key in sorted(dialect_keys(self._dialect, name)):
            path = self._places.get(key, key)
            if written.get(key) is not None or path not in flat or path in kept:
                continue
            if key in renamed and path.rpartition(".")[0] not in sections:
                continue  # an old name in another section than the new one is a key of the user's own
            is_second = path in renamed and flat[path] is not None
            values[_path(self._dialect, path)] = next(
                (written.get(new) for new in kept if is_second and flat.get(new) == flat[path]), None
            )
        return values


def _is_default(key_path: str, value: Any, flat: Mapping[str, Any]) -> bool:
    """Whether a key that the file lacks is without effect: fp16 is off in every tool; bf16 is on in some."""
    if not flat or flat.get(key_path) is not None:
        return False
    is_precision = key_path.rpartition(".")[2] == "fp16" or key_path in ("fp16.enabled", "bf16.enabled")
    return value is False if is_precision else key_path == "warmup_steps" and bool(value == 0)


def _no_place(dialect: Dialect, file_values: Mapping[str, Any], key_path: str) -> str | None:
    """Why the file cannot take a key that it does not have; None if it can."""
    if dialect.form == "overrides":
        return f"{key_path}{NOT_IN_FILE}"
    section = key_path.rpartition(".")[0]
    if dialect.takes_more is False or (dialect.takes_more is not None and not dialect.takes_more(file_values, section)):
        return f"{key_path} is not in the file, and the script that reads it may have no such argument"
    if key_path.startswith(tuple(dialect.users_sections)):
        return f"{key_path} is not in the file, and the class that takes it may have no such argument"
    if dialect.form == "json":
        return None  # DeepSpeed has defaults for the rest of each of its sections
    inner: Any = file_values
    for name in key_path.split(".")[:-1] if dialect.nested and file_values else ():
        inner = inner.get(name) if isinstance(inner, Mapping) else None
        if not isinstance(inner, Mapping):
            return f"the file has no section {name} for {key_path}"
    return None


def _path(dialect: Dialect, key: str) -> KeyPath:
    """The sections and the key in them; a keyword argument is found by its whole name, `LoraConfig.r`."""
    return tuple(key.split(".")) if dialect.nested and dialect.form != "python" else (key,)

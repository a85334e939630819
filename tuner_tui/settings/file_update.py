"""Writes new values into a tool's own file, which stays as it is otherwise."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Collection
from difflib import unified_diff
from pathlib import Path

from msgspec import Struct, structs

from tuner_tui.settings.dialects.file_changes import NOT_IN_FILE, file_changes
from tuner_tui.settings.dialects.file_formats import form_of_file, parse_file, patch_file, read_file_text
from tuner_tui.settings.dialects.hydra import compose
from tuner_tui.settings.dialects.nested_values import with_references
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.settings.preset_file import is_preset
from tuner_tui.settings.tool_choice import tool_of_file


class FileUpdate(Struct, frozen=True):
    """The text of a tool's file before and after new values; `left_out` says why it cannot take those `missing`."""

    path: Path
    before: str
    after: str
    left_out: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    mark: bytes = b""

    @property
    def content(self) -> bytes:
        """The file with the new values: a byte order mark stays."""
        return self.mark + self.after.encode()

    @property
    def diff(self) -> str:
        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        changes = unified_diff(before, after, str(self.path), str(self.path), n=1)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changes)


def update_tool_file(
    path: Path,
    settings: Settings,
    names: Collection[str],
    targets: Collection[str] | None = None,
    despite_auto: Collection[str] = (),
) -> FileUpdate:
    """The tool's file at `path` with the settings `names`, the others as they are. Raises `SettingsError`.

    `auto` stays but for `despite_auto`, and always in a launcher's file: DeepSpeed refuses what the Trainer has not.
    """
    text = read_file_text(path)
    line_end = "\r\n" if text.count("\r\n") == text.count("\n") > 0 else "\n"
    before = text.replace("\r\n", "\n") if line_end == "\r\n" else text
    file = parse_file(before, path)
    file_values = file.values
    if file.kind:
        raise SettingsError(f"{path} is a {file.kind}: change the command in it by hand")
    if form_of_file(path) in ("yaml", "json") and is_preset(file_values):
        raise SettingsError(f"{path} is a preset; --write changes the file of a training tool")
    tool = tool_of_file(file, path)
    given = read_settings(tool, file_values)
    resolved = read_settings(tool, with_references(file_values)).settings
    open_ = {name for name in given.left_open if resolved.get(name) != getattr(settings, name)}
    of_trainer = sorted(open_ & {*names} & {*despite_auto}) if tool.of_launcher else []
    names = {*names} - ({*given.left_open} - (open_ & {*despite_auto})) - {*of_trainer}
    kept = {name: value for name, value in given.settings.items() if name not in names}
    wanted = structs.replace(settings, **kept)
    composed = read_settings(tool, compose(file_values, path)).settings if tool.form == "overrides" else {}
    why = f"is auto in {path.name}, so that the Trainer puts its own in: give it to the training script"
    after, left_out, missing = before, [f"{name} {why}" for name in of_trainer], {*of_trainer}
    # One at a time, so that one that the file cannot take is reported alone; `kept` too, which may share a key with it.
    for name in (setting for setting in FIELDS if setting in names or setting in kept):
        changes = file_changes(tool, parse_file(after, path).values, wanted, [name], targets)
        where = f"{NOT_IN_FILE}: {'another' if name in composed else 'no'} file of its configuration has this setting"
        left_out += (re.sub(rf"{NOT_IN_FILE}$", where, note) for note in changes.notes)
        missing |= {*changes.unsupported}
        try:
            after = patch_file(after, changes.values, path)
        except SettingsError as error:
            left_out.append(str(error))
            missing.add(name)
    with path.open("rb") as opened:
        mark = BOM_UTF8 if opened.read(len(BOM_UTF8)) == BOM_UTF8 else b""
    return FileUpdate(path, text, after.replace("\n", line_end), tuple(left_out), frozenset(missing), mark)

"""Chooses the tool whose file it is."""

from __future__ import annotations

from pathlib import Path

from tuner_tui.settings.dialects.command_words import read_overrides
from tuner_tui.settings.dialects.dialect import HF, Dialect, dialect_of_command, dialects
from tuner_tui.settings.dialects.dialect_choice import dialect_of_file
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS, form_of_file
from tuner_tui.settings.dialects.hydra import group_of, is_named
from tuner_tui.settings.dialects.job_files import kind_of_name
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, ToolFile


def tool_of_file(file: ToolFile, path: Path | None) -> Dialect:
    """The dialect of the tool's file at `path`: by the program that a shell script starts, else by the keys.

    A file of one of Hydra's groups is Hydra's.
    """
    form = "yaml" if path is None else "arguments" if file.words else form_of_file(path)
    dialect = dialect_of_file(file.values, form)
    if file.words:
        started = dialect_of_command(file.words)
        if started.name != HF:
            return started
        return dialects()["hydra"] if read_overrides(file.words) else dialect
    if path is None or form != "yaml" or (dialect.of_launcher and "_target_" not in file.values):
        return dialect
    of_script = dialect.name in (HF, "hf-sections", "own-script")
    return dialects()["hydra"] if group_of(path) is not None or (of_script and is_named(path)) else dialect


def names_tool_file(word: str) -> bool:
    """Whether a word is the name of a file that may hold a training, rather than that of a preset."""
    return word.endswith((*CONFIGURATIONS, *SCRIPT_FORMS, "MLproject")) or bool(kind_of_name(Path(word).name))

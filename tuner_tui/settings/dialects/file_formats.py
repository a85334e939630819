"""The formats of tools' files, by suffix: read as values, single values changed in their text, and written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from msgspec.structs import replace

from tuner_tui.settings.dialects.command_words import option_word, read_options
from tuner_tui.settings.dialects.dialect import Dialect, Form
from tuner_tui.settings.dialects.hf import ExportedSettings
from tuner_tui.settings.dialects.job_files import on_this_machine, parse_tool_file, read_commands
from tuner_tui.settings.dialects.nested_values import texts_in, unflatten
from tuner_tui.settings.dialects.python_source import (
    UNSLOTH,
    notebook_codes,
    overlaid,
    patch_codes,
    patch_notebook,
    read_assignments,
    read_python,
    render_calls,
    shell_lines,
)
from tuner_tui.settings.dialects.python_values import CALLED
from tuner_tui.settings.dialects.script_search import find_program, own_modules, words_of
from tuner_tui.settings.dialects.shell_script import patch_shell, read_shell
from tuner_tui.settings.dialects.text_patch import KeyPath, patch_text
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, MAX_BYTES, ToolFile, read_text

SHELL = ".sh .bash .zsh .slurm .sbatch .sb .pbs .lsf .qsub .bsub .job .sub .args"
SCRIPT_FORMS: Mapping[str, Form] = {
    **dict.fromkeys((".py", ".ipynb"), "python"), **dict.fromkeys(SHELL.split(), "arguments")
}  # fmt: skip
MOST_BYTES = {".py": 2**20, ".ipynb": 2**26}  # a notebook holds pictures


def form_of_file(path: Path) -> Form:
    suffix = path.suffix.lower()
    return SCRIPT_FORMS.get(suffix, "json" if suffix == ".json" else "yaml")


def read_file_text(path: Path) -> str:
    """The text of a tool's file. Raises `PresetError`."""
    return read_text(path, MOST_BYTES.get(path.suffix.lower(), MAX_BYTES))


MOST_BASES = 20


def with_bases(values: Mapping[str, Any], path: Path, read: Collection[Path] = ()) -> dict[str, Any]:
    """The values of a tool's file over those of the files that it extends, as detectron2's `_BASE_` names them."""
    merged: dict[str, Any] = {}
    for base in bases_of(values, path):
        if base not in read and len(read) < MOST_BASES and base.is_file():
            with suppress(PresetError):
                text, is_python = read_file_text(base), base.suffix == ".py"
                inner = read_assignments(text) if is_python else parse_tool_file(text, str(base), base.suffix).values
                merged = overlaid(merged, with_bases(inner, base, {*read, base}))
    named = {key: path.parent / name for key, name in values.items() if str(name).endswith((".yaml", ".yml"))}
    for key, part in named.items():  # jsonargparse takes a file in the place of a section
        inner = values_of_file(part) if part.is_file() and part not in read else {}
        merged |= {key: inner} if {"class_path", "init_args"} <= inner.keys() else {}
    return overlaid(merged, {key: value for key, value in values.items() if key not in merged or key not in named})


def bases_of(values: Mapping[str, Any], path: Path) -> Iterator[Path]:
    """The files that a tool's file extends; for a path of another machine the one that ends so."""
    for name in texts_in([values.get(key) for key in words_of("bases")]):
        base = (path.parent / name).resolve()
        if base.suffix in (".py", *CONFIGURATIONS):
            yield base if base.is_file() or not name.startswith("/") else find_program(path, [base]) or base


def values_of_file(path: Path) -> dict[str, Any]:
    """The values of a tool's file; none if it cannot be read."""
    with suppress(SettingsError):
        return parse_file(read_file_text(path), path).values
    return {}


def parse_file(text: str, path: Path, options: Mapping[str, object] = MappingProxyType({})) -> ToolFile:
    """The values of a tool's file with the text `text`. Raises `PresetError`.

    `options` are what a command line gives to a script of Python.
    """
    source, suffix = str(path), path.suffix.lower()
    match suffix:
        case ".py":
            modules = {str(module): code for module, code in own_modules(path) if module != path}
            file = read_python([text], source, whole=True, modules=modules, options=options)
            return file if file.values else ToolFile(with_bases(read_assignments(text), path))
        case ".ipynb":
            codes = notebook_codes(text, source)
            notebook = read_python(codes, source)
            if any("." not in key and not key.endswith(CALLED) for key in notebook.values.keys() - {UNSLOTH}):
                return notebook
            with suppress(PresetError):
                return replace(read_shell(shell_lines(text, source), source), kind="notebook")
            return read_python(codes, source, whole=True)
        case ".args":
            return ToolFile(dict(read_options(tuple(text.split()))))  # as `HfArgumentParser` reads it
        case _ if SCRIPT_FORMS.get(suffix) == "arguments":
            read = read_commands(text, source)
            shell = replace(on_this_machine(read, path), folder=read.folder)
            if shell.kind or shell.command[:1] != ("bash",):
                return shell
            reason = f"it starts {Path(shell.command[1]).name}"  # and is started itself
            return replace(shell, command=(), incomplete=(reason, *shell.incomplete))
        case _:
            file = parse_tool_file(text, source, suffix)
            return replace(file, values=with_bases(file.values, path))


def patch_file(text: str, changes: Mapping[KeyPath, Any], path: Path) -> str:
    """`text` with `changes`, the rest as it is. Raises `SettingsError` where that cannot be."""
    source, suffix = str(path), path.suffix.lower()
    match SCRIPT_FORMS.get(suffix):
        case "python" if suffix == ".py":
            return patch_codes([text], [text], changes, source)[0]
        case "python":
            return patch_notebook(text, changes, source)
        case "arguments":
            return patch_shell(text, changes, source)
        case _:
            return patch_text(text, changes, source, suffix)


def render_export(dialect: Dialect, carried: ExportedSettings) -> str:
    """The exported settings in the dialect's form; a comment says what it has no place for, where it has comments."""
    comments = [] if dialect.form == "json" else [f"# Left out: {why}" for why in carried.notes]
    values = {name: value for name, value in carried.values.items() if value is not None}
    return "\n".join([*comments, render_file(dialect, values)])


def render_file(dialect: Dialect, values: Mapping[str, Any]) -> str:
    """`values` in the dialect's form."""
    match dialect.form:
        case "python" if dialect.calls:
            return render_calls(values, dialect.calls)
        case "python":
            return "\n".join(f"{name} = {value!r}" for name, value in unflatten(values).items())
        case "arguments":
            words = to_arguments(values)
            return " \\\n".join(shlex.join(words[index : index + 2]) for index in range(0, len(words), 2))
        case "overrides":
            return " ".join(f"{key}={format_override(value)}" for key, value in values.items())
    complete = {**dialect.required, **values}
    nested = unflatten(complete) if dialect.nested else complete
    return dump_config(nested, as_json=dialect.form == "json").rstrip()


def dump_config(values: Mapping[str, Any], *, as_json: bool = False) -> str:
    """`values` as YAML; floats have a decimal point (`1.0e-05`), so that YAML 1.1 readers see numbers.

    `as_json` keeps JSON for a script that reads nothing else; a reader of YAML takes it as well.
    """
    if as_json:
        return json.dumps(values, indent=2, ensure_ascii=False)
    return str(yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))


def to_arguments(values: Mapping[str, Any]) -> list[str]:
    """`--key value` for every value that is not None; booleans as `HfArgumentParser` reads them."""
    return [word for name, value in values.items() if value is not None for word in (f"--{name}", option_word(value))]


def format_override(value: Any) -> str:
    """A value as Hydra's grammar reads it: `true`, `null`, `4e-05`, `bf16-mixed`."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

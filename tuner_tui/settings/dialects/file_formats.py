"""The formats of tools' files, by suffix: read as values, single values changed in their text, and written."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from msgspec.structs import replace

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.command_words import option_word, read_options
from tuner_tui.settings.dialects.dialect import Dialect, Form, dialect_keys
from tuner_tui.settings.dialects.hf import SCRIPT_FIELDS, ExportedSettings
from tuner_tui.settings.dialects.job_files import on_this_machine, parse_tool_file, read_commands
from tuner_tui.settings.dialects.key_places import keys_in_file
from tuner_tui.settings.dialects.nested_values import flatten, holds_one_section, set_nested, texts_in, unflatten
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
from tuner_tui.settings.dialects.script_search import find_program, own_modules, pattern_of, words_of
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.dialects.settings_writer import write_settings
from tuner_tui.settings.dialects.shell_script import patch_shell, read_shell
from tuner_tui.settings.errors import PresetError, SettingsError
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.settings.yaml_reader import (
    CONFIGURATIONS,
    INI,
    MAX_BYTES,
    ToolFile,
    compose_tool_yaml,
    parse_tool_text,
    read_text,
)

SHELL = ".sh .bash .zsh .slurm .sbatch .sb .pbs .lsf .qsub .bsub .job .sub .args"
SCRIPT_FORMS: Mapping[str, Form] = {
    **dict.fromkeys((".py", ".ipynb"), "python"), **dict.fromkeys(SHELL.split(), "arguments")
}  # fmt: skip
NOT_IN_FILE = " is not in the file"
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


KeyPath = tuple[str, ...]


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
    given = read_settings(dialect, file_values).settings
    changed = [n for n in FIELDS if n in names and (n not in given or given[n] != getattr(settings, n))]
    flat = flatten(file_values) if dialect.nested else file_values
    if targets is None and dialect.extends_hf:
        targets = hf.arguments_of_file(flat.keys())
    written = write_settings(dialect, settings, targets, changed, flat)
    # The other names with the same values under which the file has keys of the dialect.
    old_names = {old: new.key for old, new in dialect.renamed.items() if new.values is None}
    if dialect.extends_hf:
        old = {old: name for old, name in hf.RENAMED.items() if name in SCRIPT_FIELDS or old in (targets or ())}
        old_names |= {old_name: dialect.names.get(name, name) for old_name, name in old.items()}
    spelled_old = {key: old for old, key in old_names.items() if old in flat and key not in flat}
    places = {**keys_in_file(dialect, flat), **spelled_old}
    # The section that most arguments of Hugging Face's are in takes what the file lacks.
    arguments = places.items() if dialect.extends_hf else ()
    sections_of = Counter(key_path.removesuffix(key) for key, key_path in arguments if key_path.endswith(f".{key}"))
    section = next((name for name, _ in sections_of.most_common(1)), "")

    def place_of(key: str) -> str:
        return places.get(key, key if key in flat else f"{section}{key}")

    paths = {name: place_of(dialect.names.get(name, name)) for name in changed}
    foreign = {name: flat[key] for name, key in paths.items() if hf.is_other_library(name, flat.get(key))}
    # Settings without a place in the file are left out; then other values and old names go; then new ones are set.
    unsupported, notes, without = list(written.unsupported), list(written.notes), set[str]()
    for name in (setting for setting in changed if setting not in written.unsupported):
        spelled = write_settings(dialect, settings, targets, [name], flat).values
        new = {key: place_of(key) for key in spelled if not _is_default(place_of(key), spelled[key], flat)}
        if name in foreign and dialect.takes_more is not None:
            reasons = [f"{name} is {foreign[name]} in the file, a name of another library"]
        else:
            reasons = [why for key in new.values() if key not in flat and (why := _no_place(dialect, file_values, key))]
        if reasons and name in given:
            reasons = [f"the file has another name for {name} than {' and '.join(new.values())}: change it by hand"]
        if reasons:  # a part of a setting may say another one
            unsupported.append(name)
            notes += reasons
            without |= spelled.keys()
    values: dict[KeyPath, Any] = {}
    renamed = dialect.renamed.keys() | (hf.RENAMED.keys() if dialect.extends_hf else set())
    for name in (setting for setting in changed if setting not in unsupported):
        gone = sorted(key for key in dialect_keys(dialect, name) if written.values.get(key) is None)
        kept = {places.get(key, key) for key, value in written.values.items() if value is not None}
        sections = {key_path.rpartition(".")[0] for key_path in kept}
        gone = [
            key_path
            for key in gone
            # An old name in another section than the new one is a key of the user's own.
            if (key_path := places.get(key, key)) in flat
            and (key not in renamed or key_path.rpartition(".")[0] in sections)
        ]
        for key_path in (old for old in gone if old not in kept):  # both names with one value: each has a reader
            same = key_path in renamed and flat[key_path] is not None
            twins = [written.values.get(new) for new in kept if same and flat.get(new) == flat[key_path]]
            values[_path(dialect, key_path)] = next(iter(twins), None)
    for key, value in written.values.items():
        key_path = place_of(key)
        if value is None or key in without or _is_default(key_path, value, flat):
            continue
        if key_path not in flat or flat[key_path] != value:
            values[_path(dialect, key_path)] = value
    return ExportedSettings(values, tuple(unsupported), tuple(notes))


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


def patch_text(text: str, changes: Mapping[KeyPath, Any], source: str, suffix: str = ".yaml") -> str:
    """`text` with `changes`. Raises `SettingsError` for a value that is shared, over sections or new in TOML."""
    if suffix in (".toml", *INI):
        edits = [_toml_edit(text, path, value, source) for path, value in changes.items()]
    else:
        # YAML has no tabs between its tokens, JSON has none within its texts.
        root = compose_tool_yaml(text.replace("\t", " ") if suffix == ".json" else text, source)
        whole = _with_new_sections(root, changes, suffix)
        edits = [_edit(text, root, path, value, source) for path, value in whole.items()]
    patched = text
    # From the end to the beginning, so that the marks of what is still to be edited stay valid.
    for start, end, new in sorted(edits, key=lambda edit: edit[0], reverse=True):
        patched = patched[:start] + new + patched[end:]
    # Whether the edits were right is checked: the text must parse to the old values with just these changes.
    before, after = (
        {key: value for key, value in flatten(file.values).items() if not holds_one_section(value)}
        for file in (parse_tool_text(version, source, suffix) for version in (text, patched))
    )
    expected = {**before, **{".".join(path): value for path, value in changes.items()}}
    gone = {".".join(path) for path, value in changes.items() if value is None}
    if after != {key: value for key, value in expected.items() if key not in gone}:
        raise SettingsError(f"{source}: these values cannot be changed without changing others; edit it by hand")
    return patched


def _toml_edit(text: str, path: KeyPath, value: Any, source: str) -> tuple[int, int, str]:
    """Start, end and new text of one value in its table; None removes the line of the key."""
    table: tuple[str, ...] = ()
    for line in pattern_of("toml_line").finditer(text):
        if line["table"]:
            table = tuple(line["table"].split("."))
        elif (*table, *line["key"].split(".")) == path:
            if value is None:
                return line.start(), line.end() + 1, ""
            return *line.span("value"), json.dumps(value) if source.endswith(".toml") else str(value)
    raise SettingsError(f"{source}: has no {'.'.join(path)} as a single value; add it by hand")


def _with_new_sections(root: yaml.MappingNode, changes: Mapping[KeyPath, Any], suffix: str) -> dict[KeyPath, Any]:
    """`changes` with those of a section that a JSON file lacks put together as the value of that section."""
    sections: dict[KeyPath, Any] = {}
    for path, value in changes.items():
        section: yaml.Node | None = root
        for depth, key in enumerate(path[:-1]):
            pairs = section.value if isinstance(section, yaml.MappingNode) else ()
            section = next((node for name, node in pairs if name.value == key), None)
            if section is None and suffix == ".json":
                set_nested(sections.setdefault(path[: depth + 1], {}), path[depth + 1 :], value)
                break
        else:
            sections[path] = value
    return sections


def _path(dialect: Dialect, key: str) -> KeyPath:
    """The sections and the key in them; a keyword argument is found by its whole name, `LoraConfig.r`."""
    return tuple(key.split(".")) if dialect.nested and dialect.form != "python" else (key,)


def _edit(text: str, root: yaml.MappingNode, path: KeyPath, value: Any, source: str) -> tuple[int, int, str]:
    """Start, end and new text of one changed key."""
    section: Any = root
    for key in path[:-1]:
        is_list = isinstance(section, yaml.SequenceNode)
        inner = dict(enumerate(section.value) if is_list else ((name.value, node) for name, node in section.value))
        section = inner.get(0 if is_list else key)
        if not isinstance(section, yaml.CollectionNode):
            raise SettingsError(f"{source}: has no section {key} for {'.'.join(path)}")
    pair = next((pair for pair in section.value if pair[0].value == path[-1]), None)
    if pair is None:
        return _insertion(text, section, section is root, path[-1], value)
    name, node = pair
    start, end = node.start_mark.index, node.end_mark.index
    # An alias has the marks of its anchor, which lies elsewhere; a change at the anchor would change more.
    shared = start < name.end_mark.index or text[start : start + 1] in ("&", "*")
    if shared or not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        line = name.start_mark.line + 1
        raise SettingsError(f"{source}:{line}: {'.'.join(path)} is not a separate value (an alias or merge)")
    if value is not None:
        word = _scalar(value, bool(section.flow_style))
        return start, end, word if start < end else f" {word}"
    if section.flow_style:
        raise SettingsError(f"{source}: {'.'.join(path)} must be removed; edit it by hand")
    newline = text.find("\n", end)
    return text.rfind("\n", 0, name.start_mark.index) + 1, len(text) if newline < 0 else newline + 1, ""


def _insertion(text: str, section: yaml.MappingNode, at_end: bool, key: str, value: Any) -> tuple[int, int, str]:
    if section.flow_style:
        start = section.start_mark.index + 1
        first = section.value[0][0].start_mark.index if section.value else start
        comma = "," if section.value else ""
        return start, start, f"{text[start:first]}{json.dumps(key)}: {_scalar(value, True)}{comma}"
    newline = "\r\n" if "\r\n" in text else "\n"
    first = section.value[0][0].start_mark
    indent = " " * first.column
    line = f"{indent}{key}: {_scalar(value, False)}{newline}"
    if at_end:
        return len(text), len(text), line if text.endswith("\n") else f"{newline}{line.rstrip()}"
    start = first.index - first.column
    return start, start, line


def _scalar(value: Any, flow: bool) -> str:
    """A value as every reader sees it: floats with a decimal point, which PyYAML needs to read a number."""
    if flow and not isinstance(value, float):
        return json.dumps(value)
    return str(yaml.safe_dump(value, allow_unicode=True).splitlines()[0])

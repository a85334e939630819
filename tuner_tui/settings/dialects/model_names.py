"""The model, the data and the task that a configuration file or a command names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tuner_tui.settings.dialects.dialect import Dialect, dialect_of_command, leaf_pattern
from tuner_tui.settings.dialects.nested_values import TEMPLATE, to_fill_in
from tuner_tui.settings.dialects.python_values import CLASS
from tuner_tui.settings.dialects.script_search import pattern_of, words_of
from tuner_tui.settings.job import Task, names_other_task, task_of_source
from tuner_tui.settings.model import shorten_text

LONGEST_NAME = 200


def task_of(
    dialect: Dialect, flat: Mapping[str, Any], model: str | None, command: Sequence[str]
) -> Task | Literal["other"] | None:
    """The task of a script's model class, else that of the tool; None for models of others than language."""
    if any(pattern_of("of_other_task").search(key) for key in flat):
        return "other"
    task = task_of_source(f"{flat.get(f'from_pretrained.{CLASS}', '')}.from_pretrained")
    if task is not None or model is None or names_other_task(model, command):
        return task
    if any(pattern_of("of_classifier").search(key) for key in flat):
        return "classification"
    of_language_models = dialect.of_language_models or dialect_of_command(command).of_language_models
    return "causal-lm" if of_language_models else None


def model_of(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The model that is given, by the key with the most certain name, or `owner/name` at any; a file is none."""
    outputs = [value for key, value in values.items() if key.rpartition(".")[2] == "output_dir"]

    def names_none(key: str, value: Any) -> bool:
        written = pattern_of("written_files").fullmatch(f"{key.rpartition('.')[2]}={value}".lower())
        is_folder = key.startswith("args.") and str(value).endswith("/")  # a variable of the source
        return bool(
            pattern_of("sections_of_data").search(key) or (value in outputs and key not in keys) or written or is_folder
        )

    values = {key: value for key, value in values.items() if not names_none(key, value)}
    model = first_text(values, keys)
    if model is not None and "/" not in model:
        named = ((key, name) for key in keys if (name := first_text(values, [key])))
        is_path = re.compile(r"[\w-]+/[\w.-]+")
        model = next((name for key, name in named if is_path.fullmatch(name) or ("/" in name and "path" in key)), model)
    is_no_model = model is not None and re.fullmatch(
        r"[A-Z][A-Za-z]+|[\d.]+[bBmM]|.*\.(?:py|ya?ml|toml)|[^/]*[\s(][^/]*|(?i:imagenet\w*|coco)", model
    )
    return None if is_no_model else model


def data_of(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The data that is given, by the key with the most certain name; a file of data before a name for it."""
    data = first_text(values, keys)
    files = (name for key in keys if (name := first_text(values, [key])) and pattern_of("data_file").fullmatch(name))
    return data if data is None or re.search(r"[/.]", data) else next(files, data)


def first_text(values: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first that is given; of several keys that end so, the one at the top where they differ.

    None where that is filled in later: a less certain key would name something else.
    """
    sections = dict.fromkeys(match[1] for match in map(pattern_of("section_of_data").match, values) if match)
    for key in keys:
        if sections and leaf_pattern(key).search("datasets"):
            return shorten_text(", ".join(sections), LONGEST_NAME)
        ending = [path for path in values if leaf_pattern(key).search(path)]
        ending = [path for path in ending if not pattern_of("other_models").search(path)]
        if (named := words_of("only_of_value").get(key)) is not None:
            ending = [path for path in ending if re.search(named, str(values[path]), re.VERBOSE)]
        for group in (ending, [path for path in ending if "." not in path]):
            texts = {text for path in group if (text := _text_of(values[path]))}
            if len(texts) == 1:
                return texts.pop()
        given = [values[path] for path in ending if isinstance(values[path], str)]
        if any(TEMPLATE.fullmatch(text) or to_fill_in(text) for text in given):
            return None
    return None


def _text_of(value: object) -> str | None:
    """A name; the names in a list of entries; the keys of a mapping of name to share."""
    if isinstance(value, str) and re.fullmatch(r"\(.*\)|\[.*\]", value):  # a tuple as detectron2 writes it
        value = re.findall(r"[\"']([^\"']+)[\"']", value)
    if isinstance(value, str):
        value = re.sub(r"^hf://|(?<=\w)@\w+$", "", value.strip("'\""))  # NeMo's, and verl's data@split
        is_none = to_fill_in(value) or value.lower() in words_of("builders")
        of_class = TEMPLATE.search(value) or pattern_of("class_path").fullmatch(value)
        return None if is_none or of_class else shorten_text(value, LONGEST_NAME)
    if isinstance(value, Mapping):
        inner = value.get("datasets")
        shares = all(isinstance(share, int | float) for share in value.values())
        names = [_text_of(inner)] if isinstance(inner, list) else [str(key) for key in value if shares]
    elif isinstance(value, list):
        names = [_entry_name(entry) for entry in value]
    else:
        return None
    return shorten_text(", ".join(dict.fromkeys(name for name in names if name)), LONGEST_NAME) or None


def _entry_name(entry: object) -> str | None:
    if isinstance(entry, Mapping) and entry.get("path") in words_of("builders"):
        entry = entry.get("data_files")
        entry = entry[0] if isinstance(entry, list) and entry else entry
    if isinstance(entry, Mapping):
        entry = next((entry[key] for key in words_of("entry_keys") if isinstance(entry.get(key), str)), None)
    return entry if isinstance(entry, str) and not TEMPLATE.search(entry) and not to_fill_in(entry) else None

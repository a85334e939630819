"""What a file states of a training besides settings, for the reader: GPUs, warm-up in epochs, LoRA's modules, classes.

`stated` of `tools.yaml` names the keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner_tui.settings.dialects.dialect import leaf_pattern
from tuner_tui.settings.dialects.key_places import without_disabled, without_other_meanings
from tuner_tui.settings.dialects.nested_values import TEMPLATE, flatten, to_fill_in
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.model import shorten_text
from tuner_tui.settings.yaml_reader import CONFIGURATIONS

LONGEST = 100
NO_VALUES = ("", "0", "auto", "none", "null", "true", "false", "model", "-1")
MOST_GPUS = 100_000


def stated_in(flat: Mapping[str, Any], model: str | None, text: str = "") -> dict[str, str | int]:
    """What the keys state, and the text of a job's file where they do not; an architecture only without a model."""
    flat = {**_variables(text, words_of("gpu_texts")), **without_disabled(flat)}
    flat = without_other_meanings(flat)
    for key, value in [*flat.items()]:  # callbacks of several classes
        for entry in value if isinstance(value, list) else ():
            flat = {**flatten(entry, f"{key}."), **flat} if isinstance(entry, Mapping) else flat
    flat = {key: value for key, value in flat.items() if not re.search(words_of("other_use"), key.lower())}
    stated: dict[str, str | int] = {}
    for name, leaves in words_of("stated").items():
        texts = (_text(value) for leaf in leaves for value in _values(flat, leaf))
        stating = next((text for text in texts if text is not None), None)
        is_class = name != "data_class" or not str(stating)[0].isdigit()
        is_name = name != "architecture" or (model is None and not str(stating).endswith(CONFIGURATIONS))
        if stating is not None and is_class and is_name:
            stated[name] = stating
    counts = {"all": 0, "tasks": 0, "node": 0, "nodes": 0, "copies": 0}
    for row in words_of("gpus"):
        numbers = (_count(value, row.get("ids", False)) for value in _values(flat, row["names"]))
        counts[row["of"]] = counts[row["of"]] or next(filter(None, numbers), 0)
        if row["of"] == "node" and any(str(value) == "-1" for value in _values(flat, row["names"])):
            stated["devices"] = "all"
    parts = (_count(value, ids=False) for value in _values(flat, words_of("model_parallel")))
    if (size := math.prod(filter(None, parts))) > 1:
        stated["model_parallel"] = size
    gpus = counts["all"] or counts["node"] * (counts["nodes"] or 1) or counts["tasks"] or counts["copies"] * size
    return {**stated, **({"gpus": gpus} if 0 < gpus < MOST_GPUS else {})}


def _values(flat: Mapping[str, Any], leaf: str) -> Iterator[Any]:
    """The values under keys that end so, those nearest to the top first."""
    keys = sorted(flat, key=lambda key: key.count("."))
    return (flat[key] for key in keys if leaf_pattern(leaf).search(key))


def _text(value: object) -> str | int | None:
    """A number, a name or a list of names, for the reader; None where the value says nothing yet."""
    if isinstance(value, list) and value and all(isinstance(entry, str | int | float) for entry in value):
        value = ", ".join(map(str, value))
    if not isinstance(value, str | int | float) or str(value).lower() in NO_VALUES or to_fill_in(value):
        return None
    text = f"{value:.6g}" if isinstance(value, float) else str(value).strip("'\"")
    return None if TEMPLATE.search(text) else int(text) if text.isdecimal() else shorten_text(text, LONGEST)


def _count(value: object, ids: bool) -> int | None:
    """The number of devices: one, the length of a list, or of the text of one; of ids one names a single device."""
    if isinstance(value, str) and re.fullmatch(r"\[?\s*\d+(\s*,\s*\d+)*\s*,?\s*\]?", value):
        is_list, value = value.rstrip().endswith(","), [int(word) for word in re.findall(r"\d+", value)]
        value = value if ids or is_list or len(value) > 1 else value[0]
    if isinstance(value, str) and (named := re.fullmatch(r"(?:gpu:)?(?:[\w-]+:)?(\d+)|cuda:\d+", value)):
        value = int(named[1] or 1)
    if isinstance(value, str) and ids and re.fullmatch(r"\$\{?\w+\}?(,\$\{?\w+\}?)+", value):
        return value.count("$")
    if isinstance(value, list):
        return len(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return 1 if ids and value >= 0 else value if value > 0 else None


def _variables(text: str, patterns: list[str]) -> dict[str, str]:
    """What a script or manifest says of its devices, the numbers of several groups of processes together."""
    given: dict[str, str] = {}
    for pattern in patterns:
        for match in re.finditer(pattern, text):
            given.setdefault(match["name"].lower().replace("-", "_"), match["value"])
    replicas = [int(number) for number in re.findall(r"(?m)^\s*replicas:\s*(\d+)", text)]
    return given | ({"nodes": str(sum(replicas))} if replicas else {})

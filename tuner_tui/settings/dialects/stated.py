"""What a file states of a training besides settings, for the reader: GPUs, warm-up in epochs, LoRA's modules, classes.

`stated` of `tools.yaml` names the keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects.dialect import TABLES, TEMPLATE, leaf_pattern
from tuner_tui.settings.model import shorten_text

LONGEST = 100
NO_VALUES = ("", "0", "none", "null", "true", "false")
MOST_GPUS = 100_000


def stated_in(flat: Mapping[str, Any], model: str | None, text: str = "") -> dict[str, str | int]:
    """What the keys state, and the text of a job's file where they do not: `gpus` are those of all nodes together.

    An architecture counts where no model is named.
    """
    words = read_data_file(TABLES)["words"]
    flat = {**_variables(text, words["gpu_texts"]), **flat}
    flat = {key: value for key, value in flat.items() if not re.search(words["other_use"], key.lower())}
    stated: dict[str, str | int] = {}
    for name, leaves in words["stated"].items():
        value = next(_values(flat, leaves), None)
        if value is not None and (name != "architecture" or model is None):
            stated[name] = value
    gpus = _gpus(flat, words["gpus"])
    return {**stated, **({"gpus": gpus} if gpus else {})}


def _values(flat: Mapping[str, Any], leaves: list[str]) -> Iterator[str | int]:
    """The values under keys that end so, the most certain and those nearest to the top first."""
    for leaf in leaves:
        for key in sorted(flat, key=lambda key: key.count(".")):
            value = flat[key]
            if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
                value = ", ".join(value)
            is_value = isinstance(value, str | int | float) and not isinstance(value, bool)
            if not is_value or not leaf_pattern(leaf).search(key) or str(value).lower() in NO_VALUES:
                continue
            text = str(value).strip("'\"")
            if not TEMPLATE.search(text):
                yield int(text) if text.isdecimal() else shorten_text(text, LONGEST)


def _gpus(values: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> int | None:
    """The number of GPUs; None where the values do not say it, or leave it to the machine."""
    counts: dict[str, int] = {}
    for row in rows:
        keys = sorted(values, key=lambda key: key.count("."))
        found = (_count(values[key], row.get("ids", False)) for key in keys if leaf_pattern(row["names"]).search(key))
        number = next((count for count in found if count), None)
        if number is not None:
            counts.setdefault(row["of"], number)
    each = counts.get("node")
    number = counts.get("all") or (None if each is None else each * counts.get("nodes", 1))
    return number if number is not None and number < MOST_GPUS else None


def _count(value: object, ids: bool) -> int | None:
    """The number of devices: one, the length of a list, or of the text of one; of ids one names a single device."""
    if isinstance(value, str) and re.fullmatch(r"\[?\s*\d+(\s*,\s*\d+)*\s*,?\s*\]?", value):
        value = [int(word) for word in re.findall(r"\d+", value)]
        value = value if ids or len(value) > 1 else value[0]
    if isinstance(value, str) and (named := re.fullmatch(r"(?:gpu:)?(?:[\w-]+:)?(\d+)|cuda:\d+", value)):
        value = int(named[1] or 1)
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
    return given | ({"nodes": str(math.fsum(replicas)).removesuffix(".0")} if replicas else {})

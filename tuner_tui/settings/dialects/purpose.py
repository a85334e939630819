"""Whether a file is for a training by its keys and its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects.dialect import leaf_pattern
from tuner_tui.settings.dialects.script_search import TABLES, names_other_work, pattern_of, words_of


def says_training(flat: Mapping[str, Any]) -> bool:
    """Whether one of the keys says how to train, as a learning rate does and a batch size does not."""
    aliases = read_data_file(TABLES)["shared"]["aliases"]
    names = (leaf for name in words_of("of_a_training") for leaf in aliases[name])
    return any(pattern.search(path) for pattern in map(leaf_pattern, names) for path in flat)


def is_for_other_work(flat: Mapping[str, Any], name: str = "") -> bool:
    """Whether keys, or the name of their file, are those of an evaluation, of generating or serving, not a training.

    Where others of the keys say how to train, both must be.
    """
    words = words_of("other_work")
    others = {key for path in flat if (key := path.rpartition(".")[2].lower()) in words}
    of_folder = re.match(r"infer|eval|generat|predict", PurePath(name).parent.name) is not None
    signs = (len(others) > 1) + (of_folder or names_other_work(PurePath(name)))
    return signs > says_training(flat)


def is_for_any_program(settings: Collection[str], flat: Mapping[str, Any]) -> bool:
    """Whether a file has no setting but those that a program has as well which prepares data or runs a model."""
    return {"seed"} < {"seed", *settings} <= {*words_of("of_any_program")} and not names_of_transformers(flat)


def names_of_transformers(keys: Collection[str]) -> bool:
    """Whether a part of a key is one of the names that only `TrainingArguments` and scripts like its examples use."""
    return any(pattern_of("of_transformers").match(part) for key in keys for part in key.split("."))


def why_no_training(flat: Mapping[str, Any], name: str) -> str | None:
    """Why nothing is trained by a file with these keys, or of this name; None where none of them says so."""
    if is_for_other_work(flat, name):
        kinds = words_of("kinds_of_work").items()
        part = PurePath(name).stem if names_other_work(PurePath(name)) else PurePath(name).parent.name
        kind = next((f"for {kind}" for kind, word in kinds if re.search(word, part)), "no training")
        why = f"is {kind} by its keys or name, and says nothing of how to train"
        return f"{why}: open the file with learning rate and epochs"
    floats = (key for key, value in flat.items() if isinstance(value, float))
    measured = (key for key in floats if pattern_of("results").search(key.lower()))
    return next((f"is a record of a training, with its {key}: open the file that started it" for key in measured), None)

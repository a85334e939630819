"""Chooses the dialect of a file by its keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tuner_tui.settings.dialects import hooks
from tuner_tui.settings.dialects.dialect import HF, PLAIN, Dialect, Form, dialects
from tuner_tui.settings.dialects.hf import setting_of_argument
from tuner_tui.settings.dialects.key_places import keys_in_file
from tuner_tui.settings.dialects.nested_values import flatten
from tuner_tui.settings.dialects.purpose import names_of_transformers
from tuner_tui.settings.dialects.settings_reader import read_settings
from tuner_tui.settings.model import FIELDS

CERTAIN = 10
"""What a key that only one tool has counts for, in keys that others may have as well."""


def dialect_of_file(values: Mapping[str, Any], form: Form = "yaml") -> Dialect:
    """The dialect that shares most keys with these; where none does, the plain Hugging Face one of the form.

    A file of any tool may have one such key: two make it the tool's, or one that is in no other tool's files.
    """
    # A vote: each key that the file shares with a dialect counts one, a key that only this tool has counts `CERTAIN`.
    keys = {*flatten(values), *values}
    if not isinstance(values.get("defaults"), list):  # Hydra's is a list of files; others have a section of that name
        keys -= {"defaults"}
    files: tuple[Form, ...] = ("yaml", "json", "overrides")
    forms = files if form in files else (form,)
    candidates = []
    for dialect in dialects().values():
        others = values.keys() - hooks.KNOWN if dialect.only_keys else ()
        only_known = all(re.fullmatch(dialect.only_keys, key, re.VERBOSE) for key in others)
        if dialect.form in forms and (only_known or not values.keys().isdisjoint(dialect.certain_keys)):
            candidates.append(dialect)
    scores = {
        dialect.name: len(keys.intersection(dialect.file_keys)) + CERTAIN * (not keys.isdisjoint(dialect.certain_keys))
        for dialect in candidates
    }
    best = max(scores, key=lambda name: scores[name])
    of_user = _keys_of_own_script(values)
    if scores[best] >= (2 if form in files else 1):
        # A file of which a script's names say more than the tool's is the script's: `base_model` is anybody's key.
        tool = dialects()[best]
        of_tool, of_script = (len(read_settings(each, values).settings) for each in (tool, dialects()["own-script"]))
        is_certain = scores[best] >= CERTAIN and 2 * of_tool >= of_script
        is_other_form = tool.form == "json" and form == "yaml"  # GPT-NeoX has DeepSpeed's keys among its own
        is_sure = (is_certain or not (tool.programs or tool.of_launcher)) and not is_other_form
        return tool if is_sure or of_tool >= of_script else dialects()["hf-sections"]
    if form == "python" and of_user and "()" not in "".join(keys):
        return dialects()["own-script"]
    if form not in files:
        return dialects()[PLAIN.get(form, HF)]
    flat = flatten(values)
    if of_user and not names_of_transformers(flat):
        return dialects()["own-script"]
    arguments = [key for key in flat if setting_of_argument(key.rpartition(".")[2]) in FIELDS]
    in_sections = any("." in key for key in (*arguments, *of_user))
    return dialects()["hf-sections" if in_sections else PLAIN.get(form, HF)]


def _keys_of_own_script(values: Mapping[str, Any]) -> Collection[str]:
    """The keys of settings under names that scripts choose; none where all are arguments of Transformers."""
    flat = flatten(values)
    tool = dialects()["own-script"]
    names = {key: name for name, key in tool.names.items()}
    places = {names.get(key, key): path for key, path in keys_in_file(tool, flat).items()}
    paths = {path for name, path in places.items() if name not in ("optim", "lr_scheduler_type")}
    keys = paths | (flat.keys() & tool.leaves.keys())
    if len(keys) < 2 or all(setting_of_argument(key.rpartition(".")[2]) in FIELDS for key in keys):
        return ()
    return keys

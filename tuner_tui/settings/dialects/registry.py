"""All dialects by name, and which one a command or a configuration file belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from tuner_tui.settings.dialects.axolotl import AXOLOTL
from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.dialects.launcher_configs import ACCELERATE, DEEPSPEED
from tuner_tui.settings.dialects.litgpt import LITGPT
from tuner_tui.settings.dialects.llama_factory import LLAMA_FACTORY, LLAMA_FACTORY_V1
from tuner_tui.settings.dialects.ms_swift import MS_SWIFT
from tuner_tui.settings.dialects.torchtune import TORCHTUNE
from tuner_tui.settings.dialects.trl import TRL
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.fields import closest_match, shorten_text

HF = Dialect(
    name="hf",
    tool="Hugging Face Trainer",
    command="python train.py {config}",
    names={},
    script_unknown=True,
    file_keys=frozenset({
        "dataset_config_name", "task_name", "train_file", "validation_file", "block_size", "max_train_samples",
        "tokenizer_name", "config_name",
    }),
)  # fmt: skip
DIALECTS: Mapping[str, Dialect] = {
    one.name: one
    for one in (
        HF,
        TRL,
        LLAMA_FACTORY,
        LLAMA_FACTORY_V1,
        AXOLOTL,
        MS_SWIFT,
        LITGPT,
        TORCHTUNE,
        ACCELERATE,
        DEEPSPEED,
    )
}
DIALECT_OF_PROGRAM = {
    "trl": TRL,
    "llamafactory-cli": LLAMA_FACTORY,
    "llamafactory": LLAMA_FACTORY,
    "axolotl": AXOLOTL,
    "swift": MS_SWIFT,
    "litgpt": LITGPT,
    "tune": TORCHTUNE,
}
"""Name of a program to the dialect of the tool."""


def dialect_by_name(name: str) -> Dialect:
    """The dialect `name`. Raises `SettingsError`, which suggests the closest one."""
    if name in DIALECTS:
        return DIALECTS[name]
    near = closest_match(name, DIALECTS)
    hint = f"; did you mean {near}?" if near else ""
    raise SettingsError(f"'{shorten_text(name)}' is no dialect this program writes: {', '.join(DIALECTS)}{hint}")


def dialect_of_command(command: Sequence[str]) -> Dialect:
    """The dialect of the tool that a command starts, by its program or module; `HF` for any other command."""
    for word in command[:4]:
        found = DIALECT_OF_PROGRAM.get(PurePath(word).name.partition(".")[0])
        if found is not None:
            return found
    return HF


def dialect_of_file(values: Mapping[str, Any]) -> Dialect:
    """The dialect that shares most of its `file_keys` with these keys; `HF` if none does."""
    best = max(DIALECTS.values(), key=lambda one: len(one.file_keys & values.keys()))
    return best if best.file_keys & values.keys() else HF

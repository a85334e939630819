"""`TrainingArguments` as `--key value`, as `HfArgumentParser` of the user's script reads them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tuner_tui.settings.dialects.dialect import Dialect


def to_arguments(values: Mapping[str, Any]) -> list[str]:
    """`--key value` for every value that is not None; booleans as `HfArgumentParser` reads them."""
    return [
        word for name, value in values.items() if value is not None for word in (f"--{name}", _format_argument(value))
    ]


def render_arguments(values: Mapping[str, Any]) -> str:
    """The arguments of a command line, one on each line."""
    words = to_arguments(values)
    pairs = (shlex.join(words[index : index + 2]) for index in range(0, len(words), 2))
    return " \\\n".join(pairs)


def _format_argument(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


DIALECT = Dialect(
    name="hf-args",
    tool="Hugging Face Trainer",
    command="python train.py {config}",
    names={},
    form="arguments",
    render=render_arguments,
)

"""What the launcher hands the supervisor, on its standard input: the real command, secrets and all, written nowhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner_tui.runs.ladder import DEFAULT_PATIENCE, Patience
from tuner_tui.runs.typed import build, plain


@dataclass(frozen=True, slots=True)
class Plan:
    """The command and where it runs. `env` is the whole environment; `data_limit_bytes` caps its private memory.

    `patience` is how long a stop waits on each rung.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    data_limit_bytes: int | None = None
    patience: Patience = DEFAULT_PATIENCE


def dump_plan(plan: Plan) -> bytes:
    """The plan as JSON."""
    return json.dumps(plain(plan)).encode("ascii")


def load_plan(data: bytes) -> Plan:
    """The plan from JSON. Raises `ValueError`."""
    values = json.loads(data)  # not by `build`: bytes of an argument that are no UTF-8 have to come through
    try:
        return Plan(
            argv=tuple(values["argv"]),
            cwd=values["cwd"],
            env=values.get("env", {}),
            data_limit_bytes=values.get("data_limit_bytes"),
            patience=build(Patience, values.get("patience", {})),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"The plan is damaged: {error}") from error

"""What the launcher passes to the supervisor on standard input: the real command and environment, never written to
disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner_tui.core.json_dataclass import from_json, to_json
from tuner_tui.runs.supervise.stop_escalation import DEFAULT_TIMEOUTS, StopTimeouts


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The command and where it runs. `env` is the whole environment; `data_limit_bytes` caps its private memory.

    `patience` is how long a stop waits on each rung.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    data_limit_bytes: int | None = None
    patience: StopTimeouts = DEFAULT_TIMEOUTS


def dump_launch_spec(plan: LaunchSpec) -> bytes:
    """The plan as JSON."""
    return json.dumps(to_json(plan)).encode("ascii")


def load_launch_spec(data: bytes) -> LaunchSpec:
    """The plan from JSON. Raises `ValueError`."""
    values = json.loads(data)  # not by `from_json`: bytes of an argument that are no UTF-8 have to come through
    try:
        return LaunchSpec(
            argv=tuple(values["argv"]),
            cwd=values["cwd"],
            env=values.get("env", {}),
            data_limit_bytes=values.get("data_limit_bytes"),
            patience=from_json(StopTimeouts, values.get("patience", {})),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"The plan is damaged: {error}") from error

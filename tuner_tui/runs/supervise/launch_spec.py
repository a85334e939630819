"""What the launcher passes to the supervisor on standard input: command and environment, never written to disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner_tui.core.json_dataclass import from_json, to_json
from tuner_tui.runs.supervise.stop_escalation import DEFAULT_TIMEOUTS, StopTimeouts


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A command to supervise. `env` is the whole environment; `data_limit_bytes` caps the private memory."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    data_limit_bytes: int | None = None
    stop_timeouts: StopTimeouts = DEFAULT_TIMEOUTS


def dump_launch_spec(spec: LaunchSpec) -> bytes:
    return json.dumps(to_json(spec)).encode("ascii")


def load_launch_spec(data: bytes) -> LaunchSpec:
    """Parse the JSON of `dump_launch_spec`. Raises `ValueError`."""
    values = json.loads(data)  # `from_json` would replace surrogates, which stand for arguments that are not UTF-8
    try:
        return LaunchSpec(
            argv=tuple(values["argv"]),
            cwd=values["cwd"],
            env=values.get("env", {}),
            data_limit_bytes=values.get("data_limit_bytes"),
            stop_timeouts=from_json(StopTimeouts, values.get("stop_timeouts", {})),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"The launch specification is damaged: {error}") from error

"""Starts a run on another host, once. The request goes to the standard input of `tuner-tui run --request` there.

It is sent when the host says that it is ready, so that a connection that breaks before then has started nothing. After
that the same request is sent again until there is an answer: the host starts a run for its token once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tuner_tui.core.json_dataclass import from_json, to_json
from tuner_tui.core.text import escape_control
from tuner_tui.hosts.address import HostAddress
from tuner_tui.hosts.ssh import StreamEnd

READY = "tuner-tui:ready"
MOST_REQUEST_BYTES = 1 << 20
START_TIMEOUT_S = 180.0
PAUSES_S = (0.5, 2.0, 5.0, 10.0)
"""Between attempts to learn what became of a request that was sent."""
SSH_FAILED = 255
_RUN = re.compile(r"r\d{3,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A run to start: `token` names the request, `words` follow `tuner-tui run`, `preset` is the text of one."""

    token: str
    words: tuple[str, ...]
    folder: str
    preset: str | None = None
    preset_name: str | None = None

    def encode(self) -> bytes:
        """The request as it is sent; secrets are in it, so it is no part of a command line."""
        return json.dumps(to_json(self)).encode()


def decode_request(data: bytes) -> StartRequest:
    """The request. Raises `ValueError` if it is not whole."""
    return from_json(StartRequest, json.loads(data))


class RemoteStartError(Exception):
    """The run was not started, or it is unknown whether; the message says which. `code` is the exit code there."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


class RemoteCommands(Protocol):
    """Runs tuner-tui on a host. `SshTransport` does."""

    def run(self, host: HostAddress, *words: str, stdin: bytes, ready: bytes, timeout_s: float) -> StreamEnd: ...


def start_on(
    commands: RemoteCommands, host: HostAddress, request: StartRequest, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, str]:
    """Start the run and return its id there and what the host printed besides. Raises `RemoteStartError`."""
    sent = False
    for pause_s in (*PAUSES_S, None):
        end = commands.run(
            host, "run", "--request", stdin=request.encode(), ready=READY.encode(), timeout_s=START_TIMEOUT_S
        )
        sent = sent or end.sent
        printed = [line for line in end.message.splitlines() if line.strip() and line != READY]
        run = next((found for line in reversed(printed) if (found := _run_of(line)) is not None), None)
        notes = "\n".join(escape_control(line) for line in printed if _run_of(line) is None)
        if run is not None:
            return run, notes
        if 0 <= end.code < SSH_FAILED:
            raise RemoteStartError(notes or f"tuner-tui ended with code {end.code}.", end.code or 1)
        if not sent:
            raise RemoteStartError(f"{notes or 'The connection ended.'} Nothing was started.")
        if pause_s is not None:
            sleep(pause_s)
    raise RemoteStartError(
        f"{notes} The connection broke while the run was being started. If it was, `tuner-tui hosts {host.name}` shows "
        "it as soon as the host can be reached; look there before you start it again."
    )


def _run_of(line: str) -> str | None:
    """The id in the line that `run --json` prints."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    run = found.get("run") if isinstance(found, dict) else None
    return run if isinstance(run, str) and _RUN.fullmatch(run) else None

"""Watches several hosts at once by the system's ssh, each on a thread of its own: one that hangs delays no other."""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Protocol

from tuner_tui.core.daemon_thread import start_daemon_thread
from tuner_tui.core.units import format_duration
from tuner_tui.hosts.address import Host
from tuner_tui.hosts.report import SMI_FIELDS, BadReportError, ReportReader
from tuner_tui.runs.read.machine_monitor import MachineView

ANSWER_S, SILENT_S = 45.0, 20.0
"""For the connection, the start of Python and the first sample; between two reports."""
MAX_RETRY_S = 300.0
"""A host may lock out who fails to log in too often."""
SSH_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": 10,
    "ServerAliveInterval": 10,
    "ServerAliveCountMax": 2,
    # What a configuration sets for a person's own sessions. A master would outlive this program; one that runs is used.
    "ControlMaster": "no",
    "RemoteCommand": "none",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "LogLevel": "ERROR",
    "Compression": "yes",
}
REMOTE_SCRIPT = f"""PATH="$PATH:$HOME/.local/bin:/usr/local/bin"; export PATH
tuner-tui watch --json
[ $? -eq 127 ] || exit
exec nvidia-smi --query-gpu={SMI_FIELDS} --format=csv,noheader,nounits -l 2"""
PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


@dataclass(frozen=True, slots=True)
class HostView:
    """A host at one moment: what it reports, or its `problem` in the words of ssh; at first it has neither."""

    name: str
    machine: MachineView | None = None
    problem: str | None = None


class Connection(Protocol):
    """The output of the command that reports, messages included."""

    def read(self, timeout_s: float) -> bytes | None:
        """Return the next bytes, `b""` at the end, None if there are none within `timeout_s`."""

    def terminate(self) -> None:
        """Ask the command to end; any thread may do so."""

    def close(self) -> None:
        """End the command and wait for its end."""


class SshConnection:
    """A process of ssh that reports on `host`. It ends with this process."""

    def __init__(self, host: Host) -> None:
        options = [word for name, value in SSH_OPTIONS.items() for word in ("-o", f"{name}={value}")]
        port = [] if host.port is None else ["-p", str(host.port)]
        remote = f"sh -c {shlex.quote(REMOTE_SCRIPT)}"  # whatever the shell of the account is
        # In a session of its own it has no terminal to ask on, and Ctrl-C does not reach it.
        self._process = subprocess.Popen(
            ["ssh", "-T", *options, *port, "--", host.destination, remote],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # The thread that starts it waits for its end, so it gets the signal only when this process dies.
            preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            bufsize=0,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout

    def read(self, timeout_s: float) -> bytes | None:
        ready, _, _ = select.select([self._output], [], [], max(0.0, timeout_s))
        return os.read(self._output.fileno(), 65_536) if ready else None

    def terminate(self) -> None:
        self._process.terminate()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


class HostsWatcher:
    """Watches `hosts` until it is closed; `connect` starts the command that reports."""

    def __init__(
        self,
        hosts: Sequence[Host],
        connect: Callable[[Host], Connection] = SshConnection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._views = {host: HostView(host.name) for host in hosts}
        self._connections: dict[Host, Connection] = {}
        self._end = Event()

    def start(self) -> None:
        for host in self._views:
            start_daemon_thread(f"host-{host.name}", partial(self._follow, host))

    def look(self) -> tuple[HostView, ...]:
        """Return all hosts as they are now."""
        return tuple(self._views.values())

    def close(self) -> None:
        """End all connections."""
        self._end.set()
        for connection in tuple(self._connections.values()):
            connection.terminate()

    def _follow(self, host: Host) -> None:
        failures = 0
        while not self._end.is_set():
            problem = self._watch(host)
            failures = failures + 1 if self._views[host].machine is None else 1
            self._views[host] = HostView(host.name, problem=problem)
            self._end.wait(min(MAX_RETRY_S, 2.0 ** (failures - 1)))

    def _watch(self, host: Host) -> str:
        """Connect once and read until the connection ends; return why it did."""
        reader = ReportReader(self._clock)
        heard_s, wait_s = self._clock(), ANSWER_S
        try:
            connection = self._connections[host] = self._connect(host)
        except OSError as error:
            return f"ssh cannot be started: {error.strerror}"
        try:
            while not self._end.is_set():
                data = connection.read(heard_s + wait_s - self._clock())
                if data == b"":
                    break
                for machine in reader.feed(data or b""):
                    self._views[host] = HostView(host.name, machine)
                    heard_s, wait_s = self._clock(), SILENT_S
                if self._clock() - heard_s >= wait_s:
                    return f"no report for {format_duration(wait_s)}"
        except BadReportError as error:
            return f"disconnected: {error}"
        finally:
            connection.close()
        return reader.message or "the connection ended without a message"

"""Watches several hosts at once by the system's ssh, each on a thread of its own: one that hangs delays no other.

A host prints JSON lines of `tuner-tui watch --json`, or the table of nvidia-smi. Nothing in a line is trusted: lines,
rate, depth and figures are bounded, escapes removed, nothing is executed. Both sides may be of different versions:
unknown keys are ignored, missing ones have defaults. A host that is dead, refuses, hangs or sends garbage is one line
in the words of ssh, tried again later and later. A password is never asked for; a connection that the user's own ssh
keeps open (ControlMaster) is used.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Event
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.child_process import ChildProcess
from tuner_tui.core.daemon_thread import start_daemon_thread
from tuner_tui.core.json_struct import from_json
from tuner_tui.core.text import drop_control, escape_control
from tuner_tui.core.units import MIB, format_duration, format_size
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
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
SMI_FIELDS = "index,name,utilization.gpu,memory.used,memory.total,power.draw,power.limit,temperature.gpu"
REMOTE_SCRIPT = f"""PATH="$PATH:$HOME/.local/bin:/usr/local/bin"; export PATH
tuner-tui watch --json
[ $? -eq 127 ] || exit
exec nvidia-smi --query-gpu={SMI_FIELDS} --format=csv,noheader,nounits -l 2"""


class HostView(Struct, frozen=True):
    """A host at one moment: what it reports, or its `problem` in the words of ssh; at first it has neither."""

    name: str
    machine: MachineView | None = None
    problem: str | None = None


def report_command(host: Host) -> list[str]:
    """Return the command that prints the reports of `host`; no ssh is needed for this machine."""
    if host.port is None and host.destination in ("localhost", os.uname().nodename):
        return [sys.executable, "-P", "-m", "tuner_tui", "watch", "--json"]  # not what lies in this folder
    options = [word for name, value in SSH_OPTIONS.items() for word in ("-o", f"{name}={value}")]
    port = [] if host.port is None else ["-p", str(host.port)]
    remote = f"sh -c {shlex.quote(REMOTE_SCRIPT)}"  # whatever the shell of the account is
    return ["ssh", "-T", *options, *port, "--", host.destination, remote]


class HostsWatcher:
    """Watches `hosts` until it is closed; `connect` starts the command that reports."""

    def __init__(
        self,
        hosts: Sequence[Host],
        connect: Callable[[Host], ChildProcess] = lambda host: ChildProcess(report_command(host)),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._views = {host: HostView(host.name) for host in hosts}
        self._connections: dict[Host, ChildProcess] = {}
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
            return f"{error.filename or 'ssh'} cannot be started: {error.strerror}"
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


# A name that begins with a dash would be an option of ssh; blanks, quotes and % would be expanded on the way.
_HOST = re.compile(r"((?:\w[\w.+-]{0,63}@)?\w[\w.-]{0,252})(?::(\d{1,5}))?", re.ASCII)


class Host(Struct, frozen=True):
    """A host as ssh takes it: `destination` is `[user@]name`, or an alias of the ssh configuration."""

    destination: str
    port: int | None = None

    @property
    def name(self) -> str:
        return self.destination if self.port is None else f"{self.destination}:{self.port}"


def parse_host(word: str) -> Host:
    """Parse `[user@]name[:port]`. Raises `ValueError`."""
    match = _HOST.fullmatch(word)
    if match is None or not 0 < int(match[2] or 22) < 65_536:
        shown = escape_control(word[:80])
        raise ValueError(f"{shown!r} is not a host: use a name of your ssh configuration, or user@name:port.")
    return Host(match[1], None if match[2] is None else int(match[2]))


MAX_LINE_BYTES, MAX_BURST_BYTES, MAX_BYTES_PER_S = 1 << 20, 4 << 20, 1 << 19
"""A machine with eight GPUs and hundreds of loader workers prints about 100 kB a second."""
MAX_BAD_LINES = 50
"""In a row: greetings of the shell and messages of ssh are not reports either."""
MAX_DEPTH, MAX_ITEMS, MAX_TEXT, MAX_FIGURE = 8, 128, 400, 2.0**53
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?", re.ASCII)


class BadReportError(ValueError):
    """What a host prints is no report; the message says why."""


class ReportReader:
    """Reads the output of one connection; `clock` only goes forward. `message` is the end of all other text in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start_s = clock()
        self._received = 0
        self._rest = b""
        self._text: deque[str] = deque(maxlen=2)
        self._bad_lines = 0
        self._gpus: dict[int, GpuSample] = {}

    @property
    def message(self) -> str:
        return " ".join(self._text)

    def feed(self, data: bytes) -> Iterator[MachineView]:
        """Yield the machine for each report that `data` completes. Raises `BadReportError`."""
        self._received += len(data)
        allowed = MAX_BURST_BYTES + MAX_BYTES_PER_S * (self._clock() - self._start_s)
        if self._received > allowed:
            raise BadReportError(f"it sent more than {format_size(allowed)}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, (*lines, self._rest))) > MAX_LINE_BYTES:
            raise BadReportError(f"it sent a line of more than {format_size(MAX_LINE_BYTES)}")
        for line in lines:
            yield from self._read(line.decode("utf-8", "replace"))

    def _read(self, text: str) -> Iterator[MachineView]:
        gpu = None
        try:
            if text.startswith("{"):
                yield parse_machine(text)
            else:
                gpu = parse_smi_line(text)
        except ValueError:
            clean = _clean(text)[: MAX_TEXT // 2]
            self._text += [clean] if clean else []
            self._bad_lines += 1
            if self._bad_lines > MAX_BAD_LINES:
                raise BadReportError(f"it sends no reports: {clean}") from None
            return
        self._bad_lines = 0
        if gpu is None:
            return
        if gpu.index in self._gpus:  # nvidia-smi begins its table anew: the last one is whole
            yield MachineView(Sample(time.time(), tuple(self._gpus.values()), HostSample()), ())
            self._gpus = {}
        if len(self._gpus) < MAX_ITEMS:
            self._gpus[gpu.index] = gpu


def parse_machine(text: str) -> MachineView:
    """Read one JSON line. Raises `ValueError`."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    machine = from_json(MachineView, _clean(data, MAX_DEPTH))
    # What a gauge shows must not leave its place.
    gpus = tuple(replace(gpu, utilisation_pct=_percent(gpu.utilisation_pct)) for gpu in machine.sample.gpus)
    host = replace(machine.sample.host, cpu_pct=_percent(machine.sample.host.cpu_pct))
    return replace(machine, sample=replace(machine.sample, gpus=gpus, host=host))


def parse_smi_line(text: str) -> GpuSample:
    """Read one line of `nvidia-smi --query-gpu` with `SMI_FIELDS`, without units. Raises `ValueError`."""
    cells = [cell.strip() for cell in text.split(",")]
    if len(cells) != SMI_FIELDS.count(",") + 1 or not cells[0].isdecimal():
        raise ValueError("not a GPU")
    busy, used, total, power, limit, temperature = (
        float(cell) if _NUMBER.fullmatch(cell) else None for cell in cells[2:]
    )
    used, total = (None if mib is None else int(mib * MIB) for mib in (used, total))
    name = _clean(cells[1])
    return GpuSample(int(cells[0][:4]), name, _percent(busy), used, total, power, limit, temperature)


def _clean(value: Any, depth: int = 1) -> Any:
    """Return parsed JSON with bounded depth, lengths and figures, and text that cannot control a terminal.

    No figure of a report is negative: those, and what is not finite, become unknown.
    """
    if isinstance(value, str):
        return " ".join(drop_control(value[: 2 * MAX_TEXT].replace("\n", " ").replace("\t", " ")).split())[:MAX_TEXT]
    if isinstance(value, int | float):
        return value if 0 <= value <= MAX_FIGURE else None
    if depth == 0 or value is None:
        return None
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value[:MAX_ITEMS]]
    return {key: _clean(item, depth - 1) for key, item in list(value.items())[:MAX_ITEMS]}


def _percent(value: float | None) -> float | None:
    return None if value is None else min(100.0, value)

"""Runs commands on hosts by the system's ssh, with its configuration, keys, agents and jump hosts.

A host is reached once: further commands share the connection (ControlMaster), whose socket lies in a private folder
of this process. Every command is a list of arguments; what the host's shell reads is a constant with quoted words.
"""

from __future__ import annotations

import hashlib
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from tuner_tui.hosts.address import HostAddress

SSH_VARIABLE = "TUNER_SSH"
CONNECT_TIMEOUT_S, ALIVE_INTERVAL_S = 10, 10
PERSIST_S = 60
"""A shared connection outlives a killed process of this program by this time."""
MOST_SOCKET_PATH, TEMPORARY_SUFFIX = 107, 17
"""Of a Unix socket's path, see unix(7); what ssh adds to it while it connects."""
CHUNK_BYTES, MESSAGE_BYTES, MOST_ANSWER = 65_536, 4096, 1_000_000
END_TIMEOUT_S = 2.0

FIND_PROGRAM = 'PATH="$PATH:$HOME/.local/bin:/usr/local/bin"; export PATH; '
WATCH_SCRIPT = """
if command -v {program} >/dev/null 2>&1; then
  {program} watch --json --brief && exit 0
  code=$?
  [ $code -eq 2 ] || exit $code
  echo tuner-tui:older
else
  echo tuner-tui:absent
fi
while :; do
  timeout 10 nvidia-smi --query-gpu=index,name,utilization.gpu,memory.used,memory.total,power.draw,power.limit,\
temperature.gpu --format=csv,noheader,nounits 2>/dev/null | sed "s/^/gpu:/"
  read load rest </proc/loadavg && echo "load:$load $(nproc 2>/dev/null)"
  grep -E "^Mem(Total|Available):" /proc/meminfo
  echo "end:$(date +%s)"
  sleep 10
done
"""
"""Without a tuner-tui that can report, what the driver and the kernel say, read-only, every ten seconds."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a command ended: its exit code (255 is ssh's own failure), and the end of what it wrote to standard error.

    `sent`: its standard input was sent.
    """

    code: int
    message: str
    sent: bool = True


class ReportStream(Protocol):
    """The output of a command on a host."""

    @property
    def received_bytes(self) -> int:
        """Bytes received so far, standard error included."""

    def read(self, timeout_s: float) -> bytes | None:
        """Return the next bytes, `b""` at the end, None where there are none within `timeout_s`."""

    def close(self) -> StreamEnd:
        """End the command, if it has not ended, and return how it did."""


class Transport(Protocol):
    """Starts the command that reports."""

    def watch(self, host: HostAddress) -> ReportStream:
        """Start it on `host`. Raises `OSError` if there is no ssh."""


class SshTransport:
    """`words` begin every command, such as `("ssh", "-F", "FILE")`."""

    def __init__(self, words: Sequence[str] = ("ssh",)) -> None:
        self._words = tuple(words)
        self._folder: Path | None = None
        self._lock = Lock()
        self._streams: list[_SshStream] = []

    def watch(self, host: HostAddress) -> ReportStream:
        script = FIND_PROGRAM + WATCH_SCRIPT.format(program=host.shell_program)
        stream = _SshStream(self._command(host, f"sh -c {shlex.quote(script)}"))
        with self._lock:
            self._streams = [one for one in self._streams if one.lives] + [stream]
        return stream

    def interactive_command(self, host: HostAddress, *words: str) -> list[str]:
        """Return the command that runs tuner-tui with `words` on `host`, in this terminal. ssh may ask questions."""
        return self._command(host, _program_script(host, words), interactive=True)

    def run(
        self, host: HostAddress, *words: str, stdin: bytes = b"", ready: bytes = b"", timeout_s: float = 60.0
    ) -> StreamEnd:
        """Run tuner-tui with `words` on `host` and wait for it; the message is the end of all that it printed.

        What is secret belongs into `stdin`: everybody on either machine can read a command line. It is sent once the
        program has printed `ready`.
        """
        stream = _SshStream(self._command(host, _program_script(host, words)), sends=bool(stdin))
        ends_s, printed, sent = time.monotonic() + timeout_s, b"", False
        while True:
            if not sent and ready in printed:
                sent = True
                stream.send(stdin)
            data = stream.read(1.0)
            if data == b"":
                break
            printed = (printed + (data or b""))[-MESSAGE_BYTES:]
            if time.monotonic() > ends_s or stream.received_bytes > MOST_ANSWER:
                break
        end = stream.close()
        return StreamEnd(end.code, printed.decode("utf-8", "replace") + end.message, sent)

    def close(self, hosts: Sequence[HostAddress] = ()) -> None:
        """End the commands that still report, close the shared connections to `hosts`, and remove their sockets."""
        with self._lock:
            folder, self._folder = self._folder, None
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.terminate()
        if folder is None:
            return
        closing = [
            subprocess.Popen(
                [*self._words, "-o", f"ControlPath={_socket(folder, host)}", "-O", "exit", "--", host.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for host in hosts
        ]
        ends_s = time.monotonic() + END_TIMEOUT_S
        for process in closing:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, ends_s - time.monotonic()))
        shutil.rmtree(folder, ignore_errors=True)

    def _command(self, host: HostAddress, script: str, interactive: bool = False) -> list[str]:
        options = {
            "ConnectTimeout": CONNECT_TIMEOUT_S,
            "ServerAliveInterval": ALIVE_INTERVAL_S,
            "ServerAliveCountMax": 3,
            # What a configuration sets for a person's own sessions.
            "RemoteCommand": "none",
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "LogLevel": "ERROR",
            "Compression": "yes",
            **self._sharing(host),
        }
        if not interactive:
            options |= {"BatchMode": "yes", "ForwardX11": "no", "ForwardAgent": "no"}
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [*self._words, "-t" if interactive else "-T", *words, "--", host.name, script]

    def _sharing(self, host: HostAddress) -> dict[str, object]:
        """Return the options for one connection per host; none where the path of its socket would be too long."""
        with self._lock:  # the threads of all hosts begin at the same time
            if self._folder is None:
                runtime = os.environ.get("XDG_RUNTIME_DIR")
                place = runtime if runtime and os.access(runtime, os.W_OK) else None
                self._folder = Path(tempfile.mkdtemp(prefix="tuner-ssh-", dir=place))
            path = _socket(self._folder, host)
        if len(os.fsencode(path)) + TEMPORARY_SUFFIX > MOST_SOCKET_PATH:
            return {"ControlMaster": "no", "ControlPath": "none"}
        return {"ControlMaster": "auto", "ControlPath": path, "ControlPersist": PERSIST_S}


def transport_from(environ: Mapping[str, str]) -> SshTransport:
    """Return the transport with the command in `TUNER_SSH`, such as `ssh -F FILE`; default: ssh."""
    return SshTransport(shlex.split(environ.get(SSH_VARIABLE, "")) or ("ssh",))


def _socket(folder: Path, host: HostAddress) -> Path:
    """Return the socket of a host by its alias: ssh's own %C is the same for aliases that differ in their keys."""
    return folder / hashlib.sha256(host.name.encode()).hexdigest()[:16]


def _program_script(host: HostAddress, words: Sequence[str]) -> str:
    return f"sh -c {shlex.quote(FIND_PROGRAM + f'exec {host.shell_program} {shlex.join(words)}')}"


class _SshStream:
    """One process of ssh. Its standard error is read along, and its end kept."""

    def __init__(self, command: Sequence[str], sends: bool = False) -> None:
        # In a session of its own it has no terminal to ask on, and Ctrl-C does not reach it.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if sends else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out, self._err = self._process.stdout, self._process.stderr
        self._open = [self._out, self._err]
        self._message = b""
        self._ended = False
        self.received_bytes = 0

    @property
    def lives(self) -> bool:
        """True while the process has not ended."""
        return self._process.poll() is None

    def send(self, data: bytes) -> None:
        """Send all that the command reads."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(data)

    def terminate(self) -> None:
        """Ask the process to end, without waiting for it."""
        self._process.terminate()

    def read(self, timeout_s: float) -> bytes | None:
        ready = select.select(self._open, (), (), timeout_s)[0]
        if self._err in ready:
            self._read_message()
        if self._out not in ready:
            # The process of a shared connection may hold the pipes open after this one has ended.
            self._ended = self._process.poll() is not None
            return b"" if self._ended else None
        data = os.read(self._out.fileno(), CHUNK_BYTES)
        self.received_bytes += len(data)
        self._ended = not data
        return data

    def _read_message(self) -> None:
        data = os.read(self._err.fileno(), CHUNK_BYTES)
        self.received_bytes += len(data)
        self._message = (self._message + data)[-MESSAGE_BYTES:]
        if not data:
            self._open.remove(self._err)

    def close(self) -> StreamEnd:
        if not self._ended:
            self._process.terminate()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        while self._err in self._open and select.select([self._err], (), (), 0)[0]:
            self._read_message()
        for pipe in (self._process.stdin, self._out, self._err):
            if pipe is not None:
                pipe.close()
        return StreamEnd(self._process.returncode, self._message.decode("utf-8", "replace"))

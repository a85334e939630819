"""Hosts without ssh: in the states that a host can be in, and connections that play a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event

from msgspec.structs import replace

from tests.fakes.watched_box import GPUS, gpuless_view, view
from tuner_tui.core.child_process import ChildProcess
from tuner_tui.hosts import Host, HostView

HOSTS = (
    HostView("gpu1", view()),
    HostView("gpu2", replace(view((), tuple(replace(gpu, utilisation_pct=0.0) for gpu in GPUS[:4])))),
    HostView("ann@lab.example.org", gpuless_view()),
    HostView("gpu6", problem="ssh: connect to host gpu6 port 22: No route to host"),
    HostView("gpu7"),
)


class FakeConnection(ChildProcess):
    """Plays chunks; after the last one it is silent until it is closed, or ends if that is `b""`."""

    def __init__(self, chunks: Sequence[bytes], silent: Event) -> None:
        self.chunks = list(chunks)
        self.silent = silent
        self.closed = Event()

    def read(self, timeout_s: float) -> bytes | None:
        if self.chunks:
            return self.chunks.pop(0)
        self.silent.set()
        self.closed.wait(0.01)
        return b"" if self.closed.is_set() else None

    def terminate(self) -> None:
        self.closed.set()

    def close(self) -> int:
        self.closed.set()
        return 0


class FakeSsh:
    """For each host the chunks of each connection in turn; a host without any left stays silent."""

    def __init__(self, scripts: Mapping[str, list[Sequence[bytes]]]) -> None:
        self.scripts = scripts
        self.opened: list[FakeConnection] = []
        self.silent = {name: Event() for name in scripts}

    def __call__(self, host: Host) -> FakeConnection:
        scripts = self.scripts[host.name]
        connection = FakeConnection(scripts.pop(0) if scripts else (), self.silent[host.name])
        self.opened.append(connection)
        return connection

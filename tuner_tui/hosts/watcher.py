"""Watches several hosts at once, each on a thread of its own: one that hangs delays no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Lock, Semaphore

from tuner_tui.core.daemon_thread import start_daemon_thread
from tuner_tui.hosts.address import HostAddress
from tuner_tui.hosts.host_state import HostState, HostTracker, HostView
from tuner_tui.hosts.ssh import ReportStream, StreamEnd, Transport

MOST_CONNECTING = 8
"""Connections that are set up at the same time: each costs both sides a key exchange."""
READ_TIMEOUT_S = 1.0


class HostsWatcher:
    """Watches `hosts`; `clock` only goes forward, `wall_clock` gives seconds since the epoch."""

    def __init__(
        self,
        hosts: Sequence[HostAddress],
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._wall_clock = wall_clock
        self._followers = [_Follower(HostTracker(host, clock())) for host in hosts]
        self._connecting = Semaphore(MOST_CONNECTING)
        self._end = Event()

    def start(self) -> None:
        """Start the threads."""
        for follower in self._followers:
            start_daemon_thread(f"host-{follower.tracker.host.name}", partial(self._follow, follower))

    def stop(self) -> None:
        """Ask the threads to end, without waiting for them."""
        self._end.set()
        self.retry()

    def retry(self) -> None:
        """Try the hosts that cannot be reached now, instead of after their wait."""
        for follower in self._followers:
            follower.wake.set()

    def look(self) -> tuple[HostView, ...]:
        """Return all hosts as they are now."""
        return tuple(follower.view(self._clock()) for follower in self._followers)

    def wait_settled(self, timeout_s: float) -> tuple[HostView, ...]:
        """Return all hosts once each has reported or failed, or after `timeout_s`."""
        ends_s = self._clock() + timeout_s
        while any(view.state is HostState.CONNECTING for view in self.look()) and self._clock() < ends_s:
            self._end.wait(0.1)
        return self.look()

    def _follow(self, follower: _Follower) -> None:
        while not self._end.is_set():
            follower.wake.clear()
            self._connect(follower)
            with follower.lock:
                retry_s = follower.tracker.retry_s
            follower.wake.wait(retry_s)

    def _connect(self, follower: _Follower) -> None:
        with self._connecting:
            with follower.lock:
                follower.tracker.begin(self._clock())
            try:
                stream = self._transport.watch(follower.tracker.host)
            except OSError as error:
                with follower.lock:
                    follower.tracker.end(StreamEnd(255, f"ssh cannot be started: {error.strerror or error}"))
                return
            goes_on = self._read_while(follower, stream, lambda: not stream.received_bytes)
        # Its first bytes are here: the place among those that connect is free again, and reports may come for days.
        goes_on = goes_on and self._read_while(follower, stream, lambda: True)
        end = stream.close()
        if goes_on is None:
            with follower.lock:
                follower.tracker.end(end)

    def _read_while(self, follower: _Follower, stream: ReportStream, wanted: Callable[[], bool]) -> bool | None:
        """Read while `wanted`; True if there is more, False if the host was given up, None if the stream has ended."""
        while wanted() and not self._end.is_set():
            data = stream.read(READ_TIMEOUT_S)
            now_s = self._clock()
            with follower.lock:
                if not follower.tracker.feed(data or b"", stream.received_bytes, now_s, self._wall_clock()):
                    return False
                if data == b"":
                    return None
                if data is None and follower.tracker.give_up(now_s):
                    return False
        return True


class _Follower:
    """A host's tracker, shared by its thread and those who look."""

    def __init__(self, tracker: HostTracker) -> None:
        self.tracker = tracker
        self.lock = Lock()
        self.wake = Event()

    def view(self, now_s: float) -> HostView:
        with self.lock:
            return self.tracker.view(now_s)

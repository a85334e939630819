"""Several hosts at once, without ssh: each is shown as it is, and none delays another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from tests.fakes.hosts import FakeSsh
from tests.fakes.watched_box import view
from tuner_tui.hosts.address import parse_host
from tuner_tui.hosts.watcher import HostsWatcher, HostView
from tuner_tui.view.cells import plain_text
from tuner_tui.view.hosts_rows import host_rows

PATIENCE_S = 60.0
REPORT = json.dumps(asdict(view())).encode() + b"\n"
Views = dict[str, HostView]


@contextmanager
def watching(ssh: FakeSsh, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[..., Views]]:
    """Watch the hosts of `ssh`; gives a function that returns the views once they meet a condition."""
    watcher = HostsWatcher([parse_host(name) for name in ssh.scripts], ssh, clock)
    watcher.start()

    def once(condition: Callable[[Views], object]) -> Views:
        ends_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_s:
            views = {host.name: host for host in watcher.look()}
            if condition(views):
                return views
            time.sleep(0.01)
        raise AssertionError(watcher.look())

    try:
        yield once
    finally:
        watcher.close()


def settled(views: Views) -> bool:
    return all(host.machine or host.problem for host in views.values())


def test_each_host_is_shown_as_it_is() -> None:
    refused = b"ssh: connect to host dead port 22: Connection refused\n"
    scripts: dict[str, list[Sequence[bytes]]] = {
        "good": [[REPORT[:50], REPORT[50:]]],
        "dead": [[refused, b""]],
        "liar": [[b"x" * 2_000_000]],
        "mute": [[b""]],
        "silent": [],
    }
    with watching(FakeSsh(scripts)) as once:
        views = once(lambda views: settled({name: host for name, host in views.items() if name != "silent"}))
    assert views["good"].machine == view()
    shown = {
        name: [plain_text(row.line).split(maxsplit=1)[1] for row in host_rows(view, 120)]
        for name, view in views.items()
    }
    assert shown["dead"] == [refused.decode().strip()]
    assert shown["liar"] == ["disconnected: it sent a line of more than 1.0 MiB"]
    assert shown["mute"] == ["the connection ended without a message"]
    assert shown["silent"] == ["connecting …"]
    assert len(shown["good"]) > 8


def test_a_host_that_falls_silent_is_given_up_and_tried_again() -> None:
    now_s = [0.0]
    ssh = FakeSsh({"gpu1": [[REPORT], [REPORT]]})
    with watching(ssh, lambda: now_s[0]) as once:
        once(lambda views: views["gpu1"].machine)
        assert ssh.silent["gpu1"].wait(PATIENCE_S)
        now_s[0] += 21
        assert once(lambda views: views["gpu1"].problem)["gpu1"].problem == "no report for 20 s"
        once(lambda views: views["gpu1"].machine)
    assert len(ssh.opened) == 2


def test_closing_ends_every_connection() -> None:
    ssh = FakeSsh({"one": [], "two": [[REPORT]]})
    with watching(ssh):
        assert all(event.wait(PATIENCE_S) for event in ssh.silent.values())
    assert [connection.closed.wait(PATIENCE_S) for connection in ssh.opened] == [True, True]

"""The hosts page over a real sshd on the loopback: good, dead, slow, lying hosts; the right words for each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.hosts.loopback import LoopbackHosts
from tuner_tui.hosts.address import HostAddress, parse_hosts
from tuner_tui.hosts.host_state import HostState, HostView
from tuner_tui.hosts.ssh import SshTransport
from tuner_tui.hosts.watcher import HostsWatcher
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.presets import load_preset

PATIENCE_S = 300.0
MAIN = "from tuner_tui.cli.main import main; main()"
Views = dict[str, HostView]


@contextmanager
def watching(loopback: LoopbackHosts, *names: str) -> Iterator[Callable[[Callable[[Views], bool]], Views]]:
    """Watch `names`; gives a function that returns the views once they meet a condition."""
    hosts, transport = parse_hosts(names), SshTransport(loopback.words)
    watcher = HostsWatcher(hosts, transport)
    watcher.start()

    def once(condition: Callable[[Views], bool]) -> Views:
        ends_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_s:
            views = {view.name: view for view in watcher.look()}
            if condition(views):
                return views
            time.sleep(0.05)
        raise AssertionError(watcher.look())

    try:
        yield once
    finally:
        watcher.stop()
        transport.close(hosts)


def settled(views: Views) -> bool:
    return all(view.state is not HostState.CONNECTING for view in views.values())


EXPECTED = {
    "good": HostState.LIVE, "dead": HostState.UNREACHABLE, "slow": HostState.LIVE, "liar": HostState.LIVE,
    "flood": HostState.REFUSED, "chatter": HostState.REFUSED, "changed": HostState.KEY_CHANGED,
    "unknown": HostState.KEY_UNKNOWN, "password": HostState.PASSWORD, "bare": HostState.ABSENT,
    "older": HostState.OLDER,
}  # fmt: skip


def test_each_host_is_shown_as_it_is(loopback: LoopbackHosts) -> None:
    with watching(loopback, *EXPECTED) as once:
        views = once(lambda found: {name: view.state for name, view in found.items()} == EXPECTED)
    assert "Connection refused" in views["dead"].sentence
    assert "SHA256:" in views["changed"].sentence
    assert "behind" in views["liar"].sentence
    lies = views["liar"].report
    assert lies is not None
    assert lies.sample.gpus[0].name == "]0;ownedA100"
    bare = views["bare"].report
    assert bare is not None
    assert bare.sample.gpus[0].memory_used_bytes == 40 * 1024**3


def test_a_silent_host_delays_no_other(loopback: LoopbackHosts) -> None:
    with watching(loopback, "silent", "good") as once:
        views = once(lambda found: found["good"].state is HostState.LIVE)
        assert views["silent"].state is HostState.CONNECTING
        assert views["good"].report is not None


def test_a_host_costs_less_than_two_kilobytes_a_second(loopback: LoopbackHosts) -> None:
    with watching(loopback, "good") as once:
        rate = once(lambda found: found["good"].bytes_per_s is not None)["good"].bytes_per_s
    assert rate is not None
    assert rate < 2000


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets, which need a short path."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_nothing_is_left_of_the_connections(
    loopback: LoopbackHosts, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    with watching(loopback, "good", "other", "slow", "liar") as once:
        once(settled)
        (folder,) = short_path.iterdir()  # one for all hosts, whose threads begin at the same time
        assert folder.stat().st_mode & 0o777 == 0o700
        assert connections(short_path)
    ends_s = time.monotonic() + PATIENCE_S
    while connections(short_path) and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert not connections(short_path)
    assert not list(short_path.iterdir())


def connections(folder: Path) -> list[str]:
    """Command lines of the ssh processes with sockets in `folder`."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = place.read_bytes()
            if words.startswith(b"ssh") and os.fsencode(folder) in words:
                found.append(words.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def test_a_command_gets_its_words_and_its_input_whole(loopback: LoopbackHosts) -> None:
    transport, host = SshTransport(loopback.words), HostAddress("good", "/usr/bin/printf")
    end = transport.run(host, "%s|", "two words", "$(touch x)", "a'b\"c;")
    assert (end.code, end.message) == (0, "two words|$(touch x)|a'b\"c;|")
    end = transport.run(HostAddress("good", "/bin/cat"), "-", stdin=b"token: s3cret\n" * 1000)
    assert end.message.endswith("token: s3cret\n")
    transport.close([host])


def test_the_command_prints_one_document(loopback: LoopbackHosts, tmp_path: Path) -> None:
    environ = {**os.environ, "TUNER_SSH": f"ssh -F {loopback.config}"}
    words = [sys.executable, "-c", MAIN, "--hosts", "bare,dead", "--json"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    bare, dead = json.loads(done.stdout)
    assert (bare["name"], bare["state"], dead["state"]) == ("bare", "no tuner-tui", "unreachable")
    assert bare["report"]["sample"]["host"]["ram_total_bytes"] > 0
    table = subprocess.run([*words[:-1]], env=environ, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert table.returncode == 0
    assert "dead  unreachable" in table.stdout


def test_a_name_that_would_be_an_option_is_refused(tmp_path: Path) -> None:
    words = [sys.executable, "-c", MAIN, "hosts", "--json", "--", "-oProxyCommand=touch x"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a host" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_preset_travels_to_a_host_and_replaces_nothing_unasked(loopback: LoopbackHosts, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("settings:\n  learning_rate: 3e-4\njob:\n  kind: command\n  command: [python, sft.py]\n")
    environ = {**os.environ, "TUNER_SSH": f"ssh -F {loopback.config}"}

    def push(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", MAIN, "presets", "push", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)

    done = push(str(preset), "good")
    assert (done.returncode, done.stderr) == (0, "")
    saved = load_preset(Path(done.stdout.strip().removeprefix("good: Saved "))).preset
    assert saved.settings["learning_rate"] == 3e-4
    assert isinstance(saved.job, CommandJob)
    assert saved.job.command == ("python", "sft.py")
    again = push(str(preset), "good")
    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert push(str(preset), "good", "--yes").returncode == 0
    assert "Connection refused" in push(str(preset), "dead").stderr

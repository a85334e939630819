"""Several hosts at once, without ssh: each is shown as it is, and none delays another."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from tests.fakes.hosts import FakeSsh
from tests.fakes.watched_box import GIB, view
from tuner_tui.core.json_struct import to_json
from tuner_tui.hosts import (
    BadReportError,
    Host,
    HostsWatcher,
    HostView,
    ReportReader,
    parse_host,
    parse_machine,
    report_command,
)
from tuner_tui.runs.read.machine_monitor import MachineView
from tuner_tui.view.cells import plain_text
from tuner_tui.view.hosts_rows import host_rows

PATIENCE_S = 300.0
REPORT = json.dumps(to_builtins(view())).encode() + b"\n"
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
        name: [plain_text(row).split(maxsplit=1)[1] for row in host_rows(view, 120)] for name, view in views.items()
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


def parsed(**changes: object) -> MachineView:
    return parse_machine(json.dumps({"sample": {"time_s": 5.0}, "jobs": [], **changes}))


def test_hosts_are_read_as_ssh_takes_them() -> None:
    words = ("gpu1", "me@gpu2.lab", "10.0.0.7:2222")
    assert [parse_host(word) for word in words] == [Host("gpu1"), Host("me@gpu2.lab"), Host("10.0.0.7", 2222)]
    assert [parse_host(word).name for word in words] == list(words)


@pytest.mark.parametrize(
    "word",
    ["-oProxyCommand=touch /tmp/x", "gpu 1", "gpu1;reboot", "$(reboot)", "a@-oX", "gpu1\nx", "%h", "`id`", "é", "²",
     "x" * 400, "gpu1:0", "gpu1:99999", "gpu1:x", ""],
)  # fmt: skip
def test_what_ssh_or_a_shell_would_read_otherwise_is_no_host(word: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        parse_host(word)


def test_this_machine_is_read_without_ssh() -> None:
    assert report_command(Host("localhost"))[:2] == [sys.executable, "-P"], "no module in the folder of the user"
    assert report_command(Host(os.uname().nodename))[0] == sys.executable
    assert report_command(Host("localhost", 2222))[0] == "ssh", "which may lead elsewhere"


def test_what_watch_prints_is_read_whole_with_unknown_keys_ignored() -> None:
    machine = parse_machine(json.dumps({**to_builtins(view()), "colour": "green"}))
    assert machine.sample.gpus[4].throttle == ("power cap",)
    assert machine.sample.gpus[7].lost
    (run,) = [job.run for job in machine.jobs if job.run is not None]
    assert (run.run, run.preset, run.step, run.total_steps, run.loss) == ("r007", "llama-1b-sft", 1240, 9000, 1.84)


def test_escapes_and_absurd_figures_are_dropped() -> None:
    gpu = {"index": 0, "name": "\x1b]0;owned\x07A100\u202e", "utilisation_pct": 1e9, "memory_used_bytes": -4,
           "memory_total_bytes": 80 * GIB, "temperature_c": 1e300}  # fmt: skip
    (seen,) = parsed(sample={"time_s": 5.0, "gpus": [gpu]}).sample.gpus
    assert seen.name == "]0;ownedA100"
    assert (seen.utilisation_pct, seen.memory_used_bytes, seen.temperature_c) == (100.0, None, None)


def test_lists_texts_and_nesting_are_bounded() -> None:
    gpus = [{"index": n, "name": "x" * 9000} for n in range(5000)]
    machine = parsed(sample={"time_s": 5.0, "gpus": gpus}, notes=[[[[[["deep"]]]]]])
    assert len(machine.sample.gpus) == 128
    assert len(machine.sample.gpus[0].name) == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(("sample", "jobs", "problem", "notes", "x"))


@given(st.dictionaries(KEYS, JSON, max_size=8), st.dictionaries(st.sampled_from(("time_s", "gpus", "host")), JSON))
def test_nothing_that_a_host_sends_breaks_the_reader(data: dict[str, object], sample: dict[str, object]) -> None:
    for body in (data, {**data, "sample": sample}):
        for machine in ReportReader().feed(json.dumps(body).encode() + b"\n"):
            assert json.dumps(to_json(machine)).isprintable()


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"{}", b'{"sample":5,"jobs":[]}', b'{"sample":{"time_s":-1},"jobs":[]}', b'{"a":' * 9000,
     b'{"sample":{"time_s":NaN},"jobs":[]}', b"\xff\xfe{", b"9" * 5000, b"Welcome, \x1b[31mAnn"],
)  # fmt: skip
def test_what_is_no_report_is_kept_as_the_words_of_the_host(line: bytes) -> None:
    reader = ReportReader()
    assert list(reader.feed(b"first\nsecond\n" + line + b"\n")) == []
    assert reader.message.startswith("second ")
    assert reader.message.isprintable()


def test_the_table_of_nvidia_smi_is_a_machine_without_jobs() -> None:
    reader = ReportReader()
    table = (
        b"0, NVIDIA A100-SXM4-80GB, 37, 40960, 81920, 301.52, 400.00, 61\n"
        b"1, NVIDIA \x1b[31mA100, [N/A], 3, 81920, [N/A], 400.00, 30\n"
    )
    assert list(reader.feed(b"sh: 2: tuner-tui: not found\n" + table)) == []  # more GPUs may follow
    (machine,) = reader.feed(table)
    first, second = machine.sample.gpus
    assert (first.utilisation_pct, first.memory_used_bytes, first.memory_total_bytes) == (37.0, 40 * GIB, 80 * GIB)
    assert (second.name, second.utilisation_pct, second.power_w) == ("NVIDIA [31mA100", None, None)
    assert (machine.jobs, machine.sample.host.cpu_pct) == ((), None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x" * 2_000_000, "a line of more than"),
        (b"a greeting that never ends\n" * 60, "no reports: a greeting"),
        (b"\n" * 5_000_000, "it sent more than"),
    ],
)
def test_who_floods_is_cut_off(data: bytes, reason: str) -> None:
    with pytest.raises(BadReportError, match=reason):
        list(ReportReader(lambda: 0.0).feed(data))

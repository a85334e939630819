"""What a host prints, and what is believed of it."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.watched_box import GIB, view
from tuner_tui.core.json_dataclass import to_json
from tuner_tui.hosts.address import Host, parse_host
from tuner_tui.hosts.report import BadReportError, ReportReader, parse_machine
from tuner_tui.runs.read.machine_monitor import MachineView


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


def test_what_watch_prints_is_read_whole_with_unknown_keys_ignored() -> None:
    machine = parse_machine(json.dumps({**asdict(view()), "colour": "green"}))
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

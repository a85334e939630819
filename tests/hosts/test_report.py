"""What a host writes about itself, and what is believed of it."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.watched_box import GIB, NOW_S, view
from tuner_tui.core.json_dataclass import to_json
from tuner_tui.hosts.host_state import describe_free, free_gpus
from tuner_tui.hosts.report import BadReportError, EndedRun, HostReport, ProbeReader, brief_line, parse_report

ENDED = (EndedRun("r006", "out-of-memory", "Out of memory at step 40.", NOW_S - 700),)


def parsed(**changes: object) -> HostReport:
    data = {"sample": {"time_s": 5.0}, "jobs": [], **changes}
    return parse_report(json.dumps(data).encode())


def test_a_line_is_read_as_it_was_written() -> None:
    report = parse_report(brief_line(view(), ENDED).encode())
    assert [gpu.name for gpu in report.sample.gpus] == ["NVIDIA H100 80GB HBM3"] * 8
    assert report.sample.gpus[4].throttle == ("power cap",)
    assert report.sample.gpus[7].lost
    assert report.ended == ENDED
    (ours,) = [job.run for job in report.jobs if job.run is not None]
    assert (ours.run, ours.preset, ours.step, ours.total_steps, ours.loss) == ("r007", "llama-1b-sft", 1240, 9000, 1.84)
    assert free_gpus(report) == ()
    assert describe_free(report) == "0 of 8 GPUs free"


def test_eight_cards_and_six_jobs_stay_far_below_two_kilobytes_a_second() -> None:
    assert len(brief_line(view(), ENDED * 4).encode()) / 5 < 1000


def test_a_crowded_machine_names_only_some_of_its_jobs() -> None:
    crowd = view(jobs=view().jobs * 20)
    report = parse_report(brief_line(crowd, ()).encode())
    assert (len(report.jobs), report.hidden_jobs) == (32, 20 * 6 - 32)


def test_what_watch_prints_in_full_is_understood_too() -> None:
    report = parse_report(json.dumps(asdict(view())).encode())
    assert len(report.jobs) == 6
    assert report.version is None


def test_unknown_keys_of_a_newer_version_are_ignored() -> None:
    assert parsed(colour="green", jobs=[], sample={"time_s": 5.0, "gpus": [], "fans": [1]}).sample.time_s == 5.0


def test_a_format_of_tomorrow_is_said() -> None:
    with pytest.raises(BadReportError, match=r"0\.9 is newer than this one"):
        parsed(format=2, version="0.9")


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"[]", b"null", b"{}", b'{"sample":5,"jobs":[]}', b'{"sample":{"time_s":-1},"jobs":[]}',
        b"[" * 60_000, b'{"a":' * 9000, b'{"sample":{"time_s":NaN},"jobs":[]}', b"\xff\xfe{", b"9" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(line: bytes) -> None:
    with pytest.raises(BadReportError):
        parse_report(line)


def test_escapes_and_absurd_figures_are_dropped() -> None:
    gpu = {
        "index": 0, "name": "\x1b]0;owned\x07A100\u202e", "utilisation_pct": 1e9, "memory_used_bytes": -4,
        "memory_total_bytes": 80 * GIB, "temperature_c": 1e300,
    }  # fmt: skip
    (found,) = parsed(sample={"time_s": 5.0, "gpus": [gpu]}).sample.gpus
    assert found.name == "]0;ownedA100"
    assert (found.utilisation_pct, found.memory_used_bytes, found.temperature_c) == (100.0, None, None)


def test_lists_texts_and_nesting_are_bounded() -> None:
    gpus = [{"index": n, "name": "x" * 9000} for n in range(5000)]
    report = parsed(sample={"time_s": 5.0, "gpus": gpus}, notes=[[[[[["deep"]]]]]])
    assert len(report.sample.gpus) == 128
    assert len(report.sample.gpus[0].name) == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(("sample", "jobs", "problem", "notes", "ended", "hidden_jobs", "format", "version", "x"))


@given(st.dictionaries(KEYS, JSON, max_size=8), st.dictionaries(st.sampled_from(("time_s", "gpus", "host")), JSON))
def test_nothing_that_a_host_sends_breaks_the_reader(data: dict[str, object], sample: dict[str, object]) -> None:
    for body in (data, {**data, "sample": sample}):
        try:
            report = parse_report(json.dumps(body).encode())
        except BadReportError:
            continue
        assert json.dumps(to_json(report)).isprintable()


def test_a_machine_without_tuner_tui_is_read_from_its_driver() -> None:
    probe = ProbeReader()
    lines = (
        "Welcome to gpu3!", "tuner-tui:absent", "gpu:0, NVIDIA A100-SXM4-80GB, 37, 40960, 81920, 301.52, 400.00, 61",
        "gpu:1, NVIDIA \x1b[31mA100, [N/A], 3, 81920, [N/A], 400.00, 30", "gpu:x, broken", "load:3.20 16",
        "MemTotal:       65536000 kB", "MemAvailable:   49152000 kB",
    )  # fmt: skip
    assert [probe.feed(text.encode()) for text in lines] == [None] * len(lines)
    report = probe.feed(b"end:1790000000")
    assert report is not None
    first, second = report.sample.gpus
    assert (first.utilisation_pct, first.memory_used_bytes, first.memory_total_bytes) == (37.0, 40 * GIB, 80 * GIB)
    assert (second.name, second.utilisation_pct, second.power_w) == ("NVIDIA [31mA100", None, None)
    assert report.sample.host.cpu_pct == 20.0
    assert report.sample.host.ram_used_bytes == 16_384_000 * 1024
    assert free_gpus(report) == (1,)
    assert probe.missing == "absent"

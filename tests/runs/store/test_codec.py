"""Event lines: round trips, and no input makes decoding raise."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.core.clock import LATEST_T
from tuner_tui.core.json_struct import (
    MAX_INT,
    MAX_PID,
    ExitCode,
    Figure,
    HostName,
    Identifier,
    PathText,
    Pid,
    SignalNumber,
    Time,
)
from tuner_tui.runs.events.types import EVENT_TYPES, STORY_PREFIX, Event, Finished, Launched, Metrics, Steps
from tuner_tui.runs.store.codec import MAX_LINE_BYTES, decode_event, decode_sample, encode_event

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
INTEGER = st.integers(-MAX_INT, MAX_INT)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


CHECKED: dict[Any, st.SearchStrategy[Any]] = {
    Pid: st.integers(0, MAX_PID),
    Time: st.floats(0, LATEST_T),
    Figure: st.floats(-(2**62), 2**62),
    ExitCode: st.integers(-255, 255),
    SignalNumber: st.integers(1, 64),
    Identifier: st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True),
    HostName: st.from_regex(r"[a-z][a-zA-Z0-9_.-]{0,60}", fullmatch=True),
    PathText: TEXT.filter(lambda text: text and "\0" not in text),
}
PLAIN = {int: INTEGER, float: FINITE, str: TEXT, bool: st.booleans(), type(None): st.none()}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values that fit a field's type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([values(argument) for argument in arguments])
    if origin is tuple:
        if arguments[-1] is not Ellipsis:
            return st.tuples(*map(values, arguments))
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(TEXT, values(arguments[1]), max_size=3)
    if hint is Any:
        return st.integers() | TEXT | st.booleans() | st.none()
    return CHECKED[hint] if origin is Annotated else PLAIN[hint]


def events() -> st.SearchStrategy[Event]:
    return st.sampled_from(sorted(EVENT_TYPES)).flatmap(lambda kind: event_of(EVENT_TYPES[kind]))


def event_of(cls: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: values(hints[name]) for name in cls.__struct_fields__})


@given(events())
def test_every_event_comes_back(event: Event) -> None:
    line = encode_event(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.startswith(STORY_PREFIX) == event.story
    assert json.loads(line)["v"] == 1
    assert decode_event(line) == event


@given(events(), st.data())
def test_a_torn_line_is_nothing(event: Event, data: st.DataObject) -> None:
    line = encode_event(event).rstrip()
    cut = data.draw(st.integers(0, len(line) - 1))
    assert decode_event(line[:cut]) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fall(line: bytes) -> None:
    decode_event(line)


@given(st.sampled_from(sorted(EVENT_TYPES)), st.dictionaries(st.text(max_size=10), JSON, max_size=5), JSON)
def test_no_values_make_it_fall(kind: str, extra: dict[str, Any], wrong: Any) -> None:
    names = [name for name in get_type_hints(EVENT_TYPES[kind]) if name not in ("kind", "story")]
    decode_event(json.dumps({**extra, "kind": kind, "v": 1, **dict.fromkeys(names, wrong)}).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'{"kind":"steps","v":2,"t":1.0,"step":1,"own_steps":1}',
        b'{"kind":"steps","t":1.0,"step":1,"own_steps":1}',
        b'{"kind":"of the future","v":1,"t":1.0}',
        b'{"kind":"steps","v":1,"t":"noon","step":1,"own_steps":1}',
        b'{"kind":"steps","v":1,"t":NaN,"step":1,"own_steps":1}',
        b'{"kind":"steps","v":1,"t":1.0,"step":1.5,"own_steps":1}',
        b'{"kind":"steps","v":1,"t":1.0,"step":1}',
        b'{"kind":"steps","v":1,"t":1' + b"0" * 5000 + b',"step":1,"own_steps":1}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_cannot_be_read_is_not_there(line: bytes) -> None:
    assert decode_event(line) is None


def test_an_endless_line_is_not_parsed() -> None:
    assert decode_event(encode_event(Finished(t=1.0, outcome="failed", sentence="x" * MAX_LINE_BYTES))) is None


def test_keys_of_the_future_are_passed_over_and_a_bad_option_is_left_out() -> None:
    line = b'{"kind":"metrics","v":1,"t":1,"step":3,"loss":"much","learning_rate":0.1,"mood":{"good":true}}'
    assert decode_event(line) == Metrics(t=1.0, step=3, learning_rate=0.1)


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_no_number_survives_as_valid_json(loss: float) -> None:
    line = encode_event(Metrics(t=1.0, step=1, loss=loss))
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    event = decode_event(line)
    assert isinstance(event, Metrics)
    assert event.loss == loss or (math.isnan(loss) and event.loss is not None and math.isnan(event.loss))


def test_text_that_no_terminal_can_take_is_mended() -> None:
    event = decode_event(b'{"story":1,"kind":"launched","v":1,"t":1,"pid":1,"argv":["\\ud800"]}')
    assert event == Launched(t=1.0, pid=1, argv=("?",))


@pytest.mark.parametrize("wrong", ['"nan"', "NaN", "1e400", '"-inf"', str(10**400)])
def test_a_figure_that_is_no_number_is_unknown(wrong: str) -> None:
    line = f'{{"v":1,"time_s":5.0,"gpus":[{{"index":0,"name":"A","power_w":{wrong},"memory_used_bytes":{wrong}}}]}}'
    sample = decode_sample(line.encode())
    assert sample is not None
    assert (sample.gpus[0].power_w, sample.gpus[0].memory_used_bytes) == (None, None)


def test_a_sample_with_bytes_that_are_no_text_is_none() -> None:
    assert decode_sample(b'{"v":1,"time_s":5.0,"gpus":[{"index":0,"name":"\xff"}]}') is None


@pytest.mark.parametrize("pid", [-5, 2**31, 10**400, "1", True])
def test_a_process_of_a_sample_has_an_id(pid: object) -> None:
    held = f'{{"index":0,"name":"\\ud800","processes":[{{"pid":{json.dumps(pid)}}}]}}'
    for text in (held, held.replace("\\ud800", "?")):
        sample = decode_sample(f'{{"v":1,"time_s":5.0,"gpus":[{text}]}}'.encode())
        assert sample is not None
        assert [(gpu.name, gpu.processes) for gpu in sample.gpus] == [("?", None)]


@pytest.mark.parametrize("wrong", ['"nan"', "1e400", "-1", "1e300", "null"])
def test_a_sample_or_event_of_no_moment_is_none(wrong: str) -> None:
    assert decode_sample(f'{{"v":1,"time_s":{wrong}}}'.encode()) is None
    assert decode_event(f'{{"kind":"launched","v":1,"t":{wrong},"pid":1}}'.encode()) is None


@pytest.mark.parametrize("wrong", ['"nan"', "NaN", '"inf"', "1e400"])
def test_counted_seconds_that_are_no_number_are_left_out(wrong: str) -> None:
    line = f'{{"kind":"steps","v":1,"t":1,"step":5,"own_steps":5,"train_s":{wrong},"between_s":{wrong}}}'
    event = decode_event(line.encode())
    assert isinstance(event, Steps)
    assert (event.train_s, event.between_s) == (0.0, None)


@pytest.mark.parametrize("index", [-1, 2**40, "0"])
def test_a_gpu_of_a_sample_has_a_number(index: object) -> None:
    sample = decode_sample(f'{{"v":1,"time_s":5.0,"gpus":[{{"index":{json.dumps(index)},"name":"A"}}]}}'.encode())
    assert sample is None or sample.gpus == ()

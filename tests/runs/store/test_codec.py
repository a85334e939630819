"""Event lines: round trips, and no input makes decoding raise."""

from __future__ import annotations

import json
import math
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_tui.core.clock import LATEST_T
from tuner_tui.core.json_dataclass import MAX_INT
from tuner_tui.runs.events.types import EVENT_TYPES, STORY_PREFIX, Event, Finished, Launched, Metrics
from tuner_tui.runs.store.codec import MAX_LINE_BYTES, decode_event, decode_sample, encode_event

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
INTEGER = st.integers(-MAX_INT, MAX_INT)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values that fit a field's type."""
    text = str(hint)
    if "Mapping[str, float]" in text:
        return st.dictionaries(TEXT, FINITE, max_size=3)
    if "Mapping" in text:
        return st.dictionaries(TEXT, st.integers() | TEXT | st.booleans() | st.none(), max_size=3)
    if "tuple[str" in text:
        return st.lists(TEXT, max_size=3).map(tuple)
    if "tuple[int" in text:
        counted = st.lists(INTEGER, max_size=3).map(tuple)
        return st.none() | counted if "None" in text else counted
    plain = {"int": INTEGER, "float": FINITE, "str": TEXT, "bool": st.booleans()}
    name = text.removeprefix("<class '").removesuffix("'>").split(" |")[0]
    return plain[name] | (st.none() if "None" in text else st.nothing())


def events() -> st.SearchStrategy[Event]:
    return st.sampled_from(sorted(EVENT_TYPES)).flatmap(lambda kind: event_of(EVENT_TYPES[kind]))


def event_of(cls: type[Event]) -> st.SearchStrategy[Event]:
    hints = {name: hint for name, hint in get_type_hints(cls).items() if name not in ("kind", "story")}
    fields = {name: values(hint) for name, hint in hints.items()}
    return st.builds(cls, **fields | {"t": st.floats(0, LATEST_T)})


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


@pytest.mark.parametrize("wrong", ['"nan"', "1e400", "-1", "1e300", "null"])
def test_a_sample_or_event_of_no_moment_is_none(wrong: str) -> None:
    assert decode_sample(f'{{"v":1,"time_s":{wrong}}}'.encode()) is None
    assert decode_event(f'{{"kind":"launched","v":1,"t":{wrong},"pid":1}}'.encode()) is None

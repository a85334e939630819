"""The rendered form of the settings: every field's text, bounds and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.settings.strategies import field_values
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.model import (
    FIELDS,
    Settings,
    check_value,
    describe_expected,
    field_name,
    format_value,
    parse_value,
)

EXAMPLES = yaml.load(Path(__file__).with_name("fields.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize(("name", "text", "value"), EXAMPLES["text is read as the field means it"])
def test_text_is_read_as_the_field_means_it(name, text, value):
    read = parse_value(name, text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("name", "text", "part"), EXAMPLES["bad text is named with what the field takes"])
def test_bad_text_is_named_with_what_the_field_takes(name, text, part):
    with pytest.raises(FieldError) as caught:
        parse_value(name, text)
    assert part in str(caught.value)
    assert caught.value.field == name
    assert len(str(caught.value)) < 300


def test_hostile_text_cannot_flood_or_break_a_message():
    with pytest.raises(FieldError) as caught:
        parse_value("learning_rate", "\x1b[2J\n" * 10_000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("name", "value", "text"), EXAMPLES["values are written compactly"])
def test_values_are_written_compactly(name, value, text):
    assert format_value(name, value) == text


@given(st.data())
def test_what_is_written_is_read_back(data):
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    value = data.draw(field_values(FIELDS[name]))
    read = parse_value(name, format_value(name, value))
    assert read == value
    assert type(read) is type(value)


@given(st.sampled_from(sorted(FIELDS)) | st.text(), st.text())
def test_any_text_is_a_valid_value_or_a_field_error(name, text):
    try:
        value = parse_value(name, text)
    except FieldError:
        return
    assert getattr(Settings().changed(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", "42"), ("seed", True), ("learning_rate", True), ("torch_compile", 1), ("seed", None), ("tf32", "on")],
)
def test_typed_values_are_checked_strictly(name, value):
    with pytest.raises(FieldError):
        check_value(name, value)


def test_a_float_takes_a_whole_number():
    value = check_value("warmup_steps", 100)
    assert value == 100.0
    assert isinstance(value, float)


def test_every_field_of_the_model_can_be_shown():
    assert list(FIELDS) == list(FIELDS)
    defaults = Settings()
    for name, spec in FIELDS.items():
        assert spec.default == getattr(defaults, name)
        assert spec.label
        assert spec.group
        assert spec.help.endswith(".")
        assert describe_expected(spec)
        assert (spec.kind in ("int", "float")) == bool(spec.bounds)


def test_labels_are_unique():
    labels = [spec.label for spec in FIELDS.values()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    "text", ["per_device_train_batch_size", "per-device-train-batch-size", "micro batch", "micro_batch", "Micro-Batch"]
)
def test_a_field_is_known_by_its_name_and_its_label(text: str) -> None:
    assert field_name(text) == "per_device_train_batch_size"


def test_every_label_of_the_form_names_its_field() -> None:
    assert [field_name(spec.label) for spec in FIELDS.values()] == list(FIELDS)

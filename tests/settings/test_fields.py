"""The rendered form of the settings: every field's text, bounds and errors."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("learning_rate", "1e-5", 1e-5),
        ("learning_rate", " 5E-5 ", 5e-5),
        ("learning_rate", "0.0001", 0.0001),
        ("learning_rate", "1", 1.0),
        ("per_device_train_batch_size", "8", 8),
        ("per_device_train_batch_size", "1_024", 1024),
        ("per_device_train_batch_size", "+8", 8),
        ("dataloader_num_workers", "0", 0),
        ("torch_compile", "true", True),
        ("torch_compile", "ON", True),
        ("torch_compile", "yes", True),
        ("torch_compile", "off", False),
        ("torch_compile", "no", False),
        ("tf32", "", None),
        ("tf32", "none", None),
        ("max_steps", "null", None),
        ("max_steps", "~", None),
        ("eval_strategy", "no", "no"),
        ("eval_strategy", "Steps", "steps"),
        ("peft_method", "none", "none"),
        ("precision", "bf16", "bf16"),
        ("optim", "adamw_torch_fused", "adamw_torch_fused"),
        ("warmup_steps", "0.06", 0.06),
        ("seed", "4294967295", 4294967295),
    ],
)
def test_text_is_read_as_the_field_means_it(name, text, value):
    read = parse_value(name, text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("per_device_train_batchsize", "8", "did you mean 'per_device_train_batch_size'?"),
        ("lr", "1", "unknown setting 'lr'"),
        ("learning_rate", "fast", "learning_rate must be a number, above 0, at most 10, not 'fast'"),
        ("learning_rate", "0", "above 0, at most 10"),
        ("learning_rate", "nan", "above 0, at most 10"),
        ("learning_rate", "inf", "above 0, at most 10"),
        ("lora_dropout", "1", "at least 0, below 1"),
        ("per_device_train_batch_size", "0", "a whole number, 1 to 65536, not 0"),
        ("per_device_train_batch_size", "8.5", "a whole number"),
        ("per_device_train_batch_size", "1e3", "a whole number"),
        ("per_device_train_batch_size", "010", "octal"),
        ("per_device_train_batch_size", "", "a whole number"),
        ("per_device_train_batch_size", "12:30:00", "a whole number"),
        ("torch_compile", "1", "on or off"),
        ("precision", "bf61", "did you mean 'bf16'?"),
        ("precision", "", "fp32, fp16 or bf16"),
        ("optim", "adamw torch", "a word"),
        ("optim", "", "a word"),
        ("max_steps", "0", "1 to 1000000000, or empty"),
        ("seed", "9" * 5000, "a whole number"),
    ],
)
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


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("learning_rate", 4e-5, "4.0e-05"),
        ("learning_rate", 5e-5, "5.0e-05"),
        ("learning_rate", 0.0002, "2.0e-04"),
        ("learning_rate", 1.25e-5, "1.25e-05"),
        ("learning_rate", 0.01, "0.01"),
        ("num_train_epochs", 3.0, "3"),
        ("warmup_steps", 0.06, "0.06"),
        ("tf32", None, ""),
        ("tf32", True, "on"),
        ("torch_compile", False, "off"),
        ("optim", "sgd", "sgd"),
        ("seed", 42, "42"),
    ],
)
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
    assert list(FIELDS) == list(Settings.model_fields)
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

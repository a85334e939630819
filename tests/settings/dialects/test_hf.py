"""Settings in Hugging Face's words, for every release, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from msgspec import structs

from tests.settings.strategies import all_settings
from tuner_tui.settings.dialects.file_formats import to_arguments
from tuner_tui.settings.dialects.hf import (
    IGNORED_ARGUMENTS,
    SCRIPT_FIELDS,
    argument_names,
    arguments_of_release,
    from_hf,
    to_hf,
)
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.model import FIELDS, Settings

EXAMPLES = yaml.load(Path(__file__).with_name("hf.yaml").read_text(), yaml.CSafeLoader)

RELEASES = [*(arguments_of_release(*release) for release in ((4, 40), (4, 57), (5, 0), (5, 10), (5, 23))), None]


@pytest.mark.parametrize(("release", "change", "values"), EXAMPLES["each release gets its own names"])
def test_each_release_gets_its_own_names(release, change, values):
    carried = to_hf(
        Settings(**change),
        None if release is None else arguments_of_release(*map(int, str(release).split(".")[:2])),
        only=change,
    )
    assert carried.values == values
    assert carried.unsupported == ()


@pytest.mark.parametrize(("names", "change"), EXAMPLES["what has no place is named and explained"])
def test_what_has_no_place_is_named_and_explained(names, change):
    carried = to_hf(Settings(**change), names, only=change)
    assert carried.unsupported == tuple(change)
    assert carried.notes[0].startswith(next(iter(change)))


def test_a_script_may_take_what_training_arguments_do_not():
    carried = to_hf(Settings(), None, extra=SCRIPT_FIELDS)
    assert carried.unsupported == ()
    assert {carried.values[name] for name in ("max_length", "peft_method")} == {128, "none"}


@given(all_settings)
def test_what_is_exported_is_imported_again(settings):
    for names in RELEASES:
        carried = to_hf(settings, names, extra=SCRIPT_FIELDS)
        imported = from_hf(carried.values)
        kept = {name: value for name, value in structs.asdict(settings).items() if name not in carried.unsupported}
        assert {**structs.asdict(Settings()), **imported.settings} == {**structs.asdict(Settings()), **kept}
        assert imported.ignored == ()


@given(all_settings)
def test_the_command_line_says_the_same(settings):
    carried = to_hf(settings, None, extra=SCRIPT_FIELDS)
    words = to_arguments(carried.values)
    given_values = {name[2:]: text for name, text in zip(words[::2], words[1::2], strict=True)}
    assert {**structs.asdict(Settings()), **from_hf(given_values).settings} == {
        **structs.asdict(settings),
        **{name: value for name, value in structs.asdict(Settings()).items() if carried.values.get(name, 0) is None},
    }


def test_arguments_are_written_for_hf_argument_parser():
    assert to_arguments({"bf16": True, "learning_rate": 1e-5, "tf32": None, "seed": 3}) == [
        "--bf16", "True", "--learning_rate", "1e-05", "--seed", "3",
    ]  # fmt: skip


@pytest.mark.parametrize(("values", "settings"), EXAMPLES["old and new spellings are read"])
def test_old_and_new_spellings_are_read(values, settings):
    assert from_hf(values).settings == settings


@pytest.mark.parametrize(("values", "note"), EXAMPLES["what is no setting is left out with a note"])
def test_what_is_no_setting_is_left_out_with_a_note(values, note):
    imported = from_hf(values)
    assert any(expected.startswith(note) for expected in imported.notes)
    assert set(imported.ignored) <= set(values)
    assert imported.ignored


@pytest.mark.parametrize(("values", "note"), EXAMPLES["a translation is told"])
def test_a_translation_is_told(values, note):
    assert from_hf(values).notes == (note,)


@pytest.mark.parametrize(("values", "expected"), EXAMPLES["bad values are errors"])
def test_bad_values_are_errors(values, expected):
    with pytest.raises(FieldError) as caught:
        from_hf(values)
    assert expected in str(caught.value)
    assert caught.value.field in values


def test_every_spelling_of_a_setting_is_known():
    assert argument_names("precision") == ("bf16", "fp16")
    assert "warmup_ratio" in argument_names("warmup_steps")
    assert argument_names("seed") == ("seed",)


def test_no_setting_is_called_no_setting():
    assert not set(IGNORED_ARGUMENTS) & set(FIELDS)

"""Settings in Hugging Face's words, for every release, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given

from tests.settings.strategies import all_settings
from tuner_tui.settings.dialects.file_formats import to_arguments
from tuner_tui.settings.dialects.hf import IGNORED_ARGUMENTS, SCRIPT_FIELDS, argument_names, from_hf, to_hf
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.model import FIELDS, Settings

EXAMPLES = yaml.safe_load(Path(__file__).with_name("hf.yaml").read_text())

PLAIN = frozenset(FIELDS) - SCRIPT_FIELDS - {"precision", "train_sampling_strategy", "eval_strategy"}
V4_46 = PLAIN | {"bf16", "fp16", "evaluation_strategy", "warmup_ratio", "group_by_length"}
V4_51 = PLAIN | {"bf16", "fp16", "eval_strategy", "warmup_ratio", "group_by_length"}
V5_10 = PLAIN | {"bf16", "fp16", "eval_strategy", "warmup_ratio", "train_sampling_strategy"}
V5_23 = PLAIN | {"bf16", "fp16", "eval_strategy", "train_sampling_strategy", "activation_checkpointing"}
RELEASES = [V4_46, V4_51, V5_10, V5_23, None]


@pytest.mark.parametrize(
    ("change", "names", "values"),
    [
        ({"precision": "bf16"}, None, {"bf16": True, "fp16": False}),
        ({"precision": "fp16"}, None, {"bf16": False, "fp16": True}),
        ({"precision": "fp32"}, None, {"bf16": False, "fp16": False}),
        ({"warmup_steps": 0.06}, None, {"warmup_steps": 0.06}),
        ({"warmup_steps": 100.0}, None, {"warmup_steps": 100}),
        ({"warmup_steps": 0.06}, V4_51, {"warmup_ratio": 0.06, "warmup_steps": 0}),
        ({"warmup_steps": 100.0}, V4_51, {"warmup_ratio": 0.0, "warmup_steps": 100}),
        ({"gradient_checkpointing": True}, None, {"activation_checkpointing": True}),
        ({"gradient_checkpointing": True}, V5_23, {"activation_checkpointing": True}),
        ({"gradient_checkpointing": True}, V5_10, {"gradient_checkpointing": True}),
        ({"eval_strategy": "steps"}, V4_46, {"evaluation_strategy": "steps"}),
        ({"eval_strategy": "steps"}, V4_51, {"eval_strategy": "steps"}),
        ({"train_sampling_strategy": "group_by_length"}, V4_51, {"group_by_length": True}),
        ({"train_sampling_strategy": "random"}, V4_51, {"group_by_length": False}),
        (
            {"train_sampling_strategy": "group_by_length"},
            V5_10,
            {"train_sampling_strategy": "group_by_length"},
        ),
        ({"max_steps": None}, None, {"max_steps": -1}),
        ({"max_steps": 20}, None, {"max_steps": 20}),
        ({"tf32": None}, None, {"tf32": None}),
    ],
)
def test_each_release_gets_its_own_names(change, names, values):
    carried = to_hf(Settings(**change), names, only=change)
    assert carried.values == values
    assert carried.unsupported == ()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"train_sampling_strategy": "sequential"}, V4_51),
        ({"precision": "bf16"}, frozenset({"fp16"})),
        ({"dataloader_prefetch_factor": 2}, frozenset({"seed"})),
        ({"max_length": 64}, None),
    ],
)
def test_what_has_no_place_is_named_and_explained(change, names):
    carried = to_hf(Settings(**change), names, only=change)
    assert carried.unsupported == tuple(change)
    assert carried.notes[0].startswith(next(iter(change)))


def test_a_script_may_take_what_training_arguments_do_not():
    carried = to_hf(Settings(), None, extra=SCRIPT_FIELDS)
    assert carried.unsupported == ()
    assert {carried.values[name] for name in ("max_length", "peft_method")} == {128, "none"}


@pytest.mark.parametrize("names", RELEASES)
def test_only_names_of_the_target_are_written(names):
    values = to_hf(Settings(warmup_steps=0.1, precision="bf16", gradient_checkpointing=True), names).values
    assert names is None or set(values) <= names


@given(all_settings)
def test_what_is_exported_is_imported_again(settings):
    for names in RELEASES:
        carried = to_hf(settings, names, extra=SCRIPT_FIELDS)
        imported = from_hf(carried.values)
        kept = {name: value for name, value in settings.model_dump().items() if name not in carried.unsupported}
        assert {**Settings().model_dump(), **imported.settings} == {**Settings().model_dump(), **kept}
        assert imported.ignored == ()


@given(all_settings)
def test_the_command_line_says_the_same(settings):
    carried = to_hf(settings, None, extra=SCRIPT_FIELDS)
    words = to_arguments(carried.values)
    given_values = {name[2:]: text for name, text in zip(words[::2], words[1::2], strict=True)}
    assert {**Settings().model_dump(), **from_hf(given_values).settings} == {
        **settings.model_dump(),
        **{name: value for name, value in Settings().model_dump().items() if carried.values.get(name, 0) is None},
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
    assert any(said.startswith(note) for said in imported.notes)
    assert set(imported.ignored) <= set(values)
    assert imported.ignored


@pytest.mark.parametrize(("values", "note"), EXAMPLES["a translation is told"])
def test_a_translation_is_told(values, note):
    assert from_hf(values).notes == (note,)


@pytest.mark.parametrize(("values", "said"), EXAMPLES["bad values and misspelt settings are errors"])
def test_bad_values_and_misspelt_settings_are_errors(values, said):
    with pytest.raises(FieldError) as caught:
        from_hf(values)
    assert said in str(caught.value)
    assert caught.value.field in values


def test_every_spelling_of_a_setting_is_known():
    assert argument_names("precision") == ("bf16", "fp16")
    assert "warmup_ratio" in argument_names("warmup_steps")
    assert argument_names("seed") == ("seed",)


def test_no_setting_is_called_no_setting():
    assert not set(IGNORED_ARGUMENTS) & set(FIELDS)

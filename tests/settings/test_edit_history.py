"""Editing with undo and redo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.settings.strategies import field_values
from tuner_tui.settings.edit_history import UNDO_LIMIT, EditHistory
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings

START = EditHistory.of(Resolved(Settings(), {"seed": Origin(OriginKind.PRESET, "demo")}))
REMEDY = Origin(OriginKind.REMEDY, "smaller batch")


def test_an_edit_changes_one_field_and_its_origin():
    edited = START.edit("seed", 7)
    assert edited.current.settings.seed == 7
    assert edited.current.origin("seed").kind is OriginKind.EDITED
    assert START.current.settings.seed == 42
    assert edited.changed == ("seed",)
    assert edited.dirty
    assert not START.dirty


def test_undo_and_redo_walk_back_and_forth():
    edited = START.edit("seed", 1).edit("seed", 2)
    assert edited.can_undo
    assert not edited.can_redo
    back = edited.undo()
    assert back.current.settings.seed == 1
    assert back.can_redo
    assert back.undo().current == START.current
    assert not back.undo().dirty
    assert back.undo().redo().redo().current == edited.current
    assert START.undo() == START
    assert edited.redo() == edited


def test_a_new_edit_forgets_what_was_undone():
    edited = START.edit("seed", 1).undo().edit("lora_r", 8)
    assert not edited.can_redo
    assert edited.current.settings.seed == 42


def test_a_remedy_is_one_step_and_keeps_the_origins_of_what_stays():
    change = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "seed": 42}
    edited = START.apply(change, REMEDY)
    assert edited.current.origin("per_device_train_batch_size") == REMEDY
    assert edited.current.origin("seed") == Origin(OriginKind.PRESET, "demo")
    assert edited.undo().current == START.current


def test_an_edit_that_changes_nothing_is_no_step():
    assert START.edit("seed", 42) is START


def test_saving_makes_it_clean_and_keeps_undo():
    saved = START.edit("seed", 1).saved_now()
    assert not saved.dirty
    assert saved.undo().dirty
    assert saved.undo().redo().dirty is False


def test_a_bad_edit_changes_nothing():
    for name, value in (("sed", 1), ("seed", -1), ("seed", "1"), ("precision", "fp8")):
        with pytest.raises(FieldError):
            START.edit(name, value)


def test_the_past_has_an_end():
    edited = START
    for seed in range(UNDO_LIMIT + 10):
        edited = edited.edit("seed", seed)
    assert len(edited.past) == UNDO_LIMIT


@given(st.data())
def test_any_edits_can_all_be_undone(data):
    edited = START
    for _ in range(data.draw(st.integers(0, 6))):
        name = data.draw(st.sampled_from(sorted(FIELDS)))
        edited = edited.edit(name, data.draw(field_values(FIELDS[name])))
    last = edited.current
    while edited.can_undo:
        edited = edited.undo()
    assert edited.current == START.current
    while edited.can_redo:
        edited = edited.redo()
    assert edited.current == last

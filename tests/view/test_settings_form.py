"""The form as rows, its help, and the steps of its values."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings, check_value, parse_value
from tuner_tui.settings.rules import Problem, find_problems
from tuner_tui.view.settings_form import (
    KNOBS,
    DataParallel,
    SettingsView,
    ValueInEffect,
    check_input,
    effective_batch,
    field_help,
    find_field,
    form_rows,
    format_input,
    group_fields,
    step_value,
)


def check(settings: Settings) -> tuple[Problem, ...]:
    return find_problems(settings, gpus=(), interpreter=None)


def view(processes: int = 1, **values: Any) -> SettingsView:
    saved = Resolved(Settings())
    edited = dict.fromkeys(values, Origin(OriginKind.EDITED))
    resolved = Resolved(Settings().changed(**values), edited)
    result = check(resolved.settings)
    return SettingsView(tuple(FIELDS.values()), resolved, saved, result, "demo", DataParallel(processes), check)


@pytest.mark.parametrize(("reading", "origin"), [(True, "reading …"), (False, "unknown")])
def test_a_value_that_only_the_command_knows_is_not_said_to_be_our_default(reading: bool, origin: str) -> None:
    shown = replace(view(), unknown=frozenset(KNOBS[:1]), reading=reading)
    assert [(row.value, row.origin) for row in form_rows(shown)[:2]] == [("–", origin), ("1", "default")]
    assert effective_batch(shown, 60) == ""


@pytest.mark.parametrize(("value", "text"), [(32, "– → 32"), (8, "– → 8")])
def test_a_change_of_a_value_that_was_not_known_starts_at_none(value: int, text: str) -> None:
    shown = replace(view(per_device_train_batch_size=value), unknown_before=frozenset(KNOBS[:1]))
    assert (form_rows(shown)[0].value, form_rows(shown)[0].changed) == (text, True)


def row(of: SettingsView, name: str) -> Any:
    return next(row for row in form_rows(of) if row.name == name)


def test_every_field_has_one_row_under_its_group() -> None:
    rows = form_rows(view())
    assert sorted(row.name for row in rows if row.name) == sorted(FIELDS)
    group = ""
    assert tuple(row.name for row in rows[: len(KNOBS)]) == KNOBS
    for field_row in rows[len(KNOBS) :]:
        group = field_row.group if field_row.name is None else group
        assert field_row.name is None or FIELDS[field_row.name].group == group


def test_a_folded_group_is_one_row() -> None:
    rows = form_rows(view(), opened={"Length"})
    assert {row.group for row in rows[len(KNOBS) :] if row.name} == {"Length"}
    assert [row.name for row in form_rows(view(), opened=())][: len(KNOBS)] == list(KNOBS)


def test_what_is_wrong_and_what_a_file_says_is_never_folded_away() -> None:
    wrong = (Problem(("quantization",), "error", "nf4 needs bitsandbytes"),)
    [heading, field] = [row for row in form_rows(replace(view(), problems=wrong), opened=()) if row.group == "Memory"]
    assert (heading.label, field.name, field.origin) == ("▹ Memory", "quantization", "✗ nf4 needs bitsandbytes")
    assert re.fullmatch(r"\d+ more", heading.origin)
    of_file = replace(
        view(), preset="jobs/hf.py", resolved=Resolved(Settings(), {KNOBS[0]: Origin(OriginKind.PRESET, "hf")})
    )
    assert row(of_file, KNOBS[0]).origin == "hf.py"


def test_a_changed_field_is_marked_and_says_its_origin() -> None:
    changed = row(view(learning_rate=1e-4), "learning_rate")
    assert (changed.changed, changed.tone, changed.origin) == (True, "changed", "edited")
    assert row(view(learning_rate=1e-4), "seed").origin == "default"


def test_the_reason_of_a_recommendation_stands_under_the_field() -> None:
    advised = Resolved(Settings(), {"precision": Origin(OriginKind.RECOMMENDED, "no GPU here")})
    shown = field_help(replace(view(), resolved=advised), FIELDS["precision"])
    assert shown.sentence == "recommended · no GPU here"
    assert row(replace(view(), resolved=advised), "precision").origin == "recommended"


def test_what_is_empty_is_a_dash() -> None:
    assert row(view(), "max_steps").value == "–"


def test_rules_across_fields_stand_at_the_field_to_change() -> None:
    wrong = view(dataloader_prefetch_factor=4)
    shown = row(wrong, "dataloader_prefetch_factor")
    assert shown.tone == "error"
    assert shown.origin.startswith("✗ Prefetch needs")
    crowded = replace(
        view(), problems=find_problems(Settings(dataloader_num_workers=64), gpus=None, interpreter=None, cores=4)
    )
    assert row(crowded, "dataloader_num_workers").origin.startswith("! try 2 · 64 workers on 4 usable cores")
    assert field_help(wrong, FIELDS["dataloader_prefetch_factor"]).tone == "error"


def test_a_folded_group_shows_what_is_wrong_in_it_and_how_much_was_changed() -> None:
    wrong = view(peft_method="none", lora_r=8, eval_steps=7, dataloader_prefetch_factor=4, learning_rate=1e-4)
    headings = {row.group: row for row in form_rows(wrong, opened=()) if row.name is None}
    groups = {FIELDS[name].group for problem in wrong.problems for name in problem.fields if name not in KNOBS}
    assert {group for group, row in headings.items() if row.tone in ("warning", "error")} == groups & headings.keys()
    assert headings["Optimizer"].origin == "1 changed", "since the preset was loaded"


def test_what_a_run_uses_instead_stands_at_the_field_also_in_a_folded_group() -> None:
    run = replace(
        view(gradient_checkpointing=True),
        in_effect={"gradient_checkpointing": ValueInEffect("in effect off", "the model has no place for it")},
    )
    (shown,) = [row for row in form_rows(run, opened=(), show_changed=True) if row.name == "gradient_checkpointing"]
    assert (shown.tone, shown.origin) == ("warning", "! in effect off")
    assert (
        field_help(run, FIELDS["gradient_checkpointing"]).sentence
        == "the run: in effect off, because the model has no place for it"
    )


def test_help_names_the_field_its_unit_its_bounds_and_where_the_value_came_from() -> None:
    shown = field_help(view(seed=7), FIELDS["per_device_train_batch_size"])
    assert shown.facts == "per_device_train_batch_size · samples · 1 to 65536 · default"
    assert shown.sentence == FIELDS["per_device_train_batch_size"].help


def test_the_effective_batch_counts_processes() -> None:
    of = view(4, per_device_train_batch_size=8, gradient_accumulation_steps=2)
    assert effective_batch(of, 60) == "effective batch 64 = 8 × 2 × 4 processes"
    assert effective_batch(replace(of, spread=DataParallel()), 60) == "effective batch 16 = 8 × 2"
    assert effective_batch(replace(of, spread=DataParallel(gpu_count=2)), 60) == "effective batch 32 = 8 × 2 × 2 GPUs"


def test_a_command_may_or_may_not_share_a_step_among_the_gpus() -> None:
    of = view()
    adjusted = replace(of, spread=DataParallel(perhaps=4))
    assert effective_batch(adjusted, 60).endswith("(× 4 GPUs with a Trainer)")
    assert effective_batch(adjusted, 34) == "batch 8 = 8 × 1 (× 4 GPUs?)"


def test_a_narrow_border_has_the_batch_and_its_factors() -> None:
    of = replace(view(per_device_train_batch_size=16, gradient_accumulation_steps=4), spread=DataParallel(gpu_count=2))
    assert effective_batch(of, 34) == "batch 128 = 16 × 4 × 2 GPUs"


def test_folded_groups_may_show_what_was_changed() -> None:
    of = view(learning_rate=1e-4, gradient_checkpointing=True)
    folded = {row.name for row in form_rows(of, ()) if row.name}
    assert {row.name for row in form_rows(of, (), show_changed=True) if row.name} - folded == {
        "learning_rate", "gradient_checkpointing",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["0", "x", "-3", "1.5", ""])
def test_a_wrong_text_is_wrong_at_once(text: str) -> None:
    wrong = check_input(view(), FIELDS["per_device_train_batch_size"], text)
    assert wrong is not None
    assert wrong.tone == "error"


def test_a_right_text_is_not_wrong() -> None:
    assert check_input(view(), FIELDS["per_device_train_batch_size"], "24") is None


def test_a_text_that_does_not_fit_the_other_fields_warns_but_may_be_taken() -> None:
    warned = check_input(view(), FIELDS["dataloader_prefetch_factor"], "4")
    assert warned is not None
    assert warned.tone == "warning"


@given(st.sampled_from(sorted(FIELDS)), st.lists(st.booleans(), max_size=60))
def test_steps_stay_within_what_the_field_takes(name: str, ways: list[bool]) -> None:
    spec, value = FIELDS[name], getattr(Settings(), name)
    for up in ways:
        value = step_value(spec, value, up)
        assert check_value(name, value) == value
        assert parse_value(name, format_input(spec, value)) == value


@pytest.mark.parametrize(
    ("name", "value", "more", "less"),
    [
        ("per_device_train_batch_size", 8, 12, 6),
        ("per_device_train_batch_size", 20, 24, 16),
        ("learning_rate", 5e-5, 1e-4, 3e-5),
        ("warmup_steps", 0.0, 0.01, 0.0),
        ("dataloader_num_workers", 0, 1, 0),
        ("save_steps", 500, 1000, 250),
        ("logging_steps", 4, 8, 2),
        ("gradient_accumulation_steps", 2, 4, 1),
        ("max_steps", None, 100, None),
        ("torch_compile", False, True, True),
        ("tf32", None, True, False),
        ("precision", "fp32", "fp16", "bf16"),
    ],
)
def test_steps_are_sensible(name: str, value: Any, more: Any, less: Any) -> None:
    assert step_value(FIELDS[name], value, up=True) == pytest.approx(more)
    assert step_value(FIELDS[name], value, up=False) == pytest.approx(less)


def test_a_field_is_found_by_label_or_name_and_the_search_goes_round() -> None:
    rows = form_rows(view())
    first = find_field(rows, "batch")
    assert first is not None
    second = find_field(rows, "batch", first)
    assert second is not None
    assert rows[second].name == "per_device_eval_batch_size"
    assert find_field(rows, "seed", len(rows) - 1) == len(rows) - 1
    assert find_field(rows, "no such field") is None


def test_of_a_group_shown_in_part_the_values_that_are_not_known_are_counted() -> None:
    """Of a loop of its own neither adapters nor quantization are known: one line stands for them."""
    fields = [spec.name for spec in group_fields(view().specs)["Optimizer"]]
    shown = replace(view(optim="adafactor"), unknown=frozenset(FIELDS) - {*KNOBS, fields[0]})
    rows = [row for row in form_rows(shown, (), False, ("Optimizer", "Memory")) if row.group in ("Optimizer", "Memory")]
    assert [(row.label, row.name, row.origin) for row in rows if row.name is None] == [
        ("▹ Optimizer", None, f"1 changed · {len(fields) - 1} unknown"),
        ("▸ Memory", None, f"{len(group_fields(view().specs)['Memory'])} unknown"),
    ]
    assert [row.name for row in rows if row.name is not None] == fields[:1]
    whole = form_rows(shown, ("Memory",))
    assert sum(row.group == "Memory" for row in whole) > 2, "it can still be opened and set"

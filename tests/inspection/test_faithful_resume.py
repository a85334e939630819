"""What differs after a checkpoint, from recorded states alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tuner_tui.inspection.faithful_resume import Part, RankHistory, ResumeCheck, TrainingState, compare_resumed
from tuner_tui.inspection.suspect_batches import StepBatch

SAVED_AT, LAST, EPOCH = 10, 20, 8


def state(after: int, at: Any = "step", **fields: Any) -> TrainingState:
    values: dict[str, Any] = {
        "learning_rate": 1e-3 * (1 - after / LAST),
        "schedule": after,
        "optimizer_steps": after,
        "moments": after > 0,
        "random_states": {"torch": 100 + after, "python": 7},
        "counters": {"global_step": after, "epoch": after // EPOCH},
        "epoch_batch": after % EPOCH,
        "epoch_batches": EPOCH,
        "scale": 1024.0 * 2 ** (after // 5),
        "first_scale": 1024.0,
        "weights": (4.0 + after, 2.0 + after),
        "names": ("body", "head"),
    }
    return TrainingState(after, at, **{**values, **fields})


def batch(step: int, **fields: Any) -> StepBatch:
    first = 2 * ((step - 1) % EPOCH)
    values: dict[str, Any] = {"rows": ((first, first + 1),), "losses": (2.0 + 0.1 * (step % 3),)}
    return StepBatch(step, **{**values, **fields})


def parent(goes_on: bool) -> RankHistory:
    states = [state(0, "start"), state(1), state(SAVED_AT, "checkpoint")]
    further = [state(SAVED_AT), state(SAVED_AT + 1)] if goes_on else []
    return RankHistory([*states, *further], [batch(step) for step in range(1, LAST + 1 if goes_on else SAVED_AT + 1)])


def child(steps: int = 6, **fields: Any) -> RankHistory:
    """A plain loop, which counts from 0."""
    first = replace(state(SAVED_AT, "start", first_scale=4096.0), after=0, **fields)
    return RankHistory([first], [replace(batch(SAVED_AT + step), step=step) for step in range(1, steps + 1)])


def compare(resumed: RankHistory, goes_on: bool = True, **options: Any) -> ResumeCheck:
    mismatches, compared = compare_resumed(
        parent(goes_on), resumed, SAVED_AT, counts_on=False, changed=options.get("changed", frozenset())
    )
    return ResumeCheck("r001", SAVED_AT, 6, mismatches, compared)


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("weights", {"weights": (14.0, 2.5)}),
        ("optimizer", {"moments": False, "optimizer_steps": None}),
        ("optimizer", {"optimizer_steps": 3}),
        ("learning rate", {"learning_rate": 1e-3}),
        ("learning rate", {"schedule": 0}),
        ("gradient scaler", {"scale": 65536.0, "first_scale": 65536.0}),
        ("step count", {"counters": {"global_step": 0, "epoch": 1}}),
        ("epoch", {"counters": {"global_step": 10, "epoch": 0}}),
    ],
)
def test_a_part_that_was_not_restored_is_named(goes_on: bool, part: Part, fields: dict[str, Any]) -> None:
    assert [each.part for each in compare(child(**fields), goes_on).mismatches] == [part]
    assert compare(child(**fields), goes_on, changed=frozenset({part})).mismatches == ()


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_run_that_goes_on_as_its_parent_is_faithful(goes_on: bool) -> None:
    check = compare(child(), goes_on)
    assert (check.verdict, check.mismatches) == ("faithful", ())
    assert check.sentence.startswith("It resumed faithfully from step 10 of r001: step count, weights,")


def test_random_numbers_do_not_matter_where_the_losses_are_the_same() -> None:
    reseeded = child(random_states={"torch": 1, "python": 1})
    assert compare(reseeded).mismatches == ()
    noisy = RankHistory(reseeded.states, [replace(each, losses=(2.13,)) for each in reseeded.batches])
    assert [each.part for each in compare(noisy).mismatches] == ["random numbers"]
    restored = RankHistory([replace(noisy.states[0], restored=(110,))], noisy.batches)
    assert compare(restored).mismatches == (), "the loader drew from them since"


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (1, "the data starts again at sample 0 instead of 20"),
        (5, "the data starts again at sample 8 instead of 20"),
        (60, "the data comes in another order: rows 60, 61 … instead of 4, 5 …"),
    ],
)
def test_data_that_does_not_continue_is_named(first: int, sentence: str) -> None:
    moved = [replace(batch(step), rows=batch(first).rows if first < 60 else ((60, 61),)) for step in range(1, 7)]
    [mismatch] = compare(RankHistory(child().states, moved)).mismatches
    assert mismatch.sentence == sentence


def test_a_rank_that_saves_nothing_and_draws_nothing_reads_its_data_again() -> None:
    same: dict[str, Any] = {"random_states": {"torch": 100}}
    rows = [replace(batch(step), epoch=1, rows=((2 * step, 2 * step + 1),)) for step in range(1, LAST + 1)]
    resumed = RankHistory(child(**same).states, [replace(each, epoch=1) for each in rows[:6]])
    rank = RankHistory([state(0, "start", **same), state(1, **same)], rows)
    mismatches, _ = compare_resumed(rank, resumed, SAVED_AT, counts_on=False)
    assert [each.sentence for each in mismatches] == ["the data starts again at sample 0 instead of 20"]


def test_batches_that_a_loop_reads_over_are_no_part_of_its_first_step() -> None:
    first, *further = child().batches
    skipped = replace(first, rows=((0, 1), (2, 3), *(first.rows or ())))
    assert compare(RankHistory(child().states, [skipped, *further])).verdict == "faithful"


def test_losses_differ_only_beyond_the_noise_of_the_parent() -> None:
    def with_losses(loss: float) -> RankHistory:
        first = TrainingState(0, "start")
        return RankHistory([first], [replace(each, losses=(loss,)) for each in child().batches])

    assert compare(with_losses(2.25)).mismatches == ()
    [mismatch] = compare(with_losses(5.5)).mismatches
    assert mismatch.sentence == "the loss differs at the first step: 5.5 against 2.2"
    [mismatch] = compare(with_losses(5.5), goes_on=False).mismatches
    assert mismatch.sentence == "the loss is 5.5 after 2.1 before the checkpoint"
    assert compare(with_losses(1.0), goes_on=False).mismatches == ()


def test_what_was_not_recorded_is_unknown() -> None:
    assert compare(RankHistory([], child().batches)).verdict == "unknown"
    mismatches, compared = compare_resumed(RankHistory([], []), child(), SAVED_AT, counts_on=False)
    check = ResumeCheck("r001", SAVED_AT, 6, mismatches, compared)
    assert check.verdict == "unknown"
    assert "is unknown: too little" in check.sentence
    [mismatch], _ = compare_resumed(RankHistory([], []), child(), SAVED_AT, counts_on=True)
    assert mismatch.sentence == "the step count starts at 0 instead of 10"

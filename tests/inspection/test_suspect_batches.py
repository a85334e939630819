"""Which steps and rows are suspected, on made-up steps whose bad row is known."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from msgspec.structs import replace

from tuner_tui.inspection.suspect_batches import NO_SUSPECTS, StepBatch, find_suspects, name_rows

ROWS, SIZE = 1600, 16
BAD_ROW = 733


def shuffled_epochs(epochs: int, bad_loss: float | None, seed: int = 0, rank: int = 0) -> list[StepBatch]:
    """Steps over shuffled rows with a noisy falling loss; that of the bad row's batch is `bad_loss` if given."""
    draw, batches = random.Random(seed), list[StepBatch]()
    for epoch in range(epochs):
        order = draw.sample(range(ROWS), ROWS)
        for start in range(0, ROWS, SIZE):
            rows = tuple(order[start : start + SIZE])
            loss = 0.1 + 2 / (1 + len(batches) / 20) * draw.uniform(0.8, 1.2)
            loss = bad_loss if bad_loss is not None and BAD_ROW in rows else loss
            batches.append(StepBatch(len(batches) + 1, rank, epoch + 1, (loss,), (rows,), (SIZE, 8)))
    return batches


@pytest.mark.parametrize("seed", range(10))
def test_the_row_that_all_jumps_share_is_named(seed: int) -> None:
    suspects = find_suspects(shuffled_epochs(4, 50.0, seed), failed=False)
    assert suspects.common_rows == (BAD_ROW,)
    assert [BAD_ROW in suspect.rows for suspect in suspects.sharing] == [True] * 4
    assert "about" in suspects.sharing[0].sentence


@pytest.mark.parametrize("seed", range(10))
def test_a_noisy_loss_alone_is_not_suspected(seed: int) -> None:
    assert find_suspects(shuffled_epochs(3, None, seed), failed=False) == NO_SUSPECTS


def test_two_random_jumps_share_rows_by_chance() -> None:
    batches = shuffled_epochs(2, None)
    shared = set(batches[40].rows_of(None)) | set(batches[150].rows_of(None))
    jumps = [replace(batches[n], losses=(50.0,), rows=((*batches[n].rows_of(None), 7),)) for n in (40, 150)]
    batches[40], batches[150] = jumps
    suspects = find_suspects(batches, failed=False)
    assert len(suspects.suspects) == 2
    assert suspects.common_rows == ()
    assert shared


@pytest.mark.parametrize(("size", "common"), [(16, ()), (2, (3, 4))])
def test_the_more_rows_and_jumps_there_are_the_more_are_shared_by_chance(size: int, common: tuple[int, ...]) -> None:
    """Two rows are in two of six jumps each, as happens by chance with large batches and not with small ones."""
    fresh = itertools.count(5)
    batches = [StepBatch(n, 0, 1, (1.0,), (tuple(itertools.islice(fresh, size)),)) for n in range(1, 20_000 // size)]
    for jump, bad_row in enumerate((3, 4, 5, 3, 4, 6)):
        batch = batches[100 * (jump + 1)]
        batches[batch.step - 1] = replace(batch, losses=(9.0,), rows=((bad_row, *batch.rows_of(None)[1:]),))
    suspects = find_suspects(batches, failed=False)
    assert (len(suspects.suspects), suspects.common_rows) == (6, common)
    assert not common or (len(suspects.sharing), suspects.common_names) == (4, "one of rows 3, 4")


def test_many_jumps_are_the_tail_of_the_losses() -> None:
    batches = shuffled_epochs(4, 50.0)
    high = [replace(each, losses=(49.0,)) if each.step % 7 == 0 else each for each in batches]
    assert find_suspects(batches, failed=False).common_rows == (BAD_ROW,)
    assert find_suspects(high, failed=False).common_rows == ()


def test_ranks_that_train_on_the_same_rows_had_one_jump() -> None:
    batches = shuffled_epochs(2, None)
    batches[40] = replace(batches[40], losses=(50.0,))
    both = [replace(batch, rank=rank) for batch in batches for rank in (0, 1)]
    suspects = find_suspects(both, failed=False)
    assert [(suspect.batch.step, suspect.batch.rank) for suspect in suspects.suspects] == [(41, 0)]
    assert suspects.common_rows == ()


def test_the_first_loss_that_is_not_finite_is_named_with_its_rank_and_micro_batch() -> None:
    healthy = [StepBatch(n, rank, 1, (1.0, 1.0), ((n,), (n + 100,)), (1,)) for n in range(1, 30) for rank in (0, 1)]
    broken = [
        replace(batch, losses=(1.0, math.nan)) if (batch.step, batch.rank) == (20, 1) else batch for batch in healthy
    ]
    after = [replace(batch, losses=(math.nan, math.nan)) if batch.step > 20 else batch for batch in broken]
    [suspect] = find_suspects(after, failed=True).suspects
    assert (suspect.kind, suspect.batch.step, suspect.batch.rank, suspect.rows) == ("not finite", 20, 1, (120,))
    assert suspect.sentence == "the loss is nan first in step 20 of rank 1: row 120"


def test_jumps_after_the_first_broken_loss_say_nothing() -> None:
    batches = shuffled_epochs(2, 50.0)
    batches[3] = replace(batches[3], losses=(math.inf,))
    assert [suspect.kind for suspect in find_suspects(batches, failed=False).suspects] == ["not finite"]


@pytest.mark.parametrize(("last", "rose"), [((2.0, 2.1, 9.0), True), ((2.0, 2.1, 2.2), False), ((), False)])
def test_a_loss_has_risen_if_it_was_high_in_one_of_the_last_steps_on_any_rank(
    last: tuple[float, ...], rose: bool
) -> None:
    losses = dict(enumerate((2.0,) * 12 * bool(last) + last, 1))
    end = len(losses) + 1
    batches = [StepBatch(step, rank, 1, (loss + rank / 40,)) for step, loss in losses.items() for rank in range(8)]
    broken = StepBatch(end, 0, 1, (math.nan,))
    assert find_suspects([*batches, broken], failed=False).rose is rose
    assert not find_suspects(batches, failed=False).rose


@pytest.mark.parametrize(("losses", "rose"), [((924.0,), True), ((2.0, 2.1), True), ((2.0, 2.1, 2.2), False)])
def test_few_steps_do_not_tell_that_a_loss_had_not_risen(losses: tuple[float, ...], rose: bool) -> None:
    batches = [StepBatch(step, 0, 1, (loss,)) for step, loss in enumerate((*losses, math.nan), 1)]
    assert find_suspects(batches, failed=False).rose is rose


def test_the_batch_that_no_step_has_followed_is_suspected_of_a_failure_only() -> None:
    last = StepBatch(9, 0, 1, (), ((4, 5),), (2, 3912), unfinished=True)
    [suspect] = find_suspects([last], failed=True).suspects
    assert suspect.sentence == "step 9, which failed, was made of (2 × 3912) rows 4, 5"
    assert find_suspects([last], failed=False) == NO_SUSPECTS


def test_many_rows_are_shortened_and_none_are_said_to_be_unknown() -> None:
    assert name_rows(range(0, 40, 2)).endswith("30 and 4 more")
    assert name_rows(range(640, 656)) == "rows 640 to 655"
    assert name_rows(()) == "rows not recorded"


def test_ranks_with_the_same_rows_in_all_steps_are_counted_but_not_those_with_a_part_each() -> None:
    batches = [batch for rank in (0, 1) for batch in shuffled_epochs(1, None, rank=rank)]
    assert find_suspects(batches, failed=False).repeated_steps == ROWS // SIZE
    own = [replace(each, losses=(each.losses[0] + 0.1 * each.rank,)) for each in batches]
    assert find_suspects(own, failed=False).repeated_steps == 0, "each rank has loaded a part of its own"
    batches[-1] = replace(batches[-1], rows=((1, 2, 3),))
    assert find_suspects(batches, failed=False).repeated_steps == 0
    assert find_suspects(shuffled_epochs(1, None), failed=False).repeated_steps == 0, "one rank"

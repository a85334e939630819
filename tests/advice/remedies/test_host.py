"""How much more workers can gain at most, and that a remedy without a gain is not offered."""

from __future__ import annotations

import pytest

from tests.fakes.situations import box, card, situation, training
from tuner_tui.advice.remedies.computed import more_workers, possible_gain
from tuner_tui.settings.model import Settings


@pytest.mark.parametrize(
    ("share", "workers", "wanted", "gain"),
    [
        # Eight workers take the whole step; with ten, loading takes 8/10 of it, computing 60 %.
        (0.4, 8, 10, 1.25),
        (0.1, 8, 10, 1 / 0.9),
        # Without workers loading is the wait itself: 40 % spread over four workers is less than computing.
        (0.4, 0, 4, 1 / 0.6),
        # One worker for a wait of 98 %: loading alone still takes 98 % of the step.
        (0.98, 0, 1, 1 / 0.98),
        (1.0, 4, 6, 1.5),
        (None, 4, 6, None),
    ],
)
def test_a_step_takes_as_long_as_the_slower_of_computing_and_loading(
    share: float | None, workers: int, wanted: int, gain: float | None
) -> None:
    assert possible_gain(share, workers, wanted) == pytest.approx(gain)


def offered(share: float, workers: int, cores: int) -> list[str]:
    known = situation(state=training(rates={"data_wait_share": share}), inventory=box(card(), cores=cores))
    return [remedy.effect for remedy in more_workers(known, Settings(dataloader_num_workers=workers))]


def test_a_remedy_without_a_gain_is_not_offered() -> None:
    assert offered(0.99, 0, cores=2) == []
    assert offered(0.5, 0, cores=2) == ["at most 2× the steps per second"]

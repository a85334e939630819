from __future__ import annotations

import pytest

from tuner_tui.hardware.throttle import REASONS, throttle_words


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("power cap",)),
        (0x5, ("power cap",)),
        (0x8 | 0x40, ("thermal slowdown (hardware)",)),
        (0x8 | 0x80, ("power brake (power supply)",)),
        (0x8, ("hardware slowdown",)),
        (0x4 | 0x20, ("thermal slowdown (driver)", "power cap")),
        (0x8000, ()),
    ],
)
def test_reasons_in_words_most_urgent_first(bits: int, words: tuple[str, ...]):
    assert throttle_words(bits) == words


def test_each_reason_has_a_bit_and_words_of_its_own():
    assert len({bit for bit, _ in REASONS}) == len({words for _, words in REASONS}) == len(REASONS)

"""How often the paired test of start and winner accepts a winner that is faster, and one that is not.

Each simulated tuning has some trials on a box whose speed drifts between trials, with noise in each run; then pairs are
run until the test decides.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.paired_test import PairedTest
from tuner_tui.tuning.search.results import SearchContext
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Purpose, Trial

START, WINNER = Settings(), Settings(torch_compile=True)
BETWEEN = 8
"""Trials between the winner's first run and the paired test."""
WITHIN = 0.5
"""Share of a run's noise that is visible in its own spread."""
SPACE = SearchSpace()


@dataclass(frozen=True)
class Box:
    """Relative variation of speed: `own` per run, and `drift` between trials, of which `kept` persists to the next one.

    `steady` is added with every trial, `busy` is subtracted at first, and a share `burst` of runs is slowed by up to 30
    %.
    """

    name: str
    own: float
    drift: float = 0.0
    kept: float = 0.9
    steady: float = 0.0
    busy: float = 0.0
    burst: float = 0.0


BOXES = (
    Box("very quiet", 0.005),
    Box("quiet", 0.01),
    Box("noisy runs", 0.03),
    Box("drifting", 0.01, drift=0.03),
    Box("drifting slowly", 0.01, drift=0.05, kept=0.97),
    Box("noisy and drifting", 0.03, drift=0.05, kept=0.8),
    Box("busy at first", 0.01, busy=0.1),
    Box("ever faster", 0.01, steady=0.005),
    Box("bursts", 0.01, burst=0.1),
)


class Speeds:
    """Speeds of the successive runs of one tuning."""

    def __init__(self, box: Box, seed: int) -> None:
        self._box, self._rng, self._run = box, random.Random(seed), 0
        self._drift = self._rng.gauss(0, box.drift)

    def next(self, true: float) -> Measurement:
        """Next run of settings that are `true` times as fast as the start."""
        box, rng = self._box, self._rng
        rate = true * (1 + self._drift + rng.gauss(0, box.own) + box.steady * self._run)
        rate *= 1 - (box.busy if self._run < 3 else 0.0)
        rate *= 1 - (rng.uniform(0.05, 0.3) if rng.random() < box.burst else 0.0)
        self._drift = box.kept * self._drift + rng.gauss(0, box.drift * (1 - box.kept**2) ** 0.5)
        self._run += 1
        return Measurement(outcome="measured", seconds=20, samples_s=100 * rate, spread=1.96 * WITHIN * box.own)


def confirmed(box: Box, ratio: float, seed: int) -> tuple[bool, int]:
    """Whether a winner that is `ratio` times as fast is accepted, and after how many pairs."""
    speeds = Speeds(box, seed)
    tried: list[CompletedTrial] = []

    def run(purpose: Purpose, settings: Settings) -> None:
        trial = Trial(number=len(tried) + 1, purpose=purpose, settings=settings, reason="")
        tried.append(CompletedTrial(trial, speeds.next(ratio if settings == WINNER else 1.0)))

    run("start", START)
    run("noise", START)
    run("knob", WINNER)
    for number in range(BETWEEN):
        run("knob", START.changed(dataloader_num_workers=number + 1))
    while not (pairs := PairedTest(SearchContext(START, SPACE, tuple(tried)), WINNER)).decided:
        settings = pairs.next()
        assert settings is not None
        run("confirm", settings)
    return (pairs.interval or (1.0, 1.0, 1.0))[1] > 1, len(pairs.ratios)

"""How long a trial measures and when it is given up; passed to the observer in an environment variable."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

DEFAULT_MINUTES = 9.0
"""What a tuning may take where nobody says: enough for a small model and its dozen trials; a large one needs more, and
can be given it later."""
FIRST_STEP_DIVISOR = 3.0
"""The part of its time that a tuning waits for the first step of a trial, before it calls that one stuck."""
TRIAL_VARIABLE = "TUNER_TRIAL"
"""Tells the observer that this is a trial, and its terms."""


@dataclass(frozen=True, slots=True)
class TrialProtocol:
    """Seconds are of training for the measuring, of the clock for the waiting.

    Steps are measured until the half width of the speed's 95 % interval is at most `spread` of it, for `least_s` to
    `most_s` seconds. `first_step_s`: a training that has not begun by then never will, unless it compiles, for which
    there is `compiling_s`; one that stands still for `stalled_s`, or five of its steps, goes on no more.
    """

    spread: float = 0.02
    least_s: float = 1.0
    most_s: float = 8.0
    evaluate: bool = True
    first_step_s: float = 300.0
    compiling_s: float = 1800.0
    stalled_s: float = 120.0

    @staticmethod
    def within(minutes: float) -> TrialProtocol:
        """The terms of a tuning that may take so long: who gives it more time waits longer for a first step."""
        usual = TrialProtocol()
        return replace(usual, first_step_s=max(usual.first_step_s, minutes * 60 / FIRST_STEP_DIVISOR))

    def text(self) -> str:
        """What the observer is told, as JSON."""
        told = {"spread": self.spread, "least_s": self.least_s, "most_s": self.most_s, "evaluate": self.evaluate}
        return json.dumps(told)

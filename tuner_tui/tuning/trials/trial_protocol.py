"""How long a trial measures and when it is given up; passed to the observer in an environment variable."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

DEFAULT_MINUTES = 9.0
"""Default time of a tuning: enough for a small model and a dozen trials. A tuning can be resumed with more."""
FIRST_STEP_DIVISOR = 3.0
"""A trial may take this fraction (one third) of the tuning's time until its first step."""
TRIAL_VARIABLE = "TUNER_TRIAL"
"""Environment variable that passes the protocol to the observer."""


@dataclass(frozen=True, slots=True)
class TrialProtocol:
    """How long a trial measures, and when it is given up.

    Attributes:
        spread: Measuring ends when the half width of the throughput's 95 % interval is at most this share of it,
        least_s, most_s: but not before and not after so many seconds of training.
        evaluate: Whether an evaluation step is made, to include its memory in the peak.
        first_step_s: Timeout until the first optimizer step; `compiling_s` while the model compiles.
        stalled_s: Timeout between steps (at least five step times).
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
        """Return the protocol for a tuning of so many minutes, which determine the timeout of the first step."""
        default = TrialProtocol()
        return replace(default, first_step_s=max(default.first_step_s, minutes * 60 / FIRST_STEP_DIVISOR))

    def to_json(self) -> str:
        """Return the part for the observer as JSON."""
        values = {"spread": self.spread, "least_s": self.least_s, "most_s": self.most_s, "evaluate": self.evaluate}
        return json.dumps(values)

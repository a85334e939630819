"""What a rule is: a situation in, one finding or none out."""

from __future__ import annotations

from collections.abc import Callable

from tuner_tui.advice.finding import Finding
from tuner_tui.advice.situation import Situation

Rule = Callable[[Situation], Finding | None]

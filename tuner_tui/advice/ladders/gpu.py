from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation

LADDERS: Mapping[str, Callable[[Situation, str | None], tuple[Remedy, ...]]] = {}

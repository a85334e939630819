"""`remedies.json` of the state directory: what remedies did on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert

from tuner_tui.core.files import read_regular, write_atomic
from tuner_tui.core.json_struct import to_json
from tuner_tui.runs.store.folder import state_dir

RemedyVerdict = Literal["exceeded", "kept", "not kept", "not comparable", "unknown"]
VERDICT_WORDS: Mapping[RemedyVerdict, str] = {
    "exceeded": "better than expected", "kept": "as expected", "not kept": "not as expected",
    "not comparable": "inconclusive", "unknown": "effect unknown",
}  # fmt: skip
FILE = "remedies.json"
MOST_RECORDED = 500


class RemedyOutcome(Struct, frozen=True):
    """What came of the remedies that run `after` has and run `before` had not.

    `names` are their rows in `remedies.yaml`. `speed` is the measured samples per second relative to those before, with
    the bounds of its 95 % interval; None if it was not measured, or the runs do not compare. `same_memory`: both runs
    ran out of memory with equal tensors, which the remedy therefore does not change.
    """

    names: tuple[str, ...]
    title: str
    before: str
    after: str
    verdict: RemedyVerdict
    sentence: str
    speed: tuple[float, float, float] | None = None
    same_memory: bool = False

    @property
    def statement(self) -> str:
        """The outcome in a sentence: `gradient checkpointing on since r004, not as expected: expected …`."""
        return f"{self.title} since {self.before}, {VERDICT_WORDS[self.verdict]}: {self.sentence}"


def read_outcomes() -> tuple[RemedyOutcome, ...]:
    """The recorded outcomes, oldest first; empty if there are none or they cannot be read."""
    path = state_dir() / FILE
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        return ()


@lru_cache(maxsize=2)
def _read(path: Path, _changed_ns: int) -> tuple[RemedyOutcome, ...]:
    try:
        return tuple(convert(json.loads(read_regular(path))["outcomes"], list[RemedyOutcome]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def recorded_verdict(run: str) -> RemedyVerdict | None:
    """What is recorded of the remedy that a run was started with; None without any."""
    return next((outcome.verdict for outcome in read_outcomes() if outcome.after == run), None)


def record_outcome(outcome: RemedyOutcome) -> None:
    """Add an outcome to the record, in place of an earlier one of the same runs. Raises `OSError`."""
    runs = outcome.before, outcome.after
    others = tuple(outcome for outcome in read_outcomes() if (outcome.before, outcome.after) != runs)
    data = {"v": 1, "outcomes": to_json((*others, outcome)[-MOST_RECORDED:])}
    write_atomic(state_dir() / FILE, json.dumps(data) + "\n")

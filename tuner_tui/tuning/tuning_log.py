"""`trials.jsonl`: what happened in a tuning, one JSON line each. Append-only; a torn or unknown line is not there.

A bound without end is written as null, which a bound that nobody knows is too: neither keeps a change from being tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter, ValidationError

from tuner_tui.core.line_files import LineAppender
from tuner_tui.tuning.trial import Skipped, Trial, Tried, Verdict
from tuner_tui.tuning.tuning_folder import TuningFolder

LOG_VERSION = 1
Ending = Literal["finished", "aborted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Somebody began, or went on, to work on it. `limit_bytes` of `capacity_bytes` is what a trial may take."""

    t: float
    kind: Literal["begun"] = "begun"
    v: int = LOG_VERSION
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    deadline_t: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBegun:
    """`trial` runs as `run`; `left_low_s` to `left_high_s` is the time left, it included."""

    t: float
    trial: Trial
    run: str
    kind: Literal["trial-begun"] = "trial-begun"
    v: int = LOG_VERSION
    left_low_s: float | None = None
    left_high_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDone:
    """A trial was measured, or failed. `skipped` is what is not to be tried as known then; `unreachable` names the
    settings that this run showed not to reach the training. `limit_bytes` of `capacity_bytes` may be taken from now on.
    """

    t: float
    tried: Tried
    kind: Literal["trial-done"] = "trial-done"
    v: int = LOG_VERSION
    skipped: tuple[Skipped, ...] = ()
    unreachable: tuple[str, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningEnded:
    """Nobody works on it any longer. `preset` is the file that the winner was saved to; `sentence` says what is wrong
    where it failed, and what is to be said besides where it did not. `early`: time was short, more could be tried."""

    t: float
    status: Ending
    kind: Literal["ended"] = "ended"
    v: int = LOG_VERSION
    verdict: Verdict | None = None
    preset: str | None = None
    sentence: str = ""
    early: bool = False


Entry = Begun | TrialBegun | TrialDone | TuningEnded
_ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Discriminator("kind")])


def encode_entry(entry: Entry) -> bytes:
    """The entry as one line, newline included."""
    return _ENTRY.dump_json(entry) + b"\n"


def decode_entry(line: bytes) -> Entry | None:
    """The entry of one line; None for a torn line, an unknown kind, a newer version or wrong types."""
    try:
        entry = _ENTRY.validate_json(line)
    except ValidationError:
        return None
    return entry if entry.v <= LOG_VERSION else None


class TuningLog:
    """Writes to it. A disk that takes no more ends the tuning: what was not written down would be done again."""

    def __init__(self, folder: TuningFolder) -> None:
        """Opens the file. Raises `OSError`."""
        self._file = LineAppender(folder.trials)

    def add(self, entry: Entry) -> None:
        """Append. Raises `OSError`."""
        self._file.append(encode_entry(entry))


def tried_in(entries: Iterable[Entry]) -> tuple[Tried, ...]:
    """The trials that are done, in their order."""
    return tuple(entry.tried for entry in entries if isinstance(entry, TrialDone))


def read_entries(folder: TuningFolder) -> list[Entry]:
    """All entries; none where there is no file. Raises `OSError` where it cannot be read."""
    try:
        lines = folder.trials.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [entry for entry in map(decode_entry, lines) if entry is not None]

"""Plays the admission rule over time: trainings load, take their memory and end; strangers come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner_tui.scheduling.admission import Applicant, Demand, Holder, Place, decide

UNKNOWN_BYTES_SHARE = 0.6
"""What a training of unknown need takes of a card."""
LONGEST = 2000


@dataclass(frozen=True)
class Training:
    """Takes `taken_share` of its predicted peak once it has loaded for `loading` ticks; ends after `duration`."""

    count: int
    peak_bytes: int | None
    taken_share: float
    duration: int
    loading: int = 2


@dataclass(frozen=True)
class Stranger:
    """Holds `held_bytes` of a card from `since` to `until`; later where there is no room."""

    card: int
    held_bytes: int
    since: int
    until: int


@dataclass
class _Live:
    entry: str
    training: Training
    keys: tuple[str, ...]
    age: int = 0

    def held(self, card_bytes: int) -> int:
        if self.age < self.training.loading:
            return 0
        peak = self.training.peak_bytes
        return round((card_bytes * UNKNOWN_BYTES_SHARE if peak is None else peak) * self.training.taken_share)


@dataclass
class Played:
    """What happened: when each entry started, runs that went out of memory, and the share of card time in use while
    somebody waited."""

    started: dict[str, int] = field(default_factory=dict)
    out_of_memory: int = 0
    busy: list[bool] = field(default_factory=list)

    @property
    def busy_share(self) -> float:
        return sum(self.busy) / max(1, len(self.busy))


class Simulation:
    """Two or more equal cards."""

    def __init__(self, cards: int, card_bytes: int) -> None:
        self._keys = [f"GPU-{index}" for index in range(cards)]
        self._card_bytes = card_bytes

    def play(self, queued: Sequence[Training], strangers: Sequence[Stranger] = ()) -> Played:
        """Run until the queue is empty and all trainings have ended."""
        waiting = {f"q{number:03d}": training for number, training in enumerate(queued, start=1)}
        live: list[_Live] = []
        present: list[Stranger] = []
        pending = list(strangers)
        played = Played()
        for now in range(LONGEST):
            live = [one for one in live if one.age < one.training.duration + one.training.loading]
            present = [one for one in present if one.until > now]
            for one in [one for one in pending if one.since <= now]:
                if self._promised(live, present, one.card) + one.held_bytes <= self._card_bytes * 0.95:
                    pending.remove(one)
                    present.append(one)
            applicants = [
                Applicant(entry, Demand("gpu", training.count, training.peak_bytes))
                for entry, training in waiting.items()
            ]
            for decision in decide(self._places(live, present), applicants):
                if decision.starts:
                    live.append(_Live(decision.entry, waiting.pop(decision.entry), decision.keys))
                    played.started[decision.entry] = now
            played.out_of_memory += sum(self._used(live, present, index) > self._card_bytes for index in self._cards())
            if waiting:
                played.busy += [
                    any(key in one.keys for one in live) or any(one.card == index for one in present)
                    for index, key in enumerate(self._keys)
                ]
            for running in live:
                running.age += 1
            if not waiting and not live:
                return played
        return played

    def _cards(self) -> range:
        return range(len(self._keys))

    def _used(self, live: Sequence[_Live], present: Sequence[Stranger], index: int) -> int:
        held = sum(one.held(self._card_bytes) for one in live if self._keys[index] in one.keys)
        return held + sum(one.held_bytes for one in present if one.card == index)

    def _promised(self, live: Sequence[_Live], present: Sequence[Stranger], index: int) -> int:
        here = [one for one in live if self._keys[index] in one.keys]
        promised = sum(self._card_bytes if one.training.peak_bytes is None else one.training.peak_bytes for one in here)
        return promised + sum(one.held_bytes for one in present if one.card == index)

    def _places(self, live: Sequence[_Live], present: Sequence[Stranger]) -> list[Place]:
        places = []
        for index, key in enumerate(self._keys):
            here = [one for one in live if key in one.keys]
            claims = {
                one.entry: 0 if one.age > one.training.loading else max(0, (one.training.peak_bytes or 0) - held)
                for one in here
                for held in [one.held(self._card_bytes)]
            }
            holders = [Holder(one.entry, one.held(self._card_bytes) + claims[one.entry]) for one in here]
            holders += [Holder("a stranger", one.held_bytes) for one in present if one.card == index]
            places.append(
                Place(
                    key,
                    f"GPU {index}",
                    total_bytes=self._card_bytes,
                    used_bytes=self._used(live, present, index),
                    claimed_bytes=sum(claims.values()),
                    whole=any(one.training.peak_bytes is None and one.age <= one.training.loading for one in here),
                    occupied=bool(holders),
                    holders=tuple(holders),
                )
            )
        return places
